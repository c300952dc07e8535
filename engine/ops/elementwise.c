/* SPDX-License-Identifier: Apache-2.0
 * Ops that treat every element alike: add, map (an expression as text), cast, fill, gelu, swiglu, dropout, rope.
 * Inputs with fewer dims are broadcast by dim name; their gradients are summed over the missing dims.
 */
#include <config.h>
#include "engine/ops/ops.h"
#include "engine/base/expr.h"
#include <stdlib.h>
#include <string.h>

static const int8_t first[] = { 0 }, second[] = { 1, -1 }, first_last[] = { -1, 0 };

/* Checks that the first input has the dims of all others; the result has them too. */
static int broadcasts(struct hd_plan *p, const char *op, struct hd_tensor *const *ins, uint32_t nin)
{
	for (uint32_t i = 1; i < nin; i++)
		for (uint32_t d = 0; d < ins[i]->ndim; d++)
			if (!hd_has_dim(T(ins[0]), ins[i]->dims[d]))
				return hd_plan_fail(p, HD_EINVAL,
						    "%s: input %u has dim %s, which input 0 (%s) does not have", op, i,
						    ins[i]->dims[d]->name, ins[0]->spec);
	return HD_OK;
}

/* -- add --------------------------------------------------------------------------------------------------------------- */
static int add_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)attr;
	hd_shape_like(&outs[0], ins[0]);
	*nout = 1;
	return broadcasts(p, "add", ins, nin);
}

static int add_vjp(HD_VJP_ARGS)
{
	(void)self;
	for (uint32_t i = 0; i < n->nin; i++)
		if (want >> i & 1 && n->ins[i]->dtype == dout[0]->dtype)
			din[i] = hd_sum_to(p, T(dout[0]), T(n->ins[i]));
	return HD_OK;
}

/* -- map --------------------------------------------------------------------------------------------------------------- */
static int map_shape(HD_SHAPE_ARGS)
{
	struct hd_expr e;
	struct hd_err err = { 0 };

	(void)self;
	if (hd_expr_compile(attr, &e, &err) < 0)
		return hd_plan_fail(p, err.code, "map: %s", err.text);
	if (e.vars > (int32_t)nin)
		return hd_plan_fail(p, HD_EINVAL, "map: '%s' uses %d inputs but has %u", attr, e.vars, nin);
	hd_shape_like(&outs[0], ins[0]);
	*nout = 1;
	return broadcasts(p, "map", ins, nin);
}

/* Replaces variable i of an expression by the letter to[i]. */
static void rename_variables(char *text, const char *to)
{
	while (*text) {
		size_t word = strspn(text, "abcdefghijklmnopqrstuvwxyz");

		if (*text == '.' || (*text >= '0' && *text <= '9')) {
			strtod(text, &text);
			continue;
		}
		if (word == 1)
			*text = to[*text - 'a'];
		text += word ? word : 1;
	}
}

/* Returns dout times the derivative d, an expression of n's inputs. It reads only the inputs that d uses: others would
 * be kept until then. The first operand has the dims of the result. */
static struct tensor *times_derivative(struct hd_plan *p, const struct hd_node *n, char *d, struct tensor *dout)
{
	struct tensor *ins[HD_MAX_INS + 1] = { dout };
	char to[HD_MAX_INS], gradient = 'a';
	int used[HD_MAX_INS] = { 0 };
	struct hd_expr e;
	uint32_t k = 0;

	hd_expr_compile(d, &e, NULL); /* hd_expr_derive has checked it */
	for (int32_t i = 0; i < e.n; i++)
		if (e.op[i].code == HD_X_VAR)
			used[e.op[i].var] = 1;
	k = !used[0];
	for (uint32_t i = 0; i < n->nin; i++)
		if (used[i]) {
			to[i] = 'a' + (char)k;
			ins[k++] = T(n->ins[i]);
		}
	if (used[0]) {
		gradient = 'a' + (char)k;
		ins[k++] = dout;
	}
	rename_variables(d, to);
	return hd_op1(p, "map", ins, k, "(%s) * %c", d, gradient);
}

static int map_vjp(HD_VJP_ARGS)
{
	(void)self;
	for (uint32_t i = 0; i < n->nin; i++) {
		struct hd_err err = { 0 };
		char *d = want >> i & 1 ? hd_expr_derive(n->attr, (int)i, &err) : NULL;

		if (err.code)
			return hd_plan_fail(p, err.code, "map: %s", err.text);
		if (d && strcmp(d, "0")) {
			struct tensor *g = times_derivative(p, n, d, T(dout[0]));

			din[i] = g ? hd_sum_to(p, g, T(n->ins[i])) : NULL;
		}
		free(d);
	}
	return HD_OK;
}

