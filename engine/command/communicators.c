/* SPDX-License-Identifier: Apache-2.0
 * Counts the NCCL communicators that need buffers on a rank, which are those that it moves data over. A group has one
 * for its collectives and four for messages: by direction, and by whether the sender's index is odd
 * (engine/comm/transport/device.c).
 */
#include <config.h>
#include "engine/command/stage_lines.h"
#include "engine/device/call.h"
#include "engine/graph/mesh.h"
#include "engine/program/program.h"
#include <stdlib.h>

int hd_plan_has_nccl(const struct hd_plan *p)
{
	return p->config.device == HD_DEVICE_CUDA && p->config.comm != HD_TRANSPORT_MPI && !p->config.rank_order &&
	       p->ranks > 1;
}

static unsigned communicator_of(const struct hd_program *g, const struct node *n)
{
	const struct node *sender = n;
	int64_t index = n->comm.index;

	if (n->comm.kind < HD_COMM_SEND)
		return 0;
	if (n->comm.kind == HD_COMM_SEND)
		index = hd_member_index(g->plan, n->comm.group, g->rank);
	else
		sender = N(n->ins[0]->v.node);
	return 1 + 2 * ((sender->v.phase & (HD_UNIT_B | HD_UNIT_W)) != 0) + (unsigned)(index & 1);
}

int64_t hd_program_communicators(const struct hd_program *g)
{
	unsigned char *used = hd_alloc(g->plan->ngroups + 1);
	int64_t n = 0;

	for (size_t i = 0; i < g->nmine; i++)
		if (g->mine[i]->comm.kind)
			used[g->mine[i]->comm.group->id] |= (unsigned char)(1u << communicator_of(g, g->mine[i]));
	for (size_t i = 0; i < g->plan->ngroups; i++)
		n += __builtin_popcount(used[i]);
	free(used);
	return n;
}
