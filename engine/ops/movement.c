/* SPDX-License-Identifier: Apache-2.0
 * Ops that move elements and compute nothing: within a rank (chunk, join, pick, pack, unpack, view, block, unblock) and
 * between ranks (comm, into which reshard is lowered).  Most cost nothing: no copy is made if the memory plan lets the
 * two tensors share bytes (engine/program/alias.c).
 *
 * Their shapes need more than the text of an attribute, so the builders here fill in the nodes themselves.
 */
#include <config.h>
#include "engine/graph/placement.h"
#include "engine/ops/ops.h"
#include "engine/ops/build.h"
#include "engine/ops/movement.h"
#include "engine/comm/comm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	(void)self;
	(void)r;
	(void)n;
	return HD_OK; /* engine/run/record.c records these itself, because they depend on the memory plan */
}

/* Places the gradient that the update reads where the state (input 1) lives, unless slot storage placed it
 * elsewhere. */
static int sync_place(HD_PLACE_ARGS)
{
	const struct tensor *y = T(n->outs[0]);

	(void)self;
	(void)p;
	need[1] = have[1];
	need[0] = out[0] = y->stored >> A(axis)->id & 1 ? y->storage.on[A(axis)->id] : have[1];
	return HD_OK;
}

/* Places a permutation, the only communication that may be built before placement.  The pieces of a sharded tensor
 * change members.  A replicated tensor, or a term of a sum, stays where it was. */
static int comm_place(HD_PLACE_ARGS)
{
	(void)self, (void)p, (void)n, (void)axis;
	need[0] = out[0] = have[0];
	return HD_OK;
}

static int comm_vjp(HD_VJP_ARGS)
{
	const struct comm_args *c = &N(n)->comm;
	int64_t back = c->kind == HD_COMM_PERMUTE ? hd_comm_inverse(c->mul, c->group->v.n) : 0;
	struct tensor *dx;

	(void)self, (void)want;
	if (c->kind != HD_COMM_PERMUTE)
		return hd_plan_fail(p, HD_ENOTSUP, "a %s is not differentiable, but a gradient is needed through it",
				    hd_comm_kind_name(c->kind));
	dx = hd_build_permute(p, c->group, T(dout[0]), back, -back * c->index);
	din[0] = dx ? &dx->v : NULL;
	return HD_OK;
}

#define OP(id, traits, ...) \
	const struct op hd_op_##id = { .v = { .size = sizeof(struct hd_op), \
					      .name = #id, \
					      .shape = hd_same_as_first, \
					      .record = no_record, \
					      __VA_ARGS__ }, \
				       .is = traits }
OP(chunk, IS(CHUNK, OP_FLAG_NAMES), .linear = 1);
OP(join, IS(JOIN, OP_FLAG_NAMES | OP_FLAG_PIECES), .linear = ~(uint64_t)0);
OP(pick, IS(PICK, OP_FLAG_NAMES), .linear = ~(uint64_t)0);
OP(pack, IS(PACK, OP_FLAG_NAMES | OP_FLAG_PIECES));
OP(unpack, IS(UNPACK, OP_FLAG_NAMES | OP_FLAG_PIECES));
OP(view, IS(VIEW, OP_FLAG_NAMES | OP_FLAG_PIECES | OP_FLAG_ARRANGES | OP_FLAG_MOVES_ROWS), .linear = 1);
OP(comm, IS(COMM, OP_FLAG_PIECES | OP_FLAG_ARRANGES | OP_FLAG_MOVES_ROWS), .vjp = comm_vjp, .place = comm_place);
OP(reshard, IS(RESHARD, OP_FLAG_MOVES_ROWS));
OP(block, IS(BLOCK, OP_FLAG_ARRANGES | OP_FLAG_MOVES_ROWS));
OP(unblock, IS(UNBLOCK, OP_FLAG_PIECES | OP_FLAG_ARRANGES | OP_FLAG_MOVES_ROWS));
OP(sync, IS(SYNC, OP_FLAG_NAMES), .place = sync_place);

/* Returns whether the result exists once a step.  A result of a unit exists once per micro-batch, even if its operand
 * exists once a step. */
