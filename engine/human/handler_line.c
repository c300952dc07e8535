/* SPDX-License-Identifier: Apache-2.0
 * A line of text for stderr, assembled in a signal handler (handler_line.h).
 */
#include <config.h>
#include "engine/human/handler_line.h"
#include <string.h>
#include <unistd.h>

void hd_handler_add(struct hd_handler_line *l, const char *text)
{
	size_t room = sizeof(l->text) - 1 - l->n, more = strlen(text); /* one byte stays free for the newline */

	more = more < room ? more : room;
	memcpy(l->text + l->n, text, more);
	l->n += more;
}

void hd_handler_add_number(struct hd_handler_line *l, uint64_t number)
{
	char digits[24], *at = digits + sizeof(digits) - 1;

	*at = 0;
	do
		*--at = (char)('0' + number % 10);
	while (number /= 10);
	hd_handler_add(l, at);
}

int hd_handler_write(struct hd_handler_line *l)
{
	l->text[l->n] = '\n';
	return write(STDERR_FILENO, l->text, l->n + 1) > 0;
}
