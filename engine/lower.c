/* SPDX-License-Identifier: Apache-2.0
 * The reshards that no plugin took over become the plain collectives of the table in reshard.c.  A movement between
 * stages becomes two nodes: the send stands in the unit that made the tensor, the receive in the unit that reads it.
 */
#include <config.h>
#include "engine/plan.h"
#include "engine/movement.h"
#include "engine/comm.h"

static struct tensor *view_of(struct hd_plan *p, struct tensor *x)
{
	return hd_op1(p, "view", &x, 1, "%s", "");
}

static struct tensor *all_to_all(struct hd_plan *p, struct group *g, struct tensor *x, const struct hd_dim *from,
				 const struct hd_dim *to)
{
	x = hd_build_block(p, x, to, g->v.n);
	x = hd_build_comm(p, HD_ALL_TO_ALL, g, x, NULL, 0);
	return hd_build_unblock(p, x, from);
}

/* The node after the maker of x, in the maker's unit. */
static void stand_after(struct hd_plan *p, const struct tensor *x)
{
	struct node *maker = N(x->v.node);

	p->anchor = maker->next;
	p->phase = maker->v.phase;
	p->block = maker->block;
}

static struct tensor *send_receive(struct hd_plan *p, struct group *g, struct tensor *x, struct node *n)
{
	struct axis *a = A(n->reshard.axis);
	struct tensor *y;
	struct node *send;

	if (x->v.node)
		stand_after(p, x);
	y = hd_build_comm(p, HD_SEND, g, x, NULL, n->reshard.need.index);
	if (!y)
		return NULL;
	send = N(y->v.node);
	p->anchor = n;
	p->phase = n->v.phase;
	p->block = n->block;
	y = hd_build_comm(p, HD_RECV, g, y, NULL, n->reshard.have.index);
	if (!y)
		return NULL;
	y->at.on[a->id] = n->reshard.need;
	send->outs[0]->step = x->step;
	return y;
}

static struct tensor *lowered(struct hd_plan *p, struct node *n)
{
	struct axis *a = A(n->reshard.axis);
	const struct hd_place *h = &n->reshard.have, *w = &n->reshard.need;
	struct group *g = hd_group_get(p, &a, 1, HD_CORE);
	struct tensor *x = n->ins[0];

	if (a->v.n == 1)
		return view_of(p, x);
	if (h->kind == HD_PARTIAL && w->kind == HD_WHOLE)
		return hd_build_comm(p, h->red == HD_MAX ? HD_ALL_MAX : HD_ALL_REDUCE, g, x, NULL, 0);
	if (h->kind == HD_PARTIAL && w->kind == HD_CUT)
		return hd_build_comm(p, HD_REDUCE_SCATTER, g, x, w->dim, 0);
	if (h->kind == HD_CUT && w->kind == HD_WHOLE)
		return hd_build_comm(p, HD_ALL_GATHER, g, x, h->dim, 0);
	if (h->kind == HD_CUT && w->kind == HD_CUT)
		return all_to_all(p, g, x, h->dim, w->dim);
	if (h->kind == HD_WHOLE && w->kind == HD_CUT)
		return hd_build_chunk(p, x, w->dim, a->v.n, &(struct hd_pos){ &g->v, 1, 0, 0, 0 });
	if (h->kind == HD_AT && w->kind == HD_AT)
		return send_receive(p, g, x, n);
	if (h->kind == HD_AT && w->kind == HD_WHOLE)
		return hd_build_comm(p, HD_BROADCAST, g, x, NULL, h->index);
	if (h->kind == HD_WHOLE && w->kind == HD_AT)
		return view_of(p, x);
	hd_plan_fail(p, HD_ENOTSUP, "no movement from %d to %d on %s for (%s)", h->kind, w->kind, a->v.name, x->spec);
	return NULL;
}

int hd_lower(struct hd_plan *p)
{
	struct node *n, *next;

	for (n = p->first; n; n = next) {
		struct tensor *y;

		next = n->next;
		if (!n->v.reshard)
			continue;
		p->anchor = n;
		p->phase = n->v.phase;
		p->block = n->block;
		p->reason = n->reason;
		p->queue = NULL;
		y = lowered(p, n);
		if (!y)
			return p->err->code ? p->err->code : hd_plan_fail(p, HD_EBUG, "a reshard was not lowered");
		y->at = n->outs[0]->at;
		y->v.what = n->outs[0]->v.what;
		y->v.of = n->outs[0]->v.of;
		y->v.name = n->outs[0]->v.name;
		hd_replace(p, n->outs[0], y);
	}
	p->anchor = NULL;
	p->reason = NULL;
	p->block = -1;
	hd_drop_dead(p);
	return p->err->code;
}