static int once(const struct node *n, const struct tensor *x)
{
	return x->step && !(n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W));
}

struct tensor *hd_build_moved(struct hd_plan *p, const char *op, struct tensor *const *ins, uint32_t nin,
			      const char *attr, const struct hd_shape *shape)
{
	const struct op *o = hd_op_find(op);
	struct node *n;
	struct tensor *y;

	n = hd_node_new(p, &o->v, &o->is, ins, nin, attr);
	if (!n)
		return NULL;
	hd_node_adopt(p, n, shape, 1);
	y = n->outs[0];
	hd_placed_like(y, ins[0]);
	for (uint32_t i = 0; i < shape->ndim; i++)
		y->local[i] = shape->local[i];
	y->step = once(n, ins[0]);
	return y;
}

void hd_shape_of(struct hd_shape *s, const struct tensor *t)
{
	memset(s, 0, sizeof(*s));
	hd_shape_like(s, &t->v);
}

int hd_dim_index(const struct tensor *t, const struct hd_dim *d)
{
	for (uint32_t i = 0; i < t->v.ndim; i++)
		if (t->dims[i] == d)
			return (int)i;
	return -1;
}

const struct hd_dim *hd_member_dim(struct hd_plan *p, int64_t n)
{
	char name[32];

	snprintf(name, sizeof(name), "member%lld", (long long)n);
	return hd_dim_get(p, name, n);
}

/* For chunk, block and unblock: sets the order of the members' pieces. */
static void set_order(struct hd_plan *p, struct node *n, int order)
{
	n->order = order;
	n->attr = hd_plan_text(p, "%s", order == HD_ORDER_ZIGZAG ? "order=zigzag" : "order=padded");
	n->v.attr = n->attr;
}

static struct tensor *chunk(struct hd_plan *p, struct tensor *x, const struct hd_dim *dim, int64_t parts,
			    const struct hd_pos *at, int order)
{
	struct hd_shape s;
	struct tensor *y;
	int i = x ? hd_dim_index(x, dim) : -1;

	if (!x)
		return NULL;
	if (i < 0 || (x->local[i] % parts && order != HD_ORDER_PADDED))
		return hd_plan_fail(p, HD_EDIVIDE, "chunk: %s of (%s) has %lld elements, not a multiple of %lld",
				    dim ? dim->name : "?", x->spec, i < 0 ? 0LL : (long long)x->local[i],
				    (long long)parts),
		       NULL;
	hd_shape_of(&s, x);
	s.local[i] = hd_piece(s.local[i], parts);
	y = hd_build_moved(p, "chunk", &x, 1, "", &s);
	if (y) {
		N(y->v.node)->pos = *at;
		N(y->v.node)->parts = parts;
		N(y->v.node)->along = dim;
	}
	if (y && order)
		set_order(p, N(y->v.node), order);
	return y;
}

struct tensor *hd_build_member_chunk(struct hd_plan *p, struct tensor *x, const struct hd_dim *dim, struct group *g,
				     int order)
{
	return chunk(p, x, dim, g->v.n, &(struct hd_pos){ .group = &g->v, .mul = 1 }, order);
}

struct tensor *hd_build_chunk(struct hd_plan *p, struct tensor *x, const struct hd_dim *dim, int64_t parts,
			      const struct hd_pos *at)
{
	return chunk(p, x, dim, parts, at, HD_ORDER_CONTIGUOUS);
}

struct tensor *hd_build_join(struct hd_plan *p, struct tensor *const *xs, uint32_t n, const struct hd_dim *dim,
			     const struct hd_pos *at)
{
	static const struct hd_pos plain = { .step = 1 };
	struct hd_shape s;
	struct tensor *y;
	int i = n && xs[0] ? hd_dim_index(xs[0], dim) : -1;

	if (!n || !xs[0])
		return NULL;
	if (i < 0)
		return hd_plan_fail(p, HD_EINVAL, "join: (%s) has no dim %s", xs[0]->spec, dim ? dim->name : "?"), NULL;
	hd_shape_of(&s, xs[0]);
	s.local[i] *= n;
	y = hd_build_moved(p, "join", xs, n, "", &s);
	if (y) {
		N(y->v.node)->pos = at ? *at : plain;
		N(y->v.node)->parts = n;
		N(y->v.node)->along = dim;
	}
	return y;
}

