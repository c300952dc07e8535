/* SPDX-License-Identifier: Apache-2.0
 * Ops for plugins' builders, which no model uses.  Some have no operands: numbers of the run, constants, indices,
 * random numbers.  rename gives a dim a different name, so that a product can have both.  topk, gather and scatter move
 * entries along a dim by index.  That dim cannot be sharded, all others can.
 */
#include <config.h>
#include "engine/ops/movement.h"
#include "engine/ops/ops.h"

/* -- scalar --------------------------------------------------------------------------------------------------------------- */
static int scalar_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)attr;
	(void)ins;
	(void)nin;
	outs[0].dtype = p->master_dtype;
	outs[0].ndim = 0;
	*nout = 1;
	return HD_OK;
}

static const char *const scalars[] = { "lr", "step", "samples", "index" };

/* In a plan that is forward only, each micro-batch is a step of its own. */
static double samples_of_step(const struct hd_plan *p)
{
	return (double)(p->train ? p->batch * p->micros : p->batch);
}

static int scalar_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	const struct hd_plan *p = N(n)->plan;
	uint32_t what = (uint32_t)hd_attr_int(n->attr, "number", 0);
	double value = what == HD_SCALAR_INDEX ? (double)r->api->index(r, N(n)->pos.group) : samples_of_step(p);

	(void)self;
	if (what <= HD_SCALAR_STEP)
		return r->api->launch(r, "scalar", NULL, 0, n->outs, 1, "%s", n->attr);
	return r->api->launch(r, "fill", NULL, 0, n->outs, 1, "value=%.17g", value);
}

/* A node without operands is everywhere.  In slot lower, it is on the stage of the cursor's node. */
static void settle(struct hd_plan *p, struct node *n)
{
	const struct node *a = p->cursor.before;
	int64_t stage = a && a->placed && p->stages ? hd_node_stage(p, a) : -1;

	if (!a || !a->placed)
		return;
	n->outs[0]->placed = n->placed = 1;
	if (stage >= 0)
		n->outs[0]->at.on[p->stages->id] =
			(struct hd_place){ .kind = HD_PLACE_PINNED, .index = (int32_t)stage };
}

struct tensor *hd_build_scalar(struct hd_plan *p, uint32_t what, struct group *g)
{
	struct node *n;

	if (p->err->code)
		return NULL;
	if (what >= HD_LEN(scalars))
		return hd_plan_fail(p, HD_EINVAL, "scalar: %u is not one of the %zu numbers that this engine has", what,
				    HD_LEN(scalars)),
		       NULL;
	if ((what == HD_SCALAR_INDEX) != !!g)
		return hd_plan_fail(p, HD_EINVAL, "scalar: %s takes %s group", scalars[what], g ? "no" : "a"), NULL;
	n = hd_node_make(p, "scalar", NULL, 0, "what=%s number=%u%s%s", scalars[what], what, g ? " group=" : "",
			 g ? g->name : "");
	if (!n)
		return NULL;
	n->pos.group = g ? &g->v : NULL;
	settle(p, n);
	return n->outs[0];
}

/* -- constant, iota, random ------------------------------------------------------------------------------------------------ */
static int constant_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	(void)self;
	return r->api->launch(r, "fill", NULL, 0, n->outs, 1, "%s", n->attr);
}

struct tensor *hd_build_made(struct hd_plan *p, const char *op, const struct hd_dim *const *dims, uint32_t ndim,
			     const char *attr)
{
	const struct op *o = hd_op_find(op);
	struct hd_shape s = { .dtype = p->master_dtype, .ndim = ndim };
	struct node *n;

	if (p->err->code)
		return NULL;
	for (uint32_t d = 0; d < ndim; d++)
		s.dims[d] = dims[d];
	n = hd_node_new(p, &o->v, &o->is, NULL, 0, attr);
	if (!n)
		return NULL;
	hd_node_adopt(p, n, &s, 1);
	settle(p, n);
	return n->outs[0];
}

