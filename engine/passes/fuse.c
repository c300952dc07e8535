/* SPDX-License-Identifier: Apache-2.0
 * Fuses a product with the nodes around it.  y = x W; z = y + bias + residual becomes one product with post-ops.  A sum
 * of products becomes a chain of products, each of which adds to the one before, in place.  The pass runs after
 * placement, so it never fuses across a reduction: the product's only reader would be the reshard.
 *
 * It also merges nodes that would read the same data twice.  The column sums of a gradient (the gradient of a bias) are
 * computed together with the gradient.  The gradient of a norm adds that of the residual stream, and computes those of
 * the norm's weights.  If the device has such products (hd_plan_options.gelu), a gelu becomes part of the product
 * before it.  The gradient of a gelu becomes part of the product that computes what it reads.
 */
#include <config.h>
#include "engine/passes/passes.h"
#include "engine/device/device.h"
#include <stdlib.h>
#include <string.h>

static int same_shape(const struct tensor *a, const struct tensor *b)
{
	return a->v.ndim == b->v.ndim && !memcmp(a->dims, b->dims, a->v.ndim * sizeof(a->dims[0])) &&
	       a->v.dtype == b->v.dtype;
}

static int is_product(const struct node *add, const struct tensor *x, const uint32_t *reads)
{
	const struct node *n = x->v.node ? N(x->v.node) : NULL;

	return n && !n->only.group && n->is->role == OP_ROLE_EINSUM && n->v.nin == (x->ragged_counts ? 3 : 2) &&
	       reads[x->id] == 1 && n->v.phase == add->v.phase && n->block == add->block && same_shape(x, add->outs[0]);
}

/* Returns whether x may be the bias of sum y: its dims are the last ones of y. */
static int is_bias(const struct tensor *y, const struct tensor *x)
{
	uint32_t skip = y->v.ndim - x->v.ndim;

	return x->v.ndim < y->v.ndim && x->v.ndim && !memcmp(x->dims, y->dims + skip, x->v.ndim * sizeof(x->dims[0]));
}

/* The inputs of a sum, by kind: products, at most one bias, at most one full tensor.  sort_inputs returns 0 if the sum
 * cannot be fused. */
struct parts {
	struct tensor *product[HD_MAX_INS], *bias, *full;
	uint32_t n;
};

static int sort_inputs(const struct node *add, const uint32_t *reads, struct parts *k)
{
	memset(k, 0, sizeof(*k));
	for (uint32_t i = 0; i < add->v.nin; i++) {
		struct tensor *x = add->ins[i];

		if (i + 1 == add->v.nin && add->outs[0]->ragged_counts)
			continue; /* the row counts */
		if (is_product(add, x, reads) && k->n < HD_MAX_INS)
			k->product[k->n++] = x;
		else if (is_bias(add->outs[0], x) && !k->bias)
			k->bias = x;
		else if (same_shape(x, add->outs[0]) && !k->full)
			k->full = x;
		else
			return 0;
	}
	return k->n > 0 && (k->bias || k->full || k->n > 1) && !(k->bias && add->outs[0]->ragged_counts);
}

/* Gives y, the result of the fused product, the placement of `old`. */
static void place_like(struct hd_plan *p, struct tensor *y, const struct tensor *old, const struct node *product)
{
	hd_placed_like(y, old);
	hd_localize(p, y);
	N(y->v.node)->recompute_of = product->recompute_of;
	memcpy(y->reduced_dim, product->outs[0]->reduced_dim, sizeof(y->reduced_dim));
}

static struct tensor *with_post_ops(struct hd_plan *p, struct node *product, struct tensor *bias, struct tensor *full)
{
	struct tensor *ins[5] = { product->ins[0], product->ins[1] }, *y;
	uint32_t n = 2;

