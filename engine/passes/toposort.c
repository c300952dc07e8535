/* SPDX-License-Identifier: Apache-2.0
 * Restores program order: every node after the nodes that compute its operands.
 *
 * A plugin may replace a tensor by one that is computed later.  Example: nodes g1, r1, g2, bucket in this order, where
 * bucket reads g1 and g2.  If its result replaces g1, then r1, which read g1, now reads the bucket and must follow it.
 * Sharing of memory, lifetimes and fusing rely on program order.  So such readers move back, to after what they read;
 * nothing else moves.
 */
#include <config.h>
#include "engine/passes/passes.h"
#include <stdlib.h>

enum { UNSEEN, WAITS, STANDS };

struct order {
	struct hd_plan *p;
	char *state;        /* by node id */
	struct node **back; /* a stack of placed nodes whose readers may now be ready */
	size_t n;
};

static int ready(const struct order *o, const struct node *n)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (n->ins[i]->v.node && o->state[N(n->ins[i]->v.node)->id] != STANDS)
			return 0;
	return 1;
}

/* Moves the readers of n that waited only for n to after it, then the readers that waited only for these.  Returns the
 * last node moved. */
static struct node *follow(struct order *o, struct node *n)
{
	struct node *last = n;

	o->n = 0;
	o->back[o->n++] = n;
	while (o->n) {
		struct node *m = o->back[--o->n];

		for (uint32_t k = 0; k < m->v.nout; k++)
			for (size_t u = 0; u < m->outs[k]->nusers; u++) {
				struct node *r = m->outs[k]->users[u];

				if (o->state[r->id] != WAITS || !ready(o, r))
					continue;
				hd_node_move(o->p, r, last->next);
				o->state[r->id] = STANDS;
				o->back[o->n++] = last = r;
			}
	}
	return last;
}

/* Reports a cycle.  If a plugin created the node, the message has the line of its section: no layout would help. */
static int fail_cycle(struct hd_plan *p, const struct node *n)
{
	char *text = hd_plan_text(p, "%s of (%s)%s%s depends on its own result: a cycle", n->v.op->name,
				  n->v.nout ? n->outs[0]->spec : "", *n->v.block ? " in " : "", n->v.block);

	if (n->made_by < 0)
		return hd_plan_fail(p, HD_EINVAL, "%s", text);
	hd_plan_mistake(p, n->made_by);
	return hd_inst_fail(p, n->made_by, HD_EINVAL, text);
}

int hd_pass_toposort(struct hd_plan *p)
{
	struct order o = { .p = p, .state = hd_alloc((size_t)p->nnodes + 1) };
	int rc = HD_OK;

	o.back = hd_alloc((size_t)(p->nnodes + 1) * sizeof(*o.back));
	for (struct node *n = p->first; n;) {
		struct node *next = n->next;

		if (ready(&o, n)) {
			o.state[n->id] = STANDS;
			next = follow(&o, n)->next;
		} else {
			o.state[n->id] = WAITS;
		}
		n = next;
	}
	for (struct node *n = p->first; n && rc >= 0; n = n->next)
		if (o.state[n->id] != STANDS)
			rc = fail_cycle(p, n);
	free(o.state);
	free(o.back);
	return rc;
}
