/* SPDX-License-Identifier: Apache-2.0
 * Experts.  route chooses experts for each token.  dispatch copies each token to a slot of each of its experts, and
 * combine adds up the experts' results (GShard 2006.16668; Switch 2101.03961; Mixtral 2401.04088).
 *
 *   route (logits[, bias] -> gates, slots, sums)   slots: expert * capacity + index, or -1 - expert if none was free
 *   route_bias (bias, sums -> bias)          once a step: up for experts chosen less than the mean, else down
 *   dispatch (x, slots[, gates] -> d)        d (expert, batch, slot, embed): slots without a token are zero
 *   combine (y, slots[, gates] -> x)         the sum of a token's slots, times its gates
 *   combine_dg (dx, y, slots -> dgates)
 *
 * Without a capacity limit (rows=1), route also counts the rows of each expert and sample.  d is then ragged: it
 * consists of these rows, ordered by expert, then by sample.  Each op on ragged tensors has the row counts as its last
 * input, placed as the rows are.
 *
 * dispatch and combine are each other's gradient.  They list expert and seq as unshardable: which slots a token gets
 * depends on the tokens before it, and any slot may be any token's.  So an axis that holds experts shards the batch in
 * these ops.  The matmuls between them need it sharded along expert, and two all-to-alls follow, forward and
 * backward.
 */
#include <config.h>
#include "engine/ops/ops.h"
#include <string.h>

static const char *const unshardable[] = { "expert", "seq", "slot", "topk", "router_expert", "router_stat", NULL };

static int three_dims(struct hd_plan *p, const char *op, const struct hd_tensor *x)
{
	return x->ndim == 3 ? HD_OK : hd_plan_fail(p, HD_EINVAL, "%s: (%s) must be (batch, seq, ...)", op, x->spec);
}

/* Sets the shape (batch, seq, topk), with the first two dims of x. */
static int choices(struct hd_plan *p, struct hd_shape *s, const struct hd_tensor *x, uint32_t dtype)
{
	hd_shape_like(s, x);
	s->dtype = dtype;
	s->dims[2] = hd_dim_get(p, "topk", 0);
	s->local[2] = 0;
	return s->dims[2] ? HD_OK : hd_plan_fail(p, HD_EBUG, "the model has no dim topk: no experts");
}

/* -- route --------------------------------------------------------------------------------------------------------------- */
static int route_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)attr;
	(void)nin;
	HD_TRY(three_dims(p, "route", ins[0]));
	HD_TRY(choices(p, &outs[0], ins[0], ins[0]->dtype));
	HD_TRY(choices(p, &outs[1], ins[0], HD_DTYPE_I32));
	outs[2].dtype = ins[0]->dtype;
	outs[2].ndim = 1;
	outs[2].dims[0] = hd_dim_get(p, "router_stat", 0);
	*nout = 3;
	if (hd_attr_num(attr, "counts", 0) == 0)
		return HD_OK;
	outs[3].dtype = HD_DTYPE_I32;
	outs[3].ndim = 2;
	outs[3].dims[0] = hd_dim_get(p, "expert", 0);
	outs[3].dims[1] = ins[0]->dims[0];
	*nout = 4;
	return HD_OK;
}

static int route_vjp(HD_VJP_ARGS)
{
	struct tensor *ins[] = { T(n->ins[0]), T(n->outs[1]), dout[0] ? T(dout[0]) : NULL };
	struct tensor *gates = T(n->outs[0]), *g;

	(void)self;
	HD_TRY(hd_vjp_of_first(p, n, dout));
	if (!ins[2]) /* nothing reads the gates: only the auxiliary losses have a gradient */
		ins[2] = hd_op1(p, "fill", &gates, 1, "value=0");
	g = want & 1 ? hd_op1(p, "route_d", ins, 3, "%s", n->attr) : NULL;
	din[0] = g ? &g->v : NULL;
	return HD_OK;
}

static int route_cost(struct hd_strategy *self, const struct hd_node *n, struct hd_cost *c)
{
	double x = hd_expected_elements(n->ins[0]);

	(void)self;
	c->other_flops = 20 * x;
	c->bytes = 8 * x;
	return HD_OK;
}

/* Places the update where the bias lives; the sums over all tokens move there. */
static int route_bias_place(HD_PLACE_ARGS)
{
	(void)self;
	(void)p;
	(void)axis;
	need[0] = have[0];
	if (have[0].kind != HD_PLACE_PINNED)
		need[0] = (struct hd_place){ .kind = HD_PLACE_REPLICATED };
	need[1] = out[0] = need[0];
	return HD_OK;
}

