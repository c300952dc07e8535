/* SPDX-License-Identifier: Apache-2.0
 * Reads the bytes of a file. A gzip file may have several members, and a zstd file several frames.
 */
#include <config.h>
#include "engine/text/corpus/files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
#define PACKED 128 /* bytes; so few that even the short files of t/fuzz take several reads */
#else
#define PACKED (256 << 10)
#endif

enum { PLAIN, GZIP, ZSTD };
struct hd_reader {
	char *path;
	int fd, kind;
	int ended; /* a member or frame is complete */
	char *packed;
	size_t from, to; /* the unread range of packed */
	int64_t place;   /* bytes of the file read so far */
	z_stream z;
	ZSTD_DStream *zstd;
};

static int64_t read_file(struct hd_reader *r, void *to, size_t n, struct hd_err *err)
{
	ssize_t k;

	do {
		k = read(r->fd, to, n);
	} while (k < 0 && errno == EINTR);
	if (k < 0)
		return hd_err_set(err, HD_EIO, "%s: %s", r->path, strerror(errno));
	r->place += k;
	return k;
}

/* Reads the next bytes into packed. Returns their number, 0 at the end of the file, or an error. */
static int64_t fill(struct hd_reader *r, struct hd_err *err)
{
	int64_t k = read_file(r, r->packed, PACKED, err);

	r->from = 0;
	r->to = k > 0 ? (size_t)k : 0;
	return k;
}

static int broken(const struct hd_reader *r, const char *why, struct hd_err *err)
{
	return hd_err_set(err, HD_EIO, "%s: cannot be decompressed after byte %lld: %s", r->path,
			  (long long)(r->place - (int64_t)(r->to - r->from)), why);
}

/* Returns whether a file begins with a frame of zstd, or with one that decoders skip, as pzstd writes it. */
static int is_zstd(const struct hd_reader *r)
{
	const unsigned char *p = (const unsigned char *)r->packed;

	if (r->to < 4)
		return 0;
	return !memcmp(p, "\x28\xb5\x2f\xfd", 4) || (p[0] >> 4 == 5 && !memcmp(p + 1, "\x2a\x4d\x18", 3));
}

int hd_reader_open(const char *path, struct hd_reader **out, struct hd_err *err)
{
	struct hd_reader *r = hd_alloc(sizeof(*r));
	int rc = HD_OK;

	r->path = hd_strdup(path);
	r->packed = hd_alloc(PACKED);
	r->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (r->fd < 0)
		rc = hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	else if (fill(r, err) < 0)
		rc = err->code;
	if (r->to >= 2 && !memcmp(r->packed, "\x1f\x8b", 2))
		r->kind = GZIP;
	else if (is_zstd(r))
		r->kind = ZSTD;
	if (r->kind == GZIP && inflateInit2(&r->z, 15 + 16) != Z_OK)
		rc = hd_err_set(err, HD_ENOMEM, "%s: no memory to decompress it", path);
	if (r->kind == ZSTD) {
		r->zstd = ZSTD_createDStream();
		ZSTD_initDStream(r->zstd);
	}
	if (rc < 0)
		hd_reader_close(r);
	else
		*out = r;
	return rc;
}

void hd_reader_close(struct hd_reader *r)
{
	if (!r)
		return;
	if (r->fd >= 0)
		close(r->fd);
	if (r->kind == GZIP)
		inflateEnd(&r->z);
	ZSTD_freeDStream(r->zstd);
	free(r->packed);
	free(r->path);
	free(r);
}

/* The get_ functions each move or decompress bytes from packed into to[0, n), and return their number. */
static int64_t get_gzip(struct hd_reader *r, void *to, size_t n, struct hd_err *err)
{
	int rc;

	if (r->ended) {
		inflateReset(&r->z);
		r->ended = 0;
	}
	r->z.next_in = (unsigned char *)r->packed + r->from;
	r->z.avail_in = (unsigned)(r->to - r->from);
	r->z.next_out = to;
	r->z.avail_out = (unsigned)n;
	rc = inflate(&r->z, Z_NO_FLUSH);
	r->from = r->to - r->z.avail_in;
	if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
		return broken(r, r->z.msg ? r->z.msg : "it is damaged", err);
	r->ended = rc == Z_STREAM_END;
	return (int64_t)(n - r->z.avail_out);
}

static int64_t get_zstd(struct hd_reader *r, void *to, size_t n, struct hd_err *err)
{
	ZSTD_inBuffer in = { r->packed, r->to, r->from };
	ZSTD_outBuffer out = { to, n, 0 };
	size_t left = ZSTD_decompressStream(r->zstd, &out, &in);

	if (ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge)
		return broken(r, "its window is larger than 128 MB (zstd --long); zstd -d --long=31 decompresses it",
			      err);
	if (ZSTD_isError(left))
		return broken(r, ZSTD_getErrorName(left), err);
	r->from = in.pos;
	r->ended = !left;
	return (int64_t)out.pos;
}

static int64_t get_plain(struct hd_reader *r, void *to, size_t n)
{
	size_t k = r->to - r->from < n ? r->to - r->from : n;

	memcpy(to, r->packed + r->from, k);
	r->from += k;
	return (int64_t)k;
}

static int64_t get_some(struct hd_reader *r, void *to, size_t n, struct hd_err *err)
{
	if (r->ended && r->from == r->to) /* more of the file must be read to tell whether another member follows */
		return 0;
	if (n > 1u << 30) /* zlib counts in 32 bits */
		n = 1u << 30;
	return r->kind == GZIP   ? get_gzip(r, to, n, err)
	       : r->kind == ZSTD ? get_zstd(r, to, n, err)
				 : get_plain(r, to, n);
}

int64_t hd_reader_get(struct hd_reader *r, void *to, size_t n, struct hd_err *err)
{
	size_t have = 0;
	int64_t k, more;

	while (have < n) {
		k = get_some(r, (char *)to + have, n - have, err);
		HD_TRY((int)(k < 0 ? k : 0));
		have += (size_t)k;
		if (k || r->from < r->to)
			continue;
		more = fill(r, err);
		HD_TRY((int)(more < 0 ? more : 0));
		if (more)
			continue;
		if (r->kind != PLAIN && !r->ended)
			return broken(r, "it ends too early", err);
		break;
	}
	return (int64_t)have;
}

int hd_reader_skip(struct hd_reader *r, int64_t bytes, struct hd_err *err)
{
	char *waste = hd_alloc(PACKED);
	int64_t k = 0;

	while (bytes > 0 && (k = hd_reader_get(r, waste, (size_t)(bytes < PACKED ? bytes : PACKED), err)) > 0)
		bytes -= k;
	free(waste);
	if (k < 0)
		return err->code;
	return bytes ? hd_err_set(err, HD_EIO, "%s: is shorter than it was, by %lld bytes", r->path, (long long)bytes)
		     : HD_OK;
}

int64_t hd_reader_place(const struct hd_reader *r)
{
	return r->place;
}
