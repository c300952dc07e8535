/* SPDX-License-Identifier: Apache-2.0
 * Creates nodes from an op and its operands, with the results that the op's shape rule gives.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include "engine/device/device.h"
#include "engine/graph/mesh.h"
#include <string.h>

static struct node *blank_node(struct hd_plan *p, const struct hd_op *op, const struct op_traits *is,
			       struct tensor *const *ins, uint32_t nin, const char *attr)
{
	struct node *n = hd_plan_alloc(p, sizeof(*n));

	n->plan = p;
	n->id = p->nnodes++;
	hd_handle_add(p, &n->v, HANDLE_NODE);
	n->block = p->cursor.block;
	n->is = is;
	n->inst = is->flags & OP_FLAG_PLUGIN ? p->slot.inst : -1;
	n->made_by = p->slot.inst;
	n->attr = hd_plan_text(p, "%s", attr);
	n->reason = p->cursor.reason;
	n->queue = p->cursor.queue;
	n->only = p->cursor.only;
	n->period = p->cursor.period;
	n->v = (struct hd_node){ .size = sizeof(n->v),
				 .op = op,
				 .kind = op->kind ? op->kind : op->name,
				 .attr = n->attr,
				 .block = n->block >= 0 ? p->blocks[n->block].name : "",
				 .phase = p->cursor.phase,
				 .owner = n->inst >= 0 ? p->inst[n->inst].name : "" };
	hd_set_inputs(p, n, ins, nin);
	return n;
}

static int counts_rows(const struct op_traits *is, const char *attr)
{
	return !(is->flags & OP_FLAG_PLUGIN) && hd_attr_num(attr, "rows", 0) != 0;
}

int hd_node_counts_rows(const struct node *n)
{
	return counts_rows(n->is, n->attr);
}

int hd_node_adopt(struct hd_plan *p, struct node *n, const struct hd_shape *outs, uint32_t nout)
{
	/* Twice: for plugins, and the engine's own copy. */
	n->outs = hd_plan_alloc(p, (2 * (size_t)nout + 1) * sizeof(*n->outs));
	for (uint32_t k = 0; k < nout; k++) {
		struct tensor *t = hd_tensor_new(p, "", HD_TENSOR_ACT, outs[k].dtype, outs[k].dims, outs[k].ndim);

		t->v.node = &n->v;
		t->out = (int)k;
		for (uint32_t i = 0; i < outs[k].ndim; i++) {
			if (outs[k].local[i])
				t->local[i] = outs[k].local[i];
			for (uint32_t j = 0; !outs[k].local[i] && j < n->v.nin; j++)
				for (uint32_t d = 0; d < n->ins[j]->v.ndim; d++)
					if (n->ins[j]->dims[d] == outs[k].dims[i])
						t->local[i] = n->ins[j]->local[d];
		}
		t->step = p->cursor.phase & (HD_UNIT_U | HD_UNIT_G | HD_UNIT_S) ? 1 : 0;
		if (hd_node_counts_rows(n) && hd_has_dim(t, hd_dim_get(p, "slot", 0))) {
			t->ragged_counts = n->ins[n->v.nin - 1];
			t->max_rows = p->model.experts_per_token;
		} else if (n->v.nin && n->ins[0]->ragged_counts &&
			   hd_has_dim(t, hd_dim_get(p, "slot", 0))) { /* only moved */
			t->ragged_counts = n->ins[0]->ragged_counts;
			t->max_rows = n->ins[0]->max_rows;
		}
		n->outs[k] = n->outs[nout + k] = t;
	}
	n->v.outs = (struct hd_tensor *const *)n->outs;
	n->v.nout = nout;
	return 0;
}

/* An op on ragged tensors reads their row counts as its last input.  Returns the counts that are to be added, or
 * NULL. */
static struct tensor *counted(struct hd_plan *p, const struct hd_op *op, const struct op_traits *is,
			      struct tensor *const *ins, uint32_t nin, const char *attr)
{
	struct tensor *rows = NULL;

	for (uint32_t i = 0; i < nin && !rows; i++)
		rows = ins[i]->ragged_counts;
	if (!rows || counts_rows(is, attr))
		return NULL;
	if (!(is->flags & (OP_FLAG_ROWS | OP_FLAG_MOVES_ROWS)))
		hd_plan_fail(p, HD_ENOTSUP,
			     "%s cannot take the rows of experts without a limit (model.capacity_factor = 0)",
			     op->name);
	return is->flags & OP_FLAG_ROWS ? rows : NULL;
}

static int check_dims(struct hd_plan *p, const struct hd_op *op, uint32_t k, const struct hd_shape *out)
{
	for (uint32_t i = 0; i < out->ndim; i++) {
		if (hd_handle_kind(p, out->dims[i]) != HANDLE_DIM)
			return hd_plan_fail(p, HD_EBUG, "%s: output %u: dim %u is not a dim of this plan", op->name, k,
					    i);
		if (out->local[i] < 0 || out->local[i] > (int64_t)1 << 40)
			return hd_plan_fail(p, HD_EINVAL, "%s: output %u: %lld elements of %s", op->name, k,
					    (long long)out->local[i], out->dims[i]->name);
		for (uint32_t j = 0; j < i; j++)
			if (out->dims[i] == out->dims[j])
				return hd_plan_fail(p, HD_EINVAL, "%s: output %u: dims %u and %u are both %s", op->name,
						    k, j, i, out->dims[i]->name);
	}
	return HD_OK;
}

