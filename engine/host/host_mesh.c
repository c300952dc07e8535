/* SPDX-License-Identifier: Apache-2.0
 * Functions with which plugins read and define the layout: dims, axes, groups, rules, stages and the order of units.
 */
#include <config.h>
#include "engine/host/host_impl.h"
#include "engine/graph/placement.h"
#include <stdio.h>
#include <string.h>

/* -- names and mesh ------------------------------------------------------------------------------------------------ */
const struct hd_dim *hd_host_dim(struct hd_plan *p, const char *name)
{
	if (!name)
		return hd_plan_fail(p, HD_EBUG, "dim: the name is NULL"), NULL;
	return hd_dim_get(p, name, 0);
}

const struct hd_dim *hd_host_dim_new(struct hd_plan *p, const char *name, int64_t n)
{
	const struct hd_dim *d;

	if (!hd_arg_name(p, "dim_new", name))
		return NULL;
	if (n < 1 || n > INT32_MAX)
		return hd_plan_fail(p, HD_EINVAL, "dim_new: %s has %lld elements, not 1 to %d", name, (long long)n,
				    INT32_MAX),
		       NULL;
	d = hd_dim_get(p, hd_plan_text(p, "%s.%s", p->slot.inst >= 0 ? p->inst[p->slot.inst].name : "", name), n);
	if (d->n != n)
		return hd_plan_fail(p, HD_EINVAL, "dim_new: %s has %lld elements already, not %lld", d->name,
				    (long long)d->n, (long long)n),
		       NULL;
	return d;
}

static int is_claimed(struct hd_plan *p, const char *suffix)
{
	for (int i = 0; i < p->naxes; i++) {
		const char *name = p->inst[p->slot.inst].name, *taken = p->axes[i]->v.name;

		if (p->axes[i]->inst == p->slot.inst &&
		    (suffix ? strlen(taken) > strlen(name) && !strcmp(taken + strlen(name) + 1, suffix)
			    : !strcmp(taken, name)))
			return hd_plan_fail(p, HD_EBUG,
					    "axis: %s is already claimed; a different suffix makes a different axis",
					    taken);
	}
	return HD_OK;
}

static int may_spare(struct hd_plan *p, int64_t spare)
{
	const struct axis *other = hd_spare_axis(p);

	if (spare < 0 || spare > 1 << 16)
		hd_plan_fail(p, HD_EINVAL, "axis: %lld spare coordinates, not 0 to %d", (long long)spare, 1 << 16);
	else if (spare && other)
		hd_plan_fail(
			p, HD_ENOTSUP,
			"axis: %lld spare coordinates, but axis %s has %lld: only one axis of a layout may have them",
			(long long)spare, other->v.name, (long long)other->v.spare);
	return !p->err->code;
}

static const struct hd_axis *claim(struct hd_plan *p, const struct hd_axis_args *x)
{
	struct axis *a, *last = p->naxes ? p->axes[p->naxes - 1] : NULL;

	if (x->suffix && !hd_arg_name(p, "axis", x->suffix))
		return NULL;
	if (x->n < 1)
		return hd_plan_fail(p, HD_EINVAL,
				    "axis: %lld members (for auto, slot mesh is given size 0 and must use left)",
				    (long long)x->n),
		       NULL;
	if (x->n > 1 << 24)
		return hd_plan_fail(p, HD_EINVAL, "axis: %lld members, more than %d", (long long)x->n, 1 << 24), NULL;
	if (p->naxes == HD_MAX_AXES)
		return hd_plan_fail(p, HD_EINVAL, "more than %d axes", HD_MAX_AXES), NULL;
	if (!may_spare(p, x->spare))
		return NULL;
	if (is_claimed(p, x->suffix) < 0)
		return NULL;
	a = hd_plan_alloc(p, sizeof(*a));
	a->v = (struct hd_axis){ .size = sizeof(a->v), .n = x->n, .spare = x->spare, .mine = 1 };
	a->v.name = x->suffix ? hd_plan_text(p, "%s.%s", p->inst[p->slot.inst].name, x->suffix)
			      : p->inst[p->slot.inst].name;
	a->inst = p->slot.inst;
	a->id = p->naxes;
	a->stride = last ? last->stride * (last->v.n + last->v.spare) : 1;
	p->axes[p->naxes++] = a;
	hd_handle_add(p, &a->v, HANDLE_AXIS);
	return &a->v;
}

