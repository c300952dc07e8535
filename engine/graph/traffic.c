/* SPDX-License-Identifier: Apache-2.0
 * What communication sends: the bytes per member, and the tensor that is moved, with its name for messages.
 */
#include <config.h>
#include "engine/comm/comm.h"
#include "engine/graph/graph.h"
#include "engine/graph/mesh.h"
#include "engine/graph/traffic.h"
#include <string.h>

int64_t hd_comm_node_count(const struct node *n)
{
	if (hd_comm_is_reduce_scatter(n->comm.kind))
		return hd_local_count(n->outs[0]);
	switch (n->comm.kind) {
	case HD_COMM_SCATTER:
	case HD_COMM_PUSH:
	case HD_COMM_RECV: return hd_local_count(n->outs[0]);
	case HD_COMM_ALL_TO_ALL: return hd_local_count(n->ins[0]) / n->comm.group->v.n;
	default: return hd_local_count(n->ins[0]);
	}
}

int hd_message_channel(const struct node *n)
{
	const struct node *send = n->comm.kind == HD_COMM_SEND ? n : N(n->ins[0]->v.node);

	return (send->v.phase & (HD_UNIT_B | HD_UNIT_W)) != 0;
}

int32_t hd_comm_workers(const struct node *n)
{
	return hd_comm_is_push_or_pull(n->comm.kind) ? (int32_t)n->comm.group->axes[0]->v.n : 0;
}

static int64_t sent_by(const struct node *n, int64_t member)
{
	uint32_t dtype = n->comm.wire ? n->comm.wire : n->ins[0]->v.dtype;
	int64_t count = hd_comm_node_count(n);

	if (n->comm.kind == HD_COMM_ALL_TO_ALL_V)
		return (int64_t)(hd_ragged_balanced(n->ins[0]) * (double)(n->comm.group->v.n - 1) /
				 (double)n->comm.group->v.n) *
		       hd_ragged_row_elements(n->ins[0]) * HD_BITS(dtype) / 8;
	if (HD_BITS(dtype) < 8)
		count = (count + 7) / 8, dtype = HD_DTYPE_U8;
	if (n->comm.kind == HD_COMM_PERMUTE || hd_comm_is_push_or_pull(n->comm.kind))
		return hd_call_sent(&(struct hd_call){ .kind = n->comm.kind,
						       .dtype = dtype,
						       .count = count,
						       .index = (int32_t)n->comm.index,
						       .mul = n->comm.mul,
						       .workers = hd_comm_workers(n) },
				    (int)n->comm.group->v.n, (int)member);
	return hd_comm_bytes(n->comm.kind, dtype, count, (int)n->comm.group->v.n, (int)member, (int)n->comm.index);
}

int64_t hd_comm_node_bytes(const struct node *n)
{
	int64_t me = n->comm.kind == HD_COMM_SEND ? 0 : n->comm.index, size = n->comm.group->v.n;
	int64_t root = sent_by(n, me < 0 ? size - 1 : me % size), other = sent_by(n, (me + 1) % size);

	for (int64_t k = 2; n->comm.kind == HD_COMM_PERMUTE && k < size && !other; k++)
		other = sent_by(n, k); /* a member may keep its own piece */
	return root > other ? root : other;
}

int64_t hd_comm_node_sent(const struct hd_plan *p, const struct node *n, int64_t rank)
{
	return sent_by(n, hd_member_index(p, n->comm.group, rank));
}

/* Returns the tensor that a collective moves, looking through nodes that only reorder it for the transfer or moved it
 * here. */
const struct tensor *hd_comm_node_subject(const struct node *n)
{
	const struct tensor *x = n->ins[0];

	while (!x->v.name[0] && x->v.node && N(x->v.node)->is->flags & OP_FLAG_ARRANGES)
		x = N(x->v.node)->ins[0];
	return x;
}

const char *hd_comm_node_subject_name(const struct node *n)
{
	const struct tensor *x = hd_comm_node_subject(n);

	return x->v.name[0] ? x->v.name : x->v.node ? x->v.node->op->name : "leaf";
}

/* Returns what a rank sends if the tokens' choices of experts are as unequal as possible. */
int64_t hd_comm_node_largest(const struct node *n)
{
	const struct tensor *x = n->ins[0];

	if (n->comm.kind != HD_COMM_ALL_TO_ALL_V)
		return hd_comm_node_bytes(n);
	if (n->comm.index) /* rows leave for experts: it may send all of them */
		return hd_ragged_max(x) * hd_ragged_row_elements(x) * HD_BITS(x->v.dtype) / 8;
	return hd_ragged_max(x) / n->comm.group->v.n * (n->comm.group->v.n - 1) * hd_ragged_row_elements(x) *
	       HD_BITS(x->v.dtype) / 8;
}
