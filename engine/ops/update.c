/* SPDX-License-Identifier: Apache-2.0
 * What runs once a step: the global gradient norm (each element counted once, by one owner), the clip factor, and the
 * update, where the optimizer's state lives.  Also the copies to and from host memory, or a server, for that
 * (engine/passes/autodiff.c).
 */
#include <config.h>
#include "engine/ops/ops.h"
#include <string.h>

/* Adds up the parts of one gradient on the parameter's stage.  The last input is the parameter; all others are
 * parts. */
static int total_place(HD_PLACE_ARGS)
{
	(void)self;
	for (uint32_t i = 0; i + 1 < n->nin; i++)
		need[i] = A(axis) == p->stages ? have[n->nin - 1] : *hd_common_place(have, n->nin - 1);
	need[n->nin - 1] = have[n->nin - 1];
	out[0] = need[0];
	return HD_OK;
}

static int total_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	struct hd_tensor *some[HD_MAX_INS] = { n->ins[0] };
	uint32_t many;

	(void)self;
	for (uint32_t at = 1; at < n->nin - 1; at += many - 1) { /* one addition has HD_MAX_INS inputs at most */
		many = n->nin - at < HD_MAX_INS ? n->nin - at : HD_MAX_INS;
		memcpy(some + 1, n->ins + at, (many - 1) * sizeof(some[0]));
		HD_TRY(r->api->launch(r, "add", some, many, n->outs, 1, "%s", ""));
		some[0] = n->outs[0];
	}
	return HD_OK;
}

/* Sum of squares of all gradients.  The result is partial on an axis along which a gradient is sharded or pinned.  It
 * is also partial on an axis with spare coordinates, over all coordinates.  On all these axes, only coordinate 0 counts
 * a gradient that is replicated there (engine/run/record.c). */
static int norm2_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)p;
	(void)attr;
	(void)nin;
	(void)ins;
	outs[0].dtype = HD_DTYPE_F64;
	outs[0].ndim = 0;
	*nout = 1;
	return HD_OK;
}

static int norm2_place(HD_PLACE_ARGS)
{
	int split = axis->spare > 0;

	(void)self;
	(void)p;
	for (uint32_t i = 0; i < n->nin; i++) {
		need[i] = have[i];
		if (have[i].kind == HD_PLACE_PARTIAL)
			need[i] = (struct hd_place){ .kind = HD_PLACE_REPLICATED, .role = have[i].role };
		split |= have[i].kind == HD_PLACE_SHARD || have[i].kind == HD_PLACE_PINNED;
	}
	if (split)
		out[0] = (struct hd_place){ .kind = HD_PLACE_PARTIAL,
					    .red = HD_RED_SUM,
					    .role = axis->spare ? HD_ROLE_ALL : HD_ROLE_CORE };
	return HD_OK;
}

static int clip_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)attr;
	(void)nin;
	(void)ins;
	for (int k = 0; k < 2; k++) {
		outs[k].dtype = p->master_dtype;
		outs[k].ndim = 0;
	}
	*nout = 2;
	return HD_OK;
}

/* With low=1, the last output is a copy of the new value in low precision. */
static uint32_t low_copy(const struct hd_plan *p, const char *attr, const struct hd_tensor *w, struct hd_shape *low)
{
	if (hd_attr_num(attr, "low", 0) == 0)
		return 0;
	hd_shape_like(low, w);
	low->dtype = p->compute_dtype;
	return 1;
}

static int adamw_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)nin;
	hd_shape_like(&outs[0], ins[0]);
	hd_shape_like(&outs[1], ins[2]);
	hd_shape_like(&outs[2], ins[3]);
	*nout = 3 + low_copy(p, attr, ins[0], &outs[3]);
	return HD_OK;
}

static int sgd_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)nin;
	hd_shape_like(&outs[0], ins[0]);
	*nout = 1 + low_copy(p, attr, ins[0], &outs[1]);
	return HD_OK;
}

/* All operands move to where the state (adamw: m) lives.  Without a state, that is where sync moved the gradient.  The
 * clip factor is everywhere. */
static int update_place(HD_PLACE_ARGS)
{
	uint32_t lives = n->nin == 5 ? 2 : 1;

	(void)self;
	(void)p;
	for (uint32_t i = 0; i + 1 < n->nin; i++)
		need[i] = have[lives];
	need[n->nin - 1].role = axis->spare ? HD_ROLE_ALL : HD_ROLE_CORE;
	for (uint32_t k = 0; k < n->nout; k++)
		out[k] = have[lives];
	return HD_OK;
}

/* A copy between the two memories of a rank; its placement does not change. */
static int transfer_place(HD_PLACE_ARGS)
{
	(void)self, (void)p, (void)n, (void)axis;
	need[0] = out[0] = have[0];
	return HD_OK;
}

static int transfer_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	(void)self, (void)r, (void)n;
	return HD_OK; /* engine/run/bind.c */
}

/* The value that a server sends of a master: rounded to the parameter's dtype, where the master is. */
static int served_shape(HD_SHAPE_ARGS)
{
	(void)self, (void)p, (void)nin;
	hd_shape_like(&outs[0], ins[0]);
	outs[0].dtype = (uint32_t)hd_attr_int(attr, "dtype", HD_DTYPE_F32);
	*nout = 1;
	return HD_OK;
}

static int served_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	(void)self;
	return r->api->launch(r, "cast", n->ins, 1, n->outs, 1, "%s", n->attr);
}

/* The new value of a parameter, where the parameter lives. */
static int pulled_place(HD_PLACE_ARGS)
{
	(void)self, (void)p;
	need[0] = out[0] = T(n->outs[0]->of)->at.on[A(axis)->id];
	(void)have;
	return HD_OK;
}

static int norm2_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	(void)self;
	(void)r;
	(void)n;
	return HD_OK; /* engine/run/record.c: which inputs a rank counts depends on the rank */
}

static const int8_t first[] = { 0 };
static const int8_t adamw_inplace[] = { 0, 2, 3, -1 }, sgd_inplace[] = { 0, -1 };

#define OP(id, traits, ...) \
	const struct op hd_op_##id = { .v = { .size = sizeof(struct hd_op), .name = #id, __VA_ARGS__ }, .is = traits }
OP(total, IS(TOTAL, 0), .inplace = first, .shape = hd_same_as_first, .place = total_place, .record = total_record);
OP(norm2, IS(NORM2, 0), .shape = norm2_shape, .place = norm2_place, .record = norm2_record);
OP(to_host, IS(TRANSFER, OP_FLAG_PIECES), .shape = hd_same_as_first, .place = transfer_place,
   .record = transfer_record);
OP(to_device, IS(TRANSFER, OP_FLAG_PIECES), .shape = hd_same_as_first, .place = transfer_place,
   .record = transfer_record);
OP(served, PLAIN, .shape = served_shape, .place = transfer_place, .record = served_record);
OP(pulled, IS(PULLED, OP_FLAG_NAMES | OP_FLAG_PIECES), .shape = hd_same_as_first, .place = pulled_place,
   .record = transfer_record);
OP(clip, PLAIN, .shape = clip_shape, .record = hd_record_plain);
OP(adamw, IS(UPDATE, 0), .kind = "update", .inplace = adamw_inplace, .shape = adamw_shape, .place = update_place,
   .record = hd_record_plain);
OP(sgd, IS(UPDATE, 0), .kind = "update", .inplace = sgd_inplace, .shape = sgd_shape, .place = update_place,
   .record = hd_record_plain);
