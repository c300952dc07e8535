/* SPDX-License-Identifier: Apache-2.0
 * Reads files of the safetensors format. A file is trusted only as far as its header agrees with itself and with the
 * length.
 */
#include <config.h>
#include "engine/tensorfile/tensorfile_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX 100000000        /* bytes; the limit of other readers */
#define FARTHEST ((int64_t)1 << 62) /* bytes: no file is so long, and sums do not overflow */

static int bad(const struct hd_tensorfile *f, const char *name, struct hd_err *err, const char *fmt, ...)
	HD_PRINTF(4, 5);
static int bad(const struct hd_tensorfile *f, const char *name, struct hd_err *err, const char *fmt, ...)
{
	char text[400];
	va_list v;

	va_start(v, fmt);
	vsnprintf(text, sizeof(text), fmt, v);
	va_end(v);
	return hd_err_set(err, HD_EIO, "%s: tensor %s: %s", f->path, name, text);
}

static int parse_shape(struct hd_tensorfile *f, struct stored_tensor *t, json_t *shape, struct hd_err *err)
{
	if (json_array_size(shape) > HD_MAX_DIMS)
		return bad(f, t->name, err, "%zu dims, but at most %d are possible", json_array_size(shape),
			   HD_MAX_DIMS);
	t->ndim = (int)json_array_size(shape);
	for (int i = 0; i < t->ndim; i++) {
		json_t *n = json_array_get(shape, (size_t)i);

		if (!json_is_integer(n) || json_integer_value(n) < 0)
			return bad(f, t->name, err, "dim %d is not a size", i);
		t->shape[i] = json_integer_value(n);
	}
	return 0;
}

static int parse_tensor(struct hd_tensorfile *f, const char *name, json_t *j, struct hd_err *err)
{
	const char *dtype;
	json_int_t begin, end;
	json_t *shape;
	struct stored_tensor *t = hd_stored_append(f, name);
	const struct stored_type *type;
	int64_t bytes;

	if (!t ||
	    json_unpack(j, "{s:s, s:o, s:[I,I!]}", "dtype", &dtype, "shape", &shape, "data_offsets", &begin, &end) ||
	    !json_is_array(shape))
		return bad(f, name, err, "its entry needs dtype, shape and two data_offsets");
	HD_TRY(parse_shape(f, t, shape, err));
	if (begin < 0 || end < begin || end > FARTHEST)
		return bad(f, name, err, "data_offsets are %lld and %lld", (long long)begin, (long long)end);
	t->begin = begin;
	t->bytes = end - begin;
	type = hd_stored_type(dtype);
	if (!type) /* perhaps nothing ever reads it */
		return 0;
	t->dtype = type->dtype;
	bytes = hd_stored_bytes(type->bits, t->ndim, t->shape);
	if (bytes < 0)
		return bad(f, name, err, "its shape is more than 2^63 bytes as %s", dtype);
	if (bytes != t->bytes)
		return bad(f, name, err, "data_offsets give %lld bytes, but its shape as %s gives %lld",
			   (long long)t->bytes, dtype, (long long)bytes);
	return 0;
}

static int by_begin(const void *a, const void *b)
{
	const struct stored_tensor *x = *(const struct stored_tensor *const *)a,
				   *y = *(const struct stored_tensor *const *)b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Checks that the data have no gaps or overlaps, and are as long as the file is. */
static int check_cover(struct hd_tensorfile *f, struct hd_err *err)
{
	struct stored_tensor **t = hd_alloc((f->n + 1) * sizeof(struct stored_tensor *));
	int64_t at = 0;
	int rc = 0;

	for (size_t i = 0; i < f->n; i++)
		t[i] = &f->t[i];
	qsort(t, f->n, sizeof(struct stored_tensor *), by_begin);
	for (size_t i = 0; i < f->n && !rc; i++) {
		if (t[i]->begin != at)
			rc = bad(f, t[i]->name, err, "%s: begins at %" PRId64 ", %s ends at %" PRId64,
				 t[i]->begin < at ? "overlaps" : "a gap before it", t[i]->begin,
				 i ? t[i - 1]->name : "the header", at);
		at = t[i]->begin + t[i]->bytes;
	}
	free(t);
	if (!rc && f->data + at != f->total)
		rc = hd_err_set(err, HD_EIO, "%s: has %" PRId64 " bytes, its header says %" PRId64 "%s", f->path,
				f->total, f->data + at, f->total < f->data + at ? ": truncated" : "");
	return rc;
}

static int parse_header(struct hd_tensorfile *f, const char *text, size_t bytes, struct hd_err *err)
{
	json_error_t where;
	json_t *j = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where), *entry;
	const char *name;
	int rc = 0;

	if (!j || !json_is_object(j)) {
		json_decref(j);
		return hd_err_set(err, HD_EIO, "%s: its header is not a JSON object: %s at byte %d", f->path,
				  j ? "a list" : where.text, j ? 0 : where.position);
	}
	json_object_foreach(j, name, entry) {
		if (!strcmp(name, HD_TENSORFILE_META))
			f->meta = json_incref(entry);
		else if (!rc)
			rc = parse_tensor(f, name, entry, err);
	}
	json_decref(j);
	return rc ? rc : check_cover(f, err);
}

