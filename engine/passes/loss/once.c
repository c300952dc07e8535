/* SPDX-License-Identifier: Apache-2.0
 * Cross entropy that reads the logits once.  One node, xent_both, computes the statistics of a row of logits (xent) and
 * its gradient (xent_d) while the row is in a cache.  So the logits cross the memory bus twice instead of three times:
 * they are read, and the gradient is written in their place.
 *
 * Example: the head of a GPT-2 on one rank, without its norms (t1211 runs it).
 *
 *   before:
 *     F einsum a, wte.weight -> b
 *     F xent b, targets -> c
 *     F xent_combine c, c, d -> e
 *     F nll c, e, f, b, targets -> g
 *     F sum g -> h
 *     B xent_d b, targets, c, e, i -> j
 *     B einsum j, wte.weight -> k
 *     W einsum l, j -> m
 *   after:
 *     F einsum a, wte.weight -> b
 *     F xent_both b, targets -> c
 *     F nll d, e, f, c, targets -> g
 *     F sum g -> h
 *     B einsum c, wte.weight -> i
 *     W einsum j, c -> k
 *
 * The gradient is kept for backward in the memory of the logits.  It can be computed that early because the gradient
 * that arrives at each token is a constant, the seed of backward, and does not depend on the losses.
 *
 * The two nodes stay separate
 *   - if the vocabulary is sharded: the all-reduce of the statistics is between them;
 *   - if something else reads the logits: both logits and gradient would have to be kept;
 *   - if the gradient that arrives at a token is not a constant;
 *   - if backward recomputes the logits (train.recompute): forward would keep their gradient, which is as large;
 *   - in the plan of a framework that computes the loss differently (engine/predict/style.h).
 */
#include <config.h>
#include "engine/graph/placement.h"
#include "engine/ops/build.h"
#include "engine/passes/loss/loss.h"

/* Looks through views: on an axis of one member, they replace collectives. */
static struct tensor *viewed(struct tensor *t)
{
	while (hd_is(hd_maker(t), OP_ROLE_VIEW))
		t = hd_maker(t)->ins[0];
	return t;
}

/* Returns whether t is the sum that x computes.  If nothing is sharded, xent_combine multiplies it by one. */
static int is_sum_of(const struct node *x, struct tensor *t)
{
	const struct node *c = hd_maker(t);

	if (hd_is(c, OP_ROLE_XENT_COMBINE))
		return c->ins[0] == x->outs[0] && viewed(c->ins[1]) == x->outs[0] && c->ins[2] == x->outs[1];
	return t == x->outs[1];
}

/* Returns the xent node of the same logits and targets whose statistics d reads unchanged; NULL: d reads others. */
static struct node *statistics_of(const struct node *d)
{
	struct tensor *max = viewed(d->ins[2]);
	struct node *x = hd_maker(max);

	return hd_is(x, OP_ROLE_XENT) && max == x->outs[0] && is_sum_of(x, viewed(d->ins[3])) &&
			       d->ins[0] == x->ins[0] && d->ins[1] == x->ins[1]
		       ? x
		       : NULL;
}

static int reads(const struct node *n, const struct tensor *t)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (n->ins[i] == t)
			return 1;
	return 0;
}

/* Returns whether nodes other than x and d read the logits z.  The losses (nll) have z as an input, but do not read
 * it. */
static int others_read(const struct tensor *z, const struct node *x, const struct node *d)
{
	for (size_t u = 0; u < z->nusers; u++) {
		const struct node *n = z->users[u];

		if (!n->dead && n != x && n != d && !hd_is(n, OP_ROLE_NLL) && reads(n, z))
			return 1;
	}
	return 0;
}

static int is_plain(const struct node *n)
{
	return !n->only.group && n->made_by < 0 && !n->recompute_of && !n->waits;
}

static int fits(const struct node *x, const struct node *d)
{
	return is_plain(x) && is_plain(d) && x->block == d->block && x->period == d->period &&
	       x->v.phase == HD_UNIT_F && d->v.phase & (HD_UNIT_F | HD_UNIT_B) &&
	       hd_is(hd_maker(d->ins[4]), OP_ROLE_FILL) && !others_read(x->ins[0], x, d);
}

/* Puts y, a result of the combined node, in the place of `old`. */
static void stands_for(struct hd_plan *p, struct tensor *y, struct tensor *old)
{
	hd_placed_like(y, old);
	hd_localize(p, y);
	hd_replace(p, old, y);
}

/* Makes dz an input of the losses in place of z, whose memory it takes. */
static void names_gradient(struct hd_plan *p, struct tensor *z, struct tensor *dz)
{
	for (size_t u = 0; u < z->nusers; u++)
		for (uint32_t i = 0; hd_is(z->users[u], OP_ROLE_NLL) && i < z->users[u]->v.nin; i++)
			if (z->users[u]->ins[i] == z)
				hd_set_input(p, z->users[u], i, dz);
}

static void make_both(struct hd_plan *p, struct node *x, struct node *d)
{
	struct tensor *sum = viewed(d->ins[3]), *z = x->ins[0];
	struct node *both;

	p->cursor = hd_cursor_before(x);
	both = hd_node_make(p, "xent_both", x->ins, 2, "%s", hd_maker(d->ins[4])->attr);
	if (!both)
		return;
	both->computes_for = d->v.phase == x->v.phase ? d->computes_for : d->v.phase;
	stands_for(p, both->outs[0], d->outs[0]);
	for (uint32_t k = 0; k < 3; k++)
		stands_for(p, both->outs[k + 1], x->outs[k]);
	if (sum != x->outs[1])
		hd_replace(p, sum, both->outs[2]);
	names_gradient(p, z, both->outs[0]);
}

int hd_pass_loss_once(struct hd_plan *p)
{
	int some = 0;

	if (p->separate_loss_gradient)
		return HD_OK;
	for (struct node *n = p->first, *next; n && !p->err->code; n = next) {
		struct node *x = hd_is(n, OP_ROLE_XENT_D) ? statistics_of(n) : NULL;

		next = n->next;
		if (!x || !fits(x, n))
			continue;
		make_both(p, x, n);
		some = 1;
	}
	if (some)
		hd_drop_dead(p);
	return p->err->code;
}