/* -- rename --------------------------------------------------------------------------------------------------------------- */
static int rename_shape(HD_SHAPE_ARGS)
{
	uint32_t at = (uint32_t)hd_attr_int(attr, "at", 0);

	(void)self;
	(void)p;
	(void)nin;
	hd_shape_like(&outs[0], ins[0]);
	outs[0].local[at] = 0;
	*nout = 1;
	return HD_OK;
}

/* Placed as x is, except that the dim that is renamed is not sharded, and a partial operand is reduced. */
static int rename_place(HD_PLACE_ARGS)
{
	uint32_t at = (uint32_t)hd_attr_int(n->attr, "at", 0);

	(void)self;
	(void)p;
	(void)axis;
	if (have[0].kind == HD_PLACE_PARTIAL)
		need[0] = (struct hd_place){ .kind = HD_PLACE_REPLICATED };
	else if (have[0].kind != HD_PLACE_SHARD || have[0].dim != n->ins[0]->dims[at])
		need[0] = have[0];
	out[0] = need[0];
	return HD_OK;
}

static int rename_vjp(HD_VJP_ARGS)
{
	uint32_t at = (uint32_t)hd_attr_int(n->attr, "at", 0);
	struct tensor *g = want & 1 ? hd_build_rename(p, T(dout[0]), n->outs[0]->dims[at], n->ins[0]->dims[at]) : NULL;

	(void)self;
	din[0] = g ? &g->v : NULL;
	return HD_OK;
}

static int rename_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	(void)self;
	return r->api->launch(r, "copy", n->ins, 1, n->outs, 1, "%s", "");
}

struct tensor *hd_build_rename(struct hd_plan *p, struct tensor *x, const struct hd_dim *from, const struct hd_dim *to)
{
	struct hd_shape s = { .dtype = 0 };
	struct tensor *y;
	struct node *n;
	uint32_t at = 0;

	if (!x || p->err->code)
		return NULL;
	while (at < x->v.ndim && x->dims[at] != from)
		at++;
	if (at == x->v.ndim || hd_has_dim(x, to))
		return hd_plan_fail(p, HD_EINVAL, "rename: (%s) %s dim %s", x->spec,
				    at == x->v.ndim ? "does not have the" : "already has the",
				    at == x->v.ndim ? from->name : to->name),
		       NULL;
	if (to->n != from->n || x->local[at] != D(from)->padded || D(to)->padded != x->local[at])
		return hd_plan_fail(p, HD_EINVAL, "rename: %s has %lld elements, %lld of them here, and %s has %lld",
				    from->name, (long long)D(from)->padded, (long long)x->local[at], to->name,
				    (long long)to->n),
		       NULL;
	n = hd_node_make(p, "renamed", &x, 1, "at=%u to=%s", at, to->name);
	if (!n)
		return NULL;
	hd_shape_like(&s, &x->v);
	s.dims[at] = to;
	hd_node_adopt(p, n, &s, 1);
	y = n->outs[0];
	y->at = x->at;
	y->placed = n->placed = x->placed;
	return y;
}

/* -- topk, gather, scatter ------------------------------------------------------------------------------------------------ */
static const struct hd_place replicated = { .kind = HD_PLACE_REPLICATED };

/* Placed like the first operand that is not replicated, unless that is sharded along the dim of the index, or
 * partial. */
static int index_place(HD_PLACE_ARGS)
{
	uint32_t at = (uint32_t)hd_attr_int(n->attr, "along", 0), first = 0;
	struct hd_place to = replicated;

	(void)self;
	(void)p;
	(void)axis;
	while (first + 1 < n->nin && have[first].kind == HD_PLACE_REPLICATED)
		first++;
	if (have[first].kind == HD_PLACE_PINNED ||
	    (have[first].kind == HD_PLACE_SHARD && have[first].dim != n->ins[first]->dims[at]))
		to = have[first];
	for (uint32_t i = 0; i < n->nin; i++)
		need[i] = to;
	for (uint32_t k = 0; k < n->nout; k++)
		out[k] = to;
	return HD_OK;
}

