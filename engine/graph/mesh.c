/* SPDX-License-Identifier: Apache-2.0
 * The mesh: the coordinates of ranks on the axes, and the groups that ranks form along them.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include "engine/graph/mesh.h"
#include <stdlib.h>
#include <string.h>

int64_t hd_plan_coord(const struct hd_plan *p, int64_t rank, const struct axis *a)
{
	(void)p;
	return rank / a->stride % (a->v.n + a->v.spare);
}

int64_t hd_role_first(const struct axis *a, uint32_t role)
{
	return role == HD_ROLE_SPARE ? a->v.n : 0;
}

int64_t hd_role_count(const struct axis *a, uint32_t role)
{
	return role == HD_ROLE_SPARE ? a->v.spare : role == HD_ROLE_ALL ? a->v.n + a->v.spare : a->v.n;
}

char *hd_axis_text(const struct axis *a)
{
	if (!a->v.spare)
		return hd_format("%s %lld", a->v.name, (long long)a->v.n);
	return hd_format("%s %lld + %lld server%s", a->v.name, (long long)a->v.n, (long long)a->v.spare,
			 hd_plural(a->v.spare, "s"));
}

char *hd_coord_text(const struct hd_plan *p, int64_t rank, const struct axis *a)
{
	int64_t me = hd_plan_coord(p, rank, a);

	return me < a->v.n ? hd_format("%s %lld", a->v.name, (long long)me)
			   : hd_format("%s server %lld", a->v.name, (long long)(me - a->v.n));
}

int hd_may_leave_host(const struct hd_plan *p, const struct axis *a)
{
	int64_t together = a->stride * a->v.n;

	return !p->node_size || together > p->node_size || p->node_size % together;
}

struct axis *hd_spare_axis(const struct hd_plan *p)
{
	for (int a = 0; a < p->naxes; a++)
		if (p->axes[a]->v.spare)
			return p->axes[a];
	return NULL;
}

/* Returns whether each member of the group that begins at a rank is on a node of its own. */
static int is_apart(const struct axis *a, int64_t first, int64_t node)
{
	for (int64_t k = 1; a->stride < node && k < a->v.n + a->v.spare; k++)
		if ((first + k * a->stride) / node == (first + (k - 1) * a->stride) / node)
			return 0;
	return 1;
}

struct hd_spread_of_axis hd_axis_spread(const struct hd_plan *p, const struct axis *a, int64_t node,
					const struct axis *same, int64_t like)
{
	struct hd_spread_of_axis s = { 0, 0, 0 };
	int64_t last = (a->v.n + a->v.spare - 1) * a->stride;

	for (int64_t r = 0; r < p->ranks; r++) {
		if (hd_plan_coord(p, r, a) || (same && hd_plan_coord(p, r, same) != hd_plan_coord(p, like, same)))
			continue;
		s.groups++;
		s.spanning += r / node != (r + last) / node;
		s.apart += last && is_apart(a, r, node);
	}
	return s;
}

int hd_is_worker(const struct hd_plan *p, int64_t rank)
{
	const struct axis *a = hd_spare_axis(p);

	return !a || hd_plan_coord(p, rank, a) < a->v.n;
}

int64_t hd_plan_workers(const struct hd_plan *p)
{
	const struct axis *a = hd_spare_axis(p);

	return a ? p->ranks / (a->v.n + a->v.spare) * a->v.n : p->ranks;
}

static int has_role(const struct axis *a, uint32_t role, int64_t coord)
{
	int64_t at = coord - hd_role_first(a, role);

	return at >= 0 && at < hd_role_count(a, role);
}

int hd_is_placed_at(const struct hd_plan *p, const struct placement *at, int64_t rank)
{
	for (int a = 0; a < p->naxes; a++) {
		const struct hd_place *w = &at->on[a];
		const struct axis *x = p->axes[a];
		int64_t me = hd_plan_coord(p, rank, x);

		if (!has_role(x, w->role, me) ||
		    (w->kind == HD_PLACE_PINNED && w->index != me - hd_role_first(x, w->role)))
			return 0;
	}
	return 1;
}

static const struct placement *made_at(const struct node *n)
{
	static const struct placement anywhere;

	return n->v.nout ? &n->outs[0]->at : n->v.nin ? &n->ins[0]->at : &anywhere;
}

