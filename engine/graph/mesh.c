/* SPDX-License-Identifier: Apache-2.0
 * The mesh: where ranks are on the axes, and the groups that they form along them.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include "engine/graph/mesh.h"
#include <string.h>

int64_t hd_plan_coord(const struct hd_plan *p, int64_t rank, const struct axis *a)
{
	(void)p;
	return rank / a->stride % (a->v.n + a->v.spare);
}

/* All axes of one section, outer ones first, are what the section says: its own name.  Else the axes' names. */
static char *group_name(struct hd_plan *p, struct axis *const *axes, uint32_t n)
{
	char *name = hd_plan_text(p, "%s", "");
	uint32_t ours = 0, all = 0;

	for (uint32_t i = 0; i < n; i++) {
		ours += axes[i]->inst >= 0 && axes[i]->inst == axes[0]->inst && (!i || axes[i]->id < axes[i - 1]->id);
		name = hd_plan_text(p, "%s%s%s", name, i ? "+" : "", axes[i]->v.name);
	}
	for (int a = 0; a < p->naxes; a++)
		all += p->axes[a]->inst == axes[0]->inst;
	return n > 1 && ours == n && all == n ? hd_plan_text(p, "%s", p->inst[axes[0]->inst].name) : name;
}

struct group *hd_group_get(struct hd_plan *p, struct axis *const *axes, uint32_t n, uint32_t role)
{
	struct group *g;

	for (size_t i = 0; i < p->ngroups; i++)
		if (p->groups[i]->n == n && p->groups[i]->role == role &&
		    !memcmp(p->groups[i]->axes, axes, n * sizeof(*axes)))
			return p->groups[i];
	g = hd_plan_alloc(p, sizeof(*g));
	g->v = (struct hd_group){ sizeof(g->v), 1 };
	g->n = n;
	g->role = role;
	g->name = group_name(p, axes, n);
	for (uint32_t i = 0; i < n; i++) {
		g->axes[i] = axes[i];
		g->v.n *= role == HD_ROLE_SPARE ? axes[i]->v.spare : axes[i]->v.n;
	}
	g->id = (int)p->ngroups;
	p->groups = hd_grow(p->groups, p->ngroups, &p->cap_groups, sizeof(*p->groups));
	p->groups[p->ngroups++] = g;
	hd_handle_add(p, &g->v, HANDLE_GROUP);
	return g;
}

int hd_is_member(const struct hd_plan *p, const struct hd_members *who, int64_t rank)
{
	int64_t me = who->group ? hd_member_index(p, G(who->group), rank) : 0;

	return !who->group || (me >= who->from && me < who->to);
}

int hd_speaks_for(const struct hd_plan *p, int64_t rank, const struct placement *at, uint32_t axes, int terms)
{
	for (int a = 0; a < p->naxes; a++) {
		const struct hd_place *w = &at->on[a];
		int64_t me = hd_plan_coord(p, rank, p->axes[a]);
		int alike = w->kind == HD_PLACE_REPLICATED || (w->kind == HD_PLACE_PARTIAL && !terms);

		if (w->kind == HD_PLACE_PINNED ? w->index != me : alike && axes >> a & 1 && me)
			return 0;
	}
	return 1;
}

int64_t hd_member_index(const struct hd_plan *p, const struct group *gr, int64_t rank)
{
	int64_t m = 0;

	for (uint32_t i = 0; i < gr->n; i++)
		m = m * gr->axes[i]->v.n + hd_plan_coord(p, rank, gr->axes[i]);
	return m;
}
