/* SPDX-License-Identifier: Apache-2.0
 * einsum: the product of two tensors, summed over the dims that the result does not have; sum: the same with one
 * operand.  Both are linear in each operand, so a partial sum may pass through; a contraction over a sharded dim
 * creates one.  After placement, a product may get a bias and a tensor to add as operands (engine/passes/fuse.c).
 */
#include <config.h>
#include "engine/ops/ops.h"
#include <stdlib.h>
#include <string.h>

static int product_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)nin;
	*nout = 1;
	return hd_shape_attr(p, attr, &outs[0],
			     ins[0]->dtype == HD_DTYPE_BF16 && strstr(attr, "fp32=1") ? HD_DTYPE_F32 : ins[0]->dtype);
}

/* Returns the gradient of `like`, from that of the result and the other operand. A dim that only `like` has was summed
 * over: its gradient is the same all along it. */
static struct hd_tensor *product(struct hd_plan *p, struct hd_tensor *a, struct hd_tensor *b, struct hd_tensor *like)
{
	struct tensor *ins[] = { T(a), T(b) }, *c;
	uint32_t n = 0;
	char *spec = NULL;

	for (uint32_t i = 0; i < like->ndim; i++)
		if (hd_has_dim(ins[0], like->dims[i]) || hd_has_dim(ins[1], like->dims[i]))
			hd_append(&spec, "%s%s", n++ ? "," : "", like->dims[i]->name);
	c = hd_op1(p, "einsum", ins, 2, "out=%s%s",
		   n == like->ndim ? like->spec
		   : spec          ? spec
				   : "",
		   hd_gradient_attr(a, like));
	free(spec);
	if (c && n < like->ndim)
		c = hd_map_new(p, (struct tensor *[]){ T(like), c }, 2, "b");
	return c ? &c->v : NULL;
}

static int einsum_vjp(HD_VJP_ARGS)
{
	(void)self;
	if (want & 1)
		din[0] = product(p, dout[0], n->ins[1], n->ins[0]);
	if (want & 2)
		din[1] = product(p, n->ins[0], dout[0], n->ins[1]);
	return HD_OK;
}

/* 2 x the product of all distinct dims; bias and addition are negligible */
static int einsum_cost(struct hd_strategy *self, const struct hd_node *n, struct hd_cost *c)
{
	double flops = 2;

	(void)self;
	flops *= hd_expected_elements(n->ins[0]);
	for (uint32_t i = 0; i < n->ins[1]->ndim; i++)
		if (!hd_has_dim(T(n->ins[0]), n->ins[1]->dims[i]) &&
		    !(T(n->ins[0])->ragged_counts && hd_has_dim(T(n->ins[0])->ragged_counts, n->ins[1]->dims[i])))
			flops *= (double)n->ins[1]->local[i];
	c->matmul_flops = flops;
	c->bytes =
		(hd_expected_elements(n->ins[0]) + hd_expected_elements(n->ins[1]) + hd_expected_elements(n->outs[0])) *
		HD_BITS(n->ins[0]->dtype) / 8;
	return HD_OK;
}

static int sum_vjp(HD_VJP_ARGS)
{
	struct tensor *ins[] = { T(n->ins[0]), T(dout[0]) }, *g;

	(void)self;
	if (!(want & 1))
		return HD_OK;
	g = hd_map_new(p, ins, 2, "b"); /* broadcast */
	din[0] = g ? &g->v : NULL;
	return HD_OK;
}

/* Products of ragged tensors are computed expert by expert. */
static int einsum_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	if (hd_attr_num(n->attr, "rows", 0) == 0)
		return hd_record_plain(self, r, n);
	return r->api->launch(r, "grouped", n->ins, n->nin, n->outs, n->nout, "%s", n->attr);
}

/* hd_pass_fuse builds this from a product and a gelu, after placement.  With keep=1, the second output is the input of
 * the gelu. */
static int gelu_shape(HD_SHAPE_ARGS)
{
	HD_TRY(product_shape(self, p, attr, ins, nin, outs, nout));
	if (hd_attr_num(attr, "keep", 0) != 0)
		outs[(*nout)++] = outs[0];
	return HD_OK;
}

const struct op hd_op_einsum_gelu = { .v = { .size = sizeof(struct hd_op),
					     .name = "einsum_gelu",
					     .shape = gelu_shape,
					     .cost = einsum_cost,
					     .record = hd_record_plain },
				      .is = IS(NONE, OP_FLAG_MATMUL) };
const struct op hd_op_einsum_gelu_d = { .v = { .size = sizeof(struct hd_op),
					       .name = "einsum_gelu_d",
					       .shape = product_shape,
					       .cost = einsum_cost,
					       .record = hd_record_plain },
					.is = IS(NONE, OP_FLAG_MATMUL) };
const struct op hd_op_einsum = { .v = { .size = sizeof(struct hd_op),
					.name = "einsum",
					.linear = 3,
					.shape = product_shape,
					.vjp = einsum_vjp,
					.cost = einsum_cost,
					.record = einsum_record },
				 .is = IS(EINSUM, OP_FLAG_ROWS | OP_FLAG_MATMUL) };
const struct op hd_op_sum = { .v = { .size = sizeof(struct hd_op),
				     .name = "sum",
				     .linear = 1,
				     .shape = product_shape,
				     .vjp = sum_vjp,
				     .record = hd_record_plain },
			      .is = IS(SUM, 0) };
