/* SPDX-License-Identifier: Apache-2.0
 * Memory and errors of a plan: everything in its graph is allocated here, and lives as long as the plan.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* A plan of many stages has hundreds of thousands of small objects that live as long as the plan, so they share blocks.
 * With a sanitizer each object has its own block, so that the sanitizer detects accesses beyond its end. */
#if defined(__SANITIZE_ADDRESS__)
enum { LEAST = 0, MOST = 0 };
#else
enum { LEAST = 16 << 10, MOST = 16 << 20 };
#endif
/* Blocks from this size on ask for large pages: with few pages, allocation takes less time. */
#define LARGE_PAGES (4 << 20)

struct arena_block {
	struct arena_block *next;
	size_t used, size;
	max_align_t data[];
};

static size_t aligned(size_t bytes)
{
	return (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
}

static struct arena_block *block_new(size_t size)
{
	struct arena_block *b = hd_alloc(sizeof(*b) + size);

	b->size = size;
	if (size >= LARGE_PAGES)
		hd_large_pages(b, sizeof(*b) + size);
	return b;
}

/* Each block is twice as large as the one before, from LEAST to MOST.  A large object gets its own block, which is
 * linked after the block that is being filled. */
static struct arena_block *more(struct hd_plan *p, size_t bytes)
{
	size_t size = p->heap ? 2 * p->heap->size : LEAST;
	struct arena_block *b;

	size = size < MOST ? size : MOST;
	b = block_new(bytes > size / 4 ? bytes : size);
	b->next = p->heap;
	if (p->heap && bytes > size / 4) {
		b->next = p->heap->next;
		p->heap->next = b;
	} else {
		p->heap = b;
	}
	return b;
}

void *hd_plan_alloc(struct hd_plan *p, size_t bytes)
{
	struct arena_block *b = p->heap;

	bytes = aligned(bytes ? bytes : 1);
	if (!b || b->size - b->used < bytes)
		b = more(p, bytes);
	b->used += bytes;
	return (char *)b->data + b->used - bytes;
}

void hd_plan_free(struct hd_plan *p)
{
	struct arena_block *b, *next;

	for (b = p->heap; b; b = next) {
		next = b->next;
		free(b);
	}
	free(p->handles);
	free(p);
}

char *hd_plan_vtext(struct hd_plan *p, const char *fmt, va_list v)
{
	va_list again;
	char *s;
	int n;

	va_copy(again, v);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	s = hd_plan_alloc(p, (size_t)(n > 0 ? n : 0) + 1);
	vsnprintf(s, (size_t)(n > 0 ? n : 0) + 1, fmt, v);
	return s;
}

char *hd_plan_text(struct hd_plan *p, const char *fmt, ...)
{
	va_list v;
	char *s;

	va_start(v, fmt);
	s = hd_plan_vtext(p, fmt, v);
	va_end(v);
	return s;
}

/* -- handles ------------------------------------------------------------------------------------------------------------- */
static struct hd_handle *slot_of(struct hd_handle *all, size_t cap, const void *at)
{
	size_t i = (size_t)((uintptr_t)at >> 4) * (size_t)0x9e3779b97f4a7c15u >> 7;

	for (i &= cap - 1; all[i].at && all[i].at != at;)
		i = (i + 1) & (cap - 1);
	return &all[i];
}

void hd_handle_add(struct hd_plan *p, const void *at, enum hd_handle_kind kind)
{
	if (2 * p->nhandles >= p->cap_handles) {
		size_t cap = p->cap_handles ? 2 * p->cap_handles : 256;
		struct hd_handle *more = hd_alloc(cap * sizeof(*more));

		for (size_t i = 0; i < p->cap_handles; i++)
			if (p->handles[i].at)
				*slot_of(more, cap, p->handles[i].at) = p->handles[i];
		free(p->handles);
		p->handles = more;
		p->cap_handles = cap;
	}
	*slot_of(p->handles, p->cap_handles, at) = (struct hd_handle){ at, kind };
	p->nhandles++;
}

enum hd_handle_kind hd_handle_kind(const struct hd_plan *p, const void *at)
{
	return p->cap_handles && at ? slot_of(p->handles, p->cap_handles, at)->kind : HANDLE_NONE;
}

/* -- errors -------------------------------------------------------------------------------------------------------------- */

/* Returns n, or one of the nodes whose results n reads, if a plugin created it; else NULL. */
static const struct node *made_by_plugin(const struct node *n)
{
	const struct node *from = NULL;

	for (uint32_t i = 0; n && n->made_by < 0 && i < n->v.nin && !from; i++)
		from = n->ins[i]->v.node && N(n->ins[i]->v.node)->made_by >= 0 ? N(n->ins[i]->v.node) : NULL;
	return n && n->made_by >= 0 ? n : from;
}

/* A movement that the engine inserts is attributed to the section that has its axis. */
static void fail_movement(struct hd_plan *p, int code, const char *text, const struct node *n)
{
	const struct axis *a = A(n->reshard.axis);
	const struct inst *owner = &p->inst[a->inst];

	hd_section_fail(p->conf, owner->section, NULL, p->err, code, "%s (%s%son axis %s of plugin %s)", text,
			n->reason ? n->reason : "", n->reason ? ", " : "", a->v.name, owner->plugin->name);
}

void hd_plan_mistake(struct hd_plan *p, int who)
{
	snprintf(p->err->mistake, sizeof(p->err->mistake), "%s", p->inst[who].plugin->name);
}

int hd_plan_fail(struct hd_plan *p, int code, const char *fmt, ...)
{
	const struct node *made = made_by_plugin(p->about);
	const struct inst *maker = made ? &p->inst[made->made_by] : NULL;
	char *text;
	va_list v;

	if (p->err->code)
		return p->err->code;
	va_start(v, fmt);
	text = hd_one_line(hd_vformat(fmt, v));
	va_end(v);
	if (p->slot.inst >= 0 && (code == HD_EINVAL || code == HD_EBUG || code == HD_EABI))
		hd_plan_mistake(p, p->slot.inst);
	if (p->slot.inst >= 0)
		hd_section_fail(p->conf, p->inst[p->slot.inst].section, NULL, p->err, code, "%s (%s%s%splugin %s)",
				text, p->slot.name ? "slot " : "", p->slot.name ? p->slot.name : "",
				p->slot.name ? " of " : "", p->inst[p->slot.inst].plugin->name);
	else if (maker)
		hd_section_fail(p->conf, maker->section, NULL, p->err, code, "%s (of %s, which plugin %s made)", text,
				made->v.op->name, maker->plugin->name);
	else if (p->about && p->about->v.reshard)
		fail_movement(p, code, text, p->about);
	else if (p->about && p->about->reason)
		hd_err_set(p->err, code, "%s (%s)", text, p->about->reason);
	else
		hd_err_set(p->err, code, "%s", text);
	free(text);
	return code;
}
