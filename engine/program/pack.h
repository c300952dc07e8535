/* SPDX-License-Identifier: Apache-2.0
 * engine/program/pack.h - offsets in one arena for buffers whose lifetimes are known.
 */
#ifndef HD_ENGINE_MEMORY_H
#define HD_ENGINE_MEMORY_H
#include <stdint.h>

struct hd_memory_span {
	int64_t bytes;       /* 0 is allowed */
	int64_t first, last; /* inclusive times at which it must exist */
	int64_t offset;      /* out, a multiple of HD_ALIGN */
};
#define HD_ALIGN 64

/* Spans that exist at the same time do not overlap.  -> bytes of the arena.  Deterministic.  part: an arena is small enough that
 * exceeds the bound by one part of so many; 0: what work is allowed is spent on a smaller one. */
int64_t hd_pack_plan(struct hd_memory_span *s, int64_t n, int64_t part);
/* The same for very many spans, quickly: unit[t] is the unit that time t belongs to, never falling.  A span counts for
 * the whole of each unit in which it exists with others that end elsewhere; so the arena may be larger. */
int64_t hd_memory_plan_units(struct hd_memory_span *s, int64_t n, const int32_t *unit);
int64_t hd_memory_bound(const struct hd_memory_span *s, int64_t n); /* the largest sum of what exists at one time */

#endif
