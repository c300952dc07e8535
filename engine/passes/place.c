/* SPDX-License-Identifier: Apache-2.0
 * Gives every tensor a placement on every axis.  All strategies use the same method.
 *
 * Example: the end of GPT-2's attention, on an axis "shards" of 2 members with the rule heads -> shards (t1211 runs
 * it).
 *
 *   before:
 *     einsum a, h.0.attn.proj.weight -> b: replicated
 *     add b, h.0.attn.proj.bias -> c: replicated
 *     add d, c -> e: replicated
 *   after:
 *     einsum a, h.0.attn.proj.weight -> b: partial sum on shards
 *     reshard on shards b -> f: replicated
 *     add f, h.0.attn.proj.bias -> c: replicated
 *     add d, c -> e: replicated
 *
 * The einsum sums over heads, which that axis shards, so each rank computes one term of b.  The bias must be added
 * once, to the complete sum, so a reshard comes first.  Its result, f, is the all-reduced b.
 *
 * In general, for each node and axis, unless the axis is that of the stages or the op decides itself (on_axis):
 *
 *   1. A sum whose operands are all partial stays partial: it is reduced once, later.  If one of the operands was
 *      reduced for another reader already, the reduced value is used instead.
 *   2. An op that is linear in a partial operand passes it on if its result is smaller (the reduction then moves
 *      fewer bytes), or if the result is added to another partial sum or to a weight gradient anyway.
 *   3. Otherwise the ordered rules (dim -> axis) decide: the first rule wins whose dim the node has and may shard.
 *      A contraction over a sharded dim leaves a partial sum.
 *
 * If an operand is not where its node needs it, a reshard node is inserted in between (reshard.c).  Nothing else
 * communicates.
 */
#include <config.h>
#include "engine/passes/passes.h"
#include "engine/graph/placement.h"
#include <stdlib.h>
#include <string.h>

/* -- one node on one axis --------------------------------------------------------------------------------------------------- */

/* -- whether a partial sum stays partial -- */
static int is_sum(const struct node *n)
{
	return n->v.op->linear == ~(uint64_t)0;
}

/* Returns the number of inputs that are added; the row counts of a ragged tensor are no term. */
static uint32_t terms(const struct node *n)
{
	return n->v.nin - (is_sum(n) && n->outs[0]->ragged_counts ? 1 : 0);
}

/* Returns whether n has one result, reads x exactly once, and is linear in it.  Sums do not count here. */
static int is_linear_in(const struct node *n, const struct tensor *x)
{
	uint32_t k = 0, which = 0;

	for (uint32_t i = 0; i < n->v.nin; i++)
		if (n->ins[i] == x)
			k++, which = i;
	return k == 1 && n->v.nout == 1 && !is_sum(n) && n->v.op->linear >> which & 1;
}

/* Predicts whether x is a partial sum on this axis.  Returns 2 if a contraction makes it one, or if it is placed as one
 * and not reduced for any reader yet.  Returns 1 if it only inherits this from an operand, and 0 if it is not partial.
 * A sum is partial if all its terms are; the result is then the maximum over them. */
static int comes_partial(const struct hd_plan *p, const struct tensor *x, const struct axis *a)
{
	const struct node *n = x->v.node ? N(x->v.node) : NULL;
	const struct hd_dim *d;
	int k = 0, least = 2, most = 0;

	if (!n || n->placed)
		return n && x->at.on[a->id].kind == HD_PLACE_PARTIAL && x->at.on[a->id].red == HD_RED_SUM &&
				       !hd_made_replicated(x, a)
			       ? 2
			       : 0;
	if (n->v.op->place || n->v.nout != 1)
		return 0;
	d = is_sum(n) ? NULL : hd_sharded_by_rules(p, n, a);
	if (d && !hd_has_dim(x, d) && !(n->v.op->max_outputs & 1))
		return 2;
	for (uint32_t i = 0; i < terms(n); i++) {
		if (is_sum(n) || is_linear_in(n, n->ins[i]))
			k = comes_partial(p, n->ins[i], a);
		least = k < least ? k : least;
		most = k > most ? k : most;
	}
	return is_sum(n) ? (least ? most : 0) : most > 0;
}

/* Returns the minimum of comes_partial over the other terms of a sum.  Sets *own if it is 2 for one of them. */
static int others_of(const struct hd_plan *p, const struct node *sum, const struct tensor *x, const struct axis *a,
		     int *own)
{
	int least = 2;

	for (uint32_t i = 0; i < terms(sum); i++) {
		int k = sum->ins[i] == x ? 2 : comes_partial(p, sum->ins[i], a);

		least = k < least ? k : least;
		*own |= sum->ins[i] != x && k == 2;
	}
	return least;
}

