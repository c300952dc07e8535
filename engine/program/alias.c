/* SPDX-License-Identifier: Apache-2.0
 * Decides which tensors share bytes.  Every tensor is a range of a root tensor.
 *
 * Example: the end of attention in GPT-2 with an axis "shards" of size 2, after the other passes (t1211 runs it).
 *
 *   before:
 *     einsum a, h.0.attn.proj.weight -> b
 *     all-reduce on shards b -> c
 *     add d, c, h.0.attn.proj.bias -> e
 *   after:
 *     b: bytes of its own
 *     c: the bytes of b
 *     e: bytes of its own
 *
 * The all-reduce writes its result over its operand, because nothing reads b afterwards.  The addition does not
 * write over d, because backward reads d again.
 *
 * Tensors share bytes in four cases:
 *
 *   views        view, sync, unpack, pick, and chunk along the leading dim: the result is a range of the input
 *   in place     the op may write over its input, and nothing reads that input afterwards
 *   pieces       the inputs of pack or join are computed at their places in the result
 *   accumulators a gradient kernel adds straight into the step's accumulator
 *
 * Offsets may depend on the rank (the chunks of a ring).  All members of a group still agree on the place of every
 * root.
 */
#include <config.h>
#include "engine/program/program.h"
#include <stdlib.h>
#include <string.h>

#define FOREVER INT64_MAX

static struct tensor *root_of(struct hd_program *g, struct tensor *t, int64_t *offset)
{
	*offset = 0;
	while (g->at[t->id].root != t) {
		*offset += g->at[t->id].offset;
		t = g->at[t->id].root;
	}
	return t;
}

/* Makes t share the bytes of `in`, from offset on. */
static void merge(struct hd_program *g, struct tensor *t, struct tensor *in, int64_t offset)
{
	g->at[t->id].root = in;
	g->at[t->id].offset = offset;
	g->next[t->id] = g->members_of[in->id];
	g->members_of[in->id] = t;
}

/* Returns when reader r is done with its operand: at its own position, or, for a communication, where it is waited
 * for. */
static int64_t done_reading(const struct hd_program *g, const struct node *r)
{
	int64_t at = g->position[r->id];

	if (!hd_node_moves(r))
		return at;
	if (r->comm.kind == HD_COMM_SEND || !g->at[r->outs[0]->id].here)
		return FOREVER;
	for (struct node **k = g->readers[r->outs[0]->id]; k && *k; k++)
		if (g->position[(*k)->id] > at)
			return g->position[(*k)->id];
	return FOREVER;
}

/* Returns when r is done reading, from the point of view of n. A movement of a leaf in a unit other than n's has ended
 * before n runs. For example, a parameter that G sends comes back as a gradient before its update. */
static int64_t done_before(const struct hd_program *g, const struct node *r, const struct node *n, int of_leaf)
{
	return of_leaf && r->v.phase != n->v.phase ? g->position[r->id] : done_reading(g, r);
}

/* Returns the last position at which any node but `except` reads bytes of the root or of tensors merged into it. */
static int64_t last_read_of(const struct hd_program *g, const struct tensor *root, const struct node *except,
			    int of_leaf)
{
	int64_t last = -1;
	const struct storage *s = &g->at[root->id];

	if (s->read_after_step)
		return FOREVER;
	for (struct node **r = g->readers[root->id]; r && *r; r++)
		if (*r != except && done_before(g, *r, except, of_leaf) > last)
			last = done_before(g, *r, except, of_leaf);
	for (const struct tensor *t = g->members_of[root->id]; t; t = g->next[t->id]) {
		int64_t k = last_read_of(g, t, except, of_leaf);

		last = k > last ? k : last;
	}
	return last;
}

static int64_t last_read(const struct hd_program *g, const struct tensor *root, const struct node *except)
{
	return last_read_of(g, root, except, 0);
}

static int is_leaf(const struct tensor *t)
{
	return !t->v.node;
}

/* -- views ------------------------------------------------------------------------------------------------------- */
static int64_t position_index(const struct hd_program *g, const struct node *n, int64_t j)
{
	int64_t me = n->pos.group ? hd_member_index(g->plan, G(n->pos.group), g->rank) : 0;
	int64_t i = (n->pos.mul * me + n->pos.add + n->pos.step * j) % n->parts;

	if (n->chooses.group)
		return !hd_is_member(g->plan, &n->chooses, g->rank);
	return i < 0 ? i + n->parts : i;
}

