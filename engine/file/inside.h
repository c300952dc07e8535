/* SPDX-License-Identifier: Apache-2.0
 * engine/file/inside.h - directories from elsewhere, whose links must not lead to other files of the user.
 */
#ifndef HD_ENGINE_FILE_INSIDE_H
#define HD_ENGINE_FILE_INSIDE_H
#include "engine/base/err.h"

/* Refuses dir/name where it is a link that leads out of dir, or is neither a file nor a directory (reading a pipe waits for
 * ever).  Links of Hugging Face's cache, from snapshots/REVISION/ to blobs/, are followed.  What is not there is fine: who opens
 * it says so. */
int hd_file_inside(const char *dir, const char *name, struct hd_err *err);
/* The text of dir/name, if it lies inside; malloc'ed, NUL behind. */
char *hd_file_read_inside(const char *dir, const char *name, struct hd_err *err);

#endif
