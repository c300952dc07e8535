/* SPDX-License-Identifier: Apache-2.0
 * Finds offsets in one arena for buffers whose lifetimes are known: it packs rectangles of time x address.
 *
 * The search is greedy. Spans are placed one by one, each at the lowest gap (or the tightest) that the placed spans of
 * overlapping time leave. The order determines the quality and no order is always best, so several are tried. Then the
 * span that sticks out at the top is moved to the front of the best order for another try. This continues until the
 * bound is reached or the allowed work is spent.
 *
 * Placed spans are stored in leaves, ordered by address. A leaf is skipped if none of its spans overlaps in time. It
 * is also skipped if all do and no gap between them is large enough. Lifetimes of forward and backward are nested, so
 * nearly every leaf is one or the other.
 */
#include <config.h>
#include "engine/base/err.h"
#include "engine/program/pack.h"
#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* Compiles one copy for each vector width of the machines that may run it. That needs glibc, which string.h
 * identifies. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif
#define INLINE static inline __attribute__((always_inline)) /* inlined into each copy */

#define LEAF 64
#define WORK 1500 /* leaves and spans visited per span; after that the best result so far is used */
#define REPAIRS 200

struct placed {
	int64_t from, to;
	int32_t first, last;
}; /* addresses from ... to - 1 */

/* Spans ordered by address. Times have arrays of their own, so that one instruction compares several: most planning
 * time is spent here. */
struct leaf_spans {
	int32_t first[LEAF], last[LEAF];
	struct {
		int64_t from, to;
	} p[LEAF];
};

struct leaf {         /* a summary that answers nearly all queries, stored contiguously */
	int64_t from; /* lowest address */
	int64_t to;   /* highest end */
	int64_t gap;  /* largest hole between its spans if all of them overlap in time */
	int32_t first_min, first_max, last_min, last_max;
	int n;
	struct leaf_spans *in;
};

struct packing {
	struct leaf *leaf;
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
	l->from = l->in->p[0].from;
	l->to = l->in->p[0].to;
	l->gap = 0;
	l->first_min = l->first_max = l->in->first[0];
	l->last_min = l->last_max = l->in->last[0];
	for (int i = 1; i < l->n; i++) {
		l->gap = max64(l->gap, l->in->p[i].from - l->to);
		l->to = max64(l->to, l->in->p[i].to);
		add_times(l, l->in->first[i], l->in->last[i]);
	}
}

static void split(struct packing *a, size_t at)
{
	struct leaf_spans *to = hd_alloc(sizeof(*to)), *from;
	const size_t half = LEAF / 2;

	a->leaf = hd_grow(a->leaf, a->n, &a->cap, sizeof(*a->leaf));
	memmove(a->leaf + at + 2, a->leaf + at + 1, (a->n - at - 1) * sizeof(*a->leaf));
	a->n++;
	from = a->leaf[at].in;
	memcpy(to->p, from->p + half, half * sizeof(*to->p));
	memcpy(to->first, from->first + half, half * sizeof(*to->first));
	memcpy(to->last, from->last + half, half * sizeof(*to->last));
	a->leaf[at + 1] = (struct leaf){ .n = LEAF - LEAF / 2, .in = to };
	a->leaf[at].n = LEAF / 2;
	summarize(&a->leaf[at]);
	summarize(&a->leaf[at + 1]);
}