	if (bias)
		ins[n++] = bias;
	if (full)
		ins[n++] = full;
	if (product->outs[0]->ragged_counts)
		ins[n++] = product->ins[2];
	y = hd_op1(p, "einsum", ins, n, "%s%s%s", product->attr, bias ? " bias=1" : "", full ? " add=1" : "");
	if (y) {
		y->ragged_counts = product->outs[0]->ragged_counts;
		place_like(p, y, product->outs[0], product);
	}
	return y;
}

static int fuse_sum(struct hd_plan *p, struct node *add, const struct parts *k)
{
	struct tensor *sum = k->full;

	p->cursor = hd_cursor_before(add);
	for (uint32_t i = 0; i < k->n; i++) {
		struct node *product = N(k->product[i]->v.node);
		struct tensor *bias = i + 1 == k->n ? k->bias : NULL;

		if (!sum && !bias) {
			hd_node_move(p, product, add);
			sum = k->product[i];
			continue;
		}
		sum = with_post_ops(p, product, bias, sum);
		if (!sum)
			return p->err->code;
	}
	hd_replace(p, add->outs[0], sum);
	return HD_OK;
}

/* Replaces x + y by x + u + v, if y = u + v has no other reader.  So bias and residual are in the same sum as their
 * product. */
static void flatten(struct hd_plan *p, struct node *add, uint32_t *reads)
{
	for (uint32_t i = 0; i < add->v.nin; i++) {
		struct node *n = add->ins[i]->v.node ? N(add->ins[i]->v.node) : NULL;
		struct tensor *ins[HD_MAX_INS];

		if (!n || n->only.group || n->is->role != OP_ROLE_ADD || add->outs[0]->ragged_counts ||
		    reads[add->ins[i]->id] != 1 || n->v.phase != add->v.phase || n->block != add->block ||
		    !same_shape(n->outs[0], add->outs[0]) || add->v.nin + n->v.nin > HD_MAX_INS)
			continue;
		memcpy(ins, add->ins, add->v.nin * sizeof(*ins));
		memcpy(ins + add->v.nin, n->ins + 1, (n->v.nin - 1) * sizeof(*ins));
		ins[i] = n->ins[0];
		hd_set_inputs(p, add, ins, add->v.nin + n->v.nin - 1);
		reads[n->outs[0]->id] = 0;
		i--;
	}
}

/* Merges the accumulators that a total node adds up, if all have the placement of the total. */
static void merge_accumulators(struct hd_plan *p, struct node *total, const uint32_t *reads)
{
	struct tensor *y = total->outs[0], **all;
	struct node *first;
	uint32_t n = 0;

	for (uint32_t i = 0; i + 1 < total->v.nin; i++) {
		struct tensor *x = total->ins[i];

		if (!x->v.node || N(x->v.node)->is->role != OP_ROLE_ACCUMULATE || reads[x->id] != 1 ||
		    !hd_placement_equal(p, &x->at, &y->at))
			return;
		n += x->v.node->nin;
	}
	all = hd_plan_alloc(p, (n + 1) * sizeof(*all));
	n = 0;
	for (uint32_t i = 0; i + 1 < total->v.nin; i++)
		for (uint32_t k = 0; k < total->ins[i]->v.node->nin; k++)
			all[n++] = N(total->ins[i]->v.node)->ins[k];
	first = N(total->ins[0]->v.node);
	hd_set_inputs(p, first, all, n);
	hd_node_move(p, first, total);
	hd_replace(p, y, first->outs[0]);
}

/* Returns the product of two bf16 operands that computes x, with a bias only if `bias` allows it; NULL: x is no such
 * product. */
static struct node *bf16_product(const struct node *reader, const struct tensor *x, int bias)
{
	struct node *n = x->v.node ? N(x->v.node) : NULL;

