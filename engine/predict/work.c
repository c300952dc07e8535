/* SPDX-License-Identifier: Apache-2.0
 * Work of a node's kernels: arithmetic, and bytes that are read and written.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/predict/work.h"
#include "engine/rates/rates.h"

static int64_t bytes_elsewhere(const struct hd_program *g, const struct tensor *t, const struct tensor *root)
{
	return g->at[t->id].root == root ? 0 : hd_local_bytes(t);
}

/* Returns the bytes that are copied by a node that only joins or splits tensors. What is not yet where the memory plan
 * places it is read and written once. */
static double copied(const struct hd_program *g, const struct node *n)
{
	const struct tensor *root = g->at[n->outs[0]->id].root;
	int64_t bytes = 0;

	if (n->is->role == OP_ROLE_ACCUMULATE) /* its terms have entries of their own */
		return 0;
	if (n->chooses.group || n->is->role == OP_ROLE_PICK)
		return 2 * (double)bytes_elsewhere(g, n->ins[hd_piece_index(g, n, 0)], root);
	/* A piece; or a gradient, whose place the other input gives. */
	if (n->v.nin == 1 || n->is->role == OP_ROLE_SYNC)
		return g->at[n->ins[0]->id].root == root ? 0 : 2 * (double)hd_local_bytes(n->outs[0]);
	for (uint32_t i = 0; i < n->v.nin; i++)
		bytes += bytes_elsewhere(g, n->ins[i], root);
	return 2 * (double)bytes;
}

double hd_work_bytes(const struct hd_program *g, const struct node *n)
{
	double bytes = 0;

	if (n->is->flags & OP_FLAG_NAMES)
		return copied(g, n);
	for (uint32_t i = 0; i < n->v.nin; i++)
		bytes += (double)hd_local_bytes(n->ins[i]);
	for (uint32_t i = 0; i < n->v.nout; i++)
		bytes += (double)hd_local_bytes(n->outs[i]);
	return bytes;
}

/* Sets the rows and columns of the result, and the extent that is summed over. Dims that
 * all three tensors have only multiply the number of products. */
static void extents(const struct node *n, struct hd_work *w)
{
	const struct tensor *a = n->ins[0], *b = n->ins[1], *c = n->outs[0];

	w->rows = w->columns = w->summed = 1;
	for (uint32_t i = 0; i < a->v.ndim; i++)
		if (!hd_has_dim(c, a->dims[i]))
			w->summed *= (double)a->local[i];
		else if (!hd_has_dim(b, a->dims[i]))
			w->rows *= (double)a->local[i];
	for (uint32_t i = 0; i < b->v.ndim; i++)
		if (!hd_has_dim(a, b->dims[i]))
			w->columns *= (double)b->local[i];
}

static int product_kind(const struct node *n)
{
	uint32_t unit = n->computes_for ? n->computes_for : n->v.phase;

	if (unit & HD_UNIT_F || n->recompute_of)
		return HD_PRODUCT_FORWARD;
	return unit & HD_UNIT_W ? HD_PRODUCT_WEIGHTS : HD_PRODUCT_BACKWARD;
}

int hd_work_of(const struct hd_program *g, const struct node *n, struct hd_work *w)
{
	struct hd_cost c = { .size = sizeof(c) };

	*w = (struct hd_work){ .product = -1, .bf16 = n->v.nin && n->ins[0]->v.dtype == HD_DTYPE_BF16 };
	hd_node_cost(n, &c);
	w->flops = c.matmul_flops;
	w->other = c.other_flops;
	w->bytes = c.bytes > 0 ? c.bytes : hd_work_bytes(g, n);
	if (n->is->flags & OP_FLAG_MATMUL && n->v.nin > 1 && hd_attr_num(n->attr, "rows", 0) == 0) {
		w->product = product_kind(n);
		extents(n, w);
	}
	return n->v.op->cost || !(n->is->flags & OP_FLAG_NAMES) || w->bytes > 0;
}

/* A product adds to its accumulator as it computes; other terms are read, added and written. */
int hd_work_added(const struct tensor *x, struct hd_work *w)
{
	*w = (struct hd_work){ .product = -1,
			       .bf16 = x->v.dtype == HD_DTYPE_BF16,
			       .bytes = 3 * (double)hd_local_bytes(x) };
	return !(x->v.node && N(x->v.node)->is->role == OP_ROLE_EINSUM);
}

double hd_work_seconds(const struct hd_rates *r, const struct hd_work *w, const char *kernel, int64_t threads)
{
	struct hd_rate_work x = { .kernel = kernel,
				  .product = w->product,
				  .bf16 = w->bf16,
				  .flops = w->flops,
				  .bytes = w->bytes,
				  .rows = w->rows,
				  .columns = w->columns,
				  .summed = w->summed,
				  .threads = threads };

	return hd_rates_seconds(r, &x);
}

int hd_work_kind(const struct node *n)
{
	if (!(n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W)))
		return HD_WORK_OPTIMIZER;
	if (n->is->flags & OP_FLAG_MATMUL)
		return HD_WORK_PRODUCTS;
	return n->is->role == OP_ROLE_ATTENTION || n->is->role == OP_ROLE_ATTENTION_D ? HD_WORK_ATTENTION
										      : HD_WORK_ELEMENTWISE;
}

const char *hd_work_name(int kind)
{
	switch (kind) {
	case HD_WORK_PRODUCTS: return "products";
	case HD_WORK_ATTENTION: return "attention";
	case HD_WORK_OPTIMIZER: return "optimizer";
	default: return "elementwise";
	}
}
