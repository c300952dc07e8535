/* SPDX-License-Identifier: Apache-2.0
 * t/lib/fuzz_op.h - an op of t/plugins/fuzz.c, any field and result of which may be random.
 */
#ifndef HD_T_LIB_FUZZ_OP_H
#define HD_T_LIB_FUZZ_OP_H
#include "fuzz_args.h"
#include <math.h>

static int op_shape(struct hd_strategy *s, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins,
		    uint32_t nin, struct hd_shape *outs, uint32_t *nout)
{
	(void)p, (void)attr, (void)nin;
	*nout = 1;
	outs[0].dtype = ins[0]->dtype;
	outs[0].ndim = ins[0]->ndim;
	for (uint32_t i = 0; i < ins[0]->ndim; i++)
		outs[0].dims[i] = ins[0]->dims[i];
	if (is_wild(s))
		*nout = (uint32_t)any_number(s);
	if (is_wild(s))
		outs[0].ndim = (uint32_t)any_number(s), outs[0].dtype = dtype(s);
	if (is_wild(s))
		outs[draw(s, HD_MAX_OUTS)].dims[draw(s, HD_MAX_DIMS)] = handle(s, DIM);
	if (is_wild(s))
		outs[0].local[0] = any_number(s);
	if (is_wild(s))
		outs[0].reserved[0] = 1 + (uint32_t)draw(s, 3);
	return is_wild(s) ? (int)any_number(s) : HD_OK;
}

static int op_vjp(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
		  uint64_t want, struct hd_tensor **din)
{
	for (uint32_t i = 0; i < n->nin && i < 64; i++)
		if (want >> i & 1)
			din[i] = is_wild(s) ? tensor(s) : s->g->map(p, dout, 1, "a");
	return s->h->status(p);
}

static int op_place(struct hd_strategy *s, struct hd_plan *p, const struct hd_node *n, const struct hd_axis *axis,
		    const struct hd_place *have, struct hd_place *need, struct hd_place *out)
{
	(void)p, (void)axis, (void)have;
	if (!is_wild(s))
		return HD_DEFAULT;
	need[draw(s, n->nin)] = place(s, n->ins[0]);
	out[draw(s, n->nout)] = place(s, n->ins[0]);
	return is_wild(s) ? (int)any_number(s) : HD_OK;
}

static int op_cost(struct hd_strategy *s, const struct hd_node *n, struct hd_cost *c)
{
	(void)n;
	c->other_flops = is_wild(s) ? -1e300 : 1;
	c->bytes = is_wild(s) ? NAN : 1;
	return HD_OK;
}

static int op_record(struct hd_strategy *s, struct hd_record *r, const struct hd_node *n)
{
	const struct hd_record_api *api = s->h->record;
	struct hd_tensor *ins[20];

	if (is_wild(s)) {
		for (uint32_t i = 0; i < 20; i++)
			ins[i] = tensor(s);
		api->index(r, handle(s, GROUP));
		return api->launch(r, TEXT(s, "map", "fuzz", "add", "einsum", "norm"), ins, count(s, 1, 2, 20), ins,
				   count(s, 1, 2, 20), "%s", TEXT(s, "a", "a + b", "out=batch"));
	}
	return api->launch(r, draw(s, 2) ? "fuzz" : "map", n->ins, 1, n->outs, 1, "%s", "a");
}

static struct hd_op *make_op(struct hd_strategy *s, struct hd_plan *p)
{
	static const char *const cut[] = { "seq", "nothing", NULL };
	struct args *room = s->h->alloc(p, sizeof(*room));
	int8_t *inplace = s->h->alloc(p, HD_MAX_OUTS);
	struct hd_op *op = (void *)room;

	if (!room || !inplace)
		return NULL;
	sized(s, room, sizeof(*op));
	for (int i = 0; i < HD_MAX_OUTS; i++)
		inplace[i] = (int8_t)(is_wild(s) ? any_number(s) : (int64_t)draw(s, 2) - 1);
	op->name = draw(s, 9) ? "own" : any_text(s);
	op->kind = draw(s, 9) ? NULL : TEXT(s, "map", "norm", "attention");
	op->unshardable = draw(s, 4) ? NULL : cut;
	op->linear = (uint64_t)number(s, 2);
	op->max_outputs = is_wild(s) ? (uint64_t)any_number(s) : 0;
	op->inplace = draw(s, 2) ? inplace : NULL;
	op->shape = is_wild(s) ? NULL : op_shape;
	op->vjp = is_wild(s) ? NULL : op_vjp;
	op->place = draw(s, 2) ? NULL : op_place;
	op->cost = draw(s, 2) ? NULL : op_cost;
	op->record = is_wild(s) ? NULL : op_record;
	op->flags = (uint32_t)number(s, 2);
	op->zero = is_wild(s) ? (uint32_t)draw(s, 3) : 0;
	return op;
}

#endif
