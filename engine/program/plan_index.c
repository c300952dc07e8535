/* SPDX-License-Identifier: Apache-2.0
 * Computes once what the programs of all ranks of a plan share: readers of tensors, positions of nodes, and what each
 * stage needs. In a plan with many stages, one stage needs only a small part of the nodes and tensors. So the work for
 * a program is proportional to its own stage. Planning s stages takes as long as the plan, not s times as long.
 */
#include <config.h>
#include "engine/program/program.h"
#include <stdlib.h>
#include <string.h>

#define NOWHERE INT64_MAX /* stage of a node that is no longer in the program */

static int64_t stage_at(const struct hd_plan *p, const struct tensor *t)
{
	const struct hd_place *w = &t->at.on[p->stages->id];

	return w->kind == HD_PLACE_PINNED ? w->index : -1;
}

int hd_crosses_stages(const struct hd_plan *p, const struct node *n)
{
	if (!p->stages)
		return 0;
	for (uint32_t i = 0; n->comm.kind && i < n->comm.group->n; i++)
		if (n->comm.group->axes[i] == p->stages)
			return 1;
	return n->is->role == OP_ROLE_NORM2;
}

/* Returns the stage that runs the node; -1: all stages run it. */
static int64_t stage_of(const struct hd_plan *p, const struct node *n)
{
	if (!p->stages)
		return -1;
	if (n->comm.kind == HD_COMM_RECV)
		return stage_at(p, n->outs[0]);
	if ((n->comm.kind == HD_COMM_BROADCAST || n->is->role == OP_ROLE_NORM2) && hd_crosses_stages(p, n))
		return -1;
	return hd_node_stage(p, n);
}

/* Lists each tensor's readers. A reader that reads it in several inputs occurs once for each, adjacently. */
static void index_readers(struct hd_plan *p, struct plan_index *x)
{
	uint32_t *n = hd_count_readers(p);
	struct node **room;
	size_t all = 0;

	for (size_t t = 0; t < p->ntensors; t++)
		all += n[t] ? n[t] + 1 : 0;
	room = hd_plan_alloc(p, (all + 1) * sizeof(*room));
	x->readers = hd_plan_alloc(p, (p->ntensors + 1) * sizeof(*x->readers));
	for (size_t t = 0; t < p->ntensors; t++) {
		x->readers[t] = n[t] ? room : NULL;
		room += n[t] ? n[t] + 1 : 0;
	}
	memset(n, 0, p->ntensors * sizeof(*n));
	for (struct node *k = p->first; k; k = k->next)
		for (uint32_t i = 0; i < k->v.nin; i++)
			x->readers[k->ins[i]->id][n[k->ins[i]->id]++] = k;
	free(n);
}

/* Numbers the nodes in program order. Nodes of separate weight-gradient units are numbered after those of other units,
 * and sync and update after both. */
static void index_positions(struct hd_plan *p, struct plan_index *x)
{
	int64_t at = 0, offset = p->separate_w ? p->nnodes : 0;

	x->position = hd_plan_alloc(p, (size_t)(p->nnodes + 1) * sizeof(*x->position));
	for (struct node *n = p->first; n; n = n->next)
		x->position[n->id] = at++ + (n->v.phase == HD_UNIT_W                ? offset
					     : n->v.phase & (HD_UNIT_S | HD_UNIT_U) ? 2 * offset
										    : 0);
}

/* -- by stage ---------------------------------------------------------------------------------------------------- */
/* Returns the end of the range of stages that `stage` means. The range is one stage, or all if it is negative. */
static int64_t stages_end(const struct plan_index *x, int64_t stage)
{
	return stage < 0 || stage >= x->nstages ? x->nstages : stage + 1;
}

/* Called twice: the first call, without arrays, only counts. */
static void index_nodes(struct hd_plan *p, struct plan_index *x, const int64_t *stage)
{
	for (int64_t c = 0; c < x->nstages; c++)
		x->stages[c].nnodes = 0;
	for (struct node *n = p->first; n; n = n->next) {
		int64_t s = stage[n->id];

		for (int64_t c = s < 0 ? 0 : s; c < stages_end(x, s); c++) {
			if (x->stages[c].nodes)
				x->stages[c].nodes[x->stages[c].nnodes] = n;
			x->stages[c].nnodes++;
		}
	}
}

static void add_tensor(struct plan_index *x, struct tensor *t, int64_t stage)
{
	for (int64_t c = stage < 0 ? 0 : stage; c < stages_end(x, stage); c++) {
		struct stage_index *s = &x->stages[c];

		if (s->last == t)
			continue;
		s->last = t;
		if (s->tensors)
			s->tensors[s->ntensors] = t;
		s->ntensors++;
	}
}

