/* SPDX-License-Identifier: Apache-2.0
 * Calls the slots of plugins, except mesh and schedule: each slot for all instances, in the order of the INI.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/host/host.h"
#include "engine/plan/plan_impl.h"

typedef int slot_call(const struct hd_strategy_ops *, struct hd_strategy *, struct hd_plan *);

static int each(struct hd_plan *p, const char *name, slot_call *call)
{
	for (int i = 0; i < p->ninst; i++) {
		struct hd_slot was = hd_slot_begin(p, i, name);
		struct hd_views *views = hd_views_take(p);

		p->cursor = hd_cursor_end(HD_UNIT_F, -1);
		hd_slot_returned(p, call(p->inst[i].plugin->ops, p->inst[i].self, p));
		hd_views_check(p, views);
		hd_slot_end(p, was);
		p->nwalks = 0;
		HD_TRY(p->err->code);
	}
	return HD_OK;
}

static int call_open(const struct hd_strategy_ops *o, struct hd_strategy *s, struct hd_plan *p)
{
	int rc;

	(void)s;
	p->inst[p->slot.inst].open = 1;
	rc = o->open ? o->open(p, &hd_host_table, &p->inst[p->slot.inst].self) : hd_basic_open(p);
	return rc < 0 || p->inst[p->slot.inst].self ? rc : hd_plan_fail(p, HD_EBUG, "slot open left *self NULL");
}

static int call_rewrite(const struct hd_strategy_ops *o, struct hd_strategy *s, struct hd_plan *p)
{
	return o->rewrite(s, p);
}

static int holds_block(const struct hd_plan *p, int64_t coord)
{
	size_t i = 0;

	while (i < p->nblocks && p->blocks[i].coord != coord)
		i++;
	return i < p->nblocks;
}

/* Checks that each stage has a block, if this section has put blocks on stages. A schedule needs units of every stage. */
static int check_stages(struct hd_plan *p)
{
	int staged = 0;

	for (size_t i = 0; i < p->nblocks; i++)
		staged |= p->blocks[i].staged;
	for (int64_t k = 0; staged && p->stages->inst == p->slot.inst && k < p->stages->v.n; k++)
		if (!holds_block(p, k))
			return hd_plan_fail(p, HD_EINVAL, "stage: no block is on stage %lld of axis %s", (long long)k,
					    p->stages->v.name);
	return HD_OK;
}

static int call_rules(const struct hd_strategy_ops *o, struct hd_strategy *s, struct hd_plan *p)
{
	int rc = o->rules(s, p);

	return rc == HD_OK && !p->err->code ? check_stages(p) : rc;
}

static int call_storage(const struct hd_strategy_ops *o, struct hd_strategy *s, struct hd_plan *p)
{
	return o->storage(s, p);
}

static int call_lower(const struct hd_strategy_ops *o, struct hd_strategy *s, struct hd_plan *p)
{
	return o->lower(s, p);
}

int hd_slot_open(struct hd_plan *p)
{
	return each(p, "open", call_open);
}

int hd_slot_rewrite(struct hd_plan *p)
{
	return each(p, "rewrite", call_rewrite);
}

int hd_slot_rules(struct hd_plan *p)
{
	return each(p, "rules", call_rules);
}

int hd_slot_storage(struct hd_plan *p)
{
	return each(p, "storage", call_storage);
}

int hd_slot_lower(struct hd_plan *p)
{
	return each(p, "lower", call_lower);
}

/* -- slots open and mesh of a plugin without them: it gets the host's table, and one axis of the size that the INI says ----- */
int hd_basic_open(struct hd_plan *p)
{
	struct hd_basic *b = hd_plan_alloc(p, sizeof(*b));

	*b = (struct hd_basic){ .size = sizeof(*b), .h = &hd_host_table };
	p->inst[p->slot.inst].self = (struct hd_strategy *)(void *)b;
	return HD_OK;
}

int hd_basic_mesh(struct hd_plan *p, int64_t n)
{
	const struct inst *in = &p->inst[p->slot.inst];
	const struct hd_axis *axis =
		hd_host_axis(p, &(struct hd_axis_args){ .size = sizeof(struct hd_axis_args), .n = n });

	if (!in->plugin->ops->open)
		((struct hd_basic *)(void *)in->self)->axis = axis;
	return p->err->code;
}
