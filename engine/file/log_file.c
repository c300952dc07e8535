/* SPDX-License-Identifier: Apache-2.0
 * Files that only grow (log_file.h).
 */
#include <config.h>
#include "engine/file/log_file.h"
#include "engine/file/same_file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const struct hd_log_file *f, struct hd_err *err)
{
	return hd_err_set(err, HD_EIO, "%s: %s", f->path, strerror(errno));
}

static int open_plainly(const char *path, int flags, double wait)
{
	(void)wait;
	return open(path, flags | O_CLOEXEC, 0666);
}

static int open_with(int (*opens)(const char *path, int flags, double wait), const char *path, double wait,
		     struct hd_log_file *out, struct hd_err *err)
{
	*out = (struct hd_log_file){ .fd = opens(path, O_RDWR | O_APPEND | O_CREAT, wait) };
	if (out->fd < 0 &&
	    (errno == EACCES || errno == EINVAL)) /* a device or file that is writable but not readable */
		out->fd = opens(path, O_WRONLY | O_APPEND | O_CREAT, wait);
	if (out->fd < 0 && errno == EWOULDBLOCK)
		return hd_err_set(err, HD_EINVAL, "%s: another process is writing it; give this run another file",
				  path);
	if (out->fd < 0)
		return hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	out->path = hd_strdup(path);
	return HD_OK;
}

int hd_log_file_open(const char *path, struct hd_log_file *out, struct hd_err *err)
{
	return open_with(open_plainly, path, 0, out, err);
}

int hd_log_file_open_locked(const char *path, double wait, struct hd_log_file *out, struct hd_err *err)
{
	return open_with(hd_file_open_locked, path, wait, out, err);
}

/* Returns the file's length, or -1 if it is not a regular file. */
static off_t length(const struct hd_log_file *f)
{
	struct stat s;

	return fstat(f->fd, &s) || !S_ISREG(s.st_mode) ? -1 : s.st_size;
}

int hd_log_file_add(struct hd_log_file *f, const void *piece, size_t bytes, struct hd_err *err)
{
	off_t before = length(f);
	const char *at = piece;

	while (bytes) {
		ssize_t n = write(f->fd, at, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			fail(f, err);
			if (before >= 0 && ftruncate(f->fd, before))
				hd_log(HD_LOG_WARN, "%s: ends in the middle of a line", f->path);
			return err->code;
		}
		at += n;
		bytes -= (size_t)n;
	}
	return HD_OK;
}

int hd_log_file_take_back(struct hd_log_file *f, size_t bytes, struct hd_err *err)
{
	off_t n = length(f);

	return n >= (off_t)bytes && ftruncate(f->fd, n - (off_t)bytes) ? fail(f, err) : HD_OK;
}

size_t hd_log_file_end_line(struct hd_log_file *f)
{
	off_t n = length(f), keep = n;
	char last;

	while (keep > 0 && pread(f->fd, &last, 1, keep - 1) == 1 && last != '\n')
		keep--;
	return n > keep && !ftruncate(f->fd, keep) ? (size_t)(n - keep) : 0;
}

int hd_log_file_close(struct hd_log_file *f, struct hd_err *err)
{
	int rc = f->fd >= 0 && close(f->fd) ? fail(f, err) : HD_OK;

	f->fd = -1;
	free(f->path);
	f->path = NULL;
	return rc;
}

void hd_log_file_note(struct hd_log_state *s, const struct hd_err *why)
{
	if (why->code)
		s->why = *why;
	if (why->code && !s->lost++)
		hd_log(HD_LOG_WARN, "%s: %s; the run continues without writing to it", s->key, why->text);
	if (!why->code && s->lost) {
		hd_log(HD_LOG_WARN, "%s: is written again; %lld steps or saves are missing", s->key, s->lost);
		s->lost = 0;
	}
}

int hd_log_file_check(const struct hd_log_state *s, struct hd_err *err)
{
	return s->lost ? hd_err_set(err, s->why.code, "%s: %s; the last %lld steps or saves are missing", s->key,
				    s->why.text, s->lost)
		       : HD_OK;
}
