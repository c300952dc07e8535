/* SPDX-License-Identifier: Apache-2.0
 * Which results of forward are kept for backward, and which are recomputed.  To recompute a result, backward reads that
 * of a copy of the node, in its own unit.  The pass works on the logical graph, before placement, and treats all ops
 * alike.  A copy is the same op with the same attributes and operands, placed like its original, so no bit changes.
 * Dropout keeps its mask, because the mask depends on the element's global index.
 *
 *   always     swiglu, norm, casts: one pass over memory, and their inputs are kept anyway for their own backward
 *   selective  also the core of attention (Korthikanti et al. 2205.05198), from q, k and v; and gelu, of which the
 *              slope or the input is kept otherwise.  Of 20 tensors (batch, seq, embed), a GPT-2 layer keeps 14
 *              without this, and 9 with it
 *   full       everything in the block: a layer keeps only its input (Chen et al. 1604.06174).  The copies are at the
 *              start of the block's backward, so they run while its gradient is still on its way
 *
 * With full, the last block of a chunk is not recomputed if each backward unit directly follows its forward unit:
 * nothing else would be in memory in between.  So the logits are computed twice only if the schedule runs other units
 * in between.
 */
#include <config.h>
#include "engine/passes/passes.h"
#include <stdlib.h>
#include <string.h>

/* -- gelu keeps its slope instead of its input; its gradient is then one multiplication per element ---------------------- */
struct slopes {
	struct node **gelu, **d; /* gelu[i] and its gradient d[i] */
	size_t n, cap, cap_d;
};

static void pair_gelus(struct hd_plan *p, struct slopes *s)
{
	struct node **of = hd_alloc((p->ntensors + 1) * sizeof(*of)); /* by id of its input */

	for (struct node *n = p->first; n; n = n->next)
		if (n->is->role == OP_ROLE_GELU && n->v.phase == HD_UNIT_F)
			of[n->ins[0]->id] = n;
	for (struct node *n = p->first; n; n = n->next) {
		if (n->is->role != OP_ROLE_GELU_D || !of[n->ins[0]->id])
			continue;
		s->gelu = hd_grow(s->gelu, s->n, &s->cap, sizeof(*s->gelu));
		s->d = hd_grow(s->d, s->n, &s->cap_d, sizeof(*s->d));
		s->gelu[s->n] = of[n->ins[0]->id];
		s->d[s->n++] = n;
	}
	free(of);
}

/* Replaces n by a different op.  Attributes are empty: for ragged tensors, hd_node_new adds the row counts again. */
static struct node *replace_node(struct hd_plan *p, struct node *n, const char *op, struct tensor *const *ins,
				 uint32_t nin)
{
	struct node *with;

	p->cursor = hd_cursor_before(n);
	with = hd_node_make(p, op, ins, nin, "%s", "");
	if (with)
		hd_replace(p, n->outs[0], with->outs[0]);
	return with;
}

static void keep_slopes(struct hd_plan *p)
{
	struct slopes s = { NULL };

	pair_gelus(p, &s);
	for (size_t i = 0; i < s.n; i++) {
		struct node *y = replace_node(p, s.gelu[i], "gelu_slope", s.gelu[i]->ins, 1);
		struct tensor *ins[] = { y ? y->outs[1] : NULL, s.d[i]->ins[1] };

		replace_node(p, s.d[i], "gelu_slope_d", ins, 2);
	}
	free(s.gelu), free(s.d);
	if (!p->err->code)
		hd_drop_dead(p);
}

/* -- what is recomputed ----------------------------------------------------------------------------------------------- */
struct recompute_pass {
	struct hd_plan *p;
	int selective, full;
	char *keeps;         /* by block: full does not recompute it */
	char *crosses;       /* by tensor id: forward of a different block reads it */
	struct node **copy;  /* by node id: its copy */
	struct node **begin; /* by block: its first node of backward */
};

static int is_full(const struct recompute_pass *m, const struct node *n)
{
	return m->full && n->block >= 0 && !m->keeps[n->block];
}

int hd_is_recomputed_by_choice(const struct node *n)
{
	return n->is->role == OP_ROLE_ATTENTION || n->is->role == OP_ROLE_GELU || n->is->role == OP_ROLE_GELU_SLOPE;
}

/* Returns whether t, which a node of this block reads in backward, is recomputed.  Of a cheap op only the result is,
 * because its statistics are small.  What forward has computed for backward (loss/parts.c) is small too, and its
 * operands are not kept. */
static int is_recomputed(const struct recompute_pass *m, const struct tensor *t, int block)
{
	const struct node *n = t->v.node ? N(t->v.node) : NULL;

	if (!n || n->v.phase != HD_UNIT_F || n->computes_for || n->block != block || m->crosses[t->id])
		return 0;
	if (is_full(m, n) || (m->selective && hd_is_recomputed_by_choice(n)))
		return 1;
	return n->is->flags & OP_FLAG_CHEAP && n->is->role != OP_ROLE_GELU && !t->out;
}