static int reads(const struct node *n, const struct tensor *x)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (n->ins[i] == x)
			return 1;
	return 0;
}

/* Decides whether x should stay partial, although each of its readers' results is no smaller.  It should if all readers
 * add their results to another partial sum, which must be reduced anyway.  Example: LoRA, with sharded heads.
 *
 *   einsum h, w -> y      partial: the contraction is over heads
 *   einsum h, a -> u      partial, and small: this is x
 *   einsum u, b -> v      larger than u, but linear in it
 *   add y, v -> z         an all-reduce of z serves y and v, so u needs none
 *
 * Weight gradients that read x (here that of b reads u) are partial too then, but they are reduced once a step, and z
 * once a micro-batch.  Returns the elements of the other sum (z).  Returns 0 if a reader needs x complete, or if the
 * weight gradients have more elements than z in all micro-batches. */
static int64_t worth_staying_partial(const struct hd_plan *p, const struct tensor *x, const struct axis *a)
{
	int64_t size = 0, weights = 0;

	for (const struct node *r = x->v.node ? N(x->v.node)->next : NULL; r; r = r->next) {
		int64_t n = 0;
		int own = 0;

		if (!reads(r, x))
			continue;
		if (is_sum(r) ? !others_of(p, r, x, a, &own) : !is_linear_in(r, x))
			return 0;
		if (r->v.phase == HD_UNIT_W) {
			weights += hd_global_count(r->outs[0]);
			continue;
		}
		n = own ? hd_global_count(r->outs[0]) : worth_staying_partial(p, r->outs[0], a);
		if (!n)
			return 0;
		size = n > size ? n : size;
	}
	return weights <= size * p->micros ? size : 0;
}

/* Returns whether a partial sum passes through the node unreduced on this axis; if so, fills need and out. */
static int partial_passes_through(const struct hd_plan *p, const struct node *n, const struct axis *a,
				  const struct hd_place *have, struct hd_place *need, struct hd_place *out)
{
	uint32_t partial = 0, which = 0;
	const uint64_t linear = n->v.op->linear;

	for (uint32_t i = 0; i < n->v.nin; i++)
		if (have[i].kind == HD_PLACE_PARTIAL && have[i].red == HD_RED_SUM && !hd_made_replicated(n->ins[i], a))
			partial++, which = i;
	if (!partial || !linear)
		return 0;
	if (linear == ~(uint64_t)0) { /* linear in all inputs together: a sum */
		if (partial < terms(n))
			return 0;
	} else if (partial > 1 || !(linear >> which & 1) || n->v.nout != 1 ||
		   (hd_global_count(n->outs[0]) >= hd_global_count(n->ins[which]) &&
		    !worth_staying_partial(p, n->ins[which], a))) {
		return 0;
	}
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (have[i].kind == HD_PLACE_PARTIAL && (i == which || linear == ~(uint64_t)0))
			need[i] = have[i];
	for (uint32_t k = 0; k < n->v.nout; k++)
		out[k] = have[which];
	return 1;
}

static void by_rules(struct hd_plan *p, struct node *n, const struct axis *a, const struct hd_place *have,
		     struct hd_place *need, struct hd_place *out)
{
	const struct rule *r;
	const struct hd_dim *d;
	struct hd_place cut = { .kind = HD_PLACE_SHARD };

	if (partial_passes_through(p, n, a, have, need, out))
		return;
	r = hd_rule_for(p, n, a);
	if (!r)
		return;
	cut.dim = d = r->dim;
	cut.level = r->flags & HD_RULE_INNERMOST ? 1 : r->flags & HD_RULE_OUTERMOST ? -1 : 0;
	cut.order = r->flags & HD_RULE_ZIGZAG ? HD_ORDER_ZIGZAG : HD_ORDER_CONTIGUOUS;
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (hd_has_dim(n->ins[i], d))
			need[i] = cut;
	for (uint32_t k = 0; k < n->v.nout; k++) {
		if (hd_has_dim(n->outs[k], d)) {
			out[k] = cut;
		} else {
			out[k] = (struct hd_place){ .kind = HD_PLACE_PARTIAL,
						    .red = n->v.op->max_outputs >> k & 1 ? HD_RED_MAX : HD_RED_SUM };
			n->outs[k]->reduced_dim[a->id] = d;
		}
	}
}

