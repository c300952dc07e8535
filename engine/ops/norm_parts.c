/* SPDX-License-Identifier: Apache-2.0
 * norm over a dim that is sharded, in phases, like cross entropy (xent.c).  engine/passes/decompose.c puts them in
 * place of norm and norm_d if a rule shards that dim.
 *
 *   norm_part      of a shard of n elements: sum s, and sum of squares v around the shard's own mean s / n
 *   norm_combine   v + n (s / n - S / N)^2, where S is the sum of all N elements: now the squares can be added
 *   norm_apply     (x - S / N) rstd w + b, with rstd = 1 / sqrt(V / N + eps)
 *   norm_d_part    sums of w dy and of w dy (x - mean) rstd over a shard
 *   norm_d_apply   rstd (w dy - A / N - (x - mean) rstd B / N)
 * In each direction, two numbers per token are reduced.  V is not computed from the sum of x^2, because the difference
 * of two large numbers cancels in low precision.  RMS norm has no mean, so it needs only v, and no combination.
 */
#include <config.h>
#include "engine/ops/ops.h"

static const struct hd_dim *last_dim(const struct hd_tensor *x)
{
	return x->dims[x->ndim - 1];
}
static int is_rms(const char *attr)
{
	return hd_attr_num(attr, "rms", 0) != 0;
}

/* One number per row, in full precision. */
static void row_shape(struct hd_shape *s, const struct hd_tensor *x)
{
	hd_shape_like(s, x);
	s->ndim--;
	s->dtype = HD_BITS(x->dtype) < 32 ? HD_DTYPE_F32 : x->dtype;
}

/* The terms of a row's sum, an output that only these kernels use. */
static void terms_shape(struct hd_shape *s, const struct hd_tensor *x)
{
	hd_shape_like(s, x);
	s->dtype = HD_BITS(x->dtype) < 32 ? HD_DTYPE_F32 : x->dtype;
}

static int part_shape(HD_SHAPE_ARGS)
{
	uint32_t sums = is_rms(attr) ? 1 : 2;

	(void)self;
	(void)p;
	(void)nin;
	for (uint32_t k = 0; k < sums; k++)
		row_shape(&outs[k], ins[0]);
	terms_shape(&outs[sums], ins[0]);
	*nout = sums + 1;
	return HD_OK;
}

static int apply_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)p;
	(void)nin;
	hd_shape_like(&outs[0], ins[0]);
	row_shape(&outs[1], ins[0]);
	row_shape(&outs[2], ins[0]);
	*nout = is_rms(attr) ? 2 : 3;
	return HD_OK;
}

/* -- placement -------------------------------------------------------------------------------------------------------------- */
/* (S, s, v, x): the shard's own sums are read unreduced; x gives the length of the shard. */
static int combine_place(HD_PLACE_ARGS)
{
	(void)self;
	(void)p;
	(void)axis;
	if (have[1].kind != HD_PLACE_PARTIAL)
		return HD_DEFAULT;
	need[1] = have[1];
	need[2] = out[0] = have[2];
	need[3] = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = last_dim(n->ins[3]) };
	return HD_OK;
}

/* Tensors with the dim are sharded.  The numbers of a row are replicated: they are no sums over the dim. */
static int apply_place(HD_PLACE_ARGS)
{
	const struct hd_dim *d = last_dim(n->ins[0]);
	const struct hd_place cut = { .kind = HD_PLACE_SHARD, .dim = d };

	(void)self;
	if (hd_sharded_by_rules(p, N(n), A(axis)) != d)
		return HD_DEFAULT;
	for (uint32_t i = 0; i < n->nin; i++)
		if (hd_has_dim(T(n->ins[i]), d))
			need[i] = cut;
	out[0] = cut;
	return HD_OK;
}

/* -- recording: the kernels of map and sum ------------------------------------------------------------------------------------- */
static int add_up(struct hd_record *r, struct hd_tensor *const *terms, struct hd_tensor *const *sum)
{
	return r->api->launch(r, "sum", terms, 1, sum, 1, "%s", "");
}

