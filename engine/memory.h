/* SPDX-License-Identifier: Apache-2.0
 * engine/memory.h - offsets in one arena for buffers whose lifetimes are known.
 */
#ifndef HD_ENGINE_MEMORY_H
#define HD_ENGINE_MEMORY_H
#include <stdint.h>

struct hd_span {
	int64_t bytes;			/* 0 is allowed */
	int64_t first, last;		/* inclusive times at which it must exist */
	int64_t offset;			/* out, a multiple of HD_ALIGN */
};
#define HD_ALIGN 64

/* Spans that exist at the same time do not overlap.  -> bytes of the arena.  Deterministic. */
int64_t hd_memory_plan(struct hd_span *s, int64_t n);
int64_t hd_memory_bound(const struct hd_span *s, int64_t n);	/* the largest sum of what exists at one time */

#endif
