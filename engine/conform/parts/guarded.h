/* SPDX-License-Identifier: Apache-2.0
 * engine/conform/parts/guarded.h - memory of an exact size: the byte after it, or the byte before it, cannot be
 * accessed.
 */
#ifndef HD_ENGINE_CONFORM_GUARDED_H
#define HD_ENGINE_CONFORM_GUARDED_H
#include <stddef.h>

enum hd_guard { HD_GUARD_BEHIND, HD_GUARD_BEFORE };
struct hd_guarded {
	char *at;
	size_t bytes;
	char *map; /* the first and last of its pages are guards */
	size_t mapped;
};

/* Returns 1, or 0 if memory is short. */
int hd_guarded_make(struct hd_guarded *g, size_t bytes, enum hd_guard where);
void hd_guarded_release(struct hd_guarded *g);

#endif
