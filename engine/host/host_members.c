/* SPDX-License-Identifier: Apache-2.0
 * Nodes that only some members of a group run, and tensors that are chosen by member.
 */
#include <config.h>
#include "engine/host/host_impl.h"
#include "engine/ops/movement.h"

/* Checks a range of members: at least one, and all of them in the group, so that no node is on no rank by mistake. The
 * group must not have the axis of the stages, nor be one of spare ranks. */
static int are_members(struct hd_plan *p, const char *call, const struct hd_members *who)
{
	const struct group *g = G(who->group);

	if (!hd_arg_group(p, call, "group", who->group))
		return 0;
	for (uint32_t i = 0; i < g->n; i++)
		if (g->axes[i] == p->stages || g->role == HD_ROLE_SPARE)
			return hd_plan_fail(p, HD_EINVAL, "%s: %s is the axis of the stages, or of spare ranks", call,
					    g->axes[i]->v.name),
			       0;
	if (who->reserved[0] || who->reserved[1])
		return hd_plan_fail(p, HD_EABI, "%s: reserved words of the members are %u and %u, not 0", call,
				    who->reserved[0], who->reserved[1]),
		       0;
	if (who->from < 0 || who->from >= who->to || who->to > g->v.n)
		return hd_plan_fail(p, HD_EINVAL, "%s: members %d to %lld of the %lld of %s", call, who->from,
				    who->to - 1LL, (long long)g->v.n, g->name),
		       0;
	return 1;
}

int hd_host_only(struct hd_plan *p, const struct hd_members *who)
{
	static const struct hd_members all;
	struct cursor here = p->cursor;

	if (!hd_in_slot(p, "lower"))
		return hd_out_of_turn(p, "only", "lower");
	if (who && !are_members(p, "only", who))
		return p->err->code;
	if (who && !(p->cursor.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W)))
		return hd_plan_fail(p, HD_EINVAL,
				    "only: the cursor is in a unit that runs once a step, which all ranks run");
	here.only = who ? *who : all;
	p->cursor = here;
	return HD_OK;
}

/* Checks that both tensors have the same dims, dtype and local sizes. Otherwise a rank could read past the end of the
 * one that it chooses. */
static int alike(struct hd_plan *p, const struct hd_tensor *yes, const struct hd_tensor *no)
{
	int same = yes->ndim == no->ndim && yes->dtype == no->dtype &&
		   !memcmp(yes->dims, no->dims, yes->ndim * sizeof(*yes->dims)) &&
		   !memcmp(yes->local, no->local, yes->ndim * sizeof(*yes->local));

	if (!same)
		hd_plan_fail(p, HD_EINVAL, "either: (%s) of %lld bytes on a rank is not like (%s) of %lld", yes->spec,
			     (long long)hd_local_bytes(T(yes)), no->spec, (long long)hd_local_bytes(T(no)));
	return same;
}

struct hd_tensor *hd_host_either(struct hd_plan *p, const struct hd_members *who, struct hd_tensor *yes,
				 struct hd_tensor *no)
{
	if (!hd_may_build(p, "either") || !hd_arg_tensor(p, "either", "tensor of the members", yes) ||
	    !hd_arg_tensor(p, "either", "tensor of the others", no))
		return NULL;
	if (!who || !are_members(p, "either", who))
		return hd_plan_fail(p, HD_EBUG, "either: the members are NULL"), NULL;
	return alike(p, yes, no) ? hd_host_view(hd_build_either(p, who, T(yes), T(no))) : NULL;
}
