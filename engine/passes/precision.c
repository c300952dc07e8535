/* SPDX-License-Identifier: Apache-2.0
 * Mixed precision (Micikevicius et al. 1710.03740) as dtypes of tensors.  Activations, and parameters that products
 * read, are in low precision; whatever adds up many terms is not.  One pass over the forward graph sets the dtypes
 * before the graph is differentiated.  So gradients, recomputation, placement and all strategies see only dtypes.  What
 * moves between ranks is as wide as the tensor that is moved.
 *
 *   - Each op works in the precision of its first operand, and the others are cast to it.  An op that reads only
 *     parameters (the embedding) is where low precision begins.
 *   - Some operands are read in full precision (`fp32_inputs` of the op): weights of norms, gates and logits of
 *     routers, and the statistics of the loss.  A node with the attribute fp32=1 reads all its operands so.
 *   - A parameter has the precision of its first reader.  If that is low, it has a master, the leaf that the optimizer
 *     updates and checkpoints hold.  The update writes the rounded copy to the parameter (engine/passes/autodiff.c).
 *   - The gradient of an activation has its precision; that of a parameter is in full precision.  Products of two
 *     operands in low precision write it in full (fp32=1).  It is accumulated, reduced and clipped in full.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/passes/passes.h"
#include "engine/device/device.h"
#include <string.h>

static uint64_t full_inputs(const struct node *n)
{
	return hd_attr_num(n->attr, "fp32", 0) != 0 ? ~(uint64_t)0 : n->is->fp32_inputs;
}

static int is_ours(const struct hd_plan *p, const struct tensor *t)
{
	return t->v.dtype == p->master_dtype || t->v.dtype == p->compute_dtype;
}

static int is_undecided(const struct tensor *t)
{
	return t->v.what == HD_TENSOR_PARAM && !t->decided;
}

/* Returns the dtype that a node works in. */
static uint32_t precision_of(const struct hd_plan *p, const struct node *n, uint64_t full)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (!(full >> i & 1) && is_ours(p, n->ins[i]) && !is_undecided(n->ins[i]))
			return n->ins[i]->v.dtype;
	return p->compute_dtype;
}

struct tensor *hd_master_new(struct hd_plan *p, struct tensor *w)
{
	struct tensor *m = hd_tensor_new(p, hd_plan_text(p, "%s.master", w->v.name), HD_TENSOR_MASTER, p->master_dtype,
					 w->dims, w->v.ndim);

	m->v.of = &w->v;
	m->step = 1;
	m->init = w->init;
	m->init_std = w->init_std;
	w->master = m;
	return m;
}

static void decide(struct hd_plan *p, struct tensor *t, uint32_t dtype)
{
	t->decided = 1;
	if (dtype != p->compute_dtype)
		return;
	t->v.dtype = p->compute_dtype;
	if (p->train)
		hd_master_new(p, t);
}

/* Returns x cast to a different dtype for a reader.  All readers in a block share one cast. */
static struct tensor *brought_to(struct hd_plan *p, struct tensor *x, uint32_t dtype, struct node *reader)
{
	for (size_t k = 0; k < x->nusers; k++) {
		struct node *u = x->users[k];

		/* A plugin may have built a cast that follows this reader. */
		if (u->is->role == OP_ROLE_CAST && u->ins[0] == x && u->block == reader->block &&
		    u->outs[0]->v.dtype == dtype && !u->dead && hd_node_precedes(p, u, reader))
			return u->outs[0];
	}
	p->cursor = hd_cursor_before(reader);
	return hd_op1(p, "cast", &x, 1, "dtype=%u", dtype);
}

/* Sets the dtypes of a node's results again, after those of its operands have changed. */
static int shape_again(struct hd_plan *p, struct node *n)
{
	struct hd_shape outs[HD_MAX_OUTS];
	uint32_t nout = 0;
	struct hd_slot was;
	int rc;

	memset(outs, 0, sizeof(outs));
	was = hd_slot_begin(p, n->inst, "shape");
	rc = n->v.op->shape(n->inst >= 0 ? p->inst[n->inst].self : NULL, p, n->attr, n->v.ins, n->v.nin, outs, &nout);
	if (n->inst >= 0)
		rc = hd_op_slot_returned(p, n->v.op, rc);
	if (rc >= 0 && n->inst >= 0)
		rc = hd_shapes_check(p, n->v.op, n->v.nin, outs, nout);
	hd_slot_end(p, was);
	if (rc < 0)
		return hd_plan_fail(p, rc, "%s: the shape rule failed in low precision", n->v.op->name);
	for (uint32_t k = 0; k < nout && k < n->v.nout; k++)
		n->outs[k]->v.dtype = outs[k].dtype;
	return HD_OK;
}

static int on_node(struct hd_plan *p, struct node *n)
{
	uint64_t full = full_inputs(n);
	uint32_t lead = precision_of(p, n, full);

	for (uint32_t i = 0; i < n->v.nin && n->is->role != OP_ROLE_CAST; i++) {
		struct tensor *x = n->ins[i];
		uint32_t want = full >> i & 1 ? p->master_dtype : lead;

		if (!is_ours(p, x))
			continue;
		if (is_undecided(x))
			decide(p, x, want);
		if (x->v.dtype != want && (x = brought_to(p, x, want, n)))
			hd_set_input(p, n, i, x);
	}
	return p->err->code ? p->err->code : shape_again(p, n);
}

uint32_t hd_precision_asked(const struct hd_train_config *t, int cuda)
{
	/* On a processor, auto is measured when a run begins: autotune.c. */
	if (t->precision == HD_PRECISION_UNSET || t->precision == HD_PRECISION_AUTO)
		return cuda ? HD_DTYPE_BF16 : 0;
	return t->precision == HD_PRECISION_BF16 ? HD_DTYPE_BF16 : 0;
}

int hd_pass_precision(struct hd_plan *p)
{
	if (!p->compute_dtype)
		return HD_OK;
	for (struct node *n = p->first; n && !p->err->code; n = n->next)
		on_node(p, n);
	if (p->logits && p->logits->v.dtype == p->compute_dtype) { /* the run reads the logits in full precision */
		p->cursor = hd_cursor_end(HD_UNIT_F, N(p->logits->v.node)->block);
		p->logits = hd_op1(p, "cast", &p->logits, 1, "dtype=%u", p->master_dtype);
	}
	return p->err->code;
}
