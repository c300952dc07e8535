/* SPDX-License-Identifier: Apache-2.0
 * Files of the safetensors format: 8 bytes with the length of the header, the header (JSON: name -> dtype, shape,
 * data_offsets), and the data without gaps.
 *
 * Every rank makes the same plan, so offsets need no messages. Tensors are in the order in which they were added, but
 * wider types come first. The format has no padding, and readers map tensors in place, so each must begin at a multiple
 * of its element's size. tensorfile_read.c reads the files.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* fallocate */
#endif
#include "engine/tensorfile/tensorfile_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct stored_type types[] = {
	{ "F32", HD_DTYPE_F32, 32 },
	{ "BF16", HD_DTYPE_BF16, 16 },
	{ "F16", HD_DTYPE_F16, 16 },
	{ "F64", HD_DTYPE_F64, 64 },
	{ "I64", HD_DTYPE_I64, 64 },
	{ "I32", HD_DTYPE_I32, 32 },
	{ "U8", HD_DTYPE_U8, 8 },
	/* Only the size of these is known. */
	{ "BOOL", 0, 8 },
	{ "I8", 0, 8 },
	{ "I16", 0, 16 },
	{ "U16", 0, 16 },
	{ "U32", 0, 32 },
	{ "U64", 0, 64 },
	{ "F8_E4M3", 0, 8 },
	{ "F8_E5M2", 0, 8 },
	{ "C64", 0, 64 },
};

const struct stored_type *hd_stored_type(const char *text)
{
	for (size_t i = 0; i < HD_LEN(types); i++)
		if (!strcmp(types[i].text, text))
			return &types[i];
	return NULL;
}

static const char *type_text(uint32_t dtype)
{
	for (size_t i = 0; dtype && i < HD_LEN(types); i++) {
		if (types[i].dtype == dtype)
			return types[i].text;
	}
	return NULL;
}

int64_t hd_stored_bytes(int bits, int ndim, const int64_t *shape)
{
	int64_t n = bits / 8;

	for (int i = 0; i < ndim; i++) {
		if (shape[i] < 0 || __builtin_mul_overflow(n, shape[i], &n))
			return -1;
	}
	return n;
}

struct hd_tensorfile *hd_tensorfile_new(void)
{
	struct hd_tensorfile *f = hd_alloc(sizeof(*f));

	f->fd = f->past_cache.fd = -1;
	f->index = json_object();
	return f;
}

static struct stored_tensor *lookup(const struct hd_tensorfile *f, const char *name)
{
	json_t *i = json_object_get(f->index, name);

	return i ? &f->t[json_integer_value(i)] : NULL;
}

struct stored_tensor *hd_stored_append(struct hd_tensorfile *f, const char *name)
{
	struct stored_tensor *t;

	if (lookup(f, name) || json_object_set_new(f->index, name, json_integer((json_int_t)f->n)))
		return NULL;
	f->t = hd_grow(f->t, f->n, &f->cap, sizeof(*f->t));
	t = &f->t[f->n++];
	t->name = hd_strdup(name);
	return t;
}

void hd_tensorfile_close(struct hd_tensorfile *f)
{
	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	hd_past_cache_close(&f->past_cache);
	for (size_t i = 0; i < f->n; i++)
		free(f->t[i].name);
	free(f->t);
	json_decref(f->index);
	json_decref(f->meta);
	free(f->path);
	free(f->header);
	free(f);
}

/* -- planning -- */

struct hd_tensorfile *hd_tensorfile_plan(void)
{
	return hd_tensorfile_new();
}