int hd_node_runs_at(const struct hd_plan *p, const struct node *n, int64_t rank)
{
	const struct axis *a = hd_spare_axis(p);
	uint32_t role = a ? made_at(n)->on[a->id].role : 0;
	int pinned = a && role && made_at(n)->on[a->id].kind == HD_PLACE_PINNED;
	int64_t me = a ? hd_plan_coord(p, rank, a) : 0;

	for (uint32_t i = 0; a && n->comm.kind && i < n->comm.group->n; i++)
		if (n->comm.group->axes[i] == a)
			role = n->comm.group->role, pinned = 0;
	if (a && pinned && made_at(n)->on[a->id].index != me - a->v.n)
		return 0;
	return !a || has_role(a, role, me);
}

int64_t hd_group_ranks(const struct hd_plan *p, const struct group *g, int64_t rank, int *ranks)
{
	int64_t base = rank;

	for (uint32_t i = 0; i < g->n; i++) {
		int64_t me = hd_plan_coord(p, rank, g->axes[i]);

		if (!has_role(g->axes[i], g->role, me)) {
			ranks[0] = (int)rank;
			return 1;
		}
		base += (hd_role_first(g->axes[i], g->role) - me) * g->axes[i]->stride;
	}
	for (int64_t m = 0; m < g->v.n; m++) {
		int64_t rest = m, at = base;

		for (uint32_t i = g->n; i-- > 0; rest /= hd_role_count(g->axes[i], g->role))
			at += rest % hd_role_count(g->axes[i], g->role) * g->axes[i]->stride;
		ranks[m] = (int)at;
	}
	return g->v.n;
}

/* A group of all axes of one section, outermost first, has the section's name.  Any other has its axes' names, joined
 * by +. */
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
		g->v.n *= hd_role_count(axes[i], role);
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

int hd_is_representative(const struct hd_plan *p, int64_t rank, const struct placement *at, uint32_t axes, int terms)
{
	for (int a = 0; a < p->naxes; a++) {
		const struct hd_place *w = &at->on[a];
		int64_t me = hd_plan_coord(p, rank, p->axes[a]) - hd_role_first(p->axes[a], w->role);
		int alike = w->kind == HD_PLACE_REPLICATED || (w->kind == HD_PLACE_PARTIAL && !terms);

		if (alike && axes >> a & 1 && me)
			return 0;
	}
	return hd_is_placed_at(p, at, rank);
}

int hd_has_same_slice(const struct hd_plan *p, const struct tensor *t, int64_t a, int64_t b)
{
	if (!hd_is_placed_at(p, &t->at, a) || !hd_is_placed_at(p, &t->at, b))
		return 0;
	for (int i = 0; i < p->naxes; i++) {
		int alike = t->at.on[i].kind == HD_PLACE_REPLICATED && !(t->own >> i & 1);

		if (!alike && hd_plan_coord(p, a, p->axes[i]) != hd_plan_coord(p, b, p->axes[i]))
			return 0;
	}
	return 1;
}

int64_t hd_member_index(const struct hd_plan *p, const struct group *gr, int64_t rank)
{
	int64_t m = 0;

	for (uint32_t i = 0; i < gr->n; i++)
		m = m * hd_role_count(gr->axes[i], gr->role) + hd_plan_coord(p, rank, gr->axes[i]) -
		    hd_role_first(gr->axes[i], gr->role);
	return m;
}

static void add_text(char **to, const char *between, char *more)
{
	hd_append(to, "%s%s", between, more);
	free(more);
}

char *hd_layout_text(const struct hd_plan *p)
{
	char *text = hd_strdup("");

	for (int a = 0; a < p->naxes; a++)
		add_text(&text, a ? ", " : "", hd_axis_text(p->axes[a]));
	return text;
}

char *hd_coords_text(const void *plan, int rank)
{
	const struct hd_plan *p = plan;
	char *at = NULL;

	for (int a = 0; p && a < p->naxes; a++)
		add_text(&at, a ? ", " : "(", hd_coord_text(p, rank, p->axes[a]));
	if (at)
		hd_append(&at, ")");
	return at;
}