/* -- dispatch, combine --------------------------------------------------------------------------------------------------- */
static int dispatch_shape(HD_SHAPE_ARGS)
{
	const struct hd_tensor *x = ins[0];
	struct hd_shape *d = &outs[0];

	(void)self;
	(void)attr;
	(void)nin;
	HD_TRY(three_dims(p, "dispatch", x));
	d->dtype = x->dtype;
	d->ndim = 4;
	d->dims[0] = hd_dim_get(p, "expert", 0);
	d->dims[1] = x->dims[0];
	d->dims[2] = hd_dim_get(p, "slot", 0);
	d->dims[3] = x->dims[2];
	*nout = 1;
	return HD_OK;
}

static int combine_shape(HD_SHAPE_ARGS)
{
	const struct hd_tensor *y = ins[0], *slots = ins[1];

	(void)self;
	(void)attr;
	(void)nin;
	if (y->ndim != 4)
		return hd_plan_fail(p, HD_EINVAL, "combine: (%s) must be (expert, batch, slot, embed)", y->spec);
	hd_shape_like(&outs[0], slots);
	outs[0].dtype = y->dtype;
	outs[0].dims[2] = y->dims[3];
	outs[0].local[2] = y->local[3];
	*nout = 1;
	return HD_OK;
}

static int combine_dg_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)attr;
	(void)nin;
	*nout = 1;
	return choices(p, &outs[0], ins[2], p->master_dtype);
}

static struct hd_tensor *out0(struct tensor *t)
{
	return t ? &t->v : NULL;
}

/* Returns group= and capacity= for another op on the same slots.  node.c adds the row counts if an operand is
 * ragged. */
static const char *same_slots(struct hd_plan *p, const char *attr)
{
	return hd_plan_text(p, "group=%lld capacity=%lld", (long long)hd_attr_num(attr, "group", 0),
			    (long long)hd_attr_num(attr, "capacity", 0));
}

static int dispatch_vjp(HD_VJP_ARGS)
{
	struct tensor *ins[] = { T(dout[0]), T(n->ins[1]) };

	(void)self;
	(void)want;
	din[0] = out0(hd_op1(p, "combine", ins, 2, "%s", same_slots(p, n->attr)));
	return HD_OK;
}

/* The gradient of combine with gates, the form that models use. */
static int combine_vjp(HD_VJP_ARGS)
{
	struct tensor *dy[] = { T(dout[0]), T(n->ins[1]), T(n->ins[2]), T(n->ins[n->nin - 1]) };
	struct tensor *dg[] = { T(dout[0]), T(n->ins[0]), T(n->ins[1]) };

	(void)self;
	if (hd_attr_num(n->attr, "gates", 0) == 0)
		return hd_plan_fail(p, HD_ENOTSUP,
				    "combine without gates is the gradient of dispatch and has no gradient itself");
	if (want & 1)
		din[0] = out0(hd_op1(p, "dispatch", dy, n->nin, "%s gates=1%s", same_slots(p, n->attr),
				     n->nin > 3 ? " rows=1" : ""));
	if (want & 4)
		din[2] = out0(hd_op1(p, "combine_dg", dg, 3, "%s", same_slots(p, n->attr)));
	return HD_OK;
}

static int move_cost(struct hd_strategy *self, const struct hd_node *n, struct hd_cost *c)
{
	(void)self;
	c->other_flops = 2 * hd_expected_elements(n->outs[0]);
	c->bytes = HD_BITS(n->ins[0]->dtype) / 8 * (hd_expected_elements(n->ins[0]) + hd_expected_elements(n->outs[0]));
	return HD_OK;
}

static const int8_t bias_inplace[] = { 0 };

#define OP(id, traits, ...) \
	const struct op hd_op_##id = { .v = { .size = sizeof(struct hd_op), \
					      .name = #id, \
					      .record = hd_record_plain, \
					      .unshardable = unshardable, \
					      __VA_ARGS__ }, \
				       .is = traits }
OP(route, IS(ROUTE, OP_FLAG_WITH_CACHE, 3), .shape = route_shape, .vjp = route_vjp, .cost = route_cost);
OP(route_d, PLAIN, .kind = "route", .shape = hd_same_as_first, .cost = route_cost);
OP(route_bias, IS(UPDATE, 0), .kind = "update", .inplace = bias_inplace, .shape = hd_same_as_first,
   .place = route_bias_place, .cost = route_cost);
OP(dispatch, IS(NONE, OP_FLAG_MOVES_ROWS | OP_FLAG_WITH_CACHE, 4), .linear = 1, .shape = dispatch_shape,
   .vjp = dispatch_vjp, .cost = move_cost);
OP(combine, IS(NONE, OP_FLAG_ROWS | OP_FLAG_WITH_CACHE, 4), .linear = 1, .shape = combine_shape, .vjp = combine_vjp,
   .cost = move_cost);
OP(combine_dg, IS(NONE, OP_FLAG_ROWS), .kind = "combine", .linear = 3, .shape = combine_dg_shape, .cost = move_cost);