int hd_tensorfile_add(struct hd_tensorfile *f, const char *name, uint32_t dtype, int ndim, const int64_t *shape)
{
	struct stored_tensor *t;
	int64_t bytes;

	if (f->fd >= 0 || !type_text(dtype) || ndim < 0 || ndim > HD_MAX_DIMS || !strcmp(name, HD_TENSORFILE_META))
		return HD_EINVAL;
	bytes = hd_stored_bytes((int)HD_BITS(dtype), ndim, shape);
	if (bytes < 0)
		return HD_EINVAL;
	t = hd_stored_append(f, name);
	if (!t)
		return HD_EINVAL;
	t->dtype = dtype;
	t->ndim = ndim;
	if (ndim)
		memcpy(t->shape, shape, (size_t)ndim * sizeof(*shape));
	t->bytes = bytes;
	free(f->header);
	f->header = NULL;
	return 0;
}

void hd_tensorfile_meta(struct hd_tensorfile *f, const char *key, const char *value)
{
	if (!f->meta)
		f->meta = json_object();
	json_object_set_new(f->meta, key, json_string(value));
	free(f->header);
	f->header = NULL;
}

const char *hd_tensorfile_meta_of(const struct hd_tensorfile *f, const char *key)
{
	const char *value = json_string_value(json_object_get(f->meta, key));

	return value ? value : "";
}

/* Gives each tensor its place and adds it to the header. */
static int64_t place_all(struct hd_tensorfile *f, json_t *header)
{
	int64_t at = 0;

	for (uint32_t bits = 64; bits >= 8; bits /= 2) {
		for (size_t i = 0; i < f->n; i++) {
			struct stored_tensor *t = &f->t[i];
			json_t *shape;

			if (HD_BITS(t->dtype) != bits)
				continue;
			t->begin = at;
			at += t->bytes;
			shape = json_array();
			for (int d = 0; d < t->ndim; d++)
				json_array_append_new(shape, json_integer(t->shape[d]));
			json_object_set_new(header, t->name,
					    json_pack("{s:s, s:o, s:[I,I]}", "dtype", type_text(t->dtype), "shape",
						      shape, "data_offsets", (json_int_t)t->begin, (json_int_t)at));
		}
	}
	return at;
}

static void seal(struct hd_tensorfile *f)
{
	json_t *header;
	uint64_t length, padded;
	int64_t data;
	char *text;

	if (f->header)
		return;
	header = json_object();
	if (f->meta)
		json_object_set(header, HD_TENSORFILE_META, f->meta);
	data = place_all(f, header);
	text = json_dumps(header, JSON_COMPACT);
	length = strlen(text);
	padded = (length + 7) / 8 * 8;
	f->header = hd_alloc(8 + padded);
	memcpy(f->header, &padded, 8);
	memcpy(f->header + 8, text, length);
	memset(f->header + 8 + length, ' ', padded - length);
	f->data = (int64_t)(8 + padded);
	f->total = f->data + data;
	free(text);
	json_decref(header);
}

int64_t hd_tensorfile_bytes(const struct hd_tensorfile *f)
{
	seal((struct hd_tensorfile *)(uintptr_t)f); /* only fills a cache, which changes no answer */
	return f->total;
}

/* -- opening for writing -- */

int hd_tensorfile_error(const struct hd_tensorfile *f, const char *doing, struct hd_err *err)
{
	return hd_err_set(err, HD_EIO, "%s: %s: %s", f->path, doing, strerror(errno));
}

static int write_all(int fd, const char *bytes, int64_t count)
{
	for (int64_t done = 0; done < count;) {
		ssize_t n = pwrite(fd, bytes + done, (size_t)(count - done), done);

		if (n < 0 && errno != EINTR)
			return -1;
		done += n > 0 ? n : 0;
	}
	return 0;
}

/* Reserves room with the system call, not with posix_fallocate. Where a file system does not support that,
 * posix_fallocate writes into each block. That takes minutes for a large file, and even then nothing is known about
 * the next second. */
static int reserve(int fd, int64_t bytes)
{
	if (!fallocate(fd, 0, 0, bytes))
		return 0;
	if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
		return -1;
	return ftruncate(fd, bytes);
}

