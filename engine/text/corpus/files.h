/* SPDX-License-Identifier: Apache-2.0
 * engine/text/corpus/files.h - finds the files of a corpus, and reads their bytes.
 */
#ifndef HD_ENGINE_TEXT_CORPUS_FILES_H
#define HD_ENGINE_TEXT_CORPUS_FILES_H
#include "engine/base/err.h"
#include <time.h>

struct stat;
enum hd_text_format { HD_FORMAT_AUTO, HD_FORMAT_TEXT, HD_FORMAT_JSONL };

struct hd_files {
	struct hd_file {
		char *path;
		int64_t bytes; /* as stored, so compressed for a compressed file */
		uint64_t device, inode;
		struct timespec modified, changed;
	} * all;
	size_t n, cap;
	int64_t bytes;
};
/* Lists the files of all names, in their order. Each name is a file, a directory (all files below it, sorted by name,
 * except those that begin with a dot) or a pattern with * ? [. */
int hd_files_find(const char *const *names, size_t n, struct hd_files *out, struct hd_err *err);
/* Appends path unchanged; st is NULL if no such file exists. */
void hd_files_add(struct hd_files *f, const char *path, const struct stat *st);
void hd_files_release(struct hd_files *f);
/* Returns a hash of absolute paths, sizes and times of modification, which is the same after a restart of the host. */
uint64_t hd_files_hash(const struct hd_files *f);
/* Returns a hash that also covers device, inode and time of change, which only this host knows. Files with different
 * bytes have a different hash, even if their time of modification was set back. So does a copy with the same bytes. */
uint64_t hd_files_hash_here(const struct hd_files *f);

/* Returns HD_FORMAT_JSONL for .jsonl, .ndjson and .json, also followed by .gz or .zst; else HD_FORMAT_TEXT. */
int hd_format_of(const char *path);

struct hd_reader; /* reads the bytes of a file; gzip and zstd, recognized by their first bytes, are decompressed */
int hd_reader_open(const char *path, struct hd_reader **out, struct hd_err *err);
void hd_reader_close(struct hd_reader *r);
int64_t hd_reader_get(struct hd_reader *r, void *to, size_t n,
		      struct hd_err *err); /* returns the bytes read, fewer than n only at the end */
int hd_reader_skip(struct hd_reader *r, int64_t bytes, struct hd_err *err);
int64_t hd_reader_place(const struct hd_reader *r); /* how many bytes of the file as stored were read, for progress */

/* Refuses text[0, n), which begins at byte `at` of a file, if it contains a NUL or the file begins as a different
 * format does. takes ends the message: it tells what is accepted. */
int hd_check_text(const char *path, const char *text, size_t n, int64_t at, const char *takes, struct hd_err *err);
/* Does the same for about the first `most` bytes of a file. They are read, not mapped, so that they do not count as
 * memory of the process. */
int hd_check_text_file(const char *path, int64_t most, const char *takes, struct hd_err *err);
/* Returns the warning about bytes that count as U+FFFD; the caller frees it. */
char *hd_invalid_text(const char *path, int64_t bad, int64_t bytes);

#endif
