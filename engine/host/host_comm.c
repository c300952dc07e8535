/* SPDX-License-Identifier: Apache-2.0
 * Builders of communication for plugins.
 */
#include <config.h>
#include "engine/host/host_impl.h"
#include "engine/device/call.h"
#include "engine/ops/movement.h"

/* Checks that all members of the group run the communication; one that only some of them start would wait forever. */
static int is_for_all(struct hd_plan *p, const char *call, const struct group *g)
{
	const struct group *only = p->cursor.only.group ? G(p->cursor.only.group) : NULL;

	for (uint32_t i = 0; only && i < g->n; i++)
		for (uint32_t k = 0; k < only->n; k++)
			if (g->axes[i] == only->axes[k])
				return hd_plan_fail(
					       p, HD_EINVAL,
					       "%s: along %s, under `only` members %d to %d of %s: the others would be waited for",
					       call, g->axes[i]->v.name, p->cursor.only.from, p->cursor.only.to - 1,
					       only->name),
				       0;
	return 1;
}

/* Checks that the root, shift or permutation suits the group and the slot. A new dim must have one entry per member,
 * and must not be one dim too many. */
static int comm_fits(struct hd_plan *p, const struct hd_comm_args *a)
{
	int rooted = a->kind == HD_COMM_BROADCAST || a->kind == HD_COMM_REDUCE || a->kind == HD_COMM_GATHER ||
		     a->kind == HD_COMM_SCATTER;
	int64_t n = a->group->n;

	if (rooted && (a->index < 0 || a->index >= n))
		hd_plan_fail(p, HD_EINVAL, "comm: the root is member %lld of %lld", (long long)a->index, (long long)n);
	else if (a->kind == HD_COMM_SHIFT && (a->index <= -n || a->index >= n) && a->index)
		hd_plan_fail(p, HD_EINVAL, "comm: a shift by %lld among %lld members", (long long)a->index,
			     (long long)n);
	else if (a->kind == HD_COMM_PERMUTE && hd_comm_inverse(a->mul, n) < 0)
		hd_plan_fail(
			p, HD_EINVAL,
			"comm: a permutation by mul = %lld among %lld members: two of them would send to the same one",
			(long long)a->mul, (long long)n);
	else if (a->kind != HD_COMM_PERMUTE && a->mul)
		hd_plan_fail(p, HD_EINVAL, "comm: mul = %lld applies only to permutations, but this is %s",
			     (long long)a->mul, hd_comm_kind_name(a->kind));
	else if (a->kind != HD_COMM_PERMUTE && (hd_in_slot(p, "rewrite") || hd_in_slot(p, "vjp")))
		hd_plan_fail(p, HD_EINVAL,
			     "comm: %s in slot %s, where nothing is placed yet: only a permutation is possible there",
			     hd_comm_kind_name(a->kind), p->slot.name);
	else if ((hd_comm_is_all_gather(a->kind) || a->kind == HD_COMM_GATHER) && a->dim &&
		 !hd_has_dim(T(a->x), a->dim) && a->dim->n != n)
		hd_plan_fail(p, HD_EINVAL, "comm: the new dim %s has %lld entries, but there are %lld members",
			     a->dim->name, (long long)a->dim->n, (long long)n);
	else if (a->x->ndim == HD_MAX_DIMS && (hd_comm_is_all_gather(a->kind) || a->kind == HD_COMM_GATHER ||
					       hd_comm_is_reduce_scatter(a->kind) || a->kind == HD_COMM_SCATTER))
		hd_plan_fail(p, HD_EINVAL, "comm: (%s) has %d dims, and a dim over the members must be added",
			     a->x->spec, HD_MAX_DIMS);
	return !p->err->code;
}

static struct tensor *build_comm(struct hd_plan *p, const struct hd_comm_args *a)
{
	struct tensor *y;

	if (a->kind == HD_COMM_PERMUTE)
		return hd_build_permute(p, G(a->group), T(a->x), a->mul, a->index);
	if (a->kind >= HD_COMM_RING_REDUCE_SCATTER && !hd_comm_is_push_or_pull(a->kind) &&
	    p->config.device == HD_DEVICE_CUDA)
		return hd_build_ordered_comm(p, a->kind, G(a->group), T(a->x), a->dim, a->wire);
	y = hd_build_comm(p, a->kind, G(a->group), T(a->x), a->dim, a->index);
	if (y && a->wire)
		hd_comm_set_wire(p, y, a->wire);
	return y;
}

struct hd_tensor *hd_host_comm(struct hd_plan *p, const struct hd_comm_args *args)
{
	struct hd_comm_args a;

	if (!HD_TAKE(p, "comm", &a, args, wire))
		return NULL;
	if (!hd_may_build(p, "comm") || !hd_arg_group(p, "comm", "group", a.group) ||
	    !hd_arg_tensor(p, "comm", "tensor", a.x) || (a.dim && !hd_arg_dim(p, "comm", "dim", a.dim)) ||
	    !hd_arg_in_step(p, "comm", &a.x, 1))
		return NULL;
	if (a.kind < HD_COMM_ALL_REDUCE || a.kind > HD_COMM_PULL)
		return hd_plan_fail(p, HD_EINVAL, "comm: %u is not a kind of collective", a.kind), NULL;
	if (!hd_arg_sums(p, &a) || !hd_arg_wire(p, &a) || !hd_arg_served(p, &a) || !comm_fits(p, &a) ||
	    !is_for_all(p, "comm", G(a.group)))
		return NULL;
	return hd_host_view(build_comm(p, &a));
}

struct hd_tensor *hd_host_reshard(struct hd_plan *p, struct hd_tensor *x, const struct hd_axis *axis,
				  const struct hd_place *to)
{
	struct axis *a = A(axis);

	if (!hd_may_build(p, "reshard") || !hd_arg_tensor(p, "reshard", "tensor", x) ||
	    !hd_arg_axis(p, "reshard", "axis", axis) || hd_place_check(p, "reshard", to, axis, x) < 0 ||
	    !is_for_all(p, "reshard", hd_group_get(p, &a, 1, HD_ROLE_CORE)))
		return NULL;
	return hd_host_view(hd_reshard_step(p, T(x), A(axis), to));
}