	if (!n || n->only.group || n->is->role != OP_ROLE_EINSUM || x->ragged_counts || n->v.phase != reader->v.phase ||
	    n->block != reader->block || hd_attr_num(n->attr, "add", 0) != 0 ||
	    n->v.nin != 2 + (uint32_t)(hd_attr_num(n->attr, "bias", 0) != 0) || (n->v.nin > 2 && !bias))
		return NULL;
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (n->ins[i]->v.dtype != HD_DTYPE_BF16)
			return NULL;
	return x->v.dtype == HD_DTYPE_BF16 && reader->outs[0]->v.dtype == HD_DTYPE_BF16 ? n : NULL;
}

/* -- column sums, computed with the columns ----------------------------------------------------------------------------- */
/* Returns whether one gradient is of activations, the other of parameters, and both run in the same units (stage,
 * chunk, steps). */
static int runs_together(const struct hd_plan *p, const struct node *a, const struct node *b)
{
	const struct block *x = a->block >= 0 ? &p->blocks[a->block] : NULL,
			   *y = b->block >= 0 ? &p->blocks[b->block] : NULL;

	return x && y && x->coord == y->coord && x->chunk == y->chunk && a->period == b->period &&
	       (a->v.phase | b->v.phase) == (HD_UNIT_B | HD_UNIT_W);
}

/* Returns the node whose first result `sum` sums over all dims but the last ones, if they may be merged; else NULL. */
static struct node *summed_node(const struct hd_plan *p, const struct node *sum)
{
	struct tensor *x = sum->ins[0];
	struct node *n = x->v.node ? N(x->v.node) : NULL;

	if (!n || n->only.group || sum->only.group || x->out || x->ragged_counts ||
	    sum->outs[0]->v.dtype != p->master_dtype || !runs_together(p, n, sum) || !is_bias(x, sum->outs[0]))
		return NULL;
	return n;
}

/* Puts t, a result of the merged node, in the place of `old`. */
static void substitute(struct hd_plan *p, struct tensor *t, struct tensor *old)
{
	hd_placed_like(t, old);
	hd_localize(p, t);
	memcpy(t->reduced_dim, old->reduced_dim, sizeof(t->reduced_dim));
	hd_replace(p, old, t);
}

/* Replaces n by a node with additional results at the end, which take the place of `more`.  Returns NULL after an
 * error. */
static struct node *with_results(struct hd_plan *p, struct node *n, const char *attr, struct tensor *const *more,
				 uint32_t nmore)
{
	struct node *with;

	p->cursor = hd_cursor_before(n);
	with = hd_node_make(p, n->v.op->name, n->ins, n->v.nin, "%s%s%s", n->attr, *n->attr ? " " : "", attr);
	if (!with)
		return NULL;
	with->recompute_of = n->recompute_of;
	for (uint32_t i = 0; i < n->v.nout; i++)
		substitute(p, with->outs[i], n->outs[i]);
	for (uint32_t i = 0; i < nmore; i++)
		substitute(p, with->outs[n->v.nout + i], more[i]);
	return with;
}

static int is_norm_d(const struct node *n)
{
	return n->is->role == OP_ROLE_NORM_D || n->is->role == OP_ROLE_NORM_D_ADD;
}

/* Returns whether the gradient of a norm may compute this sum too.  Its kernel sums over all dims but the last, so not
 * if the result has several dims (a bias per head).  On a GPU this saves a pass over memory.  A processor gains little.
 * And there, gradients would fill their buckets in a different order, in which fewer are sent while products run. */
static int may_sum(const struct hd_plan *p, const struct node *n, const struct node *sum)
{
	return p->own_memory && is_norm_d(n) && !p->separate_residual_adds && sum->outs[0]->v.ndim == 1;
}

/* Returns 1 if it has replaced the sum. */
static int merge_sum(struct hd_plan *p, struct node *sum)
{
	struct node *n = summed_node(p, sum);
	char attr[300];

	if (!n || hd_attr_text(n->attr, "out") || !(n->is->role == OP_ROLE_GELU_SLOPE_D || may_sum(p, n, sum)))
		return HD_OK;
	snprintf(attr, sizeof(attr), "out=%s", sum->outs[0]->spec);
	return with_results(p, n, attr, sum->outs, 1) ? 1 : p->err->code;
}