static int part_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	const struct hd_tensor *x = n->ins[0];
	struct hd_tensor *ins[] = { n->ins[0], n->outs[0] };
	long long len = (long long)x->local[x->ndim - 1];

	(void)self;
	if (is_rms(n->attr)) {
		HD_TRY(r->api->launch(r, "map", ins, 1, n->outs + 1, 1, "a * a"));
		return add_up(r, n->outs + 1, n->outs);
	}
	HD_TRY(add_up(r, n->ins, n->outs));
	HD_TRY(r->api->launch(r, "map", ins, 2, n->outs + 2, 1, "(a - b / %lld) * (a - b / %lld)", len, len));
	return add_up(r, n->outs + 2, n->outs + 1);
}

static int combine_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	const struct hd_tensor *x = n->ins[3];
	long long whole = (long long)last_dim(x)->n, len = (long long)x->local[x->ndim - 1];

	(void)self;
	return r->api->launch(r, "map", n->ins, 3, n->outs, 1,
			      "c + (b / %lld - a / %lld) * (b / %lld - a / %lld) * %lld", len, whole, len, whole, len);
}

/* (x, w[, b][, S], V -> y, rstd[, mean]) */
static int apply_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	int rms = is_rms(n->attr), bias = n->nin == 5;
	long long whole = (long long)last_dim(n->ins[0])->n;
	struct hd_tensor *ins[] = { n->ins[0], n->ins[1], n->outs[1], rms ? NULL : n->outs[2],
				    bias ? n->ins[2] : NULL };

	(void)self;
	HD_TRY(r->api->launch(r, "map", n->ins + n->nin - 1, 1, n->outs + 1, 1, "1 / sqrt(a / %lld + %.17g)", whole,
			      hd_attr_num(n->attr, "eps", 1e-5)));
	if (rms)
		return r->api->launch(r, "map", ins, 3, n->outs, 1, "a * c * b");
	HD_TRY(r->api->launch(r, "map", n->ins + n->nin - 2, 1, n->outs + 2, 1, "a / %lld", whole));
	return r->api->launch(r, "map", ins, bias ? 5 : 4, n->outs, 1,
			      bias ? "(a - d) * c * b + e" : "(a - d) * c * b");
}

/* (x, w, rstd[, mean], dy -> [A,] B, terms) */
static int d_part_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	int rms = is_rms(n->attr);
	struct hd_tensor *const *terms = n->outs + n->nout - 1;

	(void)self;
	if (!rms) {
		HD_TRY(r->api->launch(r, "map", n->ins, n->nin, terms, 1, "b * e"));
		HD_TRY(add_up(r, terms, n->outs));
	}
	HD_TRY(r->api->launch(r, "map", n->ins, n->nin, terms, 1, rms ? "b * d * (a * c)" : "b * e * ((a - d) * c)"));
	return add_up(r, terms, n->outs + n->nout - 2);
}

/* (x, w, rstd[, mean], dy[, A], B -> dx) */
static int d_apply_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	long long whole = (long long)last_dim(n->ins[0])->n;

	(void)self;
	if (is_rms(n->attr))
		return r->api->launch(r, "map", n->ins, 5, n->outs, 1, "c * (b * d - a * c * e / %lld)", whole);
	return r->api->launch(r, "map", n->ins, 7, n->outs, 1, "c * (b * e - f / %lld - (a - d) * c * g / %lld)", whole,
			      whole);
}

#define OP(id, traits, ...) \
	const struct op hd_op_##id = { \
		.v = { .size = sizeof(struct hd_op), .name = #id, .kind = "norm", __VA_ARGS__ }, .is = traits \
	}
OP(norm_part, PLAIN, .shape = part_shape, .record = part_record);
OP(norm_combine, PLAIN, .shape = hd_same_as_first, .place = combine_place, .record = combine_record);
OP(norm_apply, IS(NONE, OP_FLAG_CHEAP), .shape = apply_shape, .place = apply_place, .record = apply_record);
OP(norm_d_part, PLAIN, .shape = part_shape, .record = d_part_record);
OP(norm_d_apply, PLAIN, .shape = hd_same_as_first, .place = apply_place, .record = d_apply_record);
