/* SPDX-License-Identifier: Apache-2.0
 * engine/human/handler_line.h - a line of text for stderr, assembled in a signal handler. A handler may call neither malloc
 * nor printf, so these functions call only write.
 *
 *	struct hd_handler_line l = { .n = 0 };
 *	hd_handler_add(&l, "heddle: ");
 *	hd_handler_add_number(&l, 42);
 *	hd_handler_write(&l);
 */
#ifndef HD_ENGINE_HUMAN_HANDLER_LINE_H
#define HD_ENGINE_HUMAN_HANDLER_LINE_H
#include <stddef.h>
#include <stdint.h>

struct hd_handler_line {
	char text[600];
	size_t n; /* bytes used */
};

/* Append; bytes beyond the size of `text` are dropped. */
void hd_handler_add(struct hd_handler_line *l, const char *text);
void hd_handler_add_number(struct hd_handler_line *l, uint64_t number);
/* Writes the line and a newline to stderr. Returns 1 if that succeeded, else 0. */
int hd_handler_write(struct hd_handler_line *l);

#endif
