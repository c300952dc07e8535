/* SPDX-License-Identifier: Apache-2.0
 * Creates states for plugins, and assigns the values that states take at the end of a step.
 */
#include <config.h>
#include "engine/host/host_impl.h"
#include "engine/graph/placement.h"
#include <stdlib.h>

static struct hd_tensor *new_state(struct hd_plan *p, const struct hd_state_args *x)
{
	const struct hd_tensor *like = x->like;
	struct tensor *t, *l = T(like);
	char *full;

	full = hd_plan_text(p, "%s.%s.%s", p->inst[p->slot.inst].name, x->name, like->of ? like->of->name : like->name);
	for (size_t i = 0; i < p->ntensors; i++)
		if (p->tensors[i]->v.what == HD_TENSOR_STATE && !strcmp(p->tensors[i]->v.name, full))
			return hd_plan_fail(p, HD_EBUG,
					    "state: there is already a state %s; put the parameter's name into the "
					    "argument name, so that a checkpoint tells them apart",
					    full),
			       NULL;
	t = hd_tensor_new(p, full, HD_TENSOR_STATE, x->dtype, l->dims, l->v.ndim);
	t->v.of = like->what == HD_TENSOR_PARAM ? like : like->of;
	hd_placed_like(t, l);
	memcpy(t->local, l->local, sizeof(t->local));
	t->step = 1;
	t->init = HD_INIT_ZERO;
	t->inst = p->slot.inst + 1;
	t->on_reshard = x->relayout;
	return &t->v;
}

struct hd_tensor *hd_host_state(struct hd_plan *p, const struct hd_state_args *args)
{
	struct hd_state_args x;

	if (!HD_TAKE(p, "state", &x, args, relayout))
		return NULL;
	if (!hd_may_build(p, "state") || !hd_arg_name(p, "state", x.name) ||
	    !hd_arg_tensor(p, "state", "tensor to be like", x.like))
		return NULL;
	if (!hd_dtype_known(x.dtype) || HD_BITS(x.dtype) < 16)
		return hd_plan_fail(p, HD_EINVAL, "state: %s has dtype %#x, which a state cannot have", x.name,
				    x.dtype),
		       NULL;
	if (!hd_args_one_of(p, "state", "relayout", x.relayout, HD_RESHARD_REFUSE))
		return NULL;
	return new_state(p, &x);
}

enum { UNKNOWN, UNSUMMED, SENT }; /* the results of partial_of */

/* Returns UNSUMMED if t depends on terms of a sum along the axis and on no communication, SENT if it depends on
 * communication, or UNKNOWN. The placement of t alone does not tell: until the slot ends, the output of communication
 * has the placement of its input. seen: results by tensor, so that no path is followed twice. */
static int partial_of(const struct hd_tensor *t, int axis, char *seen)
{
	const struct node *n = t->node ? N(t->node) : NULL;
	int terms = 0;

	if (T(t)->at.on[axis].kind != HD_PLACE_PARTIAL)
		return UNKNOWN;
	if (seen[T(t)->id])
		return seen[T(t)->id];
	if (n && (n->is->role == OP_ROLE_COMM || n->is->role == OP_ROLE_RESHARD || n->local))
		return SENT;
	if (!n || n->made_by < 0)
		return UNSUMMED; /* a leaf or a node of the engine: its placement is computed, and so right */
	for (uint32_t i = 0; i < n->v.nin && terms != SENT; i++) {
		int of = partial_of(n->v.ins[i], axis, seen);

		terms = of ? of : terms;
	}
	return seen[T(t)->id] = (char)terms;
}