struct tensor *hd_build_pick(struct hd_plan *p, struct tensor *const *xs, uint32_t n, const struct hd_pos *at)
{
	struct hd_shape s;
	struct tensor *y;

	if (!n || !xs[0])
		return NULL;
	hd_shape_of(&s, xs[0]);
	y = hd_build_moved(p, "pick", xs, n, "", &s);
	if (y) {
		N(y->v.node)->pos = *at;
		N(y->v.node)->parts = n;
	}
	return y;
}

struct tensor *hd_build_either(struct hd_plan *p, const struct hd_members *who, struct tensor *yes, struct tensor *no)
{
	struct tensor *xs[] = { yes, no }, *y;
	struct hd_shape s;

	if (!yes || !no)
		return NULL;
	hd_shape_of(&s, yes);
	y = hd_build_moved(p, "pick", xs, 2,
			   hd_plan_text(p, "on=%s from=%d to=%d", G(who->group)->name, who->from, who->to), &s);
	if (y) {
		N(y->v.node)->parts = 2;
		N(y->v.node)->chooses = *who;
	}
	return y;
}

/* Returns whether all dims from `from` up to the one before i have one entry.  Pieces along dim i are then
 * contiguous. */
static int leads(const struct tensor *x, int from, int i)
{
	while (from < i && x->local[from] == 1)
		from++;
	return from == i;
}

/* Reshapes (…, n k, …) to (member, …, k, …); hd_build_unblock does the inverse.  So the pieces that a collective splits
 * or joins are leading and contiguous. */
struct tensor *hd_build_block(struct hd_plan *p, struct tensor *x, const struct hd_dim *dim, int64_t n, int order)
{
	struct hd_shape s;
	struct tensor *y;
	int i = x ? hd_dim_index(x, dim) : -1;

	if (i < 0)
		return NULL;
	if (x->local[i] % n && order != HD_ORDER_PADDED)
		return hd_plan_fail(p, HD_EDIVIDE, "%s of (%s): %lld elements are not divisible by %lld members",
				    dim->name, x->spec, (long long)x->local[i], (long long)n),
		       NULL;
	hd_shape_of(&s, x);
	memmove(s.dims + 1, s.dims, s.ndim * sizeof(s.dims[0]));
	memmove(s.local + 1, s.local, s.ndim * sizeof(s.local[0]));
	s.dims[0] = hd_member_dim(p, n);
	s.local[0] = n;
	s.local[i + 1] = hd_piece(s.local[i + 1], n);
	s.ndim++;
	y = hd_build_moved(p, leads(x, 0, i) && !order ? "view" : "block", &x, 1, "", &s);
	if (y)
		N(y->v.node)->along = dim, N(y->v.node)->parts = n;
	if (y && order)
		set_order(p, N(y->v.node), order);
	return y;
}

/* If padded pieces are contiguous, all padding is at the end, so the result is a view of what precedes it. */
struct tensor *hd_build_unblock(struct hd_plan *p, struct tensor *x, const struct hd_dim *dim, int order, int64_t whole)
{
	struct hd_shape s;
	struct tensor *y;
	int i = x ? hd_dim_index(x, dim) : -1;

	if (i < 1)
		return NULL;
	hd_shape_of(&s, x);
	s.local[i] = order == HD_ORDER_PADDED ? whole : s.local[i] * s.local[0];
	memmove(s.dims, s.dims + 1, (s.ndim - 1) * sizeof(s.dims[0]));
	memmove(s.local, s.local + 1, (s.ndim - 1) * sizeof(s.local[0]));
	s.ndim--;
	y = hd_build_moved(p, leads(x, 1, i) && order != HD_ORDER_ZIGZAG ? "view" : "unblock", &x, 1, "", &s);
	if (y)
		N(y->v.node)->along = dim, N(y->v.node)->parts = x->local[0];
	if (y && order)
		set_order(p, N(y->v.node), order);
	return y;
}

