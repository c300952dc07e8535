/* SPDX-License-Identifier: Apache-2.0
 * engine/tensorfile/tensorfile_impl.h - what planning, writing and reading a file share.
 */
#ifndef HD_ENGINE_TENSORFILE_IMPL_H
#define HD_ENGINE_TENSORFILE_IMPL_H
#include <jansson.h>
#include "engine/tensorfile/tensorfile.h"
#include "engine/tensorfile/tensorslice.h"

#define HD_TENSORFILE_META "__metadata__"

struct stored_tensor {
	char *name;
	uint32_t dtype; /* 0: a type of the file that is unknown here */
	int ndim;
	int64_t shape[HD_MAX_DIMS];
	int64_t begin, bytes; /* begin: from the start of the data */
};

struct hd_tensorfile {
	struct stored_tensor *t;
	size_t n, cap;
	json_t *index; /* name -> position in t */
	json_t *meta;  /* NULL: none */
	char *path;
	int fd; /* -1: not open */
	struct hd_past_cache past_cache;
	uint64_t sum;           /* of what this process has written (bytes_sum.h) */
	struct hd_image *image; /* where what is written goes; the caller's, or NULL */
	int writing;
	char *header;        /* of a plan: with its length in front, padded; NULL: to be made */
	int64_t data, total; /* bytes: where the data begins; of the file */
};
struct stored_type {
	const char *text;
	uint32_t dtype; /* 0: only known by its size */
	int bits;
};

const struct stored_type *hd_stored_type(const char *text); /* NULL: unknown */
/* Bytes of a tensor; -1: more than a file can have, or a negative size. */
int64_t hd_stored_bytes(int bits, int ndim, const int64_t *shape);
struct hd_tensorfile *hd_tensorfile_new(void);
/* Room for one more under this name; NULL: there is one already, or the name is not UTF-8. */
struct stored_tensor *hd_stored_append(struct hd_tensorfile *f, const char *name);
int hd_tensorfile_error(const struct hd_tensorfile *f, const char *doing, struct hd_err *err);
void hd_tensorfile_set_path(struct hd_tensorfile *f, const char *path);

#endif