static int merge_sums(struct hd_plan *p)
{
	int rc = HD_OK, some = 0;

	for (struct node *n = p->first, *next; n && rc >= 0; n = next) {
		next = n->next;
		if (n->is->role == OP_ROLE_SUM)
			rc = merge_sum(p, n);
		some += rc > 0;
	}
	if (some)
		hd_drop_dead(p);
	return rc < 0 ? rc : HD_OK;
}

/* Returns whether d computes the gradient of a norm's input, and dw those of the same norm's weights. */
static int same_norm(const struct node *d, const struct node *dw)
{
	struct tensor *const *ins = d->ins + (d->is->role == OP_ROLE_NORM_D_ADD);

	if (ins[0] != dw->ins[0])
		return 0;
	for (uint32_t i = 1; i < dw->v.nin; i++) /* d's inputs are shifted by the weight, which dw does not read */
		if (ins[i + 1] != dw->ins[i])
			return 0;
	return 1;
}

/* Computes the gradients of a norm's weights together with that of its input: both read the same tensors.  The merged
 * node is where the input's gradient was, which comes first, so all readers of either remain after it. */
static void merge_weight_gradients(struct hd_plan *p)
{
	/* norm_d nodes by the id of the gradient that they read.  It may be a result of a node that this loop
	 * creates. */
	size_t ids = p->ntensors + 4 * (size_t)p->nnodes + 1;
	struct node **of = hd_alloc(ids * sizeof(*of));
	int some = 0;

	for (struct node *n = p->first, *next; n && !p->err->code; n = next) {
		struct node *d = NULL;

		next = n->next;
		if (is_norm_d(n) && !n->only.group && n->v.nout == 1)
			of[n->ins[n->v.nin - 1]->id] = n;
		if (n->is->role == OP_ROLE_NORM_DW && !n->only.group)
			d = of[n->ins[n->v.nin - 1]->id];
		if (!d || !runs_together(p, d, n) || !same_norm(d, n))
			continue;
		of[n->ins[n->v.nin - 1]->id] = NULL;
		with_results(p, d, n->v.nout > 1 ? "dw=1 bias=1" : "dw=1", n->outs, n->v.nout);
		some = 1;
	}
	free(of);
	if (some)
		hd_drop_dead(p);
}

/* -- the gradient of a residual stream -------------------------------------------------------------------------------------- */
/* Returns whether x is computed between two nodes. */
static int computed_between(const struct tensor *x, const struct node *from, const struct node *to)
{
	for (const struct node *n = from; x->v.node && n != to; n = n->next)
		if (n == N(x->v.node))
			return 1;
	return 0;
}

/* Replaces add = x + norm_d by norm_d_add, which adds x as it computes.  It is where norm_d was, or where add was if x
 * is computed after norm_d.  Returns 0 if add is no such sum. */
static int fuse_norm_d(struct hd_plan *p, struct node *add, const uint32_t *reads)
{
	for (int i = 0; i < 2 && add->v.nin == 2; i++) {
		struct tensor *dx = add->ins[i], *x = add->ins[1 - i], *ins[7] = { x }, *y;
		struct node *n = dx->v.node ? N(dx->v.node) : NULL;

		if (!n || n->only.group || n->is->role != OP_ROLE_NORM_D || reads[dx->id] != 1 || dx->out ||
		    n->v.phase != add->v.phase || n->block != add->block || !same_shape(x, dx) ||
		    !same_shape(dx, add->outs[0]))
			continue;
		memcpy(ins + 1, n->ins, n->v.nin * sizeof(*ins));
		p->cursor = hd_cursor_before(computed_between(x, n, add) ? add : n);
		y = hd_op1(p, "norm_d_add", ins, n->v.nin + 1, "%s", n->attr);
		if (y)
			substitute(p, y, add->outs[0]);
		return 1;
	}
	return 0;
}

