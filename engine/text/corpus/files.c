/* SPDX-License-Identifier: Apache-2.0
 * Finds the files of a corpus, and checks that they are text.
 */
#include <config.h>
#include "engine/text/corpus/files.h"
#include "engine/base/hash.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int find(const char *path, struct hd_files *out, struct hd_err *err);

void hd_files_add(struct hd_files *f, const char *path, const struct stat *st)
{
	struct hd_file one = { .path = hd_strdup(path) };

	if (st) {
		one.bytes = st->st_size;
		one.device = st->st_dev;
		one.inode = st->st_ino;
		one.modified = st->st_mtim;
		one.changed = st->st_ctim;
	}
	f->all = hd_grow(f->all, f->n, &f->cap, sizeof(*f->all));
	f->all[f->n++] = one;
	f->bytes += one.bytes;
}

static int find_in(const char *dir, struct hd_files *out, struct hd_err *err)
{
	struct dirent **names = NULL;
	int n = scandir(dir, &names, NULL, alphasort), rc = HD_OK;

	if (n < 0)
		return hd_err_set(err, HD_EIO, "%s: %s", dir, strerror(errno));
	for (int i = 0; i < n; i++) {
		char *path = hd_format("%s/%s", dir, names[i]->d_name);

		if (rc >= 0 && names[i]->d_name[0] != '.')
			rc = find(path, out, err);
		free(path);
		free(names[i]);
	}
	free(names);
	return rc;
}

static int find(const char *path, struct hd_files *out, struct hd_err *err)
{
	struct stat st;

	if (stat(path, &st))
		return hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return find_in(path, out, err);
	if (!S_ISREG(st.st_mode))
		return hd_err_set(err, HD_EIO, "%s: neither a file nor a directory", path);
	hd_files_add(out, path, &st);
	return HD_OK;
}

static int find_pattern(const char *pattern, struct hd_files *out, struct hd_err *err)
{
	glob_t found = { 0 };
	int rc = HD_OK;

	if (glob(pattern, 0, NULL, &found))
		rc = hd_err_set(err, HD_EIO, "%s: no file matches", pattern);
	for (size_t i = 0; i < found.gl_pathc && rc >= 0; i++)
		rc = find(found.gl_pathv[i], out, err);
	globfree(&found);
	return rc;
}

int hd_files_find(const char *const *names, size_t n, struct hd_files *out, struct hd_err *err)
{
	for (size_t i = 0; i < n; i++) {
		size_t before = out->n;
		struct stat st;
		int pattern = stat(names[i], &st) && strpbrk(names[i], "*?[");

		HD_TRY(pattern ? find_pattern(names[i], out, err) : find(names[i], out, err));
		if (out->n == before)
			return hd_err_set(err, HD_EINVAL, "%s: the directory has no files", names[i]);
	}
	return HD_OK;
}

void hd_files_release(struct hd_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->all[i].path);
	free(f->all);
	memset(f, 0, sizeof(*f));
}

/* Seconds alone would not change for a file that is rewritten within the same second. */
static uint64_t add_time(uint64_t h, struct timespec t)
{
	return hd_hash_add(hd_hash_add(h, (uint64_t)t.tv_sec), (uint64_t)t.tv_nsec);
}

uint64_t hd_files_hash(const struct hd_files *f)
{
	uint64_t h = HD_HASH_START;

	for (size_t i = 0; i < f->n; i++) {
		char *whole = realpath(f->all[i].path, NULL);

		h = hd_hash_add_text(h, whole ? whole : f->all[i].path);
		h = hd_hash_add(h, (uint64_t)f->all[i].bytes);
		h = add_time(h, f->all[i].modified);
		free(whole);
	}
	return h;
}

uint64_t hd_files_hash_here(const struct hd_files *f)
{
	uint64_t h = hd_files_hash(f);

	for (size_t i = 0; i < f->n; i++) {
		h = hd_hash_add(hd_hash_add(h, f->all[i].device), f->all[i].inode);
		h = add_time(h, f->all[i].changed);
	}
	return h;
}

static int ends(const char *s, size_t n, const char *end)
{
	size_t m = strlen(end);

	return n > m && !strncmp(s + n - m, end, m);
}

int hd_format_of(const char *path)
{
	size_t n = strlen(path);

	if (ends(path, n, ".gz"))
		n -= 3;
	else if (ends(path, n, ".zst"))
		n -= 4;
	return ends(path, n, ".jsonl") || ends(path, n, ".ndjson") || ends(path, n, ".json") ? HD_FORMAT_JSONL
											     : HD_FORMAT_TEXT;
}

static const char *other_format(const char *first, size_t n)
{
	static const struct {
		const char *begins, *what;
	} known[] = {
		{ "\x93NUMPY", "an array of numpy (.npy)" },
		{ "PK\x03\x04", "a zip archive, or numpy's .npz" },
		{ "PAR1", "a Parquet file" },
		{ "ARROW1", "an Arrow file" },
		{ "\x1f\x8b", "compressed by gzip" },
		{ "\x28\xb5\x2f\xfd", "compressed by zstd" },
		{ "\xfd"
		  "7zXZ",
		  "compressed by xz" },
		{ "BZh", "compressed by bzip2" },
		{ "%PDF", "a PDF" },
		{ "\x7f"
		  "ELF",
		  "a program" },
		{ "\xff\xfe", "UTF-16" },
		{ "\xfe\xff", "UTF-16" },
	};

	for (size_t i = 0; i < HD_LEN(known); i++)
		if (n >= strlen(known[i].begins) && !memcmp(first, known[i].begins, strlen(known[i].begins)))
			return known[i].what;
	return NULL;
}

int hd_check_text(const char *path, const char *text, size_t n, int64_t at, const char *takes, struct hd_err *err)
{
	const char *what = at ? NULL : other_format(text, n), *nul = what ? NULL : memchr(text, 0, n);

	if (what)
		return hd_err_set(err, HD_EINVAL, "%s: is %s; %s", path, what, takes);
	if (nul)
		return hd_err_set(err, HD_EINVAL, "%s: is not text: its byte at offset %lld is 0; %s", path,
				  (long long)(at + (nul - text)), takes);
	return HD_OK;
}

int hd_check_text_file(const char *path, int64_t most, const char *takes, struct hd_err *err)
{
	enum { PIECE = 1 << 18 };
	int fd = open(path, O_RDONLY | O_CLOEXEC),
	    rc = fd < 0 ? hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno)) : HD_OK;
	char *piece = hd_alloc(PIECE);
	ssize_t n = 1;

	for (int64_t at = 0; rc >= 0 && n > 0 && at < most; at += n) {
		n = read(fd, piece, PIECE);
		if (n > 0)
			rc = hd_check_text(path, piece, (size_t)n, at, takes, err);
		else if (n < 0)
			rc = hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	}
	free(piece);
	if (fd >= 0)
		close(fd);
	return rc;
}

char *hd_invalid_text(const char *path, int64_t bad, int64_t bytes)
{
	return hd_format(
		"%s: bytes that are not valid UTF-8 count as U+FFFD: %lld of %lld (%.2g%%); iconv converts text from "
		"other encodings",
		path, (long long)bad, (long long)bytes, 100 * (double)bad / (double)bytes);
}
