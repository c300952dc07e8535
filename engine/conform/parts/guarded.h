/* SPDX-License-Identifier: Apache-2.0
 * engine/conform/parts/guarded.h - memory of exactly so many bytes: the byte behind it, or the one before it, cannot be read.
 */
#ifndef HD_ENGINE_CONFORM_GUARDED_H
#define HD_ENGINE_CONFORM_GUARDED_H
#include <stddef.h>

enum hd_guard { HD_GUARD_BEHIND, HD_GUARD_BEFORE };
struct hd_guarded {
	char *at;
	size_t bytes;
	char *map; /* pages, the first and the last of which are guards */
	size_t mapped;
};

/* -> 0: there is no memory */
int hd_guarded_make(struct hd_guarded *g, size_t bytes, enum hd_guard where);
void hd_guarded_release(struct hd_guarded *g);

#endif
