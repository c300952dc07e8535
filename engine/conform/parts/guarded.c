/* SPDX-License-Identifier: Apache-2.0
 * Memory between two pages that cannot be accessed.
 */
#include <config.h>
#include "engine/conform/parts/guarded.h"
#include <sys/mman.h>
#include <unistd.h>

int hd_guarded_make(struct hd_guarded *g, size_t bytes, enum hd_guard where)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), inside = (bytes + page - 1) / page * page;

	*g = (struct hd_guarded){ .bytes = bytes, .mapped = inside + 2 * page };
	g->map = mmap(NULL, g->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (g->map == MAP_FAILED || (inside && mprotect(g->map + page, inside, PROT_READ | PROT_WRITE))) {
		g->map = g->map == MAP_FAILED ? NULL : g->map;
		hd_guarded_release(g);
		return 0;
	}
	g->at = g->map + page + (where == HD_GUARD_BEHIND ? inside - bytes : 0);
	return 1;
}

void hd_guarded_release(struct hd_guarded *g)
{
	if (g->map)
		munmap(g->map, g->mapped);
	*g = (struct hd_guarded){ 0 };
}