/* A separate addition would read and write the complete gradient once more. */
static void fuse_norm_gradients(struct hd_plan *p)
{
	uint32_t *reads;
	int some = 0;

	if (p->separate_residual_adds)
		return;
	reads = hd_count_readers(p);
	for (struct node *n = p->first, *next; n && !p->err->code; n = next) {
		next = n->next;
		if (!n->only.group && n->is->role == OP_ROLE_ADD && !n->outs[0]->ragged_counts)
			some |= fuse_norm_d(p, n, reads);
	}
	free(reads);
	if (some)
		hd_drop_dead(p);
}

/* -- slopes ----------------------------------------------------------------------------------------------------------------- */
/* Replaces gelu_slope by gelu in forward if nothing reads the slope there, because backward recomputes it
 * (hd_pass_recompute). */
static void drop_slopes(struct hd_plan *p)
{
	uint32_t *reads = hd_count_readers(p);
	int some = 0;

	for (struct node *n = p->first; n && !p->err->code; n = n->next) {
		struct tensor *y;

		if (n->is->role != OP_ROLE_GELU_SLOPE || reads[n->outs[1]->id])
			continue;
		p->cursor = hd_cursor_before(n);
		y = hd_op1(p, "gelu", n->ins, n->v.nin, "%s", n->attr);
		if (y)
			substitute(p, y, n->outs[0]);
		some = 1;
	}
	free(reads);
	if (some)
		hd_drop_dead(p);
}

static int replace_result(struct hd_plan *p, struct node *n, uint32_t k, struct node *product, struct tensor *old)
{
	place_like(p, n->outs[k], old, product);
	hd_replace(p, old, n->outs[k]);
	return HD_OK;
}

static int fuse_gelu(struct hd_plan *p, struct node *gelu, const uint32_t *reads)
{
	int back = gelu->is->role == OP_ROLE_GELU_D;
	struct tensor *x = gelu->ins[back], *ins[4];
	struct node *product = bf16_product(gelu, x, !back), *n;
	int keep = !back && reads[x->id] > 1;

	if (!product || gelu->recompute_of != product->recompute_of || (back && reads[x->id] > 1))
		return HD_OK;
	memcpy(ins, product->ins, product->v.nin * sizeof(*ins));
	ins[product->v.nin] = gelu->ins[0];
	p->cursor = hd_cursor_before(back ? gelu : product);
	n = hd_node_make(p, back ? "einsum_gelu_d" : "einsum_gelu", ins, product->v.nin + (uint32_t)back, "%s%s",
			 product->attr, keep ? " keep=1" : "");
	if (!n)
		return p->err->code;
	if (keep)
		replace_result(p, n, 1, product, x);
	return replace_result(p, n, 0, product, gelu->outs[0]);
}

/* -- adjacent products and sums ------------------------------------------------------------------------------------------- */
/* Returns whether n may share a launch with nodes like it.  If they are adjacent, a device computes products with a
 * common operand in one launch, and also the sums of one node's results.  A processor does so only for bf16 products;
 * others run faster directly after the nodes that compute their operands. */
static int can_share_launch(const struct hd_plan *p, const struct node *n)
{
	if (n->only.group)
		return 0;
	if (n->is->role == OP_ROLE_SUM)
		return p->own_memory && n->v.nin == 1 && n->ins[0]->v.node;
	return n->is->role == OP_ROLE_EINSUM && n->v.nin == 2 &&
	       (p->own_memory || (n->ins[0]->v.dtype == HD_DTYPE_BF16 && n->ins[1]->v.dtype == HD_DTYPE_BF16));
}

/* Returns whether an operand that the two products do not share comes from communication.  That is in flight during the
 * product before it, so the two must not be adjacent. */
static int operand_is_in_flight(const struct node *a, const struct node *b)
{
	int own = a->ins[0] == b->ins[0];

	return (a->ins[own]->v.node && hd_node_moves(N(a->ins[own]->v.node))) ||
	       (b->ins[own]->v.node && hd_node_moves(N(b->ins[own]->v.node)));
}