static int map_cost(struct hd_strategy *self, const struct hd_node *n, struct hd_cost *c)
{
	struct hd_expr e;
	double out = hd_expected_elements(n->outs[0]);

	(void)self;
	c->bytes = out * HD_BITS(n->outs[0]->dtype) / 8;
	for (uint32_t i = 0; i < n->nin; i++)
		c->bytes += hd_expected_elements(n->ins[i]) * HD_BITS(n->ins[i]->dtype) / 8;
	c->other_flops = hd_expr_compile(n->attr, &e, NULL) < 0 ? 0 : out * e.n;
	return HD_OK;
}

/* -- cast, fill, accumulate, copy ---------------------------------------------------------------------------------------- */
static uint32_t dtype_attr(const char *attr)
{
	return (uint32_t)hd_attr_int(attr, "dtype", HD_DTYPE_F32);
}

static int cast_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)p;
	(void)nin;
	hd_shape_like(&outs[0], ins[0]);
	outs[0].dtype = dtype_attr(attr);
	*nout = 1;
	return HD_OK;
}

static int cast_vjp(HD_VJP_ARGS)
{
	struct tensor *g = T(dout[0]);

	(void)self;
	(void)want;
	if (g->v.dtype != hd_gradient_dtype(p, n->ins[0]))
		g = hd_op1(p, "cast", &g, 1, "dtype=%u", hd_gradient_dtype(p, n->ins[0]));
	din[0] = g ? &g->v : NULL;
	return HD_OK;
}

/* Places the accumulator, which adds up contributions over the micro-batches of a step, where slot storage put it.
 * Otherwise it is where the contributions can be added up. */
static int accumulate_place(HD_PLACE_ARGS)
{
	(void)self;
	out[0] = *hd_common_place(have, n->nin);
	for (uint32_t i = 0; i < n->nin; i++)
		need[i] = out[0];
	if (T(n->outs[0])->stored >> A(axis)->id & 1)
		for (uint32_t i = 0; i <= n->nin; i++)
			*(i < n->nin ? &need[i] : &out[0]) = T(n->outs[0])->storage.on[A(axis)->id];
	(void)p;
	return HD_OK;
}

/* -- gelu, swiglu -------------------------------------------------------------------------------------------------------- */
static int gelu_vjp(HD_VJP_ARGS)
{
	struct tensor *ins[] = { T(n->ins[0]), T(dout[0]) }, *g;

	(void)self;
	(void)want;
	g = hd_op1(p, "gelu_d", ins, 2, "%s", "");
	din[0] = g ? &g->v : NULL;
	return HD_OK;
}

/* hd_pass_recompute replaces gelu and gelu_d after autodiff.  gelu_slope also computes the slope, and gelu_slope_d
 * reads that instead of x. */
static int slope_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)p;
	(void)attr;
	(void)nin;
	hd_shape_like(&outs[0], ins[0]);
	hd_shape_like(&outs[1], ins[0]);
	*nout = 2;
	return HD_OK;
}

/* With out= (hd_pass_fuse), it also sums its result over all dims not listed there. */
static int slope_d_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)nin;
	hd_shape_like(&outs[0], ins[1]);
	*nout = hd_attr_text(attr, "out") ? 2 : 1;
	return *nout == 2 ? hd_shape_attr(p, attr, &outs[1], p->master_dtype) : HD_OK;
}

static int slope_d_cost(struct hd_strategy *self, const struct hd_node *n, struct hd_cost *c)
{
	double x = hd_expected_elements(n->ins[0]);

	(void)self;
	c->other_flops = (double)n->nout * x;
	c->bytes = HD_BITS(n->ins[0]->dtype) / 8 * x * 3;
	return HD_OK;
}

static int swiglu_d_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)p;
	(void)attr;
	(void)nin;
	hd_shape_like(&outs[0], ins[0]);
	hd_shape_like(&outs[1], ins[1]);
	*nout = 2;
	return HD_OK;
}

static int swiglu_vjp(HD_VJP_ARGS)
{
	struct tensor *ins[] = { T(n->ins[0]), T(n->ins[1]), T(dout[0]) };
	/* The other attributes are about row counts, which hd_node_new adds again. */
	int gelu = (int)hd_attr_int(n->attr, "gelu", 0);
	struct node *d = hd_node_make(p, "swiglu_d", ins, 3, gelu ? "gelu=%d" : "", gelu);

	(void)self;
	for (int i = 0; d && i < 2; i++)
		din[i] = &d->outs[i]->v;
	return HD_OK;
}