/* Checks the places that a plugin's op returned for its operands and results. */
static int check_places(struct hd_plan *p, const struct node *n, const struct hd_axis *a, const struct hd_place *need,
			const struct hd_place *out)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (hd_place_check(p, n->v.op->name, &need[i], a, &n->ins[i]->v) < 0)
			return p->err->code;
	for (uint32_t k = 0; k < n->v.nout; k++)
		if (hd_place_check(p, n->v.op->name, &out[k], a, &n->outs[k]->v) < 0)
			return p->err->code;
	return HD_OK;
}

/* Places a node of the update where its operands are; returns 0 if nothing there decides.  On the axis of the stages,
 * it runs on the stage of an operand.  On other axes, an elementwise node works on each member's shard, and takes
 * slices of replicated operands. */
static int in_update(const struct hd_plan *p, const struct node *n, const struct axis *a, const struct hd_place *have,
		     struct hd_place *need, struct hd_place *out)
{
	int elementwise = n->is->role == OP_ROLE_MAP || n->is->role == OP_ROLE_ADD || n->is->role == OP_ROLE_CAST;
	uint32_t first = 0;

	while (first < n->v.nin && have[first].kind != HD_PLACE_PINNED &&
	       !(elementwise && a != p->stages && have[first].kind == HD_PLACE_SHARD &&
		 hd_has_dim(n->outs[0], have[first].dim)))
		first++;
	if (first == n->v.nin)
		return 0;
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (have[i].role == HD_ROLE_ALL)
			need[i] = have[i];
		else if (have[first].kind == HD_PLACE_PINNED ? have[i].kind == HD_PLACE_PINNED
							     : hd_has_dim(n->ins[i], have[first].dim))
			need[i] = have[first];
	for (uint32_t k = 0; k < n->v.nout; k++)
		out[k] = have[first];
	return 1;
}

/* If all operands are on all coordinates, spare ones included, so are the results. */
static int on_all(const struct node *n, const struct hd_place *have, struct hd_place *need, struct hd_place *out)
{
	uint32_t all = 0;

	while (all < n->v.nin && have[all].role == HD_ROLE_ALL)
		all++;
	if (!all || all < n->v.nin)
		return 0;
	for (uint32_t i = 0; i < n->v.nin + n->v.nout; i++)
		*(i < n->v.nin ? &need[i] : &out[i - n->v.nin]) = (struct hd_place){ .role = HD_ROLE_ALL };
	return 1;
}

static int on_axis(struct hd_plan *p, struct node *n, struct axis *a, const struct hd_place *have,
		   struct hd_place *need, struct hd_place *out)
{
	int rc = HD_DEFAULT;

	if (a == p->stages && n->block >= 0 && n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W)) {
		struct hd_place at = { .kind = HD_PLACE_PINNED, .index = (int32_t)p->blocks[n->block].coord };

		for (uint32_t i = 0; i < n->v.nin; i++)
			need[i] = at;
		for (uint32_t k = 0; k < n->v.nout; k++)
			out[k] = at;
		return HD_OK;
	}
	if (!n->v.op->place && a->v.spare && on_all(n, have, need, out))
		return HD_OK;
	if (n->v.phase == HD_UNIT_U && !n->v.op->place && in_update(p, n, a, have, need, out))
		return HD_OK;
	if (n->v.op->place) {
		struct hd_slot was = hd_slot_begin(p, n->inst, "place");

		rc = n->v.op->place(n->inst >= 0 ? p->inst[n->inst].self : NULL, p, &n->v, &a->v, have, need, out);
		if (n->inst >= 0 && rc != HD_DEFAULT)
			rc = hd_op_slot_returned(p, n->v.op, rc);
		if (rc >= 0 && rc != HD_DEFAULT && n->inst >= 0)
			rc = check_places(p, n, &a->v, need, out);
		hd_slot_end(p, was);
	}
	if (rc == HD_DEFAULT)
		by_rules(p, n, a, have, need, out);
	return rc < 0 ? hd_plan_fail(p, rc, "%s: the placement rule failed on %s", n->v.op->name, a->v.name) : HD_OK;
}

/* Computes the placements that a node needs for its inputs and gives its outputs.  known: the inputs are placed
 * already. */
