/* SPDX-License-Identifier: Apache-2.0
 * Offsets in one arena for buffers whose lifetimes are known: packing rectangles of time x address.
 *
 * Greedy: spans are placed one by one, each at the lowest gap (or the tightest) that the placed
 * spans of overlapping time leave.  The order decides the quality and no order is best everywhere,
 * so several are tried, and the spans that stick out at the top are moved to the front of the best
 * order for another try, until the bound is reached or the work allowed is spent.
 *
 * Placed spans stand in leaves in the order of their addresses.  A leaf that no span of it overlaps
 * in time is skipped, and so is one where all do and no gap between them is large enough: lifetimes
 * of forward and backward are nested, so nearly all leaves are of one kind or the other.
 */
#include <config.h>
#include "engine/base/err.h"
#include "engine/program/pack.h"
#include <stdlib.h>
#include <string.h>

#define LEAF 64
#define WORK 1500 /* leaves and spans looked at per span; then the best so far must do */
#define REPAIRS 200

struct placed {
	int64_t from, to;
	int32_t first, last;
}; /* addresses from..to-1 */

struct leaf {
	int n;
	int64_t from; /* lowest address */
	int64_t to;   /* highest end */
	int64_t gap;  /* largest hole between its spans if all of them count */
	int32_t first_min, first_max, last_min, last_max;
	/* By address.  Times stand apart, so that one instruction compares several: most of planning is this. */
	int32_t first[LEAF], last[LEAF];
	struct {
		int64_t from, to;
	} p[LEAF];
};

struct packing {
	struct leaf **leaf;
	size_t n, cap;
	int64_t top, work;
};

static int64_t rounded(int64_t bytes)
{
	return (bytes + HD_ALIGN - 1) / HD_ALIGN * HD_ALIGN;
}

/* -- placed spans ------------------------------------------------------------------------------ */

static int64_t max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void add_times(struct leaf *l, int32_t first, int32_t last)
{
	l->first_min = first < l->first_min ? first : l->first_min;
	l->first_max = first > l->first_max ? first : l->first_max;
	l->last_min = last < l->last_min ? last : l->last_min;
	l->last_max = last > l->last_max ? last : l->last_max;
}

static void summarize(struct leaf *l)
{
	l->from = l->p[0].from;
	l->to = l->p[0].to;
	l->gap = 0;
	l->first_min = l->first_max = l->first[0];
	l->last_min = l->last_max = l->last[0];
	for (int i = 1; i < l->n; i++) {
		l->gap = max64(l->gap, l->p[i].from - l->to);
		l->to = max64(l->to, l->p[i].to);
		add_times(l, l->first[i], l->last[i]);
	}
}

static void split(struct packing *a, size_t at)
{
	struct leaf *l = a->leaf[at], *r = hd_alloc(sizeof(*r));

	a->leaf = hd_grow(a->leaf, a->n, &a->cap, sizeof(*a->leaf));
	memmove(a->leaf + at + 2, a->leaf + at + 1, (a->n - at - 1) * sizeof(*a->leaf));
	a->leaf[at + 1] = r;
	a->n++;
	l->n = LEAF / 2;
	r->n = LEAF - l->n;
	memcpy(r->p, l->p + l->n, (size_t)r->n * sizeof(*r->p));
	memcpy(r->first, l->first + l->n, (size_t)r->n * sizeof(*r->first));
	memcpy(r->last, l->last + l->n, (size_t)r->n * sizeof(*r->last));
	summarize(r);
}

/* The last leaf that begins at or below it */
static size_t leaf_for(const struct packing *a, int64_t from)
{
	size_t low = 0, high = a->n;

	while (high - low > 1) {
		size_t mid = (low + high) / 2;

		if (a->leaf[mid]->from <= from)
			low = mid;
		else
			high = mid;
	}
	return low;
}