/* Returns whether the pieces along n->along are contiguous. Leading dims of one element are skipped only where a rank
 * has all pieces. A view of the rank's own piece would keep the complete tensor in memory. */
static int is_leading(const struct node *n, const struct tensor *t)
{
	uint32_t i = 0;

	while (!n->pos.group && !t->ragged_counts && i + 1 < t->v.ndim && t->dims[i] != n->along && t->local[i] == 1)
		i++;
	return t->v.ndim && t->dims[i] == n->along;
}

int64_t hd_piece_index(const struct hd_program *g, const struct node *n, int64_t j)
{
	return position_index(g, n, j);
}

static void view(struct hd_program *g, struct node *n)
{
	struct tensor *x = n->v.nin ? n->ins[0] : NULL, *y = n->outs[0];

	if (!x || (y->step && !x->step))
		return;
	if (hd_is(n, OP_ROLE_VIEW) || hd_is(n, OP_ROLE_SYNC))
		merge(g, y, x, 0);
	else if (hd_is(n, OP_ROLE_UNPACK) && !n->alongs)
		merge(g, y, x, hd_attr_int(n->attr, "at", 0) * HD_BITS(y->v.dtype) / 8);
	else if (hd_is(n, OP_ROLE_PICK))
		merge(g, y, n->ins[position_index(g, n, 0)], 0);
	else if (hd_is(n, OP_ROLE_CHUNK) && !n->order && is_leading(n, x))
		merge(g, y, x, position_index(g, n, 0) * hd_local_bytes(y));
}

/* -- in place ---------------------------------------------------------------------------------------------------- */
static int same_dims(const struct tensor *x, const struct tensor *y)
{
	return x->v.ndim == y->v.ndim && !memcmp(x->dims, y->dims, x->v.ndim * sizeof(*x->dims));
}

/* Returns whether x and y share bytes. */
static int overlap(struct hd_program *g, struct tensor *x, struct tensor *y)
{
	int64_t at_x, at_y;

	return root_of(g, x, &at_x) == root_of(g, y, &at_y) && at_x < at_y + hd_local_bytes(y) &&
	       at_y < at_x + hd_local_bytes(x);
}

/* Returns whether n may write its result y over input i, as far as the kernel is concerned. An element of a sum, a map
 * or an addend is read only where it is written, if its dims are in the same order. Other kernels may still read what
 * another input shares with input i. */
static int writes_after_reading(struct hd_program *g, const struct node *n, uint32_t i, const struct tensor *y)
{
	int elementwise = hd_is(n, OP_ROLE_ADD) || hd_is(n, OP_ROLE_MAP);

	if ((elementwise || hd_is(n, OP_ROLE_EINSUM)) && !same_dims(n->ins[i], y))
		return 0;
	for (uint32_t j = 0; j < n->v.nin; j++)
		if (j != i && overlap(g, n->ins[j], n->ins[i]) && !(elementwise && same_dims(n->ins[j], y)))
			return 0;
	return 1;
}

static int may_overwrite(struct hd_program *g, struct node *n, uint32_t i, const struct tensor *y)
{
	struct tensor *x = n->ins[i];
	int64_t offset;
	struct tensor *root = root_of(g, x, &offset);

	if (x->v.dtype != y->v.dtype || x->v.space != y->v.space || hd_local_bytes(x) != hd_local_bytes(y) ||
	    (y->step && !root->step))
		return 0;
	if (!y->step && root->step)
		return 0; /* the buffer exists once a step, and the node runs once per micro-batch */
	if (is_leaf(root) && root->assign != y)
		return 0;
	return last_read_of(g, root, n, is_leaf(root)) < g->position[n->id] && writes_after_reading(g, n, i, y);
}

static int inplace_input(const struct node *n, uint32_t k)
{
	if (n->comm.kind == HD_COMM_ALL_REDUCE || n->comm.kind == HD_COMM_ALL_MAX)
		return 0;
	if (hd_is(n, OP_ROLE_EINSUM))
		return hd_attr_num(n->attr, "add", 0) != 0 ? (int)n->v.nin - 1 - (hd_attr_num(n->attr, "rows", 0) != 0)
							   : -1;
	return n->v.op->inplace ? n->v.op->inplace[k] : -1;
}