static int elementwise_cost(struct hd_strategy *self, const struct hd_node *n, struct hd_cost *c)
{
	double x = hd_expected_elements(n->ins[0]);

	(void)self;
	c->other_flops = 20 * x;
	c->bytes = HD_BITS(n->ins[0]->dtype) / 8 * x * (n->nin + n->nout);
	return HD_OK;
}

/* -- dropout, rope: linear, and they depend only on the global index, so backward repeats the same mask --------------------- */
static int dropout_vjp(HD_VJP_ARGS)
{
	struct tensor *g = T(dout[0]);

	(void)self;
	(void)want;
	g = hd_op1(p, "dropout", &g, 1, "%s", n->attr);
	din[0] = g ? &g->v : NULL;
	return HD_OK;
}

/* Backward rotates in the opposite direction: with inverse=1 appended to the attributes, or removed from them. */
static int rope_vjp(HD_VJP_ARGS)
{
	const char *back = strstr(n->attr, " inverse=1");
	size_t whole = back ? (size_t)(back - n->attr) : strlen(n->attr);
	struct tensor *g = T(dout[0]);

	(void)self;
	(void)want;
	g = hd_op1(p, "rope", &g, 1, "%.*s%s", (int)whole, n->attr, back ? "" : " inverse=1");
	din[0] = g ? &g->v : NULL;
	return HD_OK;
}

/* Reported while planning, because kernels see head_dim only when a run has begun. */
static int rope_shape(HD_SHAPE_ARGS)
{
	const struct hd_tensor *x = ins[0];
	const struct hd_dim *d = x->ndim ? x->dims[x->ndim - 1] : NULL;

	if (d && d->n % 2 && !hd_attr_text(attr, "rotary"))
		return hd_plan_fail(p, HD_EDIVIDE, "rope: %s = %lld is odd, but its halves are rotated", d->name,
				    (long long)d->n);
	return hd_same_as_first(self, p, attr, ins, nin, outs, nout);
}

static const char *const rope_uncut[] = { "head_dim", NULL };

#define OP(id, traits, ...) \
	const struct op hd_op_##id = { \
		.v = { .size = sizeof(struct hd_op), .name = #id, .record = hd_record_plain, __VA_ARGS__ }, \
		.is = traits \
	}
OP(add, IS(ADD, OP_FLAG_ROWS), .linear = ~(uint64_t)0, .inplace = first, .shape = add_shape, .vjp = add_vjp);
OP(map, IS(MAP, 0), .inplace = first, .shape = map_shape, .vjp = map_vjp, .cost = map_cost);
OP(cast, IS(CAST, OP_FLAG_CHEAP | OP_FLAG_MOVES_ROWS), .linear = 1, .shape = cast_shape, .vjp = cast_vjp);
OP(copy, PLAIN, .linear = 1, .shape = hd_same_as_first);
OP(fill, IS(FILL, 0), .shape = hd_same_as_first);
OP(accumulate, IS(ACCUMULATE, OP_FLAG_NAMES), .shape = hd_same_as_first, .place = accumulate_place);
OP(gelu, IS(GELU, OP_FLAG_CHEAP | OP_FLAG_ROWS), .inplace = first, .shape = hd_same_as_first, .vjp = gelu_vjp,
   .cost = elementwise_cost);
OP(gelu_d, IS(GELU_D, OP_FLAG_ROWS), .linear = 2, .inplace = second, .shape = hd_same_as_first,
   .cost = elementwise_cost);
OP(gelu_slope, IS(GELU_SLOPE, OP_FLAG_ROWS), .inplace = first_last, .shape = slope_shape, .cost = elementwise_cost);
OP(gelu_slope_d, IS(GELU_SLOPE_D, OP_FLAG_ROWS), .linear = 2, .inplace = second, .shape = slope_d_shape,
   .cost = slope_d_cost);
OP(swiglu, IS(NONE, OP_FLAG_CHEAP | OP_FLAG_ROWS), .shape = hd_same_as_first, .vjp = swiglu_vjp,
   .cost = elementwise_cost);
OP(swiglu_d, IS(NONE, OP_FLAG_ROWS), .linear = 4, .shape = swiglu_d_shape, .cost = elementwise_cost);
OP(dropout, PLAIN, .linear = 1, .inplace = first, .shape = hd_same_as_first, .vjp = dropout_vjp);
OP(rope_at, IS(NONE, OP_FLAG_WITH_CACHE), .unshardable = rope_uncut, .inplace = first, .shape = rope_shape);
OP(rope, PLAIN, .linear = 1, .unshardable = rope_uncut, .inplace = first, .shape = rope_shape, .vjp = rope_vjp);