static struct tensor *comm_node(struct hd_plan *p, uint32_t kind, struct group *g, struct tensor *x, int64_t index,
				const struct hd_shape *s)
{
	struct tensor *y =
		hd_build_moved(p, "comm", &x, 1, hd_plan_text(p, "%s group=%s", hd_comm_kind_name(kind), g->name), s);

	if (y) {
		N(y->v.node)->comm = (struct comm_args){ .kind = kind, .group = g, .index = index };
		hd_tensor_inherit(y, x);
		for (uint32_t i = 0; g->role && i < g->n; i++)
			y->at.on[g->axes[i]->id].role = (uint8_t)g->role;
	}
	return y;
}

/* Builds a collective on x, whose pieces, if it splits, are x's leading entries. */
static struct tensor *flat_comm(struct hd_plan *p, uint32_t kind, struct group *g, struct tensor *x, int64_t index)
{
	struct hd_shape s;

	if (!x)
		return NULL;
	hd_shape_of(&s, x);
	if (hd_comm_is_all_gather(kind) || kind == HD_COMM_GATHER) { /* a new leading dim with one entry per member */
		memmove(s.dims + 1, s.dims, s.ndim * sizeof(s.dims[0]));
		memmove(s.local + 1, s.local, s.ndim * sizeof(s.local[0]));
		s.dims[0] = hd_member_dim(p, g->v.n);
		s.local[0] = g->v.n;
		s.ndim++;
	} else if (hd_comm_is_reduce_scatter(kind) || kind == HD_COMM_SCATTER) {
		memmove(s.dims, s.dims + 1, (s.ndim - 1) * sizeof(s.dims[0]));
		memmove(s.local, s.local + 1, (s.ndim - 1) * sizeof(s.local[0]));
		s.ndim--;
	}
	return comm_node(p, kind, g, x, index, &s);
}

struct tensor *hd_build_comm_rows(struct hd_plan *p, struct group *g, struct tensor *const *ins,
				  const struct tensor *like, int to_experts)
{
	struct hd_shape s;
	struct tensor *y;

	hd_shape_of(&s, like);
	y = hd_build_moved(p, "comm", ins, 3,
			   hd_plan_text(p, "%s group=%s", hd_comm_kind_name(HD_COMM_ALL_TO_ALL_V), g->name), &s);
	if (y)
		N(y->v.node)->comm =
			(struct comm_args){ .kind = HD_COMM_ALL_TO_ALL_V, .group = g, .index = to_experts };
	return y;
}

struct tensor *hd_build_local(struct hd_plan *p, struct tensor *x, const struct axis *a)
{
	struct hd_shape s;
	struct tensor *y;

	if (!x)
		return NULL;
	hd_shape_of(&s, x);
	y = hd_build_moved(p, "view", &x, 1, hd_plan_text(p, "own along %s", a->v.name), &s);
	if (!y)
		return NULL;
	hd_tensor_inherit(y, x);
	y->at.on[a->id] = (struct hd_place){ .kind = HD_PLACE_REPLICATED };
	N(y->v.node)->local = 1;
	return y;
}

struct tensor *hd_build_permute(struct hd_plan *p, struct group *g, struct tensor *x, int64_t mul, int64_t add)
{
	int n = (int)g->v.n;
	struct hd_shape s;
	struct tensor *y;

	if (!x)
		return NULL;
	mul = hd_comm_mod(mul, n), add = hd_comm_mod(add, n);
	hd_shape_of(&s, x);
	y = hd_build_moved(p, "comm", &x, 1,
			   hd_plan_text(p, "permute group=%s mul=%lld add=%lld", g->name, (long long)mul,
					(long long)add),
			   &s);
	if (!y)
		return NULL;
	N(y->v.node)->comm = (struct comm_args){ .kind = HD_COMM_PERMUTE, .group = g, .index = add, .mul = mul };
	hd_tensor_inherit(y, x);
	return y;
}