/* By tensor id: whether the run reads it after the step. */
static char *results(const struct hd_plan *p)
{
	const struct tensor *kept[] = { p->loss, p->nll, p->logits, p->norm, p->factor };
	char *is = hd_alloc(p->ntensors + 1);

	for (size_t i = 0; i < HD_LEN(kept); i++)
		if (kept[i])
			is[kept[i]->id] = 1;
	for (size_t i = 0; i < p->nmoe_stats; i++)
		is[p->moe_stats[i]->id] = 1;
	return is;
}

/* Returns 1 for a leaf, and for the result of a node unless a pass has replaced the result or removed the node. */
static int is_made(const struct tensor *t, const int64_t *stage)
{
	const struct node *n = t->v.node ? N(t->v.node) : NULL;

	for (uint32_t k = 0; n && stage[n->id] != NOWHERE && k < n->v.nout; k++)
		if (n->outs[k] == t)
			return 1;
	return !n;
}

/* Lists for each stage the tensors that exist there, that its nodes name, or that the run reads after the step.
 * Results of nodes that a pass has removed are left out. Called twice, like index_nodes. */
static void index_tensors(struct hd_plan *p, struct plan_index *x, const int64_t *stage)
{
	char *result = results(p);

	for (int64_t c = 0; c < x->nstages; c++)
		x->stages[c].ntensors = 0, x->stages[c].last = NULL;
	for (size_t i = 0; i < p->ntensors; i++) {
		struct tensor *t = p->tensors[i];

		if (is_made(t, stage)) {
			add_tensor(x, t, result[i] || !p->stages ? -1 : stage_at(p, t));
			if (t->v.node)
				add_tensor(x, t, stage[N(t->v.node)->id]);
		}
		for (struct node **r = x->readers[i]; r && *r; r++)
			add_tensor(x, t, stage[(*r)->id]);
	}
	free(result);
}

static struct plan_index *index_new(struct hd_plan *p)
{
	struct plan_index *x = hd_plan_alloc(p, sizeof(*x));
	int64_t *stage = hd_alloc((size_t)(p->nnodes + 1) * sizeof(*stage));

	index_readers(p, x);
	index_positions(p, x);
	x->nstages = p->stages ? p->stages->v.n : 1;
	x->stages = hd_plan_alloc(p, (size_t)x->nstages * sizeof(*x->stages));
	for (int i = 0; i <= p->nnodes; i++)
		stage[i] = NOWHERE;
	for (struct node *n = p->first; n; n = n->next)
		stage[n->id] = stage_of(p, n);
	index_nodes(p, x, stage);
	index_tensors(p, x, stage);
	for (int64_t c = 0; c < x->nstages; c++) {
		struct stage_index *s = &x->stages[c];

		s->nodes = hd_plan_alloc(p, (s->nnodes + 1) * sizeof(*s->nodes));
		s->tensors = hd_plan_alloc(p, (s->ntensors + 1) * sizeof(*s->tensors));
	}
	index_nodes(p, x, stage);
	index_tensors(p, x, stage);
	free(stage);
	return x;
}

/* Programs of several ranks may be built at the same time, so the plan's index is created in a critical section. */
void hd_index_program(struct hd_program *g)
{
	struct hd_plan *p = g->plan;
	const struct stage_index *s;

#pragma omp critical(plan_index)
	if (!p->index)
		p->index = index_new(p);
	s = &p->index->stages[g->coord];
	g->readers = p->index->readers;
	g->position = p->index->position;
	g->tensors = s->tensors;
	g->ntensors = s->ntensors;
	g->mine = hd_alloc((s->nnodes + 1) * sizeof(*g->mine));
	g->walked = hd_alloc((s->nnodes + 1) * sizeof(*g->walked));
	for (size_t i = 0; i < s->nnodes; i++) {
		struct node *n = s->nodes[i];

		if (hd_is_worker(p, g->rank) && !hd_is_member(p, &n->only, g->rank))
			continue;
		g->walked[g->nwalked++] = n;
		if (!hd_node_runs_at(p, n, g->rank))
			continue;
		g->here[n->id] = 1;
		g->mine[g->nmine++] = n;
	}
	for (size_t i = 0; i < g->ntensors; i++)
		g->at[g->tensors[i]->id].here = hd_tensor_here(g, g->tensors[i]);
}