static void insert(struct packing *a, const struct placed *p)
{
	size_t at;
	struct leaf *l;
	int i;

	if (!a->n) {
		a->leaf = hd_grow(a->leaf, 0, &a->cap, sizeof(*a->leaf));
		a->leaf[a->n++] = hd_alloc(sizeof(**a->leaf));
	}
	at = leaf_for(a, p->from);
	if (a->leaf[at]->n == LEAF) {
		split(a, at);
		summarize(a->leaf[at]);
		at = leaf_for(a, p->from);
	}
	l = a->leaf[at];
	for (i = l->n; i > 0 && l->p[i - 1].from > p->from; i--)
		;
	memmove(l->p + i + 1, l->p + i, (size_t)(l->n - i) * sizeof(*l->p));
	memmove(l->first + i + 1, l->first + i, (size_t)(l->n - i) * sizeof(*l->first));
	memmove(l->last + i + 1, l->last + i, (size_t)(l->n - i) * sizeof(*l->last));
	l->p[i].from = p->from, l->p[i].to = p->to;
	l->first[i] = p->first, l->last[i] = p->last;
	l->n++;
	summarize(l);
	a->top = max64(a->top, p->to);
}

static void clear(struct packing *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->leaf[i]);
	free(a->leaf);
	memset(a, 0, sizeof(*a));
}

/* -- one span ---------------------------------------------------------------------------------- */

struct gap_search {
	int64_t bytes;
	int32_t first, last;
	int64_t end;         /* of all that was seen and counts */
	int64_t best, waste; /* tightest gap so far; -1: none */
	int64_t work;
};

/* A span that counts: the hole before it.  -> 1 if that will do. */
static int see(struct gap_search *s, int64_t from, int64_t to, int tight)
{
	int64_t hole = from - s->end;

	if (hole >= s->bytes && (s->best < 0 || hole - s->bytes < s->waste)) {
		s->best = s->end;
		s->waste = hole - s->bytes;
		if (!tight || !s->waste)
			return 1;
	}
	s->end = max64(s->end, to);
	return 0;
}

/* By span of the leaf: whether both live at one time.  All of the room is looked at, for whole vectors. */
static void meets(const struct leaf *l, int32_t first, int32_t last, uint8_t *meet)
{
#pragma omp simd
	for (int i = 0; i < LEAF; i++)
		meet[i] = (l->first[i] <= last) & (l->last[i] >= first);
}

static int see_leaf(struct gap_search *s, const struct leaf *l, int tight)
{
	union {
		uint8_t one[LEAF];
		uint64_t eight[LEAF / 8];
	} meet;

	s->work++;
	if (l->first_min > s->last || l->last_max < s->first)
		return 0;
	if (l->first_max <= s->last && l->last_min >= s->first && l->gap < s->bytes)
		return see(s, l->from, l->to, tight);
	s->work += l->n;
	meets(l, s->first, s->last, meet.one);
	for (int i = 0; i < l->n; i += 8)
		for (int k = i; meet.eight[i / 8] && k < i + 8 && k < l->n; k++)
			if (meet.one[k] && see(s, l->p[k].from, l->p[k].to, tight))
				return 1;
	return 0;
}

static int64_t place(struct packing *a, const struct hd_memory_span *s, int tight)
{
	struct gap_search look = { .bytes = rounded(s->bytes),
				   .first = (int32_t)s->first,
				   .last = (int32_t)max64(s->first, s->last),
				   .best = -1 };
	struct placed p = { .first = look.first, .last = look.last };
	size_t i = 0;

	while (i < a->n && !see_leaf(&look, a->leaf[i], tight))
		i++;
	p.from = look.best < 0 ? look.end : look.best;
	p.to = p.from + look.bytes;
	a->work += look.work + LEAF;
	insert(a, &p);
	return p.from;
}

/* -- orders ------------------------------------------------------------------------------------ */

enum { BY_BYTES, BY_LIFE, BY_AREA, BY_TIME, ORDERS };

struct key {
	double major, minor;
	int64_t i;
};

static int by_key(const void *a, const void *b)
{
	const struct key *x = a, *y = b;

	if (x->major != y->major)
		return x->major > y->major ? -1 : 1;
	if (x->minor != y->minor)
		return x->minor > y->minor ? -1 : 1;
	return x->i < y->i ? -1 : x->i > y->i; /* qsort is not stable, the plan must be */
}

static struct key key_of(const struct hd_memory_span *s, int64_t i, int order)
{
	double bytes = (double)s->bytes, first = (double)s->first;
	double life = (double)(s->last - s->first) + 1;

	switch (order) {
	case BY_BYTES: return (struct key){ bytes, -first, i };
	case BY_LIFE: return (struct key){ life, bytes, i };
	case BY_AREA: return (struct key){ bytes * life, bytes, i };
	default: return (struct key){ -first, bytes, i };
	}
}

