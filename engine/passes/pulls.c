/* SPDX-License-Identifier: Apache-2.0
 * Updates on other ranks.  Slot storage may put masters on ranks that hold no model, or give each rank a piece of them.
 * Ranks then get the values at the start of the next step, in the order in which forward reads them.  Forward begins as
 * soon as the first have arrived, and the others arrive while it runs:
 *
 *   before:  F  read w                     U  update master -> master, value; w takes value, which is sent
 *   after:   G  master -> value, sent -> pulled, which w takes     F  read w     U  update master -> master
 *
 * So after a step only the masters are up to date.  Parameters are one step behind until hd_program_pull.  Masters in
 * host memory do not wait for the next step: each is sent as soon as it has been copied to the device.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/passes/passes.h"
#include "engine/ops/build.h"
#include <string.h>

static int is_on_servers(const struct hd_plan *p, const struct tensor *m)
{
	const struct axis *a = hd_spare_axis(p);

	return a && m->stored >> a->id & 1 && m->storage.on[a->id].role == HD_ROLE_SPARE;
}

/* Returns whether the pieces of master m are gathered along one axis, by a device or a network.  The threads of a host
 * would copy them at either end of the step, and the update has just written them.  Pieces along two axes would need a
 * second gather after the first, which could not start in advance. */
static int is_in_pieces(const struct hd_plan *p, const struct tensor *w, const struct tensor *m)
{
	const struct axis *along = NULL;
	int n = 0;

	for (int a = 0; a < p->naxes; a++)
		if (m->stored >> a & 1 && m->storage.on[a].kind == HD_PLACE_SHARD &&
		    w->at.on[a].kind == HD_PLACE_REPLICATED) {
			along = p->axes[a];
			n++;
		}
	return n == 1 && (p->own_memory || hd_may_leave_host(p, along));
}

static int is_served(const struct hd_plan *p, const struct tensor *w)
{
	const struct tensor *m = w->master;

	return m && w->assign && !(p->own_memory && m->v.space == HD_SPACE_HOST) &&
	       (is_on_servers(p, m) || is_in_pieces(p, w, m));
}

/* Replaces the update of a master by one without the rounded copy, which the parameter does not take any more. */
static void update_alone(struct hd_plan *p, struct node *n)
{
	const char *low = strstr(n->attr, " low=1");
	struct node *m;

	if (n->is->role != OP_ROLE_UPDATE || !low)
		return;
	p->cursor = hd_cursor_before(n);
	m = hd_node_make(p, n->v.op->name, n->ins, n->v.nin, "%.*s", (int)(low - n->attr), n->attr);
	for (uint32_t i = 0; m && i < n->v.nin; i++)
		for (uint32_t k = 0; k < m->v.nout; k++)
			if (!n->ins[i]->v.node && n->ins[i]->assign == n->outs[k])
				hd_assign(n->ins[i], m->outs[k]);
}

/* Adds the nodes of one parameter.  Each `served` is before the first `pulled` of all.  So a plugin can move several
 * values as one when the first of them is needed. */
static int pull(struct hd_plan *p, struct tensor *w, struct node **first, struct node *before)
{
	struct tensor *x = w->master, *y;

	update_alone(p, N(w->assign->v.node));
	p->cursor = (struct cursor){ .before = *first ? *first : before, .phase = HD_UNIT_G, .block = -1 };
	if (x->v.dtype != w->v.dtype)
		x = hd_op1(p, "served", &x, 1, "dtype=%u", w->v.dtype);
	if (x)
		x->v.of = &w->v;
	p->cursor = (struct cursor){ .before = before, .phase = HD_UNIT_G, .block = -1 };
	y = x ? hd_op1(p, "pulled", &x, 1, "%s", "") : NULL;
	if (y && !*first)
		*first = N(y->v.node);
	if (y)
		y->v.of = &w->v;
	hd_assign(w, y);
	p->pulls = 1;
	return p->err->code;
}

int hd_pass_pulls(struct hd_plan *p)
{
	struct node *first = p->first, *pulled = NULL;

	for (struct node *n = first; n && !p->err->code; n = n->next)
		for (uint32_t i = 0; i < n->v.nin && !p->err->code; i++) {
			struct tensor *w = n->ins[i];

			if (!w->v.node && is_served(p, w) && N(w->assign->v.node)->is->role != OP_ROLE_PULLED)
				pull(p, w, &pulled, first);
		}
	return p->err->code;
}
