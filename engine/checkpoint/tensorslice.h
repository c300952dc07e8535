/* SPDX-License-Identifier: Apache-2.0
 * engine/checkpoint/tensorslice.h - moving a slice of a row-major tensor between a file and strided memory.
 */
#ifndef HD_ENGINE_TENSORSLICE_H
#define HD_ENGINE_TENSORSLICE_H
#include "engine/base/err.h"

struct hd_slice {
	int fd;
	int64_t base; /* bytes: where the tensor begins in the file */
	/* dtypes: equal, or memory HD_DTYPE_F32 and stored HD_DTYPE_BF16 (HD_DTYPE_F16: reading only) */
	uint32_t stored, memory;
	int ndim;                                 /* 0: a scalar */
	int64_t shape[HD_MAX_DIMS];               /* of the tensor */
	int64_t off[HD_MAX_DIMS], n[HD_MAX_DIMS]; /* the slice */
	int64_t stride[HD_MAX_DIMS];              /* of memory, in elements */
};
struct hd_slice_fault {
	int code;                 /* errno; 0: the file ended */
	int64_t at, wanted, done; /* bytes: position in the file, of one movement */
};

int hd_slice_allowed(uint32_t stored, uint32_t memory, int writing);
/* -> 0, or HD_EIO with *fault filled. */
int hd_slice_write(const struct hd_slice *s, const void *data, struct hd_slice_fault *fault);
int hd_slice_read(const struct hd_slice *s, void *data, struct hd_slice_fault *fault);

#endif
