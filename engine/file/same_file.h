/* SPDX-License-Identifier: Apache-2.0
 * engine/file/same_file.h - whether two names lead to one file, and whether another process writes it, so that output
 * does not overwrite a file that is needed.
 */
#ifndef HD_ENGINE_FILE_SAME_FILE_H
#define HD_ENGINE_FILE_SAME_FILE_H

/* Returns the absolute name, with links resolved; the caller frees it. The file need not exist yet, but its
 * directory must. Returns NULL, with errno set, on failure. */
char *hd_file_real(const char *path);
/* Returns 1 if both names are one regular file, by its device and inode. If neither exists yet, their hd_file_real
 * are compared. Devices and pipes lose nothing when they are written to, so they are never the same. */
int hd_file_same(const char *a, const char *b);

/* Opens a file with these flags of open, and locks it until it is closed. Waits up to `wait` seconds while another
 * process holds the lock. Returns the descriptor, or -1 with errno set: EWOULDBLOCK if the lock is still held then.
 * A device, a pipe, and a file that cannot be locked where it is are opened without a lock. */
int hd_file_open_locked(const char *path, int flags, double wait);
/* Returns 1 if the path still leads to the open file, which may have been renamed, replaced or removed. */
int hd_file_has_name(const char *path, int fd);

#endif
