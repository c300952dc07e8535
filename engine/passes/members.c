/* SPDX-License-Identifier: Apache-2.0
 * Nodes that only some members of a group run.  The results of such a node exist on those members only, so each reader
 * must be one of them.  This is checked for each member, because a plan covers all ranks.  A rank's program leaves out
 * the nodes that the rank does not run.
 *
 * Ranks that run different nodes have programs of their own, of different length and memory.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/passes/passes.h"
#include <stdlib.h>
#include <string.h>

#define MOST_UNLIKE 64 /* how many ranks of a stage are compared to find the busiest */

/* -- each operand exists where it is read -------------------------------------------------------------------------------- */
static int is_in(const struct hd_members *who, int64_t member)
{
	return !who->group || (member >= who->from && member < who->to);
}

/* Returns whether n reads input i on this member, which runs n. */
static int is_read(const struct node *n, uint32_t i, int64_t member)
{
	return !n->chooses.group || i == (uint32_t)!is_in(&n->chooses, member);
}

static int check_input(struct hd_plan *p, const struct node *n, uint32_t i)
{
	const struct node *maker = N(n->ins[i]->v.node);
	const struct hd_group *g = maker->only.group;

	if ((n->only.group && n->only.group != g) || (n->chooses.group && n->chooses.group != g))
		return hd_plan_fail(p, HD_EINVAL,
				    "%s reads (%s), which only some members of %s compute, as a member of %s",
				    n->v.op->name, n->ins[i]->v.spec, G(g)->name,
				    G(n->only.group && n->only.group != g ? n->only.group : n->chooses.group)->name);
	for (int64_t m = 0; m < g->n; m++)
		if (is_in(&n->only, m) && is_read(n, i, m) && !is_in(&maker->only, m))
			return hd_plan_fail(
				p, HD_EINVAL,
				"%s reads %s of (%s) on member %lld of %s, but only members %d to %d compute it, by "
				"[strategy %s]",
				n->v.op->name, maker->v.op->name, n->ins[i]->v.spec, (long long)m, G(g)->name,
				maker->only.from, maker->only.to - 1,
				maker->made_by >= 0 ? p->inst[maker->made_by].name : "the engine");
	return HD_OK;
}

static uint32_t axes_of(const struct hd_members *who)
{
	uint32_t axes = 0;

	for (uint32_t i = 0; who->group && i < G(who->group)->n; i++)
		axes |= 1u << G(who->group)->axes[i]->id;
	return axes;
}

int hd_check_members(struct hd_plan *p)
{
	p->unlike_axes = hd_spare_axis(p) ? 1u << hd_spare_axis(p)->id : 0;
	for (struct node *n = p->first; n; n = n->next) {
		p->unlike_axes |= axes_of(&n->only) | axes_of(&n->chooses);
		for (uint32_t i = 0; i < n->v.nin; i++)
			if (n->ins[i]->v.node && N(n->ins[i]->v.node)->only.group)
				HD_TRY(check_input(p, n, i));
	}
	return HD_OK;
}

/* -- ranks that differ --------------------------------------------------------------------------------------------------- */
int64_t hd_coords_count(const struct hd_plan *p, uint32_t axes)
{
	int64_t all = 1;

	for (int a = 0; a < p->naxes; a++)
		all *= axes >> a & 1 ? hd_role_count(p->axes[a], HD_ROLE_ALL) : 1;
	return all;
}

int64_t hd_coords_rank(const struct hd_plan *p, uint32_t axes, int64_t k)
{
	int64_t rank = 0;

	for (int a = 0; a < p->naxes; a++)
		if (axes >> a & 1) {
			rank += k % hd_role_count(p->axes[a], HD_ROLE_ALL) * p->axes[a]->stride;
			k /= hd_role_count(p->axes[a], HD_ROLE_ALL);
		}
	return rank;
}

/* Lists ranks of a stage whose programs may differ: all of them, or `most`, evenly spaced, with the first and the last.
 * Returns how many. */
