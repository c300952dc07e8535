/* SPDX-License-Identifier: Apache-2.0
 * engine/tensorfile/tensorfile.h - safetensors files that many processes write and read by slices at once.
 *
 * A file is planned (names, dtypes, shapes -> offsets, the same on every rank), and created by one rank. Then every
 * rank writes the slices that it owns, at their places. A slice is given in the coordinates of the stored tensor and
 * may be transposed on the way. So a logical tensor [out, in] can be a region of a stored [in, 3 * out].
 */
#ifndef HD_ENGINE_TENSORFILE_H
#define HD_ENGINE_TENSORFILE_H
#include "engine/base/err.h"
#include "engine/tensorfile/bytes_sum.h"

struct hd_tensorfile;

/* -- writing ------------------------------------------------------------------------------------------------------- */
struct hd_tensorfile *hd_tensorfile_plan(void);
/* Adds a tensor to a plan. In the file the widest elements come first, so that all are aligned; otherwise the order is
 * that of the calls. dtype: HD_DTYPE_F32, F64, BF16, F16, I64, I32 or U8. 0 dims: a scalar. */
int hd_tensorfile_add(struct hd_tensorfile *f, const char *name, uint32_t dtype, int ndim, const int64_t *shape);
void hd_tensorfile_meta(struct hd_tensorfile *f, const char *key, const char *value); /* __metadata__ */
const char *hd_tensorfile_meta_of(const struct hd_tensorfile *f, const char *key);    /* "": it has no such key */
int64_t hd_tensorfile_bytes(const struct hd_tensorfile *f);
/* Creates the file on one rank: writes the header and reserves the length, so that a full disk is found
 * here if possible. */
int hd_tensorfile_create(struct hd_tensorfile *f, const char *path, struct hd_err *err);
/* Opens the file on the other ranks, when it has been created. */
int hd_tensorfile_open(struct hd_tensorfile *f, const char *path, struct hd_err *err);
/* Writes a slice. off[] is where it begins in the stored tensor, and n[] its extents, in the order of the *stored*
 * tensor's dims. Memory is dense row-major, or stride[i] (elements) gives the step of index i. So a transposed or
 * padded source needs no copy. The dtype of memory is HD_DTYPE_F32 (converted if stored as BF16), or the stored one. */
int hd_tensorfile_write(struct hd_tensorfile *f, const char *name, uint32_t dtype, const void *data, const int64_t *off,
			const int64_t *n, const int64_t *stride, struct hd_err *err);
/* Makes further writes go into the image, even before the file is open; NULL: into the file. */
struct hd_image;
void hd_tensorfile_image(struct hd_tensorfile *f, struct hd_image *image);
/* Writes all that an image has gathered into the file, and to the disk. */
int hd_tensorfile_write_image(struct hd_tensorfile *f, const struct hd_image *image, struct hd_err *err);
/* Returns the sum of the bytes that this process has written to the file, with its header if it has created the file.
 * The sums of all processes add up to the file's (bytes_sum.h). */
hd_sum128 hd_tensorfile_sum(const struct hd_tensorfile *f);
int hd_tensorfile_sync(struct hd_tensorfile *f, struct hd_err *err); /* fsync; errors of earlier writes surface here */

/* -- reading ------------------------------------------------------------------------------------------------------- */
/* Opens a file for reading, and checks its header against its length. */
int hd_tensorfile_read(const char *path, struct hd_tensorfile **out, struct hd_err *err);
/* Adds up part `part` of `parts` of the file's bytes, as it is now. _1 does so for earlier checkpoints, whose sums have
 * 64 bits and leave out the header. */
int hd_tensorfile_sum_part(const char *path, int part, int parts, hd_sum128 *sum, struct hd_err *err);
int hd_tensorfile_sum_part_1(const char *path, int part, int parts, hd_sum128 *sum, struct hd_err *err);
/* Returns 0 if there is no such tensor. */
int hd_tensorfile_find(const struct hd_tensorfile *f, const char *name, uint32_t *dtype, int *ndim, int64_t *shape);
int hd_tensorfile_count(const struct hd_tensorfile *f);
const char *hd_tensorfile_name(const struct hd_tensorfile *f, int i);
int hd_tensorfile_load(struct hd_tensorfile *f, const char *name, uint32_t dtype, void *data, const int64_t *off,
		       const int64_t *n, const int64_t *stride, struct hd_err *err);
void hd_tensorfile_close(struct hd_tensorfile *f);

#endif
