/* SPDX-License-Identifier: Apache-2.0
 * Turns the reshards that no plugin replaced into the collectives of the table in reshard.c.
 *
 * Example: the border between two stages, with one layer on each (t1211 runs it).
 *
 *   before:
 *     add a, b -> c: pinned to stages 0
 *     reshard on stages c -> d: pinned to stages 1
 *     norm d, h.1.ln_1.weight, h.1.ln_1.bias -> e: pinned to stages 1
 *   after:
 *     add a, b -> c: pinned to stages 0
 *     send on stages c -> f: pinned to stages 0
 *     receive on stages f -> g: pinned to stages 1
 *     norm g, h.1.ln_1.weight, h.1.ln_1.bias -> e: pinned to stages 1
 *
 * One movement became two nodes, because the two stages work at different times.  The send is in the unit that computes
 * c (F of stage 0), the receive in the unit that reads it (F of stage 1).
 *
 * Adjacent reshards of one kind along axes of one strategy become one collective over all their members.  Two
 * all-reduces, one per axis, would move more bytes than one.  Two collectives of any other kind would need more
 * messages.
 */
#include <config.h>
#include "engine/passes/passes.h"
#include "engine/ops/movement.h"
#include "engine/comm/comm.h"
#include <stdlib.h>

static struct tensor *view_of(struct hd_plan *p, struct tensor *x)
{
	return hd_op1(p, "view", &x, 1, "%s", "");
}

static int64_t length_of(const struct tensor *t, const struct hd_dim *d)
{
	for (uint32_t i = 0; i < t->v.ndim; i++)
		if (t->dims[i] == d)
			return t->local[i];
	return 0;
}

static struct tensor *all_to_all(struct hd_plan *p, struct group *g, const struct node *n)
{
	const struct hd_place *from = &n->reshard.have, *to = &n->reshard.need;
	struct tensor *x = hd_build_block(p, n->ins[0], to->dim, g->v.n, to->order);

	x = hd_build_comm(p, HD_COMM_ALL_TO_ALL, g, x, NULL, 0);
	return hd_build_unblock(p, x, from->dim, from->order, length_of(n->outs[0], from->dim));
}

/* If the pieces of the members are not contiguous, `block` first makes each of them contiguous, along a leading dim. */
static struct tensor *reduce_scatter(struct hd_plan *p, struct group *g, struct tensor *x, const struct hd_place *to)
{
	const struct hd_dim *members = hd_member_dim(p, g->v.n);

	if (!to->order)
		return hd_build_comm(p, HD_COMM_REDUCE_SCATTER, g, x, to->dim, 0);
	x = hd_build_block(p, x, to->dim, g->v.n, to->order);
	return hd_build_comm(p, HD_COMM_REDUCE_SCATTER, g, x, members, 0);
}

static struct tensor *all_gather(struct hd_plan *p, struct group *g, const struct node *n)
{
	const struct hd_place *from = &n->reshard.have;

	if (!from->order)
		return hd_build_comm(p, HD_COMM_ALL_GATHER, g, n->ins[0], from->dim, 0);
	return hd_build_unblock(p, hd_build_comm(p, HD_COMM_ALL_GATHER, g, n->ins[0], NULL, 0), from->dim, from->order,
				length_of(n->outs[0], from->dim));
}

/* Sends rows of a ragged tensor to the ranks of their experts, or back. */
static struct tensor *move_rows(struct hd_plan *p, struct group *g, struct node *n)
{
	struct tensor *x = n->ins[0], *y;
	const struct hd_place *h = &n->reshard.have, *w = &n->reshard.need;
	const struct hd_dim *expert = x->ragged_counts->dims[0], *batch = x->ragged_counts->dims[1];
	int generate = p->logits != NULL;