static void in_place(struct hd_program *g, struct node *n)
{
	for (uint32_t k = 0; k < n->v.nout; k++) {
		int i = inplace_input(n, k);

		if (i < 0 || g->at[n->outs[k]->id].root != n->outs[k])
			continue;
		if (may_overwrite(g, n, (uint32_t)i, n->outs[k]))
			merge(g, n->outs[k], n->ins[i], 0);
		else if (hd_is(n, OP_ROLE_MAP)) /* any input with the result's dims will do */
			for (uint32_t j = 1; j < n->v.nin; j++)
				if (may_overwrite(g, n, j, n->outs[k])) {
					merge(g, n->outs[k], n->ins[j], 0);
					break;
				}
	}
}

/* -- pieces: x is computed inside y ------------------------------------------------------------------------------ */
static int can_live_in(struct hd_program *g, struct node *n, struct tensor *x, const struct tensor *y)
{
	int64_t offset;
	struct tensor *root = root_of(g, x, &offset);

	return !is_leaf(root) && offset == 0 && hd_local_bytes(root) == hd_local_bytes(x) && root->step == y->step &&
	       !g->at[root->id].read_after_step && last_read(g, root, n) < g->position[n->id];
}

static void pieces(struct hd_program *g, struct node *n)
{
	struct tensor *y = n->outs[0];
	int64_t at = 0, offset;
	int flat = hd_is(n, OP_ROLE_PACK) && !n->alongs, leading = hd_is(n, OP_ROLE_JOIN) && is_leading(n, y);

	for (uint32_t j = 0; (flat || leading) && j < n->v.nin; j++) {
		struct tensor *x = n->ins[j];
		int64_t where = flat ? at : position_index(g, n, j) * hd_local_bytes(x);

		if (can_live_in(g, n, x, y))
			merge(g, root_of(g, x, &offset), y, where);
		at += (hd_local_bytes(x) + 63) / 64 * 64;
	}
}

/* -- accumulators ------------------------------------------------------------------------------------------------ */
static int is_contribution(const struct hd_program *g, const struct tensor *t)
{
	struct node **r = g->readers[t->id];

	return r && r[0] && !r[1] && hd_is(r[0], OP_ROLE_ACCUMULATE);
}

/* Returns whether two sums add up results of the same kernels. They are usually in the same order: with many parts of
 * the loss, a search for each would take minutes. */
static int same_makers(const struct node *a, const struct node *b)
{
	if (a->v.nin != b->v.nin)
		return 0;
	for (uint32_t i = 0; i < a->v.nin; i++) {
		const struct node *m = hd_maker(a->ins[i]);
		uint32_t k = 0;

		if (hd_maker(b->ins[i]) == m)
			continue;
		while (k < b->v.nin && hd_maker(b->ins[k]) != m)
			k++;
		if (k == b->v.nin)
			return 0;
	}
	return 1;
}

static void accumulate_into(struct hd_program *g, struct node *n)
{
	struct tensor *y = n->outs[0];
	const struct hd_device_ops *d = g->device;

	for (uint32_t i = 0; i < n->v.nin; i++) {
		struct tensor *x = n->ins[i];
		struct node *m = hd_maker(x);
		const struct hd_kernel *k = m ? d->kernel(m->v.op->name) : NULL;
		int adds = m && k && (k->flags & HD_K_ACC || (k->flags & HD_K_ACC_REST && x != m->outs[0]));
		int all = adds && m->inst < 0 && !m->comm.kind && x->v.dtype == y->v.dtype &&
			  hd_local_bytes(x) == hd_local_bytes(y) &&
			  !(hd_is(m, OP_ROLE_EINSUM) && hd_attr_num(m->attr, "add", 0) != 0);

		/* A kernel has one accumulate flag for all its outputs. So it must be the first that adds to each of
		 * its sums, or the first of none. */
		for (uint32_t o = all && !(k->flags & HD_K_ACC); all && o < m->v.nout; o++)
			all = is_contribution(g, m->outs[o]) && same_makers(n, g->readers[m->outs[o]->id][0]) &&
			      (g->at[m->outs[o]->id].root == m->outs[o] || m->outs[o] != x);
		if (all && g->at[x->id].root == x && !g->members_of[x->id])
			merge(g, x, y, 0);
	}
}