static int unlike_ranks(const struct hd_plan *p, int64_t stage, int64_t *ranks, int most)
{
	uint32_t axes = p->unlike_axes;
	int64_t all = hd_coords_count(p, axes), first = p->stages ? stage * p->stages->stride : 0;
	int n = all < most ? (int)all : most;

	for (int i = 0; i < n; i++)
		ranks[i] = first + hd_coords_rank(p, axes, n > 1 ? i * (all - 1) / (n - 1) : 0);
	return n;
}

/* -- classes ------------------------------------------------------------------------------------------------------------- */
/* The sets of members that appear in nodes, each once. */
struct predicates {
	const struct hd_members **v;
	size_t n, cap;
};

static void predicate(struct predicates *all, const struct hd_members *who)
{
	for (size_t i = 0; i < all->n; i++)
		if (!who->group || !memcmp(all->v[i], who, sizeof(*who)))
			return;
	if (!who->group)
		return;
	all->v = hd_grow(all->v, all->n, &all->cap, sizeof(*all->v));
	all->v[all->n++] = who;
}

/* Returns whether both ranks hold the model, or both have the same spare coordinate. */
static int alike_in_role(const struct hd_plan *p, int64_t a, int64_t b)
{
	const struct axis *x = hd_spare_axis(p);

	return !x || (hd_is_worker(p, a) && hd_is_worker(p, b)) || hd_plan_coord(p, a, x) == hd_plan_coord(p, b, x);
}

/* Returns whether two ranks run the same nodes: they are on one stage and, if they hold the model, in the same sets of
 * members. */
static int alike(const struct hd_plan *p, const struct predicates *all, int64_t a, int64_t b)
{
	int same = alike_in_role(p, a, b) &&
		   (!p->stages || hd_plan_coord(p, a, p->stages) == hd_plan_coord(p, b, p->stages));

	if (!hd_is_worker(p, a))
		return same;

	for (size_t i = 0; i < all->n && same; i++)
		same = hd_is_member(p, all->v[i], a) == hd_is_member(p, all->v[i], b);
	return same;
}

void hd_classes_find(const struct hd_plan *p, struct hd_classes *c)
{
	struct predicates all = { 0 };

	*c = (struct hd_classes){ .axes = p->unlike_axes | (p->stages ? 1u << p->stages->id : 0) };
	for (const struct node *n = p->first; n; n = n->next)
		predicate(&all, &n->only), predicate(&all, &n->chooses);
	c->nranks = hd_coords_count(p, c->axes);
	c->ranks = hd_alloc((size_t)c->nranks * sizeof(*c->ranks));
	c->of = hd_alloc((size_t)c->nranks * sizeof(*c->of));
	c->first = hd_alloc((size_t)c->nranks * sizeof(*c->first));
	for (int64_t i = 0; i < c->nranks; i++) {
		int64_t k = 0;

		c->ranks[i] = hd_coords_rank(p, c->axes, i);
		while (k < c->n && !alike(p, &all, c->ranks[c->first[k]], c->ranks[i]))
			k++;
		if (k == c->n)
			c->first[c->n++] = i;
		c->of[i] = k;
	}
	free(all.v);
}

void hd_classes_release(struct hd_classes *c)
{
	free(c->ranks), free(c->of), free(c->first);
}

static double flops_of(const struct hd_plan *p, int64_t rank)
{
	double all = 0;

	for (const struct node *n = p->first; n; n = n->next) {
		struct hd_cost c = { .size = sizeof(c) };

		if (!n->only.group || !n->v.op->cost || !hd_is_member(p, &n->only, rank))
			continue;
		hd_node_cost(n, &c);
		all += c.matmul_flops + c.other_flops;
	}
	return all;
}

int64_t hd_busiest_rank(const struct hd_plan *p, int64_t stage)
{
	int64_t ranks[MOST_UNLIKE], busiest;
	int n = unlike_ranks(p, stage, ranks, MOST_UNLIKE);
	double most = -1;

	busiest = ranks[0];
	for (int i = 0; n > 1 && i < n; i++) {
		double flops = hd_is_worker(p, ranks[i]) ? flops_of(p, ranks[i]) : -1;

		if (flops > most)
			most = flops, busiest = ranks[i];
	}
	return busiest;
}
