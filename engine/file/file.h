/* SPDX-License-Identifier: Apache-2.0
 * engine/file/file.h - reads files as text or JSON, and reports faults in mapped files.
 */
#ifndef HD_ENGINE_FILE_FILE_H
#define HD_ENGINE_FILE_FILE_H
#include "engine/base/err.h"
#include <jansson.h>
#include <stdio.h>

/* Returns the contents of a file and a terminating NUL; the caller frees it. *bytes (if not NULL) excludes that NUL.
 * Returns NULL, with errno set, on failure. */
char *hd_file_slurp(const char *path, size_t *bytes);
/* Returns the contents of a file as JSON. On failure it returns NULL, and err names the reason and the line. */
json_t *hd_file_json(const char *path, struct hd_err *err);
/* Reads the next line into *line, which has *room bytes and grows as getline's does; the caller frees it. Returns
 * the bytes of the line, or -1 at the end of the file or, with err set, on failure. A zero byte read from a device
 * is an error: devices that never end, such as /dev/zero, soon return one. */
ssize_t hd_file_line(FILE *f, const char *path, char **line, size_t *room, struct hd_err *err);

/* Registers a mapped file. Until hd_file_unmapped, a read beyond the current end of the file ends the process with a
 * message that names the file. Only one thread may call these two. */
void hd_file_mapped(const char *path, const void *at, size_t bytes);
void hd_file_unmapped(const void *at);
/* For other handlers of SIGBUS: if the address is in one of these files, prints a message that names it and returns
 * 1. */
int hd_file_fault(const void *at);

/* Returns 1 if DIR/NAME exists. */
int hd_file_has(const char *dir, const char *name);

/* Returns "DIR/NAME.XXXXXX" for mkstemp and mkdtemp; the caller frees it. DIR is $TMPDIR, or /tmp if that is not
 * set. */
char *hd_file_temporary(const char *name);

#endif
