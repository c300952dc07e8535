/* SPDX-License-Identifier: Apache-2.0
 * engine/file/log_file.h - a file that grows by pieces, each of which is written completely or not at all.
 *
 * A log matters less than the run: if a write fails, the run goes on without the log and retries with the next piece.
 */
#ifndef HD_ENGINE_FILE_LOG_FILE_H
#define HD_ENGINE_FILE_LOG_FILE_H
#include <stddef.h>
#include "engine/base/err.h"

struct hd_log_file {
	int fd;
	char *path; /* owned by this struct */
};

/* Opens the file, creating it if needed. Pieces are appended to what it contains. */
int hd_log_file_open(const char *path, struct hd_log_file *out, struct hd_err *err);
/* Opens it as above, and locks it, since another process that writes there would replace or repeat lines. Waits up to
 * `wait` seconds for the lock. */
int hd_log_file_open_locked(const char *path, double wait, struct hd_log_file *out, struct hd_err *err);
/* Appends a piece, which is in the file when this returns HD_OK. After a failure the file is as long as before. */
int hd_log_file_add(struct hd_log_file *f, const void *piece, size_t bytes, struct hd_err *err);
/* Removes the last bytes, which were added just before. Does nothing to a device or a pipe. */
int hd_log_file_take_back(struct hd_log_file *f, size_t bytes, struct hd_err *err);
/* Removes an incomplete last line, which a full disk or a power cut has left. Returns the number of bytes removed. */
size_t hd_log_file_end_line(struct hd_log_file *f);
int hd_log_file_close(struct hd_log_file *f, struct hd_err *err);

/* The state of one log of a run, which warns once when writing fails and once when it works again. */
struct hd_log_state {
	const char *key; /* its key in the INI file */
	long long lost;  /* pieces lost since it failed */
	struct hd_err why;
};
/* Warns when the state changes. why->code 0: a piece was written; else a piece was lost. */
void hd_log_file_note(struct hd_log_state *s, const struct hd_err *why);
/* For the end of the run: fails if writing the log still fails. */
int hd_log_file_check(const struct hd_log_state *s, struct hd_err *err);

#endif