/* Moves a copy, and the copies that it reads, from unit W to B.  Weight gradients may run later, but activations'
 * gradients may not wait for them. */
static void runs_with_activations(struct node *c)
{
	if (!c->recompute_of || c->v.phase == HD_UNIT_B)
		return;
	c->v.phase = HD_UNIT_B;
	for (uint32_t i = 0; i < c->v.nin; i++)
		if (c->ins[i]->v.node)
			runs_with_activations(N(c->ins[i]->v.node));
}

static struct node *copy_of(struct recompute_pass *m, struct node *n, struct node *reader)
{
	struct hd_plan *p = m->p;
	struct node *c = m->copy[n->id];
	struct tensor **ins;

	if (c && reader->v.phase == HD_UNIT_B)
		runs_with_activations(c);
	if (c || p->err->code)
		return c;
	ins = hd_alloc((n->v.nin + 1) * sizeof(*ins));
	for (uint32_t i = 0; i < n->v.nin; i++) {
		ins[i] = n->ins[i];
		if (!is_recomputed(m, ins[i], n->block))
			continue;
		c = copy_of(m, N(ins[i]->v.node), reader);
		ins[i] = c ? c->outs[ins[i]->out] : NULL;
	}
	p->cursor = (struct cursor){ .before = is_full(m, n) ? m->begin[n->block] : reader,
				     .phase = reader->v.phase,
				     .block = n->block };
	c = m->copy[n->id] = hd_node_again(p, n, ins);
	free(ins);
	return c;
}

/* Lets r read copies of recomputed tensors.  A fill reads only the shape, so it needs none. */
static void use_copies(struct recompute_pass *m, struct node *r)
{
	for (uint32_t i = 0; i < r->v.nin && r->is->role != OP_ROLE_FILL; i++) {
		struct tensor *t = r->ins[i];
		struct node *c = is_recomputed(m, t, r->block) ? copy_of(m, N(t->v.node), r) : NULL;

		if (c)
			hd_set_input(r->plan, r, i, c->outs[t->out]);
	}
}

/* -- what is kept with full ---------------------------------------------------------------------------------------------- */
static int follows_directly(const struct hd_plan *p, int64_t coord, int64_t chunk)
{
	const struct hd_schedule_unit *u = p->units[coord];

	for (int i = 0; i < p->nunits[coord]; i++)
		if (u[i].kind == HD_UNIT_F && u[i].chunk == chunk &&
		    !(i + 1 < p->nunits[coord] && u[i + 1].kind == HD_UNIT_B && u[i + 1].chunk == chunk &&
		      u[i + 1].micro == u[i].micro))
			return 0;
	return 1;
}

static void find_kept_blocks(struct recompute_pass *m)
{
	const struct hd_plan *p = m->p;

	for (size_t b = 0; b < p->nblocks; b++) {
		const struct block *k = &p->blocks[b], *after = b + 1 < p->nblocks ? k + 1 : NULL;

		m->keeps[b] = (!after || after->coord != k->coord || after->chunk != k->chunk) &&
			      follows_directly(p, k->coord, k->chunk);
	}
}

static void find_crossings(struct recompute_pass *m)
{
	for (struct node *n = m->p->first; n; n = n->next) {
		for (uint32_t i = 0; n->v.phase == HD_UNIT_F && i < n->v.nin; i++) {
			const struct node *maker = n->ins[i]->v.node ? N(n->ins[i]->v.node) : NULL;

			if (maker && maker->block != n->block)
				m->crosses[n->ins[i]->id] = 1;
		}
		if (n->v.phase & (HD_UNIT_B | HD_UNIT_W) && n->block >= 0 && !m->begin[n->block])
			m->begin[n->block] = n;
	}
	find_kept_blocks(m);
}

int hd_pass_recompute(struct hd_plan *p)
{
	struct recompute_pass m = { .p = p,
				    .selective = p->config.recompute == HD_RECOMPUTE_SELECTIVE,
				    .full = p->config.recompute == HD_RECOMPUTE_FULL };
	size_t nodes;

	if (!p->no_multi_output_kernels)
		keep_slopes(p);
	nodes = (size_t)p->nnodes;
	m.keeps = hd_alloc(p->nblocks + 1);
	m.crosses = hd_alloc(p->ntensors + 1);
	m.copy = hd_alloc((nodes + 1) * sizeof(*m.copy));
	m.begin = hd_alloc((p->nblocks + 1) * sizeof(*m.begin));
	find_crossings(&m);
	for (struct node *n = p->first; n && !p->err->code; n = n->next)
		if (n->v.phase & (HD_UNIT_B | HD_UNIT_W) && !n->recompute_of)
			use_copies(&m, n);
	free(m.keeps), free(m.crosses), free(m.copy), free(m.begin);
	return p->err->code;
}