/* -- leaves: an update's result, or its joined pieces, is computed in the leaf if nothing reads the old value ---- */
/* Returns whether n is an update or only assembles pieces of its result. Such a node runs only if the update does, so
 * a step that is not finite leaves the leaves unchanged. */
static int from_update(const struct node *n)
{
	int moved = (n->is->flags & OP_FLAG_PIECES) != 0;

	if (n->is->role == OP_ROLE_UPDATE)
		return 1;
	for (uint32_t i = 0; moved && i < n->v.nin; i++)
		moved = n->ins[i]->v.node && from_update(hd_maker(n->ins[i]));
	return moved;
}

/* Receives the pulled value directly into the leaf if the message contains nothing else. Otherwise it is copied
 * there. */
static void pulled(struct hd_program *g, const struct node *n, struct tensor *leaf)
{
	struct tensor *y = n->outs[0], *x = n->ins[0];
	int64_t offset;
	struct tensor *root = root_of(g, x, &offset);

	merge(g, y, leaf, 0);
	if (!offset && !is_leaf(root) && g->at[x->id].here && root->v.dtype == leaf->v.dtype &&
	    root->v.space == leaf->v.space && hd_local_bytes(root) == hd_local_bytes(leaf) &&
	    last_read(g, root, n) < g->position[n->id])
		merge(g, root, leaf, 0);
}

static void in_leaf(struct hd_program *g, struct tensor *leaf)
{
	int64_t offset = 0;
	struct tensor *y = leaf->assign, *root = y && g->at[y->id].root ? root_of(g, y, &offset) : NULL;
	const struct node *m = root ? hd_maker(root) : NULL;

	if (m && hd_is(m, OP_ROLE_PULLED)) {
		pulled(g, m, leaf);
		return;
	}
	if (!m || !from_update(m) || offset || y->v.dtype != leaf->v.dtype || y->v.space != leaf->v.space ||
	    hd_local_bytes(root) != hd_local_bytes(leaf) || last_read(g, leaf, NULL) >= g->position[m->id])
		return;
	merge(g, root, leaf, 0);
}

/* -- all --------------------------------------------------------------------------------------------------------- */
int hd_alias(struct hd_program *g)
{
	struct hd_plan *p = g->plan;
	struct tensor *keep[] = { p->loss, p->nll, p->logits, p->norm, p->factor };

	for (size_t i = 0; i < g->ntensors; i++)
		g->at[g->tensors[i]->id].root = g->tensors[i];
	for (size_t i = 0; i < HD_LEN(keep); i++)
		if (keep[i])
			g->at[keep[i]->id].read_after_step = 1;
	for (size_t i = 0; i < p->nmoe_stats; i++)
		g->at[p->moe_stats[i]->id].read_after_step = 1;
	for (size_t i = 0; i < g->ntensors; i++)
		if (hd_stays_gathered(g, g->tensors[i]))
			g->at[g->tensors[i]->id].read_after_step = 1;
	for (size_t i = 0; g->keep_gradients && i < g->ntensors; i++) /* a save reads them after the update */
		if (hd_is_gradient(g->tensors[i]))
			g->at[g->tensors[i]->id].read_after_step = 1;
	for (size_t i = 0; i < g->ntensors; i++)
		for (int k = 0; k < 2; k++) {
			const struct tensor *v = k ? g->tensors[i]->then : g->tensors[i]->assign;

			if (v)
				g->at[v->id].read_after_step = 1;
		}
	for (size_t i = 0; i < g->nmine; i++) {
		struct node *n = g->mine[i];

		if (hd_is(n, OP_ROLE_ACCUMULATE))
			accumulate_into(g, n);
		view(g, n);
		pieces(g, n);
		in_place(g, n);
	}
	for (size_t i = 0; i < g->ntensors; i++)
		if (is_leaf(g->tensors[i]))
			in_leaf(g, g->tensors[i]);
	for (size_t i = 0; i < g->ntensors; i++) { /* point each tensor directly to its root */
		struct tensor *t = g->tensors[i];
		int64_t offset;
		struct tensor *r = root_of(g, t, &offset);

		g->at[t->id].offset = offset;
		g->at[t->id].root = r;
	}
	return p->err->code;
}