static int node_needs(struct hd_plan *p, struct node *n, int known, struct placement *need, struct placement *out)
{
	struct hd_place *h = hd_alloc((2 * n->v.nin + HD_MAX_OUTS) * sizeof(*h));
	struct hd_place *w = h + n->v.nin, *o = w + n->v.nin;
	int rc = 0;

	if (n->recompute_of && known) { /* like the original, which precedes it */
		for (uint32_t i = 0; i < n->v.nin; i++)
			need[i] = n->recompute_of->ins[i]->at;
		for (uint32_t k = 0; k < n->v.nout; k++)
			out[k] = n->recompute_of->outs[k]->at;
		free(h);
		return HD_OK;
	}
	for (int a = 0; a < p->naxes && rc >= 0; a++) {
		memset(h, 0, (2 * n->v.nin + HD_MAX_OUTS) * sizeof(*h));
		for (uint32_t i = 0; known && i < n->v.nin; i++)
			h[i] = n->ins[i]->at.on[a];
		rc = on_axis(p, n, p->axes[a], h, w, o);
		for (uint32_t i = 0; i < n->v.nin; i++)
			need[i].on[a] = w[i];
		for (uint32_t k = 0; k < n->v.nout; k++)
			out[k].on[a] = o[k];
	}
	free(h);
	return rc;
}

/* A partial result that passes on a partial operand also inherits the dim that was summed over. */
static void inherit_reason(struct hd_plan *p, struct node *n)
{
	for (uint32_t k = 0; k < n->v.nout; k++)
		for (int a = 0; a < p->naxes; a++)
			for (uint32_t i = 0; i < n->v.nin && !n->outs[k]->reduced_dim[a] &&
					     n->outs[k]->at.on[a].kind == HD_PLACE_PARTIAL;
			     i++)
				n->outs[k]->reduced_dim[a] = n->ins[i]->reduced_dim[a];
}

static int is_cache(const struct hd_plan *p, const struct tensor *t)
{
	return p->past && t->v.what == HD_TENSOR_STATE && !t->v.of && !t->v.node;
}

/* Places a cache where its reader needs it, now that the new keys have their places: place_leaf did not know these.
 * The reader changes the cache, so it must not get a piece that a reshard has copied. */
static void place_cache(struct hd_plan *p, struct tensor *t, const struct placement *need)
{
	t->at = *need;
	hd_localize(p, t);
}

static int place_one(struct hd_plan *p, struct node *n)
{
	struct placement *need = hd_alloc((n->v.nin + HD_MAX_OUTS) * sizeof(*need)), *out = need + n->v.nin;
	int rc = node_needs(p, n, 1, need, out);

	for (uint32_t i = 0; i < n->v.nin && rc >= 0; i++) {
		struct tensor *x;

		if (is_cache(p, n->ins[i]))
			place_cache(p, n->ins[i], &need[i]);
		x = hd_reshard_to(p, n->ins[i], &need[i], n);
		if (!x)
			rc = p->err->code;
		else
			hd_set_input(p, n, i, x);
	}
	for (uint32_t k = 0; k < n->v.nout && rc >= 0; k++) {
		n->outs[k]->at = out[k];
		hd_localize(p, n->outs[k]);
	}
	inherit_reason(p, n);
	n->placed = 1;
	free(need);
	return rc < 0 ? rc : p->err->code;
}

/* -- leaves: where their first readers need them ----------------------------------------------------------------------------- */
/* Returns the first node that reads each tensor, by tensor id; the caller frees the array. */
static struct node **first_readers(const struct hd_plan *p)
{
	struct node **first = hd_alloc((p->ntensors + 1) * sizeof(*first));

	for (struct node *n = p->first; n; n = n->next)
		for (uint32_t i = 0; i < n->v.nin; i++)
			if (!first[n->ins[i]->id])
				first[n->ins[i]->id] = n;
	return first;
}

static int place_leaf(struct hd_plan *p, struct tensor *t, struct node *n)
{
	struct placement *need;
	uint32_t i = 0;
	int rc;

	if (!n)
		return HD_OK;
	while (n->ins[i] != t)
		i++;
	need = hd_alloc((n->v.nin + HD_MAX_OUTS) * sizeof(*need));
	rc = node_needs(p, n, 0, need, need + n->v.nin);
	t->at = need[i];
	free(need);
	for (int a = 0; a < p->naxes; a++)
		if (t->at.on[a].kind == HD_PLACE_PARTIAL)
			t->at.on[a] = (struct hd_place){ .kind = HD_PLACE_REPLICATED };
	hd_localize(p, t);
	return rc < 0 ? rc : p->err->code;
}

