/* SPDX-License-Identifier: Apache-2.0
 * engine/file/inside.h - reads directories from untrusted sources, whose links must not lead to other files of the
 * user.
 */
#ifndef HD_ENGINE_FILE_INSIDE_H
#define HD_ENGINE_FILE_INSIDE_H
#include "engine/base/err.h"

/* Refuses dir/name if it is a link that leads out of dir, or neither a file nor a directory: reading a pipe could
 * block forever. Links of Hugging Face's cache, from snapshots/REVISION/ to blobs/, are followed. A missing file is
 * no error: the caller that opens it reports that. */
int hd_file_inside(const char *dir, const char *name, struct hd_err *err);
/* Returns the NUL-terminated text of dir/name, if it is inside; the caller frees it. */
char *hd_file_read_inside(const char *dir, const char *name, struct hd_err *err);

#endif
