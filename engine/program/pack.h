/* SPDX-License-Identifier: Apache-2.0
 * engine/program/pack.h - finds offsets in one arena for buffers whose lifetimes are known.
 */
#ifndef HD_ENGINE_PACK_H
#define HD_ENGINE_PACK_H
#include <stdint.h>

struct hd_memory_span {
	int64_t bytes;       /* 0 is allowed */
	int64_t first, last; /* inclusive times at which it must exist */
	int64_t offset;      /* out, a multiple of HD_ALIGN */
};
#define HD_ALIGN 64

/* Sets offsets so that spans that exist at the same time do not overlap. Returns the bytes of the arena. The result is
 * deterministic. The search stops when the arena exceeds the bound by at most 1/part of it. With part 0, it uses all
 * allowed work to find a smaller one. */
int64_t hd_pack_plan(struct hd_memory_span *s, int64_t n, int64_t part);
/* Does the same for very many spans, quickly. unit[t] is the unit of time t, and never decreases. A span that lives in
 * several units counts for all of its first and last unit, so the arena may be larger. */
int64_t hd_memory_plan_units(struct hd_memory_span *s, int64_t n, const int32_t *unit);
int64_t hd_memory_bound(const struct hd_memory_span *s, int64_t n); /* the largest sum of bytes at one time */

#endif