static int is_beside(const struct hd_plan *p, const struct tensor *t)
{
	return (t->v.what == HD_TENSOR_STATE && !is_cache(p, t)) || t->v.what == HD_TENSOR_MASTER;
}

/* Places parameters, data and caches first.  A state or a master then lives with its parameter, unless slot storage
 * says otherwise.  A state that is like another tensor, such as a mean over a dim of the parameter, lives where it is
 * read. */
int hd_pass_place_leaves(struct hd_plan *p)
{
	struct node **first = first_readers(p);
	int rc = HD_OK;

	for (size_t i = 0; i < p->ntensors && rc >= 0; i++)
		if (!p->tensors[i]->v.node && (!is_beside(p, p->tensors[i]) || !p->tensors[i]->v.of))
			rc = place_leaf(p, p->tensors[i], first[p->tensors[i]->id]);
	free(first);
	HD_TRY(rc);
	for (size_t i = 0; i < p->ntensors; i++)
		if (!p->tensors[i]->v.node && is_beside(p, p->tensors[i]) && p->tensors[i]->v.of) {
			hd_placed_like(p->tensors[i], T(p->tensors[i]->v.of));
			hd_localize(p, p->tensors[i]);
		}
	return p->err->code;
}

/* A master is part of the optimizer's state, so it is stored with the other states, unless it was given a storage of
 * its own. */
static void masters_follow(struct hd_plan *p)
{
	for (size_t i = 0; i < p->ntensors; i++) {
		struct tensor *t = p->tensors[i],
			      *m = t->v.what == HD_TENSOR_STATE && t->stored && t->v.of ? T(t->v.of)->master : NULL;

		if (m && !m->stored) {
			m->storage = t->storage;
			m->stored = t->stored;
		}
	}
}

/* Computes again which pieces are padded. What an axis cuts also depends on sections that were called later. For a
 * gradient, it depends on the storage of the leaf that is updated. */
static void settle_pieces(struct hd_plan *p)
{
	for (size_t i = 0; i < p->ntensors; i++)
		for (int a = 0; a < p->naxes; a++) {
			struct tensor *t = p->tensors[i];

			if (t->stored >> a & 1)
				t->storage.on[a] = hd_storage_place(p, t, &t->storage.on[a], p->axes[a]);
		}
}

/* Moves a leaf to the storage that plugins asked for. */
static void move_home(struct hd_plan *p, struct tensor *t)
{
	for (int a = 0; a < p->naxes; a++)
		if (t->stored >> a & 1)
			t->at.on[a] = t->storage.on[a];
	hd_localize(p, t);
}

/* Moves the value that a leaf takes at the end of the step to where the leaf lives. */
static int place_assigned(struct hd_plan *p)
{
	p->cursor = hd_cursor_end(HD_UNIT_U, -1);
	for (size_t i = 0; i < p->ntensors; i++) {
		struct tensor *t = p->tensors[i];

		if (!t->v.node && t->assign) {
			hd_assign(t, hd_reshard_to(p, t->assign, &t->at, NULL));
			if (!t->assign)
				return p->err->code;
		}
	}
	return HD_OK;
}

/* Makes a tensor that the run reads available on all ranks, replicated. */
static struct tensor *everywhere(struct hd_plan *p, struct tensor *t)
{
	struct placement whole = { 0 };

	if (!t)
		return NULL;
	for (int a = 0; a < p->naxes; a++)
		whole.on[a].role = p->axes[a]->v.spare ? HD_ROLE_ALL : HD_ROLE_CORE;
	p->cursor = hd_cursor_end(t->step ? HD_UNIT_S : HD_UNIT_F, -1);
	return hd_reshard_to(p, t, &whole, NULL);
}

int hd_pass_place(struct hd_plan *p)
{
	masters_follow(p);
	settle_pieces(p);
	for (size_t i = 0; i < p->ntensors; i++)
		if (!p->tensors[i]->v.node && p->tensors[i]->stored)
			move_home(p, p->tensors[i]);
	for (struct node *n = p->first; n; n = n->next)
		if (!n->placed) {
			p->about = n;
			HD_TRY(place_one(p, n));
		}
	p->about = NULL;
	HD_TRY(place_assigned(p));
	p->loss = p->train ? everywhere(p, p->loss) : NULL; /* an evaluation reads the loss of each token instead */
	p->logits = everywhere(p, p->logits);
	for (size_t i = 0; i < p->nmoe_stats; i++)
		p->moe_stats[i] = everywhere(p, p->moe_stats[i]);
	return p->err->code;
}
