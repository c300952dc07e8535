/* SPDX-License-Identifier: Apache-2.0
 * Memory and errors of a plan: all that its graph is made of lives as long as it.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct arena_block {
	struct arena_block *next;
	max_align_t data[];
};

void *hd_plan_alloc(struct hd_plan *p, size_t bytes)
{
	struct arena_block *b = hd_alloc(sizeof(*b) + bytes);

	b->next = p->heap;
	p->heap = b;
	return b->data;
}

void hd_plan_free(struct hd_plan *p)
{
	struct arena_block *b, *next;

	for (b = p->heap; b; b = next) {
		next = b->next;
		free(b);
	}
	free(p);
}

char *hd_plan_text(struct hd_plan *p, const char *fmt, ...)
{
	va_list v;
	char *s;
	int n;

	va_start(v, fmt);
	n = vsnprintf(NULL, 0, fmt, v);
	va_end(v);
	s = hd_plan_alloc(p, (size_t)n + 1);
	va_start(v, fmt);
	vsnprintf(s, (size_t)n + 1, fmt, v);
	va_end(v);
	return s;
}

int hd_plan_fail(struct hd_plan *p, int code, const char *fmt, ...)
{
	char *text;
	va_list v;

	if (p->err->code)
		return p->err->code;
	va_start(v, fmt);
	text = hd_vformat(fmt, v);
	va_end(v);
	if (p->cur >= 0)
		hd_section_fail(p->conf, p->inst[p->cur].section, NULL, p->err, code, "%s", text);
	else
		hd_err_set(p->err, code, "%s", text);
	free(text);
	return code;
}
