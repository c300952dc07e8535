/* SPDX-License-Identifier: Apache-2.0
 * Changes that plugins make to the graph: the storage of leaves, replaced tensors, the cursor, and dependencies.
 */
#include <config.h>
#include "engine/host/host_impl.h"
#include "engine/graph/placement.h"

/* Sets a leaf's local sizes to those of its storage at once, because another section may shard what is left. Its
 * placement stays unchanged until all sections have been called. */
static void resize(struct hd_plan *p, struct tensor *leaf)
{
	struct placement was = leaf->at;

	for (int a = 0; a < p->naxes; a++)
		if (leaf->stored >> a & 1)
			leaf->at.on[a] = leaf->storage.on[a];
	hd_localize(p, leaf);
	leaf->at = was;
}

/* Stores a leaf along an axis as `to` says. Sections that were called before may shard the same dim inside this one's
 * pieces. Only now is it known whether theirs are padded, so all storage is computed again. */
static void store_along(struct hd_plan *p, struct tensor *leaf, const struct hd_place *to, const struct axis *along)
{
	leaf->storage.on[along->id] = hd_storage_place(p, leaf, to, along);
	leaf->stored |= 1u << along->id;
	for (int a = 0; a < p->naxes; a++)
		if (leaf->stored >> a & 1)
			leaf->storage.on[a] = hd_storage_place(p, leaf, &leaf->storage.on[a], p->axes[a]);
}

int hd_host_storage(struct hd_plan *p, const struct hd_storage_args *args)
{
	struct hd_storage_args x;

	if (!hd_in_slot(p, "storage"))
		return hd_out_of_turn(p, "storage", "storage");
	if (!HD_TAKE(p, "storage", &x, args, reserved))
		return p->err->code;
	if (!hd_arg_tensor(p, "storage", "leaf", x.leaf) || !hd_arg_axis(p, "storage", "axis", x.axis) ||
	    hd_place_check(p, "storage", x.place, x.axis, x.leaf) < 0)
		return p->err->code;
	if (!hd_host_has_home(T(x.leaf), x.leaf->what))
		return hd_plan_fail(p, HD_EINVAL,
				    "storage: (%s) is computed by %s in each step and has no storage of its own",
				    x.leaf->spec, x.leaf->node->op->name);
	if (x.place->kind == HD_PLACE_PARTIAL && (x.leaf->what != HD_TENSOR_GRAD || x.place->red != HD_RED_SUM))
		return hd_plan_fail(
			p, HD_EINVAL,
			"storage: (%s) as terms along %s: only gradients can be stored so, as terms of a sum",
			x.leaf->spec, x.axis->name);
	if (!hd_args_zero(p, "storage", "reserved", x.reserved) || hd_set_space(p, T(x.leaf), x.space) < 0)
		return p->err->code;
	store_along(p, T(x.leaf), x.place, A(x.axis));
	if (!x.leaf->node && T(x.leaf)->placed)
		resize(p, T(x.leaf));
	return p->err->code;
}

/* Returns whether communication lies between the reshard's input and t. Only the plugin knows which placement its own
 * communication produces. But a complete lack of communication can be detected, by going back from t over the nodes
 * that were built after the reshard. */
static int sends(const struct hd_tensor *t, const struct hd_node *reshard)
{
	if (t == reshard->ins[0] || !t->node)
		return 0;
	if (N(t->node)->is->role == OP_ROLE_COMM || N(t->node)->is->role == OP_ROLE_RESHARD || N(t->node)->local ||
	    N(t->node)->id < N(reshard)->id)
		return 1;
	for (uint32_t i = 0; i < t->node->nin; i++)
		if (sends(t->node->ins[i], reshard))
			return 1;
	return 0;
}

static int unsent(const struct hd_tensor *old, const struct hd_tensor *with)
{
	const struct hd_reshard *r = old->node ? old->node->reshard : NULL;

	return r && r->have.kind == HD_PLACE_PARTIAL && r->need.kind == HD_PLACE_REPLICATED && r->axis->n > 1 &&
	       !sends(with, old->node);
}

/* Refuses, in slot lower, to replace the result of another section's op: the section that built the node lowers it. */
static int may_replace(struct hd_plan *p, const struct hd_tensor *old)
{
	const struct node *n = old->node ? N(old->node) : NULL;

	if (!n || n->inst < 0 || n->inst == p->slot.inst || p->slot.inst < 0 || !hd_in_slot(p, "lower"))
		return 1;
	hd_plan_fail(p, HD_EINVAL, "replace: %s of (%s) is an op of [%s %s], which lowers it itself", n->v.op->name,
		     old->spec, hd_inst_section(&p->inst[n->inst]), p->inst[n->inst].name);
	return 0;
}