void hd_tensorfile_set_path(struct hd_tensorfile *f, const char *path)
{
	free(f->path);
	f->path = hd_strdup(path);
}

int hd_tensorfile_create(struct hd_tensorfile *f, const char *path, struct hd_err *err)
{
	char doing[80];

	seal(f);
	hd_tensorfile_set_path(f, path);
	f->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (f->fd < 0)
		return hd_tensorfile_error(f, "cannot be created", err);
	f->writing = 1;
	hd_past_cache_open(&f->past_cache, path);
	snprintf(doing, sizeof(doing), "no room for its %" PRId64 " bytes", f->total);
	if (!reserve(f->fd, f->total) && !write_all(f->fd, f->header, f->data)) {
		f->sum += hd_bytes_sum(f->header, f->data, 0);
		return 0;
	}
	hd_tensorfile_error(f, doing, err);
	close(f->fd);
	f->fd = -1;
	unlink(path); /* else it keeps the disk full */
	return HD_EIO;
}

static int same_header(struct hd_tensorfile *f, struct hd_err *err)
{
	struct stat st;
	char *theirs;
	int same;

	if (fstat(f->fd, &st))
		return hd_tensorfile_error(f, "cannot be read", err);
	if (st.st_size != f->total)
		return hd_err_set(err, HD_EIO, "%s: has %" PRId64 " bytes, this rank's plan %" PRId64, f->path,
				  (int64_t)st.st_size, f->total);
	theirs = hd_alloc((size_t)f->data);
	same = pread(f->fd, theirs, (size_t)f->data, 0) == f->data && !memcmp(theirs, f->header, (size_t)f->data);
	free(theirs);
	if (!same)
		return hd_err_set(err, HD_EIO, "%s: its header (%" PRId64 " bytes) is not that of this rank's plan",
				  f->path, f->data);
	return 0;
}

int hd_tensorfile_open(struct hd_tensorfile *f, const char *path, struct hd_err *err)
{
	seal(f);
	hd_tensorfile_set_path(f, path);
	f->fd = open(path, O_RDWR | O_CLOEXEC);
	if (f->fd < 0)
		return hd_tensorfile_error(f, "cannot be opened", err);
	f->writing = 1;
	hd_past_cache_open(&f->past_cache, path);
	return same_header(f, err);
}

int hd_tensorfile_sync(struct hd_tensorfile *f, struct hd_err *err)
{
	if (f->fd >= 0 && fsync(f->fd))
		return hd_tensorfile_error(f, "cannot be written to disk", err);
	return 0;
}

void hd_tensorfile_image(struct hd_tensorfile *f, struct hd_image *image)
{
	seal(f);
	f->image = image;
}

/* -- slices -- */

static int check_range(const struct hd_tensorfile *f, const struct stored_tensor *t, const struct hd_slice *s,
		       struct hd_err *err)
{
	for (int i = 0; i < t->ndim; i++) {
		if (s->off[i] < 0 || s->n[i] < 0 || s->off[i] > t->shape[i] || s->n[i] > t->shape[i] - s->off[i])
			return hd_err_set(err, HD_EINVAL,
					  "%s: tensor %s: dim %d: %" PRId64 " elements from %" PRId64
					  " on, but it has %" PRId64,
					  f->path, t->name, i, s->n[i], s->off[i], t->shape[i]);
	}
	return 0;
}

