/* SPDX-License-Identifier: Apache-2.0
 * Finds offsets for a step of very many buffers: hundreds of micro-batches, each with the same units.
 *
 * Packing every buffer on its own would take minutes. So buffers that begin in the same unit and end in the same unit
 * form a bundle, and bundles are packed with units as time. Buffers that live within one unit are packed exactly
 * inside their bundle. All micro-batches look alike, so each pattern is packed only once. Buffers that live longer are
 * placed one after the other. The price: a long-lived buffer counts until its last unit ends. So at most one unit's
 * worth of early-freed memory is lost, in addition to all that is in flight.
 *
 * Example: the order of units is F0 F1 B0 B1. What F0 computes for B0 is one bundle, with times F0 to B0. What F1
 * computes for B1 is the next, with times F1 to B1. The working buffers of F0 are a bundle with time F0 alone. Those
 * of F1 have the same pattern, so they get the same offsets within their bundle.
 */
#include <config.h>
#include "engine/base/err.h"
#include "engine/base/hash.h"
#include "engine/program/pack.h"
#include <stdlib.h>
#include <string.h>

struct item {
	int32_t u0, u1;
	int64_t i;
}; /* span i lives from unit u0 to u1 */

struct pattern { /* buffers that live within one unit */
	int64_t n, bytes;
	uint64_t hash;
	struct hd_memory_span *s; /* times are relative to the earliest */
};

struct patterns {
	struct pattern *v;
	size_t n, cap;
};

static int64_t rounded(int64_t bytes)
{
	return (bytes + HD_ALIGN - 1) / HD_ALIGN * HD_ALIGN;
}

/* -- buffers that live within one unit --------------------------------------------------------- */

static struct pattern pattern_of(const struct hd_memory_span *s, const struct item *it, int64_t n)
{
	struct pattern p = { .n = n, .hash = HD_HASH_START };
	int64_t base = INT64_MAX;

	p.s = hd_alloc((size_t)n * sizeof(*p.s));
	for (int64_t k = 0; k < n; k++)
		base = s[it[k].i].first < base ? s[it[k].i].first : base;
	for (int64_t k = 0; k < n; k++) {
		const struct hd_memory_span *x = &s[it[k].i];
		int64_t words[] = { x->bytes, x->first - base, x->last - base };

		p.s[k] = (struct hd_memory_span){ words[0], words[1], words[2], 0 };
		for (size_t w = 0; w < HD_LEN(words); w++)
			p.hash = hd_hash_add(p.hash, (uint64_t)words[w]);
	}
	return p;
}

static int equal(const struct pattern *a, const struct pattern *b)
{
	if (a->n != b->n || a->hash != b->hash)
		return 0;
	for (int64_t k = 0; k < a->n; k++)
		if (a->s[k].bytes != b->s[k].bytes || a->s[k].first != b->s[k].first || a->s[k].last != b->s[k].last)
			return 0;
	return 1;
}

static const struct pattern *packed(struct patterns *all, struct pattern p)
{
	for (size_t k = 0; k < all->n; k++)
		if (equal(&all->v[k], &p)) {
			free(p.s);
			return &all->v[k];
		}
	p.bytes = hd_pack_plan(p.s, p.n, 0);
	all->v = hd_grow(all->v, all->n, &all->cap, sizeof(*all->v));
	all->v[all->n] = p;
	return &all->v[all->n++];
}

/* -- bundles ----------------------------------------------------------------------------------- */

/* Sets offsets within the bundle. Returns its bytes. */
static int64_t arrange(struct hd_memory_span *s, const struct item *it, int64_t n, struct patterns *all)
{
	int64_t at = 0;

	if (it->u0 == it->u1) {
		const struct pattern *p = packed(all, pattern_of(s, it, n));

		for (int64_t k = 0; k < n; k++)
			s[it[k].i].offset = p->s[k].offset;
		return p->bytes;
	}
	for (int64_t k = 0; k < n; k++) {
		s[it[k].i].offset = at;
		at += rounded(s[it[k].i].bytes);
	}
	return at;
}

static int64_t bundle_end(const struct item *it, int64_t n, int64_t from)
{
	int64_t to = from;

	while (to < n && it[to].u0 == it[from].u0 && it[to].u1 == it[from].u1)
		to++;
	return to;
}

/* Sorts by u1 (ends = 1) or u0, keeping the order of equal items. units: greater than any unit. */
static void sort_by(struct item *to, const struct item *from, int64_t n, int32_t units, int ends)
{
	int64_t *at = hd_alloc(((size_t)units + 1) * sizeof(*at));

	for (int64_t i = 0; i < n; i++)
		at[(ends ? from[i].u1 : from[i].u0) + 1]++;
	for (int32_t u = 0; u < units; u++)
		at[u + 1] += at[u];
	for (int64_t i = 0; i < n; i++)
		to[at[ends ? from[i].u1 : from[i].u0]++] = from[i];
	free(at);
}

/* Collects the spans that need room, ordered by their first unit and then by their last. Returns their number. */
static int64_t collect(struct hd_memory_span *s, int64_t n, const int32_t *unit, struct item *it)
{
	struct item *other = hd_alloc((size_t)(n + 1) * sizeof(*other));
	int32_t units = 0;
	int64_t some = 0;

	for (int64_t i = 0; i < n; i++) {
		s[i].offset = 0;
		if (s[i].bytes > 0) {
			it[some++] = (struct item){ unit[s[i].first], unit[s[i].last], i };
			units = unit[s[i].first] >= units ? unit[s[i].first] + 1 : units;
			units = unit[s[i].last] >= units ? unit[s[i].last] + 1 : units;
		}
	}
	sort_by(other, it, some, units, 1);
	sort_by(it, other, some, units, 0);
	free(other);
	return some;
}

int64_t hd_memory_plan_units(struct hd_memory_span *s, int64_t n, const int32_t *unit)
{
	struct item *it = hd_alloc((size_t)(n + 1) * sizeof(*it));
	struct hd_memory_span *bundle = hd_alloc((size_t)(n + 1) * sizeof(*bundle));
	struct patterns all = { 0 };
	int64_t some = collect(s, n, unit, it), nbundles = 0, top;

	for (int64_t from = 0, to; from < some; from = to) {
		to = bundle_end(it, some, from);
		bundle[nbundles++] =
			(struct hd_memory_span){ arrange(s, it + from, to - from, &all), it[from].u0, it[from].u1, 0 };
	}
	top = hd_pack_plan(bundle, nbundles, 200);
	nbundles = 0;
	for (int64_t from = 0, to; from < some; from = to, nbundles++) {
		to = bundle_end(it, some, from);
		for (int64_t k = from; k < to; k++)
			s[it[k].i].offset += bundle[nbundles].offset;
	}
	for (size_t k = 0; k < all.n; k++)
		free(all.v[k].s);
	free(all.v);
	free(bundle);
	free(it);
	return top;
}