const struct hd_axis *hd_host_axis(struct hd_plan *p, const struct hd_axis_args *args)
{
	struct hd_axis_args x;

	if (!hd_in_slot(p, "mesh"))
		return hd_out_of_turn(p, "axis", "mesh"), NULL;
	if (!HD_TAKE(p, "axis", &x, args, spare))
		return NULL;
	return claim(p, &x);
}

const struct hd_axis *hd_host_axis_next(struct hd_plan *p, const struct hd_axis *prev)
{
	int i = 0;

	if (prev && !hd_arg_axis(p, "axis_next", "axis before", prev))
		return NULL;
	i = prev ? A(prev)->id + 1 : 0;
	for (int k = 0; k < p->naxes; k++)
		p->axes[k]->v.mine = p->axes[k]->inst == p->slot.inst;
	return i < p->naxes ? &p->axes[i]->v : NULL;
}

const struct hd_group *hd_host_group(struct hd_plan *p, const struct hd_group_args *args)
{
	struct hd_group_args x;
	struct axis *a[HD_MAX_AXES];

	if (!HD_TAKE(p, "group", &x, args, role))
		return NULL;
	if (!x.axes || !x.naxes || x.naxes > HD_MAX_AXES)
		return hd_plan_fail(p, HD_EINVAL, "group: of %u axes, not of 1 to %d", x.axes ? x.naxes : 0,
				    HD_MAX_AXES),
		       NULL;
	if (!hd_args_one_of(p, "group", "role", x.role, HD_ROLE_ALL))
		return NULL;
	for (uint32_t i = 0; i < x.naxes; i++) {
		if (!hd_arg_axis(p, "group", "axis", x.axes[i]))
			return NULL;
		a[i] = A(x.axes[i]);
		for (uint32_t k = 0; k < i; k++)
			if (a[k] == a[i])
				return hd_plan_fail(p, HD_EINVAL, "group: axis %s is both %u and %u of %u",
						    a[i]->v.name, k, i, x.naxes),
				       NULL;
	}
	for (uint32_t i = 0; x.role != HD_ROLE_CORE && i < x.naxes; i++)
		if (!a[i]->v.spare || x.naxes > 1)
			return hd_plan_fail(p, HD_EINVAL,
					    "group: role %u needs one axis with spare coordinates, but %s is one of %u "
					    "and has %lld",
					    x.role, a[i]->v.name, x.naxes, (long long)a[i]->v.spare),
			       NULL;
	return &hd_group_get(p, a, x.naxes, x.role)->v;
}

/* -- rules and stages ---------------------------------------------------------------------------------------------- */
int hd_host_rule(struct hd_plan *p, const struct hd_rule_args *args)
{
	enum {
		KNOWN = HD_RULE_PAD | HD_RULE_IF_DIVIDES | HD_RULE_INSIDE | HD_RULE_INNERMOST |
			HD_RULE_KEEP_REPLICATED | HD_RULE_OUTERMOST | HD_RULE_ZIGZAG
	};
	struct hd_rule_args x;

	if (!hd_in_slot(p, "rules"))
		return hd_out_of_turn(p, "rule", "rules");
	if (!HD_TAKE(p, "rule", &x, args, reserved))
		return p->err->code;
	if (!x.dim || !x.axis)
		return hd_plan_fail(p, HD_EBUG, "rule: the %s is NULL (%s)", x.dim ? "axis" : "dim",
				    x.dim    ? x.dim
				    : x.axis ? x.axis->name
					     : "and so is the axis");
	if (!hd_arg_axis(p, "rule", "axis", x.axis) || !hd_args_flags(p, "rule", "flags", x.flags, KNOWN) ||
	    !hd_args_zero(p, "rule", "reserved", x.reserved))
		return p->err->code;
	if ((x.flags & HD_RULE_INNERMOST && x.flags & HD_RULE_OUTERMOST) ||
	    (x.flags & HD_RULE_PAD && x.flags & HD_RULE_IF_DIVIDES))
		return hd_plan_fail(p, HD_EINVAL, "rule: flags %#x of the rule for %s contradict each other: %s",
				    x.flags, x.dim,
				    x.flags & HD_RULE_INNERMOST && x.flags & HD_RULE_OUTERMOST
					    ? "the axis is both innermost and outermost"
					    : "a dim that does not divide is both padded and skipped");
	if (!strcmp(x.dim, "layer"))
		return hd_assign_layers(p, A(x.axis));
	return hd_rule_add(p, x.dim, A(x.axis), x.kind, x.flags);
}

