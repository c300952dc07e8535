/* SPDX-License-Identifier: Apache-2.0
 * Which rank this process is, and how messages name ranks.
 */
#include <config.h>
#include "engine/comm/world/state.h"
#include "engine/comm/world/communicator.h"
#include <stdlib.h>

struct hd_comm_here hd_here = { .w = { 0, 1, 0, 1, 1 } };

static struct {
	char *(*describe)(const void *ctx, int rank);
	const void *ctx;
} names;

void hd_here_alone(void)
{
	hd_here.world_of = hd_alloc(sizeof(int));
	hd_here.local_of = hd_alloc(sizeof(int));
}

struct hd_control_rank *hd_here_control(void)
{
	return hd_here.control ? &hd_here.control->rank[hd_here.w.local_rank] : NULL;
}

void hd_here_leaves(int how)
{
	if (hd_here.control)
		atomic_store(&hd_here_control()->state, how);
}

void hd_comm_describe(char *(*describe)(const void *ctx, int rank), const void *ctx)
{
	names.describe = describe;
	names.ctx = ctx;
}

char *hd_rank_text(int rank)
{
	char *d = names.describe ? names.describe(names.ctx, rank) : NULL;
	char *s = hd_format(d && *d ? "rank %d %s" : "rank %d%s", rank, d ? d : "");

	if (hd_here.host_of)
		hd_append(&s, " on %s", hd_here.host_of[rank]);
	free(d);
	return s;
}

char *hd_waiting_text(const struct hd_waiting *w)
{
	return hd_format("%s%s%s", w->what, w->m ? " on " : "", w->m ? w->m->name : "");
}
