/* SPDX-License-Identifier: Apache-2.0
 * Creates the communicators of a program's groups, and prepares those with messages.
 */
#include <config.h>
#include "engine/comm/comm.h"
#include "engine/graph/mesh.h"
#include "engine/graph/traffic.h"
#include "engine/run/job.h"
#include <stdlib.h>
#include <string.h>

/* Returns the communicator that an earlier program of the same layout has for the group, or NULL. The programs of a
 * job run one at a time, and buffers of a device's communicators are large, so they are shared. */
static struct hd_communicator *known_members(const struct hd_program *was, const struct group *gr)
{
	for (size_t i = 0; was && i < was->plan->ngroups; i++)
		if (was->plan->groups[i]->role == gr->role && !strcmp(was->plan->groups[i]->name, gr->name))
			return was->members[i];
	return NULL;
}

static void create(const struct hd_program *g, const struct hd_program *was, struct hd_communicator **out)
{
	const struct hd_plan *p = g->plan;

	for (size_t i = 0; i < p->ngroups; i++) {
		const struct group *gr = p->groups[i];
		int *ranks;

		out[i] = known_members(was, gr);
		if (out[i])
			continue;
		ranks = hd_alloc((size_t)gr->v.n * sizeof(*ranks));
		out[i] = hd_communicator_create(ranks, (int)hd_group_ranks(p, gr, g->rank, ranks), gr->name);
		free(ranks);
	}
}

static int has_messages(const struct hd_plan *p, const struct group *gr)
{
	for (const struct node *n = p->first; n; n = n->next)
		if (n->comm.kind >= HD_COMM_SEND && n->comm.group == gr)
			return 1;
	return 0;
}

/* Adds the node's end, unless an earlier node has the same. */
static void add_end(const struct node *n, struct hd_message_end *ends, size_t *count)
{
	struct hd_message_end e = { (int)n->comm.index, n->comm.kind == HD_COMM_SEND, hd_message_channel(n) };

	for (size_t i = 0; i < *count; i++)
		if (ends[i].member == e.member && ends[i].sends == e.sends && ends[i].channel == e.channel)
			return;
	ends[(*count)++] = e;
}

static void prepare_messages(const struct hd_program *g, const struct group *gr, struct hd_communicator *m)
{
	struct hd_message_end *ends = hd_alloc((g->nmine + 1) * sizeof(*ends));
	size_t n = 0;

	for (size_t i = 0; i < g->nmine; i++)
		if (g->mine[i]->comm.kind >= HD_COMM_SEND && g->mine[i]->comm.group == gr)
			add_end(g->mine[i], ends, &n);
	hd_communicator_messages(m, ends, n);
	free(ends);
}

void hd_job_groups(const struct hd_program *g, const struct hd_program *was, struct hd_communicator **out)
{
	create(g, was, out);
	for (size_t i = 0; i < g->plan->ngroups; i++)
		if (has_messages(g->plan, g->plan->groups[i]))
			prepare_messages(g, g->plan->groups[i], out[i]);
}
