/* SPDX-License-Identifier: Apache-2.0
 * engine/file/same_file.h - whether two names lead to one file, so that output does not overwrite a file that is
 * needed.
 */
#ifndef HD_ENGINE_FILE_SAME_FILE_H
#define HD_ENGINE_FILE_SAME_FILE_H

/* Returns the absolute name, with links resolved; the caller frees it. The file need not exist yet, but its
 * directory must. Returns NULL, with errno set, on failure. */
char *hd_file_real(const char *path);
/* Returns 1 if both names are one regular file, by its device and inode. If neither exists yet, their hd_file_real
 * are compared. Devices and pipes lose nothing when they are written to, so they are never the same. */
int hd_file_same(const char *a, const char *b);

#endif
