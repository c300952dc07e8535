/* SPDX-License-Identifier: Apache-2.0
 * Finds which nodes overwrite data that other nodes read, among tensors that exist once a step. Tensors share bytes by
 * program order (alias.c), but sync runs in the order in which gradients become ready. Where a later node overwrites
 * what an earlier one reads, or what a movement still sends, program order must be kept.
 *
 * Only nodes that write a result in place of an input overwrite anything, and only in that result's root. So they are
 * listed by root, and pairs without a common byte are never compared.
 */
#include <config.h>
#include "engine/program/program.h"
#include "engine/program/overwrites.h"
#include <stdlib.h>

/* Returns whether two tensors that exist once a step have bytes in common. */
static int overlap(const struct hd_program *g, const struct tensor *a, const struct tensor *b)
{
	const struct storage *x = &g->at[a->id], *y = &g->at[b->id];

	return x->root == y->root && a->step && b->step && x->offset < y->offset + hd_local_bytes(b) &&
	       y->offset < x->offset + hd_local_bytes(a);
}

/* Returns whether the result replaces one of its node's inputs. Every other result has bytes of its own. */
static int in_place(const struct hd_program *g, const struct node *n, const struct tensor *result)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (overlap(g, result, n->ins[i]))
			return 1;
	return 0;
}

/* Returns whether the node only names existing bytes. It neither reads nor writes, and may run before its input is
 * written. */
static int only_names(const struct node *n)
{
	return (n->is->flags & OP_FLAG_NAMES) != 0;
}

static int overwrites(const struct hd_program *g, const struct node *n, const struct tensor *t)
{
	for (uint32_t k = 0; k < n->v.nout; k++)
		if (overlap(g, n->outs[k], t) && in_place(g, n, n->outs[k]))
			return 1;
	return 0;
}

static void add(struct overwriters *x, struct node *n, int64_t entry)
{
	if (x->n && x->v[x->n - 1].node == n && x->v[x->n - 1].entry == entry)
		return;
	x->v = hd_grow(x->v, x->n, &x->cap, sizeof(*x->v));
	x->v[x->n++] = (struct overwriter){ n, entry };
}

static void add_by_root(const struct hd_program *g, struct overwriters *all, struct node *n, int64_t entry)
{
	for (uint32_t k = 0; k < n->v.nout && !only_names(n); k++)
		if (n->outs[k]->step && in_place(g, n, n->outs[k]))
			add(&all[g->at[n->outs[k]->id].root->id], n, entry);
}

static void release(const struct hd_program *g, struct overwriters *all)
{
	for (size_t i = 0; i < g->ntensors; i++)
		free(all[g->tensors[i]->id].v);
	hd_sparse_destroy(all);
}

/* -- sync, before its order is known ----------------------------------------------------------------------------- */
static int by_position(const struct hd_program *g, const struct node *a, const struct node *b)
{
	return g->position[a->id] < g->position[b->id] ? -1 : g->position[a->id] > g->position[b->id];
}

/* Inserts n into a list that is in program order, unless it is there. */
static void insert(const struct hd_program *g, struct node_list *l, struct node *n)
{
	size_t i = l->n;

	while (i && by_position(g, l->v[i - 1], n) > 0)
		i--;
	if (i && l->v[i - 1] == n)
		return;
	l->v = hd_grow(l->v, l->n, &l->cap, sizeof(*l->v));
	for (size_t k = l->n++; k > i; k--)
		l->v[k] = l->v[k - 1];
	l->v[i] = n;
}

static void find_later(const struct hd_program *g, const struct overwriters *all, const struct node *r,
		       struct node_list *l)
{
	for (uint32_t i = 0; i < r->v.nin; i++) {
		const struct overwriters *x = &all[g->at[r->ins[i]->id].root->id];

		for (size_t k = x->n; r->ins[i]->step && k-- > 0 && by_position(g, x->v[k].node, r) > 0;)
			if (overwrites(g, x->v[k].node, r->ins[i]))
				insert(g, l, x->v[k].node);
	}
}

void hd_later_overwriters(const struct hd_program *g, struct node_list *by_node)
{
	struct overwriters *all = hd_sparse_create((g->plan->ntensors + 1) * sizeof(*all));

	for (size_t i = 0; i < g->nmine; i++)
		if (g->mine[i]->v.phase == HD_UNIT_S)
			add_by_root(g, all, g->mine[i], 0);
	for (size_t i = 0; i < g->nmine; i++)
		if (g->mine[i]->v.phase == HD_UNIT_S && !only_names(g->mine[i]))
			find_later(g, all, g->mine[i], &by_node[g->mine[i]->id]);
	release(g, all);
}

/* -- movements of sync, on the timeline -------------------------------------------------------------------------- */
/* Makes the run wait for movement e before the first entry that overwrites what it sends, if not earlier. */
static void wait_before(const struct hd_program *g, const struct overwriters *x, int64_t e)
{
	struct entry *m = &g->entries[e];
	size_t low = 0, high = x->n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (x->v[mid].entry > e)
			high = mid;
		else
			low = mid + 1;
	}
	for (; low < x->n && x->v[low].entry < m->wait; low++)
		if (overwrites(g, x->v[low].node, m->node->ins[0]))
			m->wait = x->v[low].entry;
}

void hd_wait_for_overwrites(struct hd_program *g)
{
	struct overwriters *all = hd_sparse_create((g->plan->ntensors + 1) * sizeof(*all));

	for (int64_t e = 0; e < (int64_t)g->n; e++)
		if (g->entries[e].type == HD_ENTRY_NODE)
			add_by_root(g, all, g->entries[e].node, e);
	for (int64_t e = 0; e < (int64_t)g->n; e++) {
		const struct entry *x = &g->entries[e];

		if (x->type == HD_ENTRY_NODE && hd_node_moves(x->node) && x->node->v.phase & HD_UNIT_S)
			wait_before(g, &all[g->at[x->node->ins[0]->id].root->id], e);
	}
	release(g, all);
}
