/* SPDX-License-Identifier: Apache-2.0
 * Work, messages and memory of styles that treat a layer as a whole (whole_layers.h).
 */
#include <config.h>
#include "engine/graph/graph.h"
#include "engine/graph/mesh.h"
#include "engine/graph/traffic.h"
#include "engine/predict/whole_layers.h"
#include <stdlib.h>

static const struct node *maker(const struct node *n)
{
	const struct tensor *t = hd_comm_node_subject(n);

	return t->v.node ? N(t->v.node) : NULL;
}

/* Adds the work of a node of forward to its block, or subtracts that of one which the plan itself recomputes. */
static void count(const struct hd_pricing *x, const struct node *n, struct hd_again *a)
{
	const struct node *of = n->comm.kind ? maker(n) : n;
	double sign = n->v.phase == HD_UNIT_F ? 1 : -1;

	if (!of || of->block != n->block || (sign < 0 && !of->recompute_of))
		return;
	if (!n->comm.kind) {
		struct hd_cost c = { .size = sizeof(c) };

		hd_node_cost(n, &c);
		a->flops += sign * (c.matmul_flops + hd_price_more_flops(x, n));
		a->kernels += sign * hd_price_kernel(x, n);
	} else if (!hd_over_stages(n->plan, n->comm.group)) {
		a->collectives += sign * hd_price_movement(x, n).seconds;
		a->queue = n->comm.group->id;
	}
}

/* Only layers are recomputed: the first and the last block are none. */
struct hd_again *hd_again_find(const struct hd_pricing *x)
{
	const struct hd_program *g = x->g;
	size_t blocks = g->plan->nblocks;
	struct hd_again *a;

	if (!x->style->recompute_layer || g->plan->config.recompute != HD_RECOMPUTE_FULL)
		return NULL;
	a = hd_alloc((blocks + 1) * sizeof(*a));
	for (size_t i = 0; i < g->nmine; i++) {
		const struct node *n = g->mine[i];

		if (n->block > 0 && (size_t)n->block + 1 < blocks && n->v.phase & (HD_UNIT_F | HD_UNIT_B))
			count(x, n, &a[n->block]);
	}
	for (size_t i = 0; i < blocks; i++) {
		a[i].kernels = a[i].kernels > 0 ? a[i].kernels : 0;
		a[i].collectives = a[i].collectives > 0 ? a[i].collectives : 0;
	}
	return a;
}

/* -- parameters of a layer that are sent as one -------------------------------------------------------------------- */
static int is_of_parameters(const struct node *n)
{
	const struct tensor *t = n->ins[0];

	if (n->comm.kind == HD_COMM_REDUCE_SCATTER)
		return n->v.phase & HD_UNIT_W && !hd_over_stages(n->plan, n->comm.group);
	while (t->v.node && N(t->v.node)->is->flags & (OP_FLAG_ARRANGES | OP_FLAG_NAMES))
		t = N(t->v.node)->ins[0];
	return n->comm.kind == HD_COMM_ALL_GATHER && (!t->v.node || n->v.phase & (HD_UNIT_G | HD_UNIT_U));
}

/* Returns the index of a movement in the array of hd_layers_sent: by group, block and direction. The direction
 * is a gather for forward, a gather for backward, or a scatter. Gathers after the update, or before the next
 * step, have no block, and are sent as one. */
static size_t part_of(const struct node *n)
{
	int way = n->comm.kind == HD_COMM_REDUCE_SCATTER ? 2 : !(n->v.phase & HD_UNIT_F);

	return 3 * ((size_t)n->comm.group->id * (n->plan->nblocks + 1) + (size_t)(n->block + 1)) + (size_t)way;
}

double *hd_layers_sent(const struct hd_pricing *x)
{
	const struct hd_program *g = x->g;
	double *sent;

	if (!x->style->gather_layer)
		return NULL;
	sent = hd_alloc(3 * (g->plan->ngroups + 1) * (g->plan->nblocks + 1) * sizeof(*sent));
	for (size_t i = 0; i < g->nmine; i++)
		if (g->mine[i]->comm.kind && is_of_parameters(g->mine[i]))
			sent[part_of(g->mine[i])] += (double)hd_comm_node_sent(g->plan, g->mine[i], g->rank);
	return sent;
}