/* Sets the shape of x with d in place of dim `at`. */
static void with_dim(struct hd_shape *s, const struct tensor *x, uint32_t at, const struct hd_dim *d, uint32_t dtype)
{
	hd_shape_like(s, &x->v);
	s->dims[at] = d;
	s->local[at] = d->n;
	s->dtype = dtype;
}

static uint32_t index_of(const struct tensor *t, const struct hd_dim *d)
{
	uint32_t i = 0;

	while (i < t->v.ndim && t->dims[i] != d)
		i++;
	return i;
}

/* Checks the operands of op: x has dim `from` and not dim `to`, and `from` is not sharded. */
static int check(struct hd_plan *p, const char *op, const struct tensor *x, const struct hd_dim *from,
		 const struct hd_dim *to)
{
	if (index_of(x, from) == x->v.ndim)
		return hd_plan_fail(p, HD_EINVAL, "%s: (%s) does not have the dim %s", op, x->spec, from->name);
	if (hd_has_dim(x, to))
		return hd_plan_fail(p, HD_EINVAL, "%s: (%s) already has the dim %s", op, x->spec, to->name);
	if (x->placed && x->local[index_of(x, from)] != from->n)
		return hd_plan_fail(p, HD_EINVAL, "%s: %lld of the %lld entries of %s are here, but all are needed", op,
				    (long long)x->local[index_of(x, from)], (long long)from->n, from->name);
	return HD_OK;
}

static struct node *index_node(struct hd_plan *p, const char *op, struct tensor *const *ins, uint32_t nin,
			       const char *attr, const struct hd_shape *outs, uint32_t nout)
{
	struct node *n = hd_node_make(p, op, ins, nin, "%s", attr);

	if (!n)
		return NULL;
	hd_node_adopt(p, n, outs, nout);
	n->placed = ins[0]->placed;
	for (uint32_t k = 0; k < nout && n->placed; k++) {
		n->outs[k]->at = ins[0]->at;
		n->outs[k]->placed = 1;
	}
	return n;
}

struct node *hd_build_topk(struct hd_plan *p, struct tensor *x, const struct hd_dim *along, const struct hd_dim *k,
			   int magnitude)
{
	struct hd_shape s[2] = { { .dtype = 0 } };

	if (!x || p->err->code || check(p, "topk", x, along, k) < 0)
		return NULL;
	if (k->n > along->n)
		return hd_plan_fail(p, HD_EINVAL, "topk: the %lld largest of %lld (%s)", (long long)k->n,
				    (long long)along->n, along->name),
		       NULL;
	with_dim(&s[0], x, index_of(x, along), k, x->v.dtype);
	s[1] = s[0];
	s[1].dtype = HD_DTYPE_I32;
	return index_node(p, "largest", &x, 1,
			  hd_plan_text(p, "along=%u k=%lld magnitude=%d", index_of(x, along), (long long)k->n,
				       magnitude),
			  s, 2);
}

/* Checks that the index has the dims of x, except for at most one, and dtype i32. */
static int check_index(struct hd_plan *p, const char *op, const struct tensor *x, const struct tensor *index)
{
	uint32_t other = 0;

	if (index->v.dtype != HD_DTYPE_I32)
		return hd_plan_fail(p, HD_EINVAL, "%s: the index (%s) has dtype %s, not i32", op, index->spec,
				    hd_dtype_name(index->v.dtype));
	for (uint32_t i = 0; i < x->v.ndim && x->v.ndim == index->v.ndim; i++)
		other += x->dims[i] != index->dims[i];
	if (x->v.ndim != index->v.ndim || other > 1)
		return hd_plan_fail(p, HD_EINVAL, "%s: the index (%s) differs from (%s) in more than one dim", op,
				    index->spec, x->spec);
	return HD_OK;
}