static int slice(struct hd_tensorfile *f, const char *name, uint32_t dtype, const int64_t *off, const int64_t *n,
		 const int64_t *stride, struct hd_slice *s, struct hd_err *err)
{
	const struct stored_tensor *t = lookup(f, name);
	int64_t step = 1;

	if (!t)
		return hd_err_set(err, HD_EINVAL, "%s: has no tensor %s", f->path ? f->path : "(not open)", name);
	if (f->fd < 0 && !f->image)
		return hd_err_set(err, HD_EBUG, "tensor %s: its file is not open", name);
	if (!hd_slice_allowed(t->dtype, dtype, f->writing || f->image))
		return hd_err_set(err, HD_ENOTSUP, "%s: tensor %s: stored as %s, cannot be %s as %s", f->path, name,
				  t->dtype ? type_text(t->dtype) : "a dtype that only other programs use",
				  f->writing ? "given" : "read", type_text(dtype) ? type_text(dtype) : "that type");
	*s = (struct hd_slice){ .fd = f->fd,
				.past_cache = &f->past_cache,
				.image = f->image,
				.sum = &f->sum,
				.base = f->data + t->begin,
				.stored = t->dtype,
				.memory = dtype,
				.ndim = t->ndim };
	for (int i = t->ndim - 1; i >= 0; i--) {
		s->shape[i] = t->shape[i];
		s->off[i] = off ? off[i] : 0;
		s->n[i] = n ? n[i] : t->shape[i] - s->off[i];
		s->stride[i] = stride ? stride[i] : step;
		step = (int64_t)((uint64_t)step * (uint64_t)s->n[i]); /* may wrap if the slice has no elements */
	}
	return check_range(f, t, s, err);
}

static int report(const struct hd_tensorfile *f, const char *name, const struct hd_slice_fault *w, struct hd_err *err)
{
	return hd_err_set(err, HD_EIO, "%s: tensor %s: %s %" PRId64 " of %" PRId64 " bytes at %" PRId64 ": %s", f->path,
			  name, f->writing ? "wrote" : "read", w->done, w->wanted, w->at,
			  w->code ? strerror(w->code) : "the file ends there");
}

int hd_tensorfile_write(struct hd_tensorfile *f, const char *name, uint32_t dtype, const void *data, const int64_t *off,
			const int64_t *n, const int64_t *stride, struct hd_err *err)
{
	struct hd_slice_fault fault;
	struct hd_slice s;

	HD_TRY(slice(f, name, dtype, off, n, stride, &s, err));
	return hd_slice_write(&s, data, &fault) ? report(f, name, &fault, err) : 0;
}

int hd_tensorfile_write_image(struct hd_tensorfile *f, const struct hd_image *image, struct hd_err *err)
{
	const struct hd_slice s = { .fd = f->fd, .past_cache = &f->past_cache, .sum = &f->sum };
	struct hd_slice_fault w;

	for (size_t i = 0; i < image->n; i++) {
		const struct hd_image_range *r = &image->range[i];

		if (hd_range_write(&s, image->memory + r->memory, r->n, r->at, &w))
			return report(f, "(several)", &w, err);
	}
	return hd_tensorfile_sync(f, err);
}

hd_sum128 hd_tensorfile_sum(const struct hd_tensorfile *f)
{
	return f->sum;
}

int hd_tensorfile_load(struct hd_tensorfile *f, const char *name, uint32_t dtype, void *data, const int64_t *off,
		       const int64_t *n, const int64_t *stride, struct hd_err *err)
{
	struct hd_slice_fault fault;
	struct hd_slice s;

	HD_TRY(slice(f, name, dtype, off, n, stride, &s, err));
	return hd_slice_read(&s, data, &fault) ? report(f, name, &fault, err) : 0;
}

/* -- what there is -- */

int hd_tensorfile_find(const struct hd_tensorfile *f, const char *name, uint32_t *dtype, int *ndim, int64_t *shape)
{
	const struct stored_tensor *t = lookup(f, name);

	if (!t)
		return 0;
	if (dtype)
		*dtype = t->dtype;
	if (ndim)
		*ndim = t->ndim;
	if (shape)
		memcpy(shape, t->shape, (size_t)t->ndim * sizeof(*shape));
	return 1;
}

int hd_tensorfile_count(const struct hd_tensorfile *f)
{
	return (int)f->n;
}

const char *hd_tensorfile_name(const struct hd_tensorfile *f, int i)
{
	return f->t[i].name;
}
