/* SPDX-License-Identifier: Apache-2.0
 * engine/tensorfile/tensorfile_impl.h - what the planning, writing and reading of files share.
 */
#ifndef HD_ENGINE_TENSORFILE_IMPL_H
#define HD_ENGINE_TENSORFILE_IMPL_H
#include <jansson.h>
#include "engine/tensorfile/tensorfile.h"
#include "engine/tensorfile/tensorslice.h"

#define HD_TENSORFILE_META "__metadata__"

struct stored_tensor {
	char *name;
	uint32_t dtype; /* 0: a type in the file that Heddle does not use */
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
	hd_sum128 sum;          /* of the bytes that this process has written (bytes_sum.h) */
	struct hd_image *image; /* where writes go, or NULL; belongs to the caller */
	int writing;
	char *header;        /* of a plan: padded, with its length in front; NULL: not made yet */
	int64_t data, total; /* data: byte where the data begin; total: bytes of the file */
};
struct stored_type {
	const char *text;
	uint32_t dtype; /* 0: only known by its size */
	int bits;
};

const struct stored_type *hd_stored_type(const char *text); /* NULL: unknown */
/* Returns the bytes of a tensor, or -1 if they are more than a file can have or a size is negative. */
int64_t hd_stored_bytes(int bits, int ndim, const int64_t *shape);
struct hd_tensorfile *hd_tensorfile_new(void);
/* Appends a tensor with this name. Returns NULL if there is one already, or if the name is not UTF-8. */
struct stored_tensor *hd_stored_append(struct hd_tensorfile *f, const char *name);
int hd_tensorfile_error(const struct hd_tensorfile *f, const char *doing, struct hd_err *err);
void hd_tensorfile_set_path(struct hd_tensorfile *f, const char *path);

#endif
