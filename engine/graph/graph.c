/* SPDX-License-Identifier: Apache-2.0
 * The program as a list of nodes: inserts, moves, replaces and drops them.  node.c creates nodes, tensor.c tensors.
 *
 * Program order is the order of the list.  New nodes are inserted where the plan's cursor is.  Everything is allocated
 * from the plan and lives as long as the plan.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include <math.h>
#include <string.h>

/* -- the list ------------------------------------------------------------------------------------------------------------ */
/* Numbers increase in program order.  They are assigned lazily: hd_node_precedes renumbers all nodes if some were
 * inserted or moved since. */
static void number_nodes(struct hd_plan *p)
{
	int64_t at = 0;

	for (struct node *n = p->first; n; n = n->next)
		n->number = ++at;
	p->numbered = 1;
}

int hd_node_precedes(struct hd_plan *p, const struct node *a, const struct node *b)
{
	if (!p->numbered)
		number_nodes(p);
	return a->number && b->number && a->number < b->number;
}

static void link_before(struct hd_plan *p, struct node *n, struct node *at)
{
	n->next = at;
	n->prev = at ? at->prev : p->last;
	*(n->prev ? &n->prev->next : &p->first) = n;
	*(at ? &at->prev : &p->last) = n;
	p->numbered = 0;
}

static void unlink_node(struct hd_plan *p, struct node *n)
{
	*(n->prev ? &n->prev->next : &p->first) = n->next;
	*(n->next ? &n->next->prev : &p->last) = n->prev;
	n->prev = n->next = NULL;
	n->number = 0;
}

void hd_node_insert(struct hd_plan *p, struct node *n)
{
	link_before(p, n, p->cursor.before);
}

void hd_node_move(struct hd_plan *p, struct node *n, struct node *before)
{
	if (n == before)
		return;
	unlink_node(p, n);
	link_before(p, n, before);
}

/* Records that n may read t.  The list keeps every node that ever read t, so that replacing t need not search the whole
 * graph. */
static void add_user(struct hd_plan *p, struct tensor *t, struct node *n)
{
	if (t->nusers && t->users[t->nusers - 1] == n)
		return;
	if (t->nusers == t->cap_users) {
		struct node **more = hd_plan_alloc(p, 2 * (t->cap_users + 2) * sizeof(*more));

		if (t->nusers)
			memcpy(more, t->users, t->nusers * sizeof(*more));
		t->users = more;
		t->cap_users = 2 * (t->cap_users + 2);
	}
	t->users[t->nusers++] = n;
}

void hd_set_input(struct hd_plan *p, struct node *n, uint32_t i, struct tensor *t)
{
	n->ins[i] = n->ins[n->v.nin + i] = t;
	add_user(p, t, n);
}

void hd_set_inputs(struct hd_plan *p, struct node *n, struct tensor *const *ins, uint32_t nin)
{
	/* twice: the list that plugins see, then the engine's own copy */
	struct tensor **all = hd_plan_alloc(p, (2 * (size_t)nin + 1) * sizeof(*all));

	n->ins = all;
	n->v.ins = (struct hd_tensor *const *)all;
	n->v.nin = nin;
	for (uint32_t i = 0; i < nin; i++)
		hd_set_input(p, n, i, ins[i]);
}

/* Checks that all inputs were set with hd_set_input: hd_replace would miss any other. */
int hd_check_users(struct hd_plan *p)
{
	for (struct node *n = p->first; n; n = n->next)
		for (uint32_t i = 0; i < n->v.nin; i++) {
			size_t k = n->ins[i]->nusers;

			while (k && n->ins[i]->users[k - 1] != n)
				k--;
			if (!k)
				return hd_plan_fail(p, HD_EBUG, "%s reads %s, an op without ragged counts",
						    n->v.op->name, n->ins[i]->v.name);
		}
	return HD_OK;
}

uint32_t *hd_count_readers(const struct hd_plan *p)
{
	uint32_t *n = hd_alloc((p->ntensors + 1) * sizeof(*n));

	for (const struct node *k = p->first; k; k = k->next)
		for (uint32_t i = 0; i < k->v.nin; i++)
			n[k->ins[i]->id]++;
	for (size_t i = 0; i < p->ntensors; i++) {
		if (p->tensors[i]->assign)
			n[p->tensors[i]->assign->id]++;
		if (p->tensors[i]->then)
			n[p->tensors[i]->then->id]++;
	}
	return n;
}