struct tensor *hd_build_gather(struct hd_plan *p, struct tensor *x, struct tensor *index, const struct hd_dim *along)
{
	struct tensor *ins[] = { x, index };
	struct hd_shape s = { .dtype = 0 };
	struct node *n;
	uint32_t at;

	if (!x || !index || p->err->code || check_index(p, "gather", x, index) < 0)
		return NULL;
	at = index_of(x, along);
	if (check(p, "gather", x, along, at < index->v.ndim ? index->dims[at] : NULL) < 0)
		return NULL;
	with_dim(&s, index, at, index->dims[at], x->v.dtype);
	n = index_node(p, "take", ins, 2, hd_plan_text(p, "along=%u", at), &s, 1);
	return n ? n->outs[0] : NULL;
}

struct tensor *hd_build_scatter(struct hd_plan *p, struct tensor *x, struct tensor *index, const struct hd_dim *from,
				const struct hd_dim *to, int unique)
{
	struct tensor *ins[] = { x, index };
	struct hd_shape s = { .dtype = 0 };
	struct node *n;

	if (!x || !index || p->err->code || check_index(p, "scatter", x, index) < 0 ||
	    check(p, "scatter", x, from, to) < 0)
		return NULL;
	with_dim(&s, x, index_of(x, from), to, x->v.dtype);
	n = index_node(p, "put", ins, 2, hd_plan_text(p, "along=%u unique=%d", index_of(x, from), unique), &s, 1);
	return n ? n->outs[0] : NULL;
}

/* gather and scatter are each other's gradients; an index has none. */
static int topk_vjp(HD_VJP_ARGS)
{
	uint32_t at = (uint32_t)hd_attr_int(n->attr, "along", 0);
	struct tensor *g = want & 1 && dout[0] ? hd_build_scatter(p, T(dout[0]), T(n->outs[1]), n->outs[0]->dims[at],
								  n->ins[0]->dims[at], 1)
					       : NULL;

	(void)self;
	din[0] = g ? &g->v : NULL;
	return HD_OK;
}

static int gather_vjp(HD_VJP_ARGS)
{
	uint32_t at = (uint32_t)hd_attr_int(n->attr, "along", 0);
	struct tensor *g =
		want & 1 ? hd_build_scatter(p, T(dout[0]), T(n->ins[1]), n->outs[0]->dims[at], n->ins[0]->dims[at], 0)
			 : NULL;

	(void)self;
	din[0] = g ? &g->v : NULL;
	return HD_OK;
}

static int scatter_vjp(HD_VJP_ARGS)
{
	uint32_t at = (uint32_t)hd_attr_int(n->attr, "along", 0);
	struct tensor *g = want & 1 ? hd_build_gather(p, T(dout[0]), T(n->ins[1]), n->outs[0]->dims[at]) : NULL;

	(void)self;
	din[0] = g ? &g->v : NULL;
	return HD_OK;
}

#define OP(id, traits, ...) \
	const struct op hd_op_##id = { .v = { .size = sizeof(struct hd_op), .name = #id, __VA_ARGS__ }, .is = traits }
OP(scalar, PLAIN, .shape = scalar_shape, .record = scalar_record);
OP(constant, PLAIN, .shape = scalar_shape, .record = constant_record);
OP(iota, PLAIN, .shape = scalar_shape, .record = hd_record_plain);
OP(uniform, PLAIN, .shape = scalar_shape, .record = hd_record_plain);
OP(renamed, PLAIN, .linear = 1, .shape = rename_shape, .vjp = rename_vjp, .place = rename_place,
   .record = rename_record);

#define INDEXED(id, traits, ...) \
	const struct op hd_op_##id = { .v = { .size = sizeof(struct hd_op), \
					      .name = #id, \
					      .shape = hd_same_as_first, \
					      .place = index_place, \
					      .record = hd_record_plain, \
					      __VA_ARGS__ }, \
				       .is = traits }
INDEXED(largest, PLAIN, .vjp = topk_vjp);
INDEXED(take, PLAIN, .vjp = gather_vjp);
INDEXED(put, PLAIN, .vjp = scatter_vjp);