/* Returns an axis along which each member would store its own term of a sum in a replicated state, or NULL. */
static const struct axis *still_partial(struct hd_plan *p, const struct tensor *state, const struct hd_tensor *value)
{
	const struct axis *found = NULL;

	for (int a = 0; a < p->naxes && !found; a++) {
		char *seen;

		if (state->at.on[a].kind != HD_PLACE_REPLICATED || state->own >> a & 1 || p->axes[a]->v.n < 2 ||
		    T(value)->at.on[a].kind != HD_PLACE_PARTIAL)
			continue;
		seen = hd_alloc(p->ntensors + 1);
		if (partial_of(value, a, seen) == UNSUMMED)
			found = p->axes[a];
		free(seen);
	}
	return found;
}

/* Returns whether the value may be a state's second one: it is computed only in some steps, and the
 * first one in all steps. */
static int is_second(const struct tensor *t, const struct tensor *value)
{
	const struct hd_node *first = t->assign->v.node, *second = value->v.node;

	return second && N(second)->period && (!first || !N(first)->period);
}

static int may_assign(struct hd_plan *p, const struct hd_tensor *state, const struct hd_tensor *value)
{
	const struct tensor *t = T(state), *v = T(value);
	const struct axis *a;

	if (state->node || state->what != HD_TENSOR_STATE || t->inst != p->slot.inst + 1)
		hd_plan_fail(p, HD_EINVAL, "assign: %s (%s) is not a state of this section",
			     *state->name ? state->name : "a tensor", state->spec);
	else if (t->then || (t->assign && !is_second(t, v)))
		hd_plan_fail(p, HD_EINVAL, "assign: %s is already assigned", state->name);
	else if (state->ndim != value->ndim || memcmp(t->dims, v->dims, state->ndim * sizeof(*t->dims)))
		hd_plan_fail(p, HD_EINVAL, "assign: %s is (%s), but the value is (%s)", state->name, state->spec,
			     value->spec);
	else if (state->dtype != value->dtype)
		hd_plan_fail(p, HD_EINVAL, "assign: %s has dtype %#x, but the value has %#x", state->name, state->dtype,
			     value->dtype);
	else if (hd_local_count(t) != hd_local_count(v))
		hd_plan_fail(p, HD_EINVAL, "assign: %s has %lld elements on a rank, but the value has %lld",
			     state->name, (long long)hd_local_count(t), (long long)hd_local_count(v));
	else if ((a = still_partial(p, t, value)))
		hd_plan_fail(p, HD_EINVAL,
			     "assign: the value of state %s is still a partial sum on %s: sum it first, or create the "
			     "state like it",
			     state->name, a->v.name);
	return !p->err->code;
}

/* Returns whether leaves would pass their values round a ring if the state got this one. */
static int closes_ring(const struct tensor *state, const struct tensor *value)
{
	const struct tensor *t = value->assign;

	while (t && t != state && !t->v.node && t->assign != t)
		t = t->assign;
	return t == state;
}

/* A leaf as a value is copied after all nodes have run, in every step. A node computes the value instead where that is
 * too often (every), or where no order of the copies is right (a ring). */
static struct hd_tensor *value_of_node(struct hd_plan *p, const struct hd_tensor *state, struct hd_tensor *value)
{
	struct tensor *v = T(value);

	if (value->node || (!p->cursor.period && !closes_ring(T(state), v)))
		return value;
	if (value->dtype == p->master_dtype)
		return hd_host_map(p, &value, 1, "a");
	v = hd_op1(p, "copy", &v, 1, "%s", "");
	if (v)
		hd_placed_like(v, T(value));
	return hd_host_view(v);
}

int hd_host_assign(struct hd_plan *p, struct hd_tensor *state, struct hd_tensor *value)
{
	if (!hd_may_build(p, "assign") || !hd_arg_tensor(p, "assign", "state", state) ||
	    !hd_arg_tensor(p, "assign", "value", value))
		return p->err->code;
	value = value_of_node(p, state, value);
	if (!value || !may_assign(p, state, value))
		return p->err->code;
	if (T(state)->assign)
		T(state)->then = T(value), T(value)->assigned = 1;
	else
		hd_assign(T(state), T(value));
	return HD_OK;
}