/* Returns the last leaf that begins at or below the address. */
static size_t leaf_for(const struct packing *a, int64_t from)
{
	size_t low = 0, high = a->n;

	while (high - low > 1) {
		size_t mid = (low + high) / 2;

		if (a->leaf[mid].from <= from)
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
	struct leaf_spans *in;
	int i;

	if (!a->n) {
		a->leaf = hd_grow(a->leaf, 0, &a->cap, sizeof(*a->leaf));
		a->leaf[a->n++] = (struct leaf){ .in = hd_alloc(sizeof(*a->leaf->in)) };
	}
	at = leaf_for(a, p->from);
	if (a->leaf[at].n == LEAF) {
		split(a, at);
		at = leaf_for(a, p->from);
	}
	l = &a->leaf[at];
	in = l->in;
	for (i = l->n; i > 0 && in->p[i - 1].from > p->from; i--)
		;
	memmove(in->p + i + 1, in->p + i, (size_t)(l->n - i) * sizeof(*in->p));
	memmove(in->first + i + 1, in->first + i, (size_t)(l->n - i) * sizeof(*in->first));
	memmove(in->last + i + 1, in->last + i, (size_t)(l->n - i) * sizeof(*in->last));
	in->p[i].from = p->from, in->p[i].to = p->to;
	in->first[i] = p->first, in->last[i] = p->last;
	l->n++;
	summarize(l);
	a->top = max64(a->top, p->to);
}

static void clear(struct packing *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->leaf[i].in);
	free(a->leaf);
	memset(a, 0, sizeof(*a));
}

/* -- one span ---------------------------------------------------------------------------------- */

struct gap_search {
	int64_t bytes;
	int32_t first, last;
	int64_t end;         /* highest end of the overlapping spans so far */
	int64_t best, waste; /* tightest gap so far, and how much larger it is; -1: none */
	int64_t work;
};

/* Visits a span that overlaps in time, and the hole below it. Returns 1 if that hole will do. */
INLINE int see(struct gap_search *s, int64_t from, int64_t to, int tight)
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

/* Sets meet[i] to whether span i of the leaf overlaps in time. Compares all LEAF entries, so that vectors are full. */
INLINE void meets(const struct leaf_spans *l, int32_t first, int32_t last, uint8_t *meet)
{
#pragma omp simd
	for (int i = 0; i < LEAF; i++)
		meet[i] = (l->first[i] <= last) & (l->last[i] >= first);
}

INLINE int see_leaf(struct gap_search *s, const struct leaf *l, int tight)
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
	meets(l->in, s->first, s->last, meet.one);
	for (int i = 0; i < l->n; i += 8)
		for (uint64_t m = le64toh(meet.eight[i / 8]); m; m &= m - 1) { /* the lowest byte that is 1 */
			int k = i + __builtin_ctzll(m) / 8;

			if (k < l->n && see(s, l->in->p[k].from, l->in->p[k].to, tight))
				return 1;
		}
	return 0;
}

/* Searches from the lowest address up, until a gap will do. */
WIDE static void look_for_gap(struct gap_search *s, const struct packing *a, int tight)
{
	for (size_t i = 0; i < a->n; i++)
		if (see_leaf(s, &a->leaf[i], tight))
			return;
}

static int64_t place(struct packing *a, const struct hd_memory_span *s, int tight)
{
	struct gap_search look = { .bytes = rounded(s->bytes),
				   .first = (int32_t)s->first,
				   .last = (int32_t)max64(s->first, s->last),
				   .best = -1 };
	struct placed p = { .first = look.first, .last = look.last };

	look_for_gap(&look, a, tight);
	p.from = look.best < 0 ? look.end : look.best;
	p.to = p.from + look.bytes;
	a->work += look.work + LEAF;
	insert(a, &p);
	return p.from;
}

/* -- orders ------------------------------------------------------------------------------------ */

enum { BY_BYTES, BY_LIFE, BY_AREA, BY_TIME, ORDERS, BY_BYTES_BACK = ORDERS };

struct key {
	double major, minor;
	int64_t i;
};

static int is_before(const struct key *x, const struct key *y)
{
	if (x->major != y->major)
		return x->major > y->major;
	if (x->minor != y->minor)
		return x->minor > y->minor;
	return x->i < y->i; /* makes the plan independent of the sorting algorithm */
}

static void merge(struct key *to, const struct key *a, const struct key *b, const struct key *end)
{
	const struct key *x = a, *y = b;

	while (x < b || y < end)
		*to++ = y == end || (x < b && is_before(x, y)) ? *x++ : *y++;
}