/* -> spans that need room */
static int64_t sort(struct key *k, const struct hd_memory_span *s, int64_t n, int order)
{
	int64_t some = 0;

	for (int64_t i = 0; i < n; i++)
		if (s[i].bytes > 0)
			k[some++] = key_of(&s[i], i, order);
	qsort(k, (size_t)some, sizeof(*k), by_key);
	return some;
}

struct pack_plan {
	struct hd_memory_span *s;
	int64_t n;
	struct key *order, *best_order;
	int64_t *offset, *best_offset; /* by span */
	int64_t best, bound, work;
	int tight;
};

/* Places in the plan's order; stops at the span that would make it no better than the best, or
 * when the work is spent and there is a best.
 * -> that span's place in the order, or -1: this is the best now. */
static int64_t attempt(struct pack_plan *p)
{
	struct packing a = { 0 };
	int64_t k;

	for (k = 0; k < p->n; k++) {
		int64_t i = p->order[k].i;

		p->offset[i] = place(&a, &p->s[i], p->tight);
		if (a.top >= p->best || (p->best < INT64_MAX && a.work + p->work > WORK * p->n))
			break;
	}
	p->work += a.work;
	if (k == p->n) {
		int64_t *swap = p->best_offset;

		p->best = a.top;
		p->best_offset = p->offset;
		p->offset = swap;
		memcpy(p->best_order, p->order, (size_t)p->n * sizeof(*p->order));
		k = -1;
	}
	clear(&a);
	return k;
}

static int enough(const struct pack_plan *p)
{
	return p->best <= p->bound || p->work > WORK * p->n;
}

static void try_orders(struct pack_plan *p, int64_t all)
{
	int best_tight = 0;

	for (int t = 0; t < 2 * ORDERS && (t == 0 || !enough(p)); t++) {
		p->tight = t >= ORDERS;
		p->n = sort(p->order, p->s, all, t % ORDERS);
		if (attempt(p) < 0)
			best_tight = p->tight;
	}
	p->tight = best_tight;
	memcpy(p->order, p->best_order, (size_t)p->n * sizeof(*p->order));
}

/* The span that sticks out goes first next time. */
static void repair(struct pack_plan *p)
{
	int64_t at;

	for (int r = 0; r < REPAIRS && !enough(p); r++) {
		struct key k;

		at = attempt(p);
		if (at < 0)
			continue;
		k = p->order[at];
		memmove(p->order + 1, p->order, (size_t)at * sizeof(k));
		p->order[0] = k;
	}
}

int64_t hd_pack_plan(struct hd_memory_span *s, int64_t n)
{
	struct pack_plan p = { .s = s, .best = INT64_MAX, .bound = hd_memory_bound(s, n) };

	p.order = hd_alloc((size_t)n * sizeof(*p.order));
	p.best_order = hd_alloc((size_t)n * sizeof(*p.best_order));
	p.offset = hd_alloc((size_t)n * sizeof(*p.offset));
	p.best_offset = hd_alloc((size_t)n * sizeof(*p.best_offset));
	try_orders(&p, n);
	repair(&p);
	for (int64_t i = 0; i < n; i++)
		s[i].offset = s[i].bytes > 0 ? p.best_offset[i] : 0;
	free(p.order);
	free(p.best_order);
	free(p.offset);
	free(p.best_offset);
	return p.best;
}

/* -- bound ------------------------------------------------------------------------------------- */

int64_t hd_memory_bound(const struct hd_memory_span *s, int64_t n)
{
	int64_t sum = 0, most = 0, end = 0, *change;

	for (int64_t i = 0; i < n; i++)
		end = max64(end, max64(s[i].first, s[i].last) + 1);
	change = hd_alloc((size_t)(end + 1) * sizeof(*change));
	for (int64_t i = 0; i < n; i++) {
		int64_t bytes = s[i].bytes > 0 ? rounded(s[i].bytes) : 0;

		change[s[i].first] += bytes;
		change[max64(s[i].first, s[i].last) + 1] -= bytes;
	}
	for (int64_t t = 0; t <= end; t++)
		most = max64(most, sum += change[t]);
	free(change);
	return most;
}
