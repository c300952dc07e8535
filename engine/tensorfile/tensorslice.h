/* SPDX-License-Identifier: Apache-2.0
 * engine/tensorfile/tensorslice.h - moves a slice of a row-major tensor between a file and strided memory.
 */
#ifndef HD_ENGINE_TENSORSLICE_H
#define HD_ENGINE_TENSORSLICE_H
#include "engine/tensorfile/bytes_sum.h"
#include "engine/tensorfile/image.h"

/* The file, opened once more to write past the page cache. A long write costs the processor at most a copy into the
 * buffer, and the disk is busy from the first byte on. */
struct hd_past_cache {
	int fd;       /* -1: this file system does not support it */
	char *buffer; /* aligned; NULL: not needed yet */
};

struct hd_slice {
	int fd;
	struct hd_past_cache *past_cache; /* for writing, or NULL */
	struct hd_image *image;           /* where writes go instead, or NULL */
	/* The sum of the bytes that are written to the file is added to it; or NULL. */
	hd_sum128 *sum;
	int64_t base; /* byte where the tensor begins in the file */
	/* dtypes: equal, or memory HD_DTYPE_F32 and stored HD_DTYPE_BF16 (HD_DTYPE_F16: reading only) */
	uint32_t stored, memory;
	int ndim;                                 /* 0: a scalar */
	int64_t shape[HD_MAX_DIMS];               /* of the tensor */
	int64_t off[HD_MAX_DIMS], n[HD_MAX_DIMS]; /* the slice */
	int64_t stride[HD_MAX_DIMS];              /* of memory, in elements */
};
struct hd_slice_fault {
	int code;                 /* errno; 0: the file ended */
	int64_t at, wanted, done; /* at: byte of the file; wanted, done: bytes of one movement */
};

void hd_past_cache_open(struct hd_past_cache *c, const char *path);
void hd_past_cache_close(struct hd_past_cache *c);
int hd_slice_allowed(uint32_t stored, uint32_t memory, int writing);
/* Return 0, or HD_EIO with *fault set. */
int hd_slice_write(const struct hd_slice *s, const void *data, struct hd_slice_fault *fault);
/* Writes a range of bytes as it is, such as one of an image. */
int hd_range_write(const struct hd_slice *s, char *bytes, int64_t count, int64_t at, struct hd_slice_fault *fault);
int hd_slice_read(const struct hd_slice *s, void *data, struct hd_slice_fault *fault);

#endif
