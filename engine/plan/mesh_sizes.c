/* SPDX-License-Identifier: Apache-2.0
 * Slot mesh: each section gets its size, one of them what the others leave over.  The axes must cover all ranks.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/host/host.h"
#include "engine/plan/plan_impl.h"
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 10000000 /* as of --ranks */

static int size_of(struct hd_plan *p, struct inst *in, int64_t *size)
{
	const char *v = hd_section_str(in->section, "size");
	char *end;

	*size = 0;
	if (!strcmp(v, "auto"))
		return HD_OK;
	*size = strtoll(v, &end, 10);
	if (*end || *size < 1)
		return hd_section_fail(p->conf, in->section, "size", p->err, HD_EINVAL,
				       "%s is not a number of ranks (1 or more, or auto)", v);
	return HD_OK;
}

/* Reads the size of each instance, 0 if it is auto, and their product. */
static int read_sizes(struct hd_plan *p, int64_t *size, int64_t *given, int *automatic)
{
	*given = 1;
	*automatic = -1;
	for (int i = 0; i < p->ninst; i++) {
		if (p->inst[i].extension)
			continue;
		HD_TRY(size_of(p, &p->inst[i], &size[i]));
		if (size[i] > MOST_RANKS / *given)
			return hd_section_fail(p->conf, p->inst[i].section, "size", p->err, HD_EINVAL,
					       "%lld: the layout would need more than %d ranks", (long long)size[i],
					       MOST_RANKS);
		if (size[i])
			*given *= size[i];
		else if (*automatic >= 0)
			return hd_section_fail(p->conf, p->inst[i].section, "size", p->err, HD_EINVAL,
					       "auto, but so is that of [strategy %s]: only one may be auto",
					       p->inst[*automatic].name);
		else
			*automatic = i;
	}
	return HD_OK;
}

static void needs(struct hd_plan *p, int64_t ranks)
{
	if (p->options->needs)
		*p->options->needs = ranks;
}

static int check_ranks(struct hd_plan *p)
{
	int64_t total = 1;

	for (int a = 0; a < p->naxes; a++)
		total *= p->axes[a]->v.n + p->axes[a]->v.spare;
	if (total == p->ranks)
		return HD_OK;
	needs(p, total);
	return hd_err_set(p->err, HD_EINVAL, "%s: the layout needs %lld rank%s, but there %s %lld",
			  hd_conf_path(p->conf), (long long)total, hd_plural(total, "s"), p->ranks == 1 ? "is" : "are",
			  (long long)p->ranks);
}

static int claims_no_axis(struct hd_plan *p, int who, int64_t left)
{
	for (int a = 0; a < p->naxes; a++)
		if (p->axes[a]->inst == who)
			return HD_OK;
	if (left <= 1)
		return HD_OK;
	return hd_section_fail(p->conf, p->inst[who].section, "size", p->err, HD_EINVAL,
			       "%lld ranks, but slot mesh of plugin %s claims no axis", (long long)left,
			       p->inst[who].plugin->name);
}

/* Checks a size given in the INI against all axes of the section: with or without servers.  auto accepts any size
 * here. */
static int claims_size(struct hd_plan *p, int who, int64_t size)
{
	int64_t model = 1, all = 1;

	for (int a = 0; a < p->naxes; a++)
		if (p->axes[a]->inst == who) {
			model *= p->axes[a]->v.n;
			all *= p->axes[a]->v.n + p->axes[a]->v.spare;
		}
	if (!size || model == size || all == size)
		return HD_OK;
	return hd_section_fail(p->conf, p->inst[who].section, "size", p->err, HD_EINVAL,
			       "%lld, but slot mesh of plugin %s claims axes of %lld ranks", (long long)size,
			       p->inst[who].plugin->name, (long long)all);
}

static int mesh_of(struct hd_plan *p, int who, int64_t size, int64_t left)
{
	const struct hd_strategy_ops *ops = p->inst[who].plugin->ops;
	struct hd_slot was = hd_slot_begin(p, who, "mesh");
	struct hd_views *views = hd_views_take(p);

	hd_slot_returned(p, ops->mesh ? ops->mesh(p->inst[who].self, p, size, left) : hd_basic_mesh(p, left));
	hd_views_check(p, views);
	hd_slot_end(p, was);
	HD_TRY(p->err->code);
	HD_TRY(claims_no_axis(p, who, left));
	return claims_size(p, who, size);
}

int hd_slot_mesh(struct hd_plan *p)
{
	int64_t size[HD_MAX_INSTANCES] = { 0 }, given;
	int automatic;

	needs(p, 0);
	HD_TRY(read_sizes(p, size, &given, &automatic));
	if (automatic >= 0 && p->ranks % given) {
		needs(p, given);
		return hd_section_fail(
			p->conf, p->inst[automatic].section, "size", p->err, HD_EDIVIDE,
			"auto: %lld rank%s cannot be divided by the %lld that the other sections need: %lld is not a "
			"multiple of %lld",
			(long long)p->ranks, hd_plural(p->ranks, "s"), (long long)given, (long long)p->ranks,
			(long long)given);
	}
	for (int i = 0; i < p->ninst; i++)
		if (!p->inst[i].extension)
			HD_TRY(mesh_of(p, i, size[i], automatic == i ? p->ranks / given : size[i]));
	return check_ranks(p);
}
