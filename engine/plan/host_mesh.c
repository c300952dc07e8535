/* SPDX-License-Identifier: Apache-2.0
 * What plugins ask of the layout: dims, axes, groups, rules, stages and the order of units.
 */
#include <config.h>
#include "engine/plan/host_impl.h"
#include "engine/graph/placement.h"
#include <stdio.h>
#include <string.h>

/* -- names and mesh --------------------------------------------------------------------------------------------------------- */
const struct hd_dim *hd_host_dim(struct hd_plan *p, const char *name)
{
	return hd_dim_get(p, name, 0);
}

const struct hd_dim *hd_host_dim_new(struct hd_plan *p, const char *name, int64_t n)
{
	char full[96];

	snprintf(full, sizeof(full), "%s.%s", p->cur >= 0 ? p->inst[p->cur].name : "", name);
	return hd_dim_get(p, full, n);
}

const struct hd_axis *hd_host_axis(struct hd_plan *p, const char *suffix, int64_t n, int64_t spare)
{
	struct axis *a;

	if (!hd_in_slot(p, "mesh"))
		return hd_out_of_turn(p, "axis", "mesh"), NULL;
	if (n < 1 || p->naxes == HD_MAX_AXES)
		return hd_plan_fail(
			       p, HD_EINVAL,
			       n < 1 ? "axis: %lld members (slot mesh is given size 0 for auto, and takes left then)"
				     : "more than %lld axes",
			       n < 1 ? (long long)n : (long long)HD_MAX_AXES),
		       NULL;
	if (spare)
		return hd_plan_fail(p, HD_ENOTSUP, "%lld spare coordinates: this version has none", (long long)spare),
		       NULL;
	for (int i = 0; i < p->naxes; i++) {
		const char *name = p->inst[p->cur].name, *taken = p->axes[i]->v.name;

		if (p->axes[i]->inst == p->cur &&
		    (suffix ? strlen(taken) > strlen(name) && !strcmp(taken + strlen(name) + 1, suffix)
			    : !strcmp(taken, name)))
			return hd_plan_fail(p, HD_EBUG,
					    "axis: %s is claimed already; another suffix makes another axis", taken),
			       NULL;
	}
	a = hd_plan_alloc(p, sizeof(*a));
	a->v = (struct hd_axis){ sizeof(a->v),
				 suffix ? hd_plan_text(p, "%s.%s", p->inst[p->cur].name, suffix) : p->inst[p->cur].name,
				 n, spare, 1 };
	a->inst = p->cur;
	a->id = p->naxes;
	a->stride =
		p->naxes ? p->axes[p->naxes - 1]->stride * (p->axes[p->naxes - 1]->v.n + p->axes[p->naxes - 1]->v.spare)
			 : 1;
	p->axes[p->naxes++] = a;
	return &a->v;
}

const struct hd_axis *hd_host_axis_next(struct hd_plan *p, const struct hd_axis *prev)
{
	int i = prev ? A(prev)->id + 1 : 0;

	for (int k = 0; k < p->naxes; k++)
		p->axes[k]->v.mine = p->axes[k]->inst == p->cur;
	return i < p->naxes ? &p->axes[i]->v : NULL;
}

const struct hd_group *hd_host_group(struct hd_plan *p, const struct hd_axis *const *axes, uint32_t n, uint32_t role)
{
	struct axis *a[HD_MAX_AXES];

	if (!n || n > HD_MAX_AXES)
		return hd_plan_fail(p, HD_EINVAL, "group: of %u axes, not of 1 to %d", n, HD_MAX_AXES), NULL;
	for (uint32_t i = 0; i < n; i++) {
		if (!axes[i])
			return hd_plan_fail(p, HD_EBUG, "group: axis %u is NULL", i), NULL;
		a[i] = A(axes[i]);
	}
	return &hd_group_get(p, a, n, role)->v;
}

/* -- rules and stages ----------------------------------------------------------------------------------------------------- */
int hd_host_rule(struct hd_plan *p, const char *name, const struct hd_axis *axis, const char *kind, uint32_t flags)
{
	if (!hd_in_slot(p, "rules"))
		return hd_out_of_turn(p, "rule", "rules");
	if (!name || !axis)
		return hd_plan_fail(p, HD_EBUG, "rule: the %s is NULL (%s)", name ? "axis" : "dim",
				    name   ? name
				    : axis ? axis->name
					   : "and so is the axis");
	if (!strcmp(name, "layer"))
		return hd_deal_layers(p, A(axis));
	return hd_rule_add(p, name, A(axis), kind, flags);
}

const struct hd_block *hd_host_block_next(struct hd_plan *p, const struct hd_block *prev)
{
	size_t i = prev ? (size_t)((const struct block *)prev - p->blocks) + 1 : 0;

	return i < p->nblocks ? &p->blocks[i].v : NULL;
}

int hd_host_stage(struct hd_plan *p, const struct hd_block *b, const struct hd_axis *axis, int64_t coord, int64_t chunk)
{
	if (!hd_in_slot(p, "rules"))
		return hd_out_of_turn(p, "stage", "rules");
	if (!b || !axis)
		return p->err->code;
	return hd_deal_block(p, (struct block *)(uintptr_t)b, A(axis), coord, chunk);
}

int hd_host_unit(struct hd_plan *p, const struct hd_axis *axis, int64_t coord, uint32_t kind, int64_t chunk,
		 int64_t micro)
{
	if (!hd_in_slot(p, "schedule"))
		return hd_out_of_turn(p, "unit", "schedule");
	if (!axis || A(axis) != p->stages)
		return hd_plan_fail(p, HD_EINVAL, "units are ordered on the axis that has the stages");
	if (coord < 0 || coord >= p->ncoords || chunk < 0 || chunk >= p->chunks || micro < 0 || micro >= p->micros ||
	    !(kind == HD_UNIT_F || kind == HD_UNIT_B || kind == HD_UNIT_W))
		return hd_plan_fail(p, HD_EINVAL,
				    "unit of stage %lld, chunk %lld, micro-batch %lld: out of %lld, %lld, %lld",
				    (long long)coord, (long long)chunk, (long long)micro, (long long)p->ncoords,
				    (long long)p->chunks, (long long)p->micros);
	p->units[coord] = hd_grow(p->units[coord], (size_t)p->nunits[coord], &p->cap_units[coord], sizeof(**p->units));
	p->units[coord][p->nunits[coord]++] = (struct hd_unit){ kind, (int32_t)chunk, (int32_t)micro };
	p->separate_w |= kind == HD_UNIT_W;
	return HD_OK;
}