/* -- change ------------------------------------------------------------------------------------------------------------ */
void hd_assign(struct tensor *leaf, struct tensor *value)
{
	leaf->assign = value;
	if (value)
		value->assigned = 1;
}

void hd_replace(struct hd_plan *p, struct tensor *old, struct tensor *with)
{
	struct node *maker = with->v.node ? N(with->v.node) : NULL;

	old->replaced_by = with;
	for (size_t k = 0; k < old->nusers; k++)
		for (uint32_t i = 0; old->users[k] != maker && i < old->users[k]->v.nin; i++)
			if (old->users[k]->ins[i] == old)
				hd_set_input(p, old->users[k], i, with);
	for (size_t i = 0; old->assigned && i < p->ntensors; i++)
		if (p->tensors[i]->assign == old)
			hd_assign(p->tensors[i], with);
	for (size_t i = 0; old->assigned && i < p->ntensors; i++)
		if (p->tensors[i]->then == old)
			p->tensors[i]->then = with, with->assigned = 1;
	struct tensor **named[] = { &p->loss, &p->nll, &p->logits, &p->norm, &p->factor };
	for (size_t i = 0; i < HD_LEN(named); i++)
		if (*named[i] == old)
			*named[i] = with;
	for (size_t i = 0; i < p->nmoe_stats; i++)
		if (p->moe_stats[i] == old)
			p->moe_stats[i] = with;
	if (old->v.what == HD_TENSOR_GRAD && with->v.what == HD_TENSOR_ACT)
		hd_tensor_inherit(with, old);
}

enum { KEPT = 1, PASSED = 2 };

/* Marks the node that computes t.  hd_drop_dead walks backwards, and marks what a marked node reads when it reaches
 * that node.  If it has passed the node already (a node after its reader), its inputs are marked here. */
static void keep(struct tensor *t)
{
	struct node *n = t && t->v.node ? N(t->v.node) : NULL;

	if (!n || n->mark & KEPT)
		return;
	n->mark |= KEPT;
	for (uint32_t i = 0; n->mark & PASSED && i < n->v.nin; i++)
		keep(n->ins[i]);
}

static void keep_results(struct hd_plan *p)
{
	keep(p->loss), keep(p->nll), keep(p->logits), keep(p->norm), keep(p->factor);
	for (size_t i = 0; i < p->nmoe_stats; i++)
		keep(p->moe_stats[i]);
	for (size_t i = 0; i < p->ntensors; i++)
		if (!p->tensors[i]->v.node || p->tensors[i]->v.what == HD_TENSOR_GRAD)
			keep(p->tensors[i]->assign), keep(p->tensors[i]->then);
}

/* Drops every node that neither the run's results nor an assigned leaf needs. */
void hd_drop_dead(struct hd_plan *p)
{
	struct node *n, *next;

	for (n = p->first; n; n = n->next)
		n->mark = 0;
	keep_results(p);
	for (n = p->last; n; n = n->prev) {
		n->mark |= PASSED;
		for (uint32_t i = 0; n->mark & KEPT && i < n->v.nin; i++)
			keep(n->ins[i]);
	}
	for (n = p->first; n; n = next) {
		next = n->next;
		n->mark &= KEPT;
		if (!n->mark) {
			unlink_node(p, n);
			n->dead = 1;
		}
	}
}

int hd_plan_has_own_gradients(const struct hd_plan *p)
{
	for (const struct node *n = p->first; n; n = n->next)
		if (n->local)
			return 1;
	return 0;
}

double hd_sqrt(double x)
{
	return sqrt(x);
}

int hd_block_begin(struct hd_plan *p, const char *name)
{
	struct block *b;

	p->blocks = hd_grow(p->blocks, p->nblocks, &p->cap_blocks, sizeof(*p->blocks));
	b = &p->blocks[p->nblocks];
	b->name = hd_plan_text(p, "%s", name);
	b->v = (struct hd_block){ .size = sizeof(b->v), .name = b->name };
	p->cursor = hd_cursor_end(p->cursor.phase, (int)p->nblocks++);
	return p->cursor.block;
}
