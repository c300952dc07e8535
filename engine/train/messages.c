/* SPDX-License-Identifier: Apache-2.0
 * Checks that each send of a step meets the receive of the same tensor. A plugin's schedule may order units
 * differently on two stages. Messages between two ranks are received in the order in which they are sent, so one could
 * be taken for another.
 */
#include <config.h>
#include "engine/base/rng.h"
#include "engine/comm/wait/control.h"
#include "engine/graph/mesh.h"
#include "engine/graph/traffic.h"
#include "engine/train/train_impl.h"
#include <stdlib.h>

struct message_line { /* an ordered sequence of messages from one rank to another */
	const struct group *group;
	int from, to, channel;
	uint64_t count;
};
struct message_lines {
	struct message_line *v;
	size_t n, cap;
};

static struct message_line *line_of(struct message_lines *l, struct message_line key)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].group == key.group && l->v[i].from == key.from && l->v[i].to == key.to &&
		    l->v[i].channel == key.channel)
			return &l->v[i];
	l->v = hd_grow(l->v, l->n, &l->cap, sizeof(*l->v));
	l->v[l->n] = key;
	return &l->v[l->n++];
}

/* Returns a hash of one message. It is the same on both ranks if the
 * message is, at the same position of its sequence. */
static uint64_t message_hash(struct message_lines *l, const struct hd_program *g, const struct entry *x, int other)
{
	const struct node *n = x->node, *send = n->comm.kind == HD_COMM_SEND ? n : N(n->ins[0]->v.node);
	int me = (int)g->rank, sends = send == n, channel = hd_message_channel(n);
	struct message_line *at =
		line_of(l, (struct message_line){ n->comm.group, sends ? me : other, sends ? other : me, channel, 0 });
	const int64_t of[] = { at->group->id,        at->from, at->to,   channel,
			       (int64_t)at->count++, send->id, x->micro, n->period };
	uint64_t h = 0;

	for (size_t i = 0; i < HD_LEN(of); i++)
		h = hd_hash64(h ^ (uint64_t)of[i]);
	return h;
}

/* Returns the hashes of sends minus those of receives. The sum over all ranks is 0 if all messages meet. */
static uint64_t hash_messages(const struct hd_program *g)
{
	int *ranks = hd_alloc(((size_t)g->plan->ranks + 1) * sizeof(*ranks));
	struct message_lines l = { .n = 0 };
	uint64_t sum = 0;

	for (size_t i = 0; i < g->n; i++) {
		const struct entry *x = &g->entries[i];
		uint32_t kind = x->type == HD_ENTRY_NODE ? x->node->comm.kind : 0;

		if ((kind != HD_COMM_SEND && kind != HD_COMM_RECV) || x->node->comm.group->v.n < 2)
			continue;
		hd_group_ranks(g->plan, x->node->comm.group, g->rank, ranks);
		if (kind == HD_COMM_SEND)
			sum += message_hash(&l, g, x, ranks[x->node->comm.index]);
		else
			sum -= message_hash(&l, g, x, ranks[x->node->comm.index]);
	}
	free(l.v), free(ranks);
	return sum;
}

int hd_train_messages_meet(const struct hd_program *g, struct hd_err *err)
{
	uint64_t mine = hash_messages(g), all = 0;

	for (int bit = 0; bit < 64; bit += 16) /* a double holds the sum of such pieces exactly */
		all += (uint64_t)hd_comm_sum((double)(mine >> bit & 0xffff)) << bit;
	if (!all)
		return HD_OK;
	return hd_err_set(err, HD_EINVAL,
			  "a send and the receive in its place are not the same on two ranks, by the order of their "
			  "units. heddle check CONF --ranks %lld names them",
			  (long long)g->plan->ranks);
}
