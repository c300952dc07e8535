/* SPDX-License-Identifier: Apache-2.0
 * engine/file/log_file.h - a file that grows by pieces, each of which is in it whole or not at all.
 *
 * A log of a run is less than the run: what writes one goes on without it, and tries again with the next piece.
 */
#ifndef HD_ENGINE_FILE_LOG_FILE_H
#define HD_ENGINE_FILE_LOG_FILE_H
#include <stddef.h>
#include "engine/base/err.h"

struct hd_log_file {
	int fd;
	char *path; /* owned */
};

/* Made where there is none. A piece goes behind what is there. */
int hd_log_file_open(const char *path, struct hd_log_file *out, struct hd_err *err);
/* In the file when this returns HD_OK. After a failure the file is as long as before. */
int hd_log_file_add(struct hd_log_file *f, const void *piece, size_t bytes, struct hd_err *err);
/* Takes off what follows the last line's end, which a full disk or a power cut has left.  -> how many bytes that were */
size_t hd_log_file_end_line(struct hd_log_file *f);
int hd_log_file_close(struct hd_log_file *f, struct hd_err *err);

/* What a run says of a log: once that it fails, and once that it does not any more. */
struct hd_log_state {
	const char *key; /* of the INI */
	long long lost;  /* pieces since it failed */
	struct hd_err why;
};
void hd_log_file_say(struct hd_log_state *s, const struct hd_err *why); /* why->code 0: the piece is written */
int hd_log_file_whole(const struct hd_log_state *s,
		      struct hd_err *err); /* at the end of the run; an error if it still fails */

#endif