/* Builds a push, whose result is at the spare coordinates, or a pull, whose result is at those that hold the model. */
static struct tensor *served(struct hd_plan *p, uint32_t kind, struct group *g, struct tensor *x,
			     const struct hd_dim *dim, int64_t index)
{
	struct axis *a = g->axes[0];
	int pushed = kind == HD_COMM_PUSH;
	struct hd_place at = { .kind = pushed ? dim ? HD_PLACE_SHARD : HD_PLACE_PINNED : HD_PLACE_REPLICATED,
			       .role = pushed ? HD_ROLE_SPARE : HD_ROLE_CORE };
	struct tensor *y;
	struct hd_shape s;

	if (dim && pushed)
		x = hd_build_block(p, x, dim, a->v.spare, HD_ORDER_CONTIGUOUS);
	if (!x)
		return NULL;
	hd_shape_of(&s, x);
	if (dim && pushed) {
		memmove(s.dims, s.dims + 1, (s.ndim - 1) * sizeof(s.dims[0]));
		memmove(s.local, s.local + 1, (s.ndim - 1) * sizeof(s.local[0]));
		s.ndim--;
	} else if (dim) {
		memmove(s.dims + 1, s.dims, s.ndim * sizeof(s.dims[0]));
		memmove(s.local + 1, s.local, s.ndim * sizeof(s.local[0]));
		s.dims[0] = hd_member_dim(p, a->v.spare);
		s.local[0] = a->v.spare;
		s.ndim++;
	}
	y = comm_node(p, kind, g, x, dim ? -1 : a->v.n + index, &s);
	if (!y)
		return NULL;
	at.dim = pushed ? dim : NULL;
	at.index = pushed && !dim ? (int32_t)index : 0;
	y->at.on[a->id] = at;
	return dim && !pushed ? hd_build_unblock(p, y, dim, HD_ORDER_CONTIGUOUS, 0) : y;
}

struct tensor *hd_build_comm(struct hd_plan *p, uint32_t kind, struct group *g, struct tensor *x,
			     const struct hd_dim *dim, int64_t index)
{
	int has = x && dim && hd_dim_index(x, dim) >= 0;

	if (!x || !g)
		return NULL;
	if (kind == HD_COMM_PUSH || kind == HD_COMM_PULL)
		return served(p, kind, g, x, dim, index);
	switch (kind) {
	case HD_COMM_ALL_GATHER:
	case HD_COMM_RING_ALL_GATHER:
	case HD_COMM_GATHER:
		x = flat_comm(p, kind, g, x, index);
		if (has)
			return hd_build_unblock(p, x, dim, HD_ORDER_CONTIGUOUS, 0);
		if (x && dim)
			x->dims[0] = dim, x->local[0] = g->v.n;
		return x;
	case HD_COMM_REDUCE_SCATTER:
	case HD_COMM_RING_REDUCE_SCATTER:
	case HD_COMM_ORDERED_REDUCE_SCATTER:
	case HD_COMM_SCATTER:
		if (!has)
			return hd_plan_fail(p, HD_EINVAL, "%s: (%s) does not have the dim that is sharded",
					    hd_comm_kind_name(kind), x->spec),
			       NULL;
		if (dim != hd_member_dim(p, g->v.n)) /* otherwise x is blocked already */
			x = hd_build_block(p, x, dim, g->v.n, HD_ORDER_CONTIGUOUS);
		return flat_comm(p, kind, g, x, index);
	case HD_COMM_ALL_TO_ALL:
		if (!x->v.ndim || x->local[0] != g->v.n)
			return hd_plan_fail(p, HD_EINVAL,
					    "all-to-all: the leading dim of (%s) has %lld entries for %lld members",
					    x->spec, (long long)x->local[0], (long long)g->v.n),
			       NULL;
		return flat_comm(p, kind, g, x, index);
	default: return flat_comm(p, kind, g, x, index);
	}
}

void hd_comm_set_wire(struct hd_plan *p, struct tensor *sum, uint32_t wire)
{
	struct node *n = N(sum->v.node);

	n->comm.wire = wire;
	n->attr = hd_plan_text(p, "%s wire=%s", n->attr, hd_dtype_name(wire));
	n->v.attr = n->attr;
}