/* Merges runs, which double in length each time. qsort calls a function for each comparison, which takes longer. */
static void sort_keys(struct key *k, int64_t n)
{
	struct key *other = hd_alloc((size_t)(n + 1) * sizeof(*other)), *from = k, *to = other, *swap;

	for (int64_t run = 1; run < n; run *= 2) {
		for (int64_t i = 0; i < n; i += 2 * run) {
			int64_t mid = i + run < n ? i + run : n, end = mid + run < n ? mid + run : n;

			merge(to + i, from + i, from + mid, from + end);
		}
		swap = from, from = to, to = swap;
	}
	if (from != k)
		memcpy(k, from, (size_t)n * sizeof(*k));
	free(other);
}

static struct key key_of(const struct hd_memory_span *s, int64_t i, int order)
{
	double bytes = (double)s->bytes, first = (double)s->first, last = (double)s->last;
	double life = (double)(s->last - s->first) + 1;

	switch (order) {
	/* Large spans that last to the end, such as accumulators, leave room that exists early and disappears. Seen
	 * from the end, room only appears. So if spans of one size are placed latest first, they need only as many
	 * places as exist at one time. */
	case BY_BYTES_BACK: return (struct key){ bytes, last, i };
	case BY_BYTES: return (struct key){ bytes, -first, i };
	case BY_LIFE: return (struct key){ life, bytes, i };
	case BY_AREA: return (struct key){ bytes * life, bytes, i };
	default: return (struct key){ -first, bytes, i };
	}
}

/* Sorts the spans that need room. Returns their number. */
static int64_t sort(struct key *k, const struct hd_memory_span *s, int64_t n, int order)
{
	int64_t some = 0;

	for (int64_t i = 0; i < n; i++)
		if (s[i].bytes > 0)
			k[some++] = key_of(&s[i], i, order);
	sort_keys(k, some);
	return some;
}

struct pack_plan {
	struct hd_memory_span *s;
	int64_t n;
	struct key *order, *best_order;
	int64_t *offset, *best_offset; /* by span */
	int64_t best, bound, slack, work;
	int tight;
};

/* Places the spans in the plan's order. Stops at the span that would make the result no better than the best. Also
 * stops when the work is spent, if there is a best. Returns that span's position in the order, or -1 if this is the
 * new best. */
static int64_t attempt(struct pack_plan *p)
{
	struct packing a = { 0 };
	int64_t k;

	for (k = 0; k < p->n; k++) {
		int64_t i = p->order[k].i;

		p->offset[i] = place(&a, &p->s[i], p->tight);
		if (a.top >= p->best)
			break;
		if (p->best < INT64_MAX && a.work + p->work + (p->n - 1 - k) * LEAF > WORK * p->n) {
			a.work = WORK * p->n + 1; /* the rest would exceed it: each span takes LEAF or more */
			break;
		}
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
	return p->best <= p->bound + p->slack || p->work > WORK * p->n;
}

static void try_orders(struct pack_plan *p, int64_t all)
{
	int best_tight = 0;

	if (p->slack) {
		p->n = sort(p->order, p->s, all, BY_BYTES_BACK);
		attempt(p);
	}
	for (int t = 0; t < 2 * ORDERS && (p->best == INT64_MAX || !enough(p)); t++) {
		p->tight = t >= ORDERS;
		p->n = sort(p->order, p->s, all, t % ORDERS);
		if (attempt(p) < 0)
			best_tight = p->tight;
	}
	p->tight = best_tight;
	memcpy(p->order, p->best_order, (size_t)p->n * sizeof(*p->order));
}

/* Tries again with the span that sticks out moved to the front. */
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

int64_t hd_pack_plan(struct hd_memory_span *s, int64_t n, int64_t part)
{
	struct pack_plan p = { .s = s, .best = INT64_MAX, .bound = hd_memory_bound(s, n) };

	p.slack = part ? p.bound / part : 0;
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
