/* SPDX-License-Identifier: Apache-2.0
 * engine/file/atomic_file.h - writes directories and files so that they are complete or absent.
 */
#ifndef HD_ENGINE_FILE_ATOMIC_FILE_H
#define HD_ENGINE_FILE_ATOMIC_FILE_H
#include "engine/base/err.h"

int hd_dir_make(const char *path, struct hd_err *err);     /* with its parents; no error if it exists */
int hd_dir_writable(const char *path, struct hd_err *err); /* creates it and writes a test file in it */
/* Checks that the file, or with `dir` the directory, could be written; creates nothing. */
int hd_path_writable(const char *path, int dir, struct hd_err *err);
/* Syncs `from` and all in it, then renames it. An older `to` is replaced. */
int hd_dir_commit(const char *from, const char *to, struct hd_err *err);
int hd_dir_remove(const char *path, struct hd_err *err); /* with its contents */
/* Writes a temporary file next to it, syncs and renames it. If path is a link, the file that it leads to is
 * replaced. A device or a pipe is written in place. */
int hd_file_write(const char *path, const char *text, struct hd_err *err);
int hd_file_write_bytes(const char *path, const char *bytes, size_t n, struct hd_err *err); /* may contain NULs */
char *hd_file_read(const char *path, size_t *bytes, struct hd_err *err); /* NUL-terminated; the caller frees it */

#endif
