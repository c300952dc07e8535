/* SPDX-License-Identifier: Apache-2.0
 * engine/text/corpus/files.h - the files of a corpus, and the bytes in them.
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
		int64_t bytes; /* as the disk has them: of a compressed file the compressed ones */
		uint64_t device, inode;
		struct timespec modified, changed;
	} * all;
	size_t n, cap;
	int64_t bytes;
};
/* Each name is a file, a directory (all files below it, by name, but none that begins with a dot) or a pattern with
 * * ? [.  In the order of the names. */
int hd_files_find(const char *const *names, size_t n, struct hd_files *out, struct hd_err *err);
/* path as it is; st NULL: there is no such file. */
void hd_files_add(struct hd_files *f, const char *path, const struct stat *st);
void hd_files_release(struct hd_files *f);
/* A hash of whole paths, sizes and times of modification: the same after a restart of the host. */
uint64_t hd_files_hash(const struct hd_files *f);
/* The same with what only this host knows: device, inode, time of change. Other bytes have another hash, even where somebody
 * has set the time of modification. A copy with the same bytes has another one too. */
uint64_t hd_files_hash_here(const struct hd_files *f);

/* .jsonl, .ndjson and .json, also with .gz or .zst behind, are JSONL; else text. */
int hd_format_of(const char *path);

struct hd_reader; /* a file's bytes; gzip and zstd, which are known by how they begin, are unpacked */
int hd_reader_open(const char *path, struct hd_reader **out, struct hd_err *err);
void hd_reader_close(struct hd_reader *r);
int64_t hd_reader_get(struct hd_reader *r, void *to, size_t n,
		      struct hd_err *err); /* -> bytes; fewer than n: the end */
int hd_reader_skip(struct hd_reader *r, int64_t bytes, struct hd_err *err);
int64_t hd_reader_place(const struct hd_reader *r); /* in the file itself, for progress */

/* Refuses text[0, n) of a file, from its byte `at` on, if it begins as another format does or has a NUL.  takes: what would do. */
int hd_check_text(const char *path, const char *text, size_t n, int64_t at, const char *takes, struct hd_err *err);
/* The same of a file's first `most` bytes, which are read and not mapped: they do not count as memory of the process. */
int hd_check_text_file(const char *path, int64_t most, const char *takes, struct hd_err *err);
/* The warning about bytes that count as U+FFFD; malloc'ed. */
char *hd_invalid_text(const char *path, int64_t bad, int64_t bytes);

#endif