	if (h->kind != HD_PLACE_SHARD || w->kind != HD_PLACE_SHARD || (h->dim != expert && w->dim != expert) ||
	    (h->dim != batch && w->dim != batch)) {
		hd_plan_fail(p, HD_ENOTSUP,
			     "%s: their rows (%s) cannot be moved from %s to %s on %s. They work along one axis only, "
			     "which shards the batch elsewhere%s",
			     generate ? "generation has experts without a limit"
				      : "experts without a limit (model.capacity_factor = 0)",
			     x->spec, hd_placement_text(p, &x->at), hd_placement_text(p, &n->outs[0]->at),
			     n->reshard.axis->name,
			     generate ? ": generate in another layout"
				      : ": for other layouts, set model.capacity_factor");
		return NULL;
	}
	y = hd_build_comm_rows(p, g, n->ins, n->outs[0], w->dim == expert);
	return y;
}

/* Returns whether a movement changes which rows of a ragged tensor a rank has. */
static int changes_rows(const struct node *n)
{
	const struct tensor *x = n->ins[0];
	const struct hd_place *h = &n->reshard.have, *w = &n->reshard.need;

	return x->ragged_counts && ((h->kind == HD_PLACE_SHARD && hd_has_dim(x->ragged_counts, h->dim)) ||
				    (w->kind == HD_PLACE_SHARD && hd_has_dim(x->ragged_counts, w->dim)));
}

static struct tensor *send_receive(struct hd_plan *p, struct group *g, struct tensor *x, struct node *n)
{
	struct axis *a = A(n->reshard.axis);
	struct tensor *y;
	struct node *send;

	if (x->v.node)
		p->cursor = hd_cursor_why(hd_cursor_after(N(x->v.node)), n->reason);
	y = hd_build_comm(p, HD_COMM_SEND, g, x, NULL, n->reshard.need.index);
	if (!y)
		return NULL;
	send = N(y->v.node);
	p->cursor = hd_cursor_why(hd_cursor_before(n), n->reason);
	y = hd_build_comm(p, HD_COMM_RECV, g, y, NULL, n->reshard.have.index);
	if (!y)
		return NULL;
	y->at.on[a->id] = n->reshard.need;
	send->outs[0]->step = x->step;
	send->asked_by = N(y->v.node)->asked_by = n->made_by + 1;
	return y;
}

/* -- several axes at once -------------------------------------------------------------------------------------------------- */
/* Returns the reshard that is the only reader of n's result, if one collective can do the work of both; else NULL. */
static struct node *next_in_collective(const struct node *n, const uint32_t *reads)
{
	const struct hd_place *h = &n->reshard.have, *w = &n->reshard.need;
	const struct tensor *out = n->outs[0];
	struct node *m = NULL;

	if (reads[out->id] != 1)
		return NULL;
	for (size_t k = 0; k < out->nusers && !m; k++)
		if (!out->users[k]->dead && out->users[k]->v.nin && out->users[k]->ins[0] == out)
			m = out->users[k];
	if (n->ins[0]->ragged_counts || !m || !m->v.reshard || m->v.phase != n->v.phase || m->block != n->block ||
	    A(m->reshard.axis)->inst != A(n->reshard.axis)->inst || A(n->reshard.axis)->inst < 0 ||
	    A(n->reshard.axis)->v.n == 1 || A(m->reshard.axis)->v.n == 1)
		return NULL;
	if (h->role || w->role || m->reshard.have.role || m->reshard.need.role)
		return NULL;
	if (h->order || w->order || m->reshard.have.order || m->reshard.need.order)
		return NULL; /* each has its own order of pieces */
	if (m->reshard.have.kind != h->kind || m->reshard.need.kind != w->kind || m->reshard.have.red != h->red)
		return NULL;
	if (h->kind == HD_PLACE_PARTIAL && w->kind == HD_PLACE_REPLICATED)
		return m;
	return (h->kind == HD_PLACE_PARTIAL && w->kind == HD_PLACE_SHARD && m->reshard.need.dim == w->dim) ||
			       (h->kind == HD_PLACE_SHARD && w->kind == HD_PLACE_REPLICATED &&
				m->reshard.have.dim == h->dim)
		       ? m
		       : NULL;
}