const struct hd_block *hd_host_block_next(struct hd_plan *p, const struct hd_block *prev)
{
	size_t i;

	if (prev && !hd_arg_block(p, "block_next", prev))
		return NULL;
	i = prev ? (size_t)((const struct block *)prev - p->blocks) + 1 : 0;
	return i < p->nblocks ? &p->blocks[i].v : NULL;
}

int hd_host_stage(struct hd_plan *p, const struct hd_stage_args *args)
{
	struct hd_stage_args x;
	struct block *b;

	if (!hd_in_slot(p, "rules"))
		return hd_out_of_turn(p, "stage", "rules");
	if (!HD_TAKE(p, "stage", &x, args, chunk))
		return p->err->code;
	if (!hd_arg_block(p, "stage", x.block) || !hd_arg_axis(p, "stage", "axis", x.axis))
		return p->err->code;
	if (x.chunk >= (int64_t)p->nblocks)
		return hd_plan_fail(p, HD_EINVAL, "stage: chunk %lld, the model has %zu blocks", (long long)x.chunk,
				    p->nblocks);
	b = (struct block *)(uintptr_t)x.block;
	if (b->staged && (b->coord != x.coord || b->chunk != x.chunk))
		return hd_plan_fail(p, HD_EINVAL, "stage: block %s is already on stage %lld, chunk %lld", b->name,
				    (long long)b->coord, (long long)b->chunk);
	HD_TRY(hd_assign_block(p, b, A(x.axis), x.coord, x.chunk));
	b->staged = 1;
	return HD_OK;
}

static int check_unit(struct hd_plan *p, const struct hd_unit_args *x)
{
	if (!hd_arg_axis(p, "unit", "axis", x->axis))
		return p->err->code;
	if (A(x->axis) != p->stages)
		return hd_plan_fail(p, HD_EINVAL, "units are ordered on the axis that has the stages");
	if (x->kind != HD_UNIT_F && x->kind != HD_UNIT_B && x->kind != HD_UNIT_W)
		return hd_plan_fail(p, HD_EINVAL,
				    "unit: kind %u is not one of HD_UNIT_F %d, HD_UNIT_B %d, HD_UNIT_W %d", x->kind,
				    HD_UNIT_F, HD_UNIT_B, HD_UNIT_W);
	if (x->coord < 0 || x->coord >= p->ncoords || x->chunk < 0 || x->chunk >= p->chunks || x->micro < 0 ||
	    x->micro >= p->micros)
		return hd_plan_fail(p, HD_EINVAL,
				    "unit of stage %lld, chunk %lld, micro-batch %lld: out of %lld, %lld, %lld",
				    (long long)x->coord, (long long)x->chunk, (long long)x->micro,
				    (long long)p->ncoords, (long long)p->chunks, (long long)p->micros);
	return hd_args_zero(p, "unit", "reserved", x->reserved) ? HD_OK : p->err->code;
}

int hd_host_unit(struct hd_plan *p, const struct hd_unit_args *args)
{
	struct hd_unit_args x;
	int64_t c;

	if (!hd_in_slot(p, "schedule"))
		return hd_out_of_turn(p, "unit", "schedule");
	if (!HD_TAKE(p, "unit", &x, args, reserved) || check_unit(p, &x) < 0)
		return p->err->code;
	c = x.coord;
	p->units[c] = hd_grow(p->units[c], (size_t)p->nunits[c], &p->cap_units[c], sizeof(**p->units));
	p->units[c][p->nunits[c]++] = (struct hd_schedule_unit){ x.kind, (int32_t)x.chunk, (int32_t)x.micro };
	p->separate_w |= x.kind == HD_UNIT_W;
	return HD_OK;
}
