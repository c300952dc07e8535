/* SPDX-License-Identifier: Apache-2.0
 * What a plugin gets that leaves out slot open or mesh: the host's table, and one axis of as many members as the INI says.
 * These two are the same in every strategy of rules alone.
 */
#include <config.h>
#include "engine/plan/host_impl.h"

int hd_basic_open(struct hd_plan *p)
{
	struct hd_basic *b = hd_plan_alloc(p, sizeof(*b));

	*b = (struct hd_basic){ .size = sizeof(*b), .h = &hd_host_table };
	p->inst[p->cur].self = (struct hd_strategy *)(void *)b;
	return HD_OK;
}

int hd_basic_mesh(struct hd_plan *p, int64_t n)
{
	const struct inst *in = &p->inst[p->cur];
	const struct hd_axis *axis =
		hd_host_axis(p, &(struct hd_axis_args){ .size = sizeof(struct hd_axis_args), .n = n });

	if (!in->plugin->ops->open)
		((struct hd_basic *)(void *)in->self)->axis = axis;
	return p->err->code;
}