/* Returns the group of a chain of reshards, with its axes ordered as the pieces are, outermost first.  The first axis
 * that enters a dim is the outermost, and the first that leaves it the innermost.  For an all-reduce, the order is that
 * of the ranks.  Example: seq is sharded by a, then b.  The chain gathers along b, then along a, and its group is
 * a+b. */
static struct group *all_members(struct hd_plan *p, struct node *const *chain, uint32_t n)
{
	struct axis *axes[HD_MAX_AXES];

	for (uint32_t i = 0; i < n; i++) {
		struct axis *a = A(chain[i]->reshard.axis);
		uint32_t k = i;

		if (chain[i]->reshard.need.kind == HD_PLACE_REPLICATED) /* before the axes that left earlier */
			for (k = 0; chain[i]->reshard.have.kind == HD_PLACE_PARTIAL && k < i && axes[k]->id > a->id;)
				k++;
		for (uint32_t j = i; j > k; j--)
			axes[j] = axes[j - 1];
		axes[k] = a;
	}
	return hd_group_get(p, axes, n, HD_ROLE_CORE);
}

/* Lowers n and the reshards after it to one collective.  Returns the last of them, and the result in *y; NULL: n is on
 * its own. */
static struct node *lower_together(struct hd_plan *p, struct node *n, const uint32_t *reads, struct tensor **y)
{
	const struct hd_place *h = &n->reshard.have, *w = &n->reshard.need;
	struct node *chain[HD_MAX_AXES] = { n }, *next;
	uint32_t k = 1;
	struct group *g;

	while (k < HD_MAX_AXES && (next = next_in_collective(chain[k - 1], reads)))
		chain[k++] = next;
	if (k == 1)
		return NULL;
	g = all_members(p, chain, k);
	if (h->kind == HD_PLACE_SHARD)
		*y = hd_build_comm(p, HD_COMM_ALL_GATHER, g, n->ins[0], h->dim, 0);
	else if (w->kind == HD_PLACE_SHARD)
		*y = hd_build_comm(p, HD_COMM_REDUCE_SCATTER, g, n->ins[0], w->dim, 0);
	else
		*y = hd_build_comm(p, h->red == HD_RED_MAX ? HD_COMM_ALL_MAX : HD_COMM_ALL_REDUCE, g, n->ins[0], NULL,
				   0);
	return chain[k - 1];
}

/* Lowers a reshard between workers and servers (spare coordinates), or among all coordinates. */
static struct tensor *with_spare(struct hd_plan *p, struct axis *a, struct node *n)
{
	const struct hd_place *h = &n->reshard.have, *w = &n->reshard.need;
	struct group *g = hd_group_get(p, &a, 1, HD_ROLE_ALL);
	struct tensor *x = n->ins[0];

	if (h->order || w->order)
		return hd_plan_fail(p, HD_EDIVIDE, "(%s): the %lld servers of %s do not divide %s", x->spec,
				    (long long)a->v.spare, a->v.name, (h->order ? h : w)->dim->name),
		       NULL;
	if (h->role == HD_ROLE_ALL && h->kind == HD_PLACE_PARTIAL && w->role == HD_ROLE_ALL)
		return hd_build_comm(p, HD_COMM_ALL_REDUCE, g, x, NULL, 0);
	if (h->role == HD_ROLE_ALL && h->kind == w->kind)
		return view_of(p, x);
	if (w->role == HD_ROLE_ALL && h->kind == HD_PLACE_REPLICATED && h->role == HD_ROLE_CORE)
		return hd_build_comm(p, HD_COMM_BROADCAST, g, x, NULL, 0);
	if (h->kind == HD_PLACE_PARTIAL && h->red == HD_RED_SUM && w->role == HD_ROLE_SPARE && w->kind)
		return hd_build_comm(p, HD_COMM_PUSH, g, x, w->dim, w->index);
	if (h->role == HD_ROLE_SPARE && h->kind && w->kind == HD_PLACE_REPLICATED && w->role == HD_ROLE_CORE)
		return hd_build_comm(p, HD_COMM_PULL, g, x, h->dim, h->index);
	hd_plan_fail(p, HD_ENOTSUP, "(%s): no movement from %s to %s", x->spec, hd_placement_text(p, &x->at),
		     hd_placement_text(p, &n->outs[0]->at));
	return NULL;
}