double hd_layer_sent(const struct hd_pricing *x, const struct node *n)
{
	return x->layers && is_of_parameters(n) ? x->layers[part_of(n)] : 0;
}

/* -- memory -------------------------------------------------------------------------------------------------------- */
/* Returns the bytes of a forward node that weight gradients read: the norm's output, which Heddle recomputes. */
static double saved_for_weights(const struct node *n)
{
	return n->is->role == OP_ROLE_NORM ? 2 * hd_price_elements(n->outs[0]) : 0;
}

/* Returns all bytes of a forward node that are kept in addition. After a norm that includes the mask of the dropout
 * that ends each half of a layer. For scores these are the softmax, its mask and the result of the dropout. */
static double saved_of(const struct hd_pricing *x, const struct node *n)
{
	if (n->is->role == OP_ROLE_NORM)
		return saved_for_weights(n) + hd_price_elements(n->outs[0]);
	if (n->is->role == OP_ROLE_ATTENTION && x->style->attention == HD_ATTENTION_SCORES &&
	    n->plan->config.recompute != HD_RECOMPUTE_SELECTIVE)
		return 5 * hd_price_scores(n);
	return 0;
}

/* Returns these bytes for the layer that has most of them. With train.recompute = full they exist only while a
 * layer's backward runs. */
static double of_one_layer(const struct hd_pricing *x)
{
	const struct hd_program *g = x->g;
	double *bytes = hd_alloc((g->plan->nblocks + 1) * sizeof(*bytes)), most = 0;

	for (size_t i = 0; i < g->nmine; i++)
		if (g->mine[i]->v.phase == HD_UNIT_F && g->mine[i]->block >= 0)
			bytes[g->mine[i]->block] += saved_of(x, g->mine[i]);
	for (size_t i = 0; i < g->plan->nblocks; i++)
		most = bytes[i] > most ? bytes[i] : most;
	free(bytes);
	return most;
}

static int is_unit(const struct hd_schedule_unit *a, const struct hd_schedule_unit *b)
{
	return a->kind == b->kind && a->chunk == b->chunk && a->micro == b->micro;
}

double hd_saved_besides(const struct hd_pricing *x)
{
	const struct hd_program *g = x->g;
	const struct hd_plan *p = g->plan;
	double now = 0, most = 0, *bytes, *longer;

	if (!x->style->saved_all)
		return 0;
	if (p->config.recompute == HD_RECOMPUTE_FULL)
		return of_one_layer(x);
	bytes = hd_alloc(2 * (size_t)(p->chunks + 1) * sizeof(*bytes));
	/* The part of them that is kept until W, where weight gradients have units of their own. */
	longer = bytes + p->chunks + 1;
	for (size_t i = 0; i < g->nmine; i++)
		if (g->mine[i]->v.phase == HD_UNIT_F && g->mine[i]->block >= 0) {
			bytes[p->blocks[g->mine[i]->block].chunk] += saved_of(x, g->mine[i]);
			longer[p->blocks[g->mine[i]->block].chunk] += p->separate_w ? saved_for_weights(g->mine[i]) : 0;
		}
	for (size_t i = 0; i < g->n; i++) {
		const struct hd_schedule_unit *u = &g->entries[i].unit;

		if (i + 1 < g->n && is_unit(u, &g->entries[i + 1].unit))
			continue;
		now += u->kind == HD_UNIT_F   ? bytes[u->chunk]
		       : u->kind == HD_UNIT_B ? longer[u->chunk] - bytes[u->chunk]
		       : u->kind == HD_UNIT_W ? -longer[u->chunk]
					      : 0;
		most = now > most ? now : most;
	}
	free(bytes);
	return most;
}