static int read_header(struct hd_tensorfile *f, struct hd_err *err)
{
	uint64_t length = 0;
	struct stat st;
	char *text;
	int rc;

	if (fstat(f->fd, &st))
		return hd_tensorfile_error(f, "cannot be read", err);
	f->total = st.st_size;
	if (!S_ISREG(st.st_mode) || pread(f->fd, &length, 8, 0) != 8)
		return hd_err_set(err, HD_EIO, "%s: has %" PRId64 " bytes, a safetensors file at least 8", f->path,
				  f->total);
	if (length > HEADER_MAX || (int64_t)length > f->total - 8)
		return hd_err_set(err, HD_EIO,
				  "%s: has %" PRId64 " bytes, its header alone says %" PRIu64
				  ": truncated, or not a safetensors file",
				  f->path, f->total, length);
	f->data = (int64_t)(8 + length);
	text = hd_alloc(length + 1);
	if (pread(f->fd, text, length, 8) == (ssize_t)length)
		rc = parse_header(f, text, length, err);
	else
		rc = hd_tensorfile_error(f, "its header cannot be read", err);
	free(text);
	return rc;
}

int hd_tensorfile_read(const char *path, struct hd_tensorfile **out, struct hd_err *err)
{
	struct hd_tensorfile *f = hd_tensorfile_new();
	int rc;

	hd_tensorfile_set_path(f, path);
	f->fd = open(path, O_RDONLY | O_CLOEXEC);
	rc = f->fd < 0 ? hd_tensorfile_error(f, "cannot be opened", err) : read_header(f, err);
	if (rc) {
		hd_tensorfile_close(f);
		return rc;
	}
	*out = f;
	return 0;
}

#define AT_ONCE ((int64_t)8 << 20) /* bytes */

static int read_block(const struct hd_tensorfile *f, char *buffer, int64_t at, int64_t *bytes, struct hd_err *err)
{
	int64_t count = f->total - at < AT_ONCE ? f->total - at : AT_ONCE, done = 0;

	while (done < count) {
		ssize_t n = pread(f->fd, buffer + done, (size_t)(count - done), at + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return hd_tensorfile_error(f, "cannot be read", err);
		done += n;
	}
	*bytes = count;
	return HD_OK;
}

static int sum_part(const char *path, int part, int parts, int earlier, hd_sum128 *sum, struct hd_err *err)
{
	int64_t from, n;
	struct hd_tensorfile *f;
	char *buffer;

	HD_TRY(hd_tensorfile_read(path, &f, err));
	buffer = hd_alloc((size_t)AT_ONCE);
	from = (earlier ? f->data : 0) + part * AT_ONCE;
	for (int64_t at = from; at < f->total && read_block(f, buffer, at, &n, err) >= 0; at += parts * AT_ONCE)
		*sum += earlier ? hd_bytes_sum_1(buffer, n, at) : hd_bytes_sum(buffer, n, at);
	free(buffer);
	hd_tensorfile_close(f);
	return err->code;
}

int hd_tensorfile_sum_part(const char *path, int part, int parts, hd_sum128 *sum, struct hd_err *err)
{
	return sum_part(path, part, parts, 0, sum, err);
}

int hd_tensorfile_sum_part_1(const char *path, int part, int parts, hd_sum128 *sum, struct hd_err *err)
{
	return sum_part(path, part, parts, 1, sum, err);
}