static struct tensor *lowered(struct hd_plan *p, struct node *n)
{
	struct axis *a = A(n->reshard.axis);
	const struct hd_place *h = &n->reshard.have, *w = &n->reshard.need;
	struct group *g = hd_group_get(p, &a, 1, HD_ROLE_CORE);
	struct tensor *x = n->ins[0];

	if (h->role || w->role)
		return with_spare(p, a, n);
	if (a->v.n == 1)
		return view_of(p, x);
	if (changes_rows(n))
		return move_rows(p, g, n);
	if (h->kind == HD_PLACE_PARTIAL && w->kind == HD_PLACE_REPLICATED)
		return hd_build_comm(p, h->red == HD_RED_MAX ? HD_COMM_ALL_MAX : HD_COMM_ALL_REDUCE, g, x, NULL, 0);
	if (h->kind == HD_PLACE_PARTIAL && w->kind == HD_PLACE_SHARD)
		return reduce_scatter(p, g, x, w);
	if (h->kind == HD_PLACE_SHARD && w->kind == HD_PLACE_REPLICATED)
		return all_gather(p, g, n);
	if (h->kind == HD_PLACE_SHARD && w->kind == HD_PLACE_SHARD)
		return all_to_all(p, g, n);
	if (h->kind == HD_PLACE_REPLICATED && w->kind == HD_PLACE_SHARD)
		return hd_build_member_chunk(p, x, w->dim, g, w->order);
	if (h->kind == HD_PLACE_PINNED && w->kind == HD_PLACE_PINNED)
		return send_receive(p, g, x, n);
	if (h->kind == HD_PLACE_PINNED && w->kind == HD_PLACE_REPLICATED)
		return hd_build_comm(p, HD_COMM_BROADCAST, g, x, NULL, h->index);
	if (h->kind == HD_PLACE_REPLICATED && w->kind == HD_PLACE_PINNED)
		return view_of(p, x);
	hd_plan_fail(p, HD_ENOTSUP, "no movement from %d to %d on %s for (%s)", h->kind, w->kind, a->v.name, x->spec);
	return NULL;
}

static int lower_node(struct hd_plan *p, struct node *n, const uint32_t *reads)
{
	struct tensor *y = NULL;
	struct node *last;

	p->about = n;
	p->cursor = hd_cursor_why(hd_cursor_before(n), n->reason);
	last = lower_together(p, n, reads, &y);
	if (!last) {
		last = n;
		y = lowered(p, n);
	}
	if (!y)
		return p->err->code ? p->err->code : hd_plan_fail(p, HD_EBUG, "a reshard was not lowered");
	hd_placed_like(y, last->outs[0]);
	hd_tensor_inherit(y, last->outs[0]);
	hd_replace(p, last->outs[0], y);
	for (struct node *k = last; k != n; k = N(k->ins[0]->v.node))
		k->dead = 1;
	return HD_OK;
}

int hd_pass_lower(struct hd_plan *p)
{
	uint32_t *reads = hd_count_readers(p);
	struct node *n, *next;
	int rc = HD_OK;

	for (n = p->first; n && rc >= 0; n = next) {
		next = n->next;
		if (n->v.reshard && !n->dead)
			rc = lower_node(p, n, reads);
	}
	free(reads);
	hd_drop_dead(p);
	return rc < 0 ? rc : p->err->code;
}
