/* SPDX-License-Identifier: Apache-2.0
 * engine/file/atomic_file.h - directories and files that are complete or absent.
 */
#ifndef HD_ENGINE_DIRS_H
#define HD_ENGINE_DIRS_H
#include "engine/base/err.h"

int hd_dir_make(const char *path, struct hd_err *err);     /* parents too; exists already: fine */
int hd_dir_writable(const char *path, struct hd_err *err); /* creates it, tries a file */
/* The file, or the directory, could be; makes nothing. */
int hd_path_writable(const char *path, int dir, struct hd_err *err);
int hd_dir_commit(const char *from, const char *to, struct hd_err *err); /* sync files and directories, rename */
int hd_dir_remove(const char *path, struct hd_err *err);                 /* with what is in it */
/* Written aside, synced, renamed; behind a link, the file that it names. What is no plain file is written in place. */
int hd_file_write(const char *path, const char *text, struct hd_err *err);
char *hd_file_read(const char *path, size_t *bytes, struct hd_err *err); /* malloc'ed, NUL behind */

#endif
