/* SPDX-License-Identifier: Apache-2.0
 * engine/file/file.h - a file as text.
 */
#ifndef HD_ENGINE_FILE_FILE_H
#define HD_ENGINE_FILE_FILE_H
#include <stddef.h>

/* All of a file, to be freed, with a 0 behind its last byte; *bytes (if not NULL): without that 0.  NULL: errno says why. */
char *hd_file_slurp(const char *path, size_t *bytes);

/* "DIR/NAME.XXXXXX" for mkstemp and mkdtemp, to be freed.  DIR: TMPDIR of the environment, else /tmp. */
char *hd_file_temporary(const char *name);

#endif
