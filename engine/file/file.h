/* SPDX-License-Identifier: Apache-2.0
 * engine/file/file.h - a file as text.
 */
#ifndef HD_ENGINE_FILE_FILE_H
#define HD_ENGINE_FILE_FILE_H
#include "engine/base/err.h"
#include <jansson.h>
#include <stdio.h>

/* All of a file, to be freed, with a 0 behind its last byte; *bytes (if not NULL): without that 0.  NULL: errno says why. */
char *hd_file_slurp(const char *path, size_t *bytes);
/* All of a file as JSON; NULL: err says what is wrong, and in which line. */
json_t *hd_file_json(const char *path, struct hd_err *err);
/* The next line of a text in *line, which has *room and is grown and freed as getline's.  -> its bytes, -1: there is none, or err says
 * what is wrong.  A byte 0 ends a device, as an error: those that never end are of it, or have one soon. */
ssize_t hd_file_line(FILE *f, const char *path, char **line, size_t *room, struct hd_err *err);

/* From mapped to unmapped a read that the file no longer has ends the process with a message that names it.  By one thread. */
void hd_file_mapped(const char *path, const void *at, size_t bytes);
void hd_file_unmapped(const void *at);
/* For other handlers of SIGBUS: 1: the address is one of these files', and that was said. */
int hd_file_fault(const void *at);

/* 1: there is a DIR/NAME. */
int hd_file_has(const char *dir, const char *name);

/* "DIR/NAME.XXXXXX" for mkstemp and mkdtemp, to be freed.  DIR: TMPDIR of the environment, else /tmp. */
char *hd_file_temporary(const char *name);

#endif
