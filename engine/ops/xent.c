/* SPDX-License-Identifier: Apache-2.0
 * Cross entropy over a vocabulary that may be sharded, in phases; the logits are never gathered.
 *
 *   xent          local statistics of a shard: max m, sum s of exp(z - m), the target's logit t (0 if elsewhere)
 *   xent_combine  s exp(m - M), where M is the maximum over all shards: now the sums can be added
 *   nll           log S + M - T per token; its gradient (xent_d) is (softmax - onehot) of each shard, local
 * If the vocabulary is not sharded, M is m, and the second phase multiplies by one.  Then xent_both computes the
 * gradient together with m, s and t, in one pass over the logits (engine/passes/loss/once.c).
 */
#include <config.h>
#include "engine/ops/ops.h"

static int xent_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)p;
	(void)attr;
	(void)nin;
	for (int k = 0; k < 3; k++) {
		hd_shape_like(&outs[k], ins[1]);
		outs[k].dtype = HD_BITS(ins[0]->dtype) < 32 ? HD_DTYPE_F32 : ins[0]->dtype;
	}
	*nout = 3;
	return HD_OK;
}

/* The outputs are the gradient, then those of xent. */
static int both_shape(HD_SHAPE_ARGS)
{
	HD_TRY(xent_shape(self, p, attr, ins, nin, outs + 1, nout));
	hd_shape_like(&outs[0], ins[0]);
	*nout = 4;
	return HD_OK;
}

/* (m, M, s): if m is partial on the axis, m and s of a shard are read unreduced, and M is replicated.  Otherwise the
 * general rule decides. */
static int combine_place(HD_PLACE_ARGS)
{
	(void)self;
	(void)p;
	(void)n;
	(void)axis;
	if (have[0].kind != HD_PLACE_PARTIAL)
		return HD_DEFAULT;
	need[0] = have[0];
	need[2] = out[0] = have[2];
	return HD_OK;
}

/* (M, S, T, logits, targets): the logits are an operand only for the gradient, and stay sharded as they are. */
static int nll_place(HD_PLACE_ARGS)
{
	const struct hd_tensor *logits = n->ins[3];

	(void)self;
	(void)p;
	(void)axis;
	if (have[3].kind != HD_PLACE_SHARD || have[3].dim != logits->dims[logits->ndim - 1])
		return HD_DEFAULT;
	need[3] = have[3];
	out[0] = (struct hd_place){ .kind = HD_PLACE_REPLICATED };
	return HD_OK;
}

/* Returns whether its statistics are those that xent computed from the same logits and targets. */
static int has_statistics_of_logits(const struct hd_node *n)
{
	struct tensor *const *ins = N(n)->ins;
	const struct node *x = hd_maker(ins[0]), *c = hd_maker(ins[1]);

	return hd_is(x, OP_ROLE_XENT) && hd_is(c, OP_ROLE_XENT_COMBINE) && x->ins[0] == ins[3] && x->ins[1] == ins[4] &&
	       ins[0] == x->outs[0] && ins[2] == x->outs[2] && c->ins[0] == x->outs[0] && c->ins[1] == x->outs[0] &&
	       c->ins[2] == x->outs[1];
}

/* Refuses nodes that a plugin inserted before nll or xent.  The plugin is at fault: no layout would help. */
static int refuse_other_statistics(struct hd_plan *p, const struct hd_node *n)
{
	const struct node *readers[] = { N(n), hd_maker(N(n)->ins[0]) };

	for (int k = 0; k < 2; k++)
		for (uint32_t i = 0; readers[k] && i < readers[k]->v.nin; i++) {
			const struct node *m = hd_maker(readers[k]->ins[i]);

			if (m && m->made_by >= 0) {
				p->about = m;
				hd_plan_mistake(p, m->made_by);
			}
		}
	return hd_plan_fail(
		p, HD_ENOTSUP,
		"nll has only the gradient of cross entropy, but slot rewrite changed what is between it and the "
		"logits");
}

static int nll_vjp(HD_VJP_ARGS)
{
	struct tensor *ins[] = { T(n->ins[3]), T(n->ins[4]), T(n->ins[0]), T(n->ins[1]), T(dout[0]) };
	struct tensor *g;

	(void)self;
	(void)want;
	if (!has_statistics_of_logits(n))
		return refuse_other_statistics(p, n);
	g = hd_op1(p, "xent_d", ins, 5, "%s", "");
	din[3] = g ? &g->v : NULL;
	return HD_OK;
}

/* It reads m, s and t of each token, and writes its loss; it does not read the logits. */
static int nll_cost(struct hd_strategy *self, const struct hd_node *n, struct hd_cost *c)
{
	double tokens = hd_expected_elements(n->outs[0]);

	(void)self;
	c->other_flops = 20 * tokens;
	c->bytes = 4 * tokens * HD_BITS(n->outs[0]->dtype) / 8;
	return HD_OK;
}

static int nll_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	(void)self;
	return r->api->launch(r, "map", n->ins, 3, n->outs, 1, "log(b) + a - c");
}

static const int8_t first[] = { 0, -1, -1, -1 };
static const char *const nll_uncut[] = { "vocab", NULL };

#define OP(id, traits, ...) \
	const struct op hd_op_##id = { .v = { .size = sizeof(struct hd_op), .name = #id, __VA_ARGS__ }, .is = traits }
OP(xent, IS(XENT, 0, 0), .max_outputs = 1, .shape = xent_shape, .record = hd_record_plain);
OP(xent_combine, IS(XENT_COMBINE, 0, 7), .shape = hd_same_as_first, .place = combine_place, .record = hd_record_plain);
OP(nll, IS(NLL, 0, 7), .unshardable = nll_uncut, .shape = hd_same_as_first, .vjp = nll_vjp, .place = nll_place,
   .record = nll_record, .cost = nll_cost);
OP(xent_d, IS(XENT_D, 0, 0), .kind = "xent", .inplace = first, .shape = hd_same_as_first, .record = hd_record_plain);
OP(xent_both, PLAIN, .kind = "xent", .unshardable = nll_uncut, .inplace = first, .shape = both_shape,
   .record = hd_record_plain);
