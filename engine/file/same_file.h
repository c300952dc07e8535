/* SPDX-License-Identifier: Apache-2.0
 * engine/file/same_file.h - whether two names lead to one file, so that what is written replaces nothing that is needed.
 */
#ifndef HD_ENGINE_FILE_SAME_FILE_H
#define HD_ENGINE_FILE_SAME_FILE_H

/* The absolute name, without links.  The file need not be there yet; its directory must.  malloc'ed; NULL: errno says why. */
char *hd_file_real(const char *path);
/* 1: one file, by its device and inode.  Files that are not there yet are compared by hd_file_real.  Devices and pipes
 * lose nothing when they are written to, so they are never the same. */
int hd_file_same(const char *a, const char *b);

#endif