static int alike(const struct hd_plan *p, const struct node *a, const struct node *b)
{
	if (b->is->role != a->is->role || !can_share_launch(p, b) || a->v.phase != b->v.phase || a->block != b->block ||
	    a->period != b->period || strcmp(a->attr, b->attr) != 0 || !same_shape(a->outs[0], b->outs[0]))
		return 0;
	if (a->is->role == OP_ROLE_SUM)
		return a->ins[0]->v.node == b->ins[0]->v.node && same_shape(a->ins[0], b->ins[0]);
	return (a->ins[0] == b->ins[0] || a->ins[1] == b->ins[1]) && !operand_is_in_flight(a, b);
}

/* Returns the last node before n that is like it, unless an operand of n is computed after that; NULL: there is
 * none. */
static struct node *launch_partner(const struct hd_plan *p, const struct node *n)
{
	for (struct node *m = n->prev; m && m->block == n->block; m = m->prev) {
		if (alike(p, n, m))
			return m;
		for (uint32_t i = 0; i < n->v.nin; i++)
			if (n->ins[i]->v.node && N(n->ins[i]->v.node) == m)
				return NULL;
	}
	return NULL;
}

/* Returns whether the operands that a and b do not share are results of one node, a's after b's.  Products in the order
 * of these results are laid out in memory like their operands. */
static int later_result(const struct node *a, const struct node *b)
{
	int own = a->ins[0] == b->ins[0];
	const struct tensor *x = a->ins[own], *y = b->ins[own];
	uint32_t i = 0, k = 0;

	if (!x->v.node || x->v.node != y->v.node)
		return 0;
	while (N(x->v.node)->outs[i] != x)
		i++;
	while (N(y->v.node)->outs[k] != y)
		k++;
	return i > k;
}

/* Moves each such node next to an earlier one like it.  Nodes move only towards the start, so their readers remain
 * after them. */
static void make_adjacent(struct hd_plan *p)
{
	for (struct node *n = p->first, *next; n; n = next) {
		struct node *m = can_share_launch(p, n) ? launch_partner(p, n) : NULL, *before;

		next = n->next;
		if (!m)
			continue;
		for (before = m->next; m && alike(p, n, m) && later_result(m, n); m = m->prev)
			before = m;
		if (before != n)
			hd_node_move(p, n, before);
	}
}

int hd_pass_fuse(struct hd_plan *p)
{
	uint32_t *reads = hd_count_readers(p);
	struct node *n, *next;
	struct parts k;
	int rc = 0;

	for (n = p->first; n && !rc; n = n->next)
		if (n->is->role == OP_ROLE_ADD && !n->only.group)
			flatten(p, n, reads);
	hd_drop_dead(p);
	free(reads);
	reads = hd_count_readers(p);
	for (n = p->first; n && !rc; n = next) {
		next = n->next;
		if (n->is->role == OP_ROLE_ADD && !n->only.group && sort_inputs(n, reads, &k))
			rc = fuse_sum(p, n, &k);
	}
	fuse_norm_gradients(p);
	if (!p->separate_residual_adds)
		merge_weight_gradients(p);
	if (!rc)
		rc = merge_sums(p);
	drop_slopes(p);
	if (p->gelu) {
		free(reads);
		hd_drop_dead(p);
		reads = hd_count_readers(p);
		for (n = p->first; n && !rc; n = next) {
			next = n->next;
			if (!n->only.group && (n->is->role == OP_ROLE_GELU || n->is->role == OP_ROLE_GELU_D))
				rc = fuse_gelu(p, n, reads);
		}
	}
	make_adjacent(p);
	for (n = p->first; n; n = n->next)
		if (n->is->role == OP_ROLE_TOTAL)
			merge_accumulators(p, n, reads);
	free(reads);
	hd_drop_dead(p);
	return rc < 0 ? rc : p->err->code;
}