int hd_shapes_check(struct hd_plan *p, const struct hd_op *op, uint32_t nin, const struct hd_shape *outs, uint32_t nout)
{
	if (nout > HD_MAX_OUTS)
		return hd_plan_fail(p, HD_EINVAL, "%s: slot shape says %u outputs, more than %d", op->name, nout,
				    HD_MAX_OUTS);
	for (uint32_t k = 0; k < nout; k++) {
		if (op->inplace && (op->inplace[k] < -1 || op->inplace[k] >= (int64_t)nin))
			return hd_plan_fail(p, HD_EINVAL, "%s: inplace of output %u is %d, but there are %u inputs",
					    op->name, k, op->inplace[k], nin);
		if (outs[k].ndim > HD_MAX_DIMS)
			return hd_plan_fail(p, HD_EINVAL, "%s: output %u has %u dims, more than %d", op->name, k,
					    outs[k].ndim, HD_MAX_DIMS);
		if (!hd_dtype_known(outs[k].dtype))
			return hd_plan_fail(p, HD_EINVAL, "%s: output %u has dtype %#x, which is not a dtype", op->name,
					    k, outs[k].dtype);
		if (outs[k].space != HD_SPACE_DEVICE || outs[k].reserved[0] || outs[k].reserved[1] ||
		    outs[k].reserved[2])
			return hd_plan_fail(p, HD_EINVAL,
					    "%s: output %u has space %u; it and the reserved words must be 0", op->name,
					    k, outs[k].space);
		HD_TRY(check_dims(p, op, k, &outs[k]));
	}
	return HD_OK;
}

/* Returns whether a slot creates a node without setting the cursor first.  At the end of the program it would be in no
 * block and after its readers, so autodiff would find no gradient for it. */
static int is_nowhere(const struct hd_plan *p)
{
	return p->slot.inst >= 0 && p->slot.name && !p->cursor.before &&
	       (!strcmp(p->slot.name, "lower") || !strcmp(p->slot.name, "rewrite"));
}

struct node *hd_node_new(struct hd_plan *p, const struct hd_op *op, const struct op_traits *is,
			 struct tensor *const *ins, uint32_t nin, const char *attr)
{
	struct hd_slot was;
	struct hd_shape outs[HD_MAX_OUTS];
	struct tensor *rows, *with[HD_MAX_INS + 1];
	struct node *n;
	uint32_t nout = 1;
	int rc;

	if (p->err->code)
		return NULL;
	for (uint32_t i = 0; i < nin; i++)
		if (!ins[i])
			return NULL;
	rows = counted(p, op, is, ins, nin, attr);
	if (p->err->code)
		return NULL;
	if (rows && nin < HD_MAX_INS) {
		memcpy(with, ins, nin * sizeof(*with));
		with[nin] = rows;
		return hd_node_new(p, op, is, with, nin + 1, hd_plan_text(p, "%s%srows=1", attr, *attr ? " " : ""));
	}
	if (is_nowhere(p)) {
		hd_plan_fail(p, HD_EBUG, "%s: cursor must first say where new nodes belong", op->name);
		return NULL;
	}
	n = blank_node(p, op, is, ins, nin, attr);
	memset(outs, 0, sizeof(outs));
	was = hd_slot_begin(p, n->inst, "shape");
	rc = op->shape(n->inst >= 0 ? p->inst[n->inst].self : NULL, p, n->attr, n->v.ins, nin, outs, &nout);
	if (n->inst >= 0)
		rc = hd_op_slot_returned(p, op, rc);
	hd_slot_end(p, was);
	if (rc >= 0 && n->inst >= 0 && !nout)
		rc = hd_plan_fail(p, HD_EINVAL, "%s: slot shape says 0 outputs: an op needs at least one", op->name);
	if (rc >= 0 && p->slot.inst >= 0)
		rc = hd_shapes_check(p, op, nin, outs, nout);
	if (rc < 0) {
		hd_plan_fail(p, rc, "%s: the shape rule failed", op->name);
		return NULL;
	}
	hd_node_adopt(p, n, outs, nout);
	hd_node_insert(p, n);
	return n;
}

struct node *hd_node_again(struct hd_plan *p, const struct node *n, struct tensor *const *ins)
{
	struct hd_shape outs[HD_MAX_OUTS];
	struct node *c;

	if (p->err->code)
		return NULL;
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (!ins[i])
			return NULL;
	memset(outs, 0, sizeof(outs));
	for (uint32_t k = 0; k < n->v.nout; k++) {
		outs[k].dtype = n->outs[k]->v.dtype;
		outs[k].ndim = n->outs[k]->v.ndim;
		memcpy(outs[k].dims, n->outs[k]->dims, sizeof(outs[k].dims));
		memcpy(outs[k].local, n->outs[k]->local, sizeof(outs[k].local));
	}
	c = blank_node(p, n->v.op, n->is, ins, n->v.nin, n->attr);
	c->inst = n->inst;
	c->v.owner = n->v.owner;
	c->made_by = n->made_by;
	c->comm = n->comm;
	c->pos = n->pos;
	c->parts = n->parts;
	c->along = n->along;
	c->order = n->order;
	c->local = n->local;
	c->recompute_of = n;
	hd_node_adopt(p, c, outs, n->v.nout);
	hd_node_insert(p, c);
	return c;
}