int hd_host_may_replace(struct hd_plan *p, struct hd_tensor *old, struct hd_tensor *with)
{
	if (!hd_may_build(p, "replace") || !hd_arg_tensor(p, "replace", "old tensor", old) ||
	    !hd_arg_tensor(p, "replace", "new tensor", with) || !may_replace(p, old))
		return p->err->code;
	if (old->ndim != with->ndim || memcmp(old->dims, with->dims, old->ndim * sizeof(*old->dims)))
		return hd_plan_fail(p, HD_EINVAL, "replace: (%s) is not like (%s)", with->spec, old->spec);
	if (old->dtype != with->dtype)
		return hd_plan_fail(p, HD_EINVAL,
				    "replace: (%s) has elements of %u bits (dtype %#x) instead of %u (dtype %#x)",
				    with->spec, HD_BITS(with->dtype), with->dtype, HD_BITS(old->dtype), old->dtype);
	if (unsent(old, with))
		return hd_plan_fail(
			p, HD_EINVAL,
			"replace: (%s) is still a partial sum on %s: no communication lies between it and the input "
			"of the reshard",
			with->spec, N(old->node)->reshard.axis->name);
	for (uint32_t i = 0; i < old->ndim; i++)
		if (old->local[i] != with->local[i])
			return hd_plan_fail(p, HD_EINVAL, "replace: %s has %lld elements instead of %lld",
					    old->dims[i]->name, (long long)with->local[i], (long long)old->local[i]);
	return HD_OK;
}

int hd_host_replace(struct hd_plan *p, struct hd_tensor *old, struct hd_tensor *with)
{
	HD_TRY(hd_host_may_replace(p, old, with));
	if (old == with)
		return HD_OK;
	if (T(old)->placed)
		hd_placed_like(T(with), T(old));
	hd_replace(p, T(old), T(with));
	return HD_OK;
}

/* Returns the reason for nodes that are built at n. If a plugin replaces a node that is not a movement, the
 * reason is that node. */
static char *reason_of(struct hd_plan *p, const struct node *n)
{
	const char *of = n->v.block[0] ? " of " : "";

	if (n->reason || !hd_in_slot(p, "lower") || n->v.nin < 2 || !n->v.nout)
		return n->reason;
	return hd_plan_text(p, "%s%s%s: (%s) and (%s) make (%s)", n->v.op->name, of, n->v.block, n->ins[0]->spec,
			    n->ins[1]->spec, n->outs[0]->spec);
}

int hd_host_cursor(struct hd_plan *p, const struct hd_cursor_args *args)
{
	struct hd_cursor_args x;

	if (!HD_TAKE(p, "cursor", &x, args, queue))
		return p->err->code;
	if (!hd_may_build(p, "cursor") || !hd_arg_node(p, "cursor", "anchor", x.anchor) ||
	    (x.queue && !hd_arg_group(p, "cursor", "queue", x.queue)))
		return p->err->code;
	p->cursor = (struct cursor){ .before = N(x.anchor),
				     .phase = x.anchor->phase,
				     .block = N(x.anchor)->block,
				     .queue = x.queue ? G(x.queue) : NULL,
				     .reason = reason_of(p, N(x.anchor)),
				     .period = N(x.anchor)->period };
	return HD_OK;
}

/* Makes the node of t wait for that of u. Nodes start in program order, so only the order in which they were built is
 * possible. Nodes of sync run as soon as they are ready, so there the dependency must be stated. */
int hd_host_after(struct hd_plan *p, struct hd_tensor *t, const struct hd_tensor *u)
{
	struct dependency *w;

	if (!hd_may_build(p, "after") || !hd_arg_tensor(p, "after", "tensor", t) ||
	    !hd_arg_tensor(p, "after", "tensor that it is to wait for", u))
		return p->err->code;
	if (!t->node || !u->node)
		return p->err->code;
	if (t->node == u->node)
		return hd_plan_fail(p, HD_EINVAL, "after: %s of (%s) would wait for itself", t->node->op->name,
				    t->spec);
	if (hd_node_precedes(p, N(t->node), N(u->node)))
		return hd_plan_fail(p, HD_EINVAL,
				    "after: %s of (%s) was built before %s of (%s), which it is to wait for",
				    t->node->op->name, t->spec, u->node->op->name, u->spec);
	w = hd_plan_alloc(p, sizeof(*w));
	*w = (struct dependency){ N(t->node)->waits, T(u) };
	N(t->node)->waits = w;
	return HD_OK;
}
