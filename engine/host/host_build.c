/* SPDX-License-Identifier: Apache-2.0
 * Builders that only plugins need: tensors without inputs, selection by index, initial values of states, and nodes
 * that run only in some steps.
 */
#include <config.h>
#include "engine/base/rng.h"
#include "engine/ops/movement.h"
#include "engine/host/host_impl.h"

static int may_make(struct hd_plan *p, const char *call, const struct hd_dim *const *dims, uint32_t ndim)
{
	if (!hd_may_build(p, call))
		return 0;
	if (ndim > HD_MAX_DIMS || (ndim && !dims)) {
		hd_plan_fail(p, HD_EINVAL, "%s: %u dims%s, not 0 to %d", call, ndim, dims ? "" : " at NULL",
			     HD_MAX_DIMS);
		return 0;
	}
	for (uint32_t i = 0; i < ndim; i++)
		if (!hd_arg_dim(p, call, "dim", dims[i]))
			return 0;
	return 1;
}

static int may_index(struct hd_plan *p, const char *call, const struct hd_tensor *x, const struct hd_tensor *index,
		     const struct hd_dim *a, const struct hd_dim *b)
{
	return hd_may_build(p, call) && hd_arg_tensor(p, call, "tensor", x) &&
	       (!index || hd_arg_tensor(p, call, "index", index)) && hd_arg_dim(p, call, "dim", a) &&
	       hd_arg_dim(p, call, "dim", b);
}

struct hd_tensor *hd_host_scalar(struct hd_plan *p, uint32_t what, const struct hd_group *g)
{
	if (!hd_may_build(p, "scalar") || (g && !hd_arg_group(p, "scalar", "group", g)))
		return NULL;
	return hd_host_view(hd_build_scalar(p, what, G(g)));
}

struct hd_tensor *hd_host_constant(struct hd_plan *p, const struct hd_dim *const *dims, uint32_t ndim, double value)
{
	if (!may_make(p, "constant", dims, ndim))
		return NULL;
	return hd_host_view(hd_build_made(p, "constant", dims, ndim, hd_plan_text(p, "value=%.17g", value)));
}

struct hd_tensor *hd_host_iota(struct hd_plan *p, const struct hd_dim *const *dims, uint32_t ndim,
			       const struct hd_dim *along)
{
	uint32_t at = 0;

	if (!may_make(p, "iota", dims, ndim))
		return NULL;
	while (at < ndim && dims[at] != along)
		at++;
	if (at == ndim)
		return hd_plan_fail(p, HD_EINVAL, "iota: %s is not one of its %u dims", along ? along->name : "NULL",
				    ndim),
		       NULL;
	return hd_host_view(hd_build_made(p, "iota", dims, ndim, hd_plan_text(p, "along=%u", at)));
}

struct hd_tensor *hd_host_random(struct hd_plan *p, const struct hd_dim *const *dims, uint32_t ndim, const char *name,
				 int32_t each_step)
{
	const char *full =
		hd_plan_text(p, "%s.%s", p->slot.inst >= 0 ? p->inst[p->slot.inst].name : "", name ? name : "");

	if (!may_make(p, "random", dims, ndim) || !hd_arg_name(p, "random", name))
		return NULL;
	return hd_host_view(hd_build_made(p, "uniform", dims, ndim,
					  hd_plan_text(p, "key=%lld each_step=%d", (long long)(hd_hash_text(full) >> 1),
						       each_step != 0)));
}

int hd_host_topk(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *along, const struct hd_dim *k,
		 int32_t magnitude, struct hd_tensor **values, struct hd_tensor **index)
{
	struct node *n = NULL;

	if (!values || !index)
		return hd_plan_fail(p, HD_EBUG, "topk: the pointer for the %s is NULL", values ? "indices" : "values");
	if (may_index(p, "topk", x, NULL, along, k))
		n = hd_build_topk(p, T(x), along, k, magnitude != 0);
	*values = n ? &n->outs[0]->v : NULL;
	*index = n ? &n->outs[1]->v : NULL;
	return p->err->code;
}

struct hd_tensor *hd_host_take(struct hd_plan *p, struct hd_tensor *x, struct hd_tensor *index,
			       const struct hd_dim *along)
{
	if (!may_index(p, "gather", x, index, along, along) || !hd_arg_tensor(p, "gather", "index", index))
		return NULL;
	return hd_host_view(hd_build_gather(p, T(x), T(index), along));
}

struct hd_tensor *hd_host_put(struct hd_plan *p, struct hd_tensor *x, struct hd_tensor *index,
			      const struct hd_dim *from, const struct hd_dim *to, int32_t unique)
{
	if (!may_index(p, "scatter", x, index, from, to) || !hd_arg_tensor(p, "scatter", "index", index))
		return NULL;
	return hd_host_view(hd_build_scatter(p, T(x), T(index), from, to, unique != 0));
}

int hd_host_initial(struct hd_plan *p, struct hd_tensor *state, uint32_t how, double value)
{
	static const int kinds[] = { HD_INIT_VALUE, HD_INIT_NORMAL, HD_INIT_PARAMETER };
	const struct tensor *of;

	if (!hd_may_build(p, "initial") || !hd_arg_tensor(p, "initial", "state", state))
		return p->err->code;
	if (state->node || state->what != HD_TENSOR_STATE || T(state)->inst != p->slot.inst + 1)
		return hd_plan_fail(p, HD_EBUG, "initial: %s (%s) is not a state of this section",
				    *state->name ? state->name : "a tensor", state->spec);
	if (how >= HD_LEN(kinds))
		return hd_plan_fail(p, HD_EINVAL, "initial: for %s, %u is not one of the %zu ways to begin",
				    state->name, how, HD_LEN(kinds));
	of = state->of ? T(state->of) : NULL;
	if (how == HD_INITIAL_PARAMETER &&
	    (!of || of->v.ndim != state->ndim || memcmp(of->dims, T(state)->dims, of->v.ndim * sizeof(of->dims[0]))))
		return hd_plan_fail(p, HD_EINVAL, "initial: %s (%s) cannot begin as %s (%s)", state->name, state->spec,
				    of ? of->v.name : "a parameter", of ? of->spec : "none");
	T(state)->init = kinds[how];
	T(state)->init_std = value;
	return HD_OK;
}

struct hd_tensor *hd_host_rename(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *from,
				 const struct hd_dim *to)
{
	if (!may_index(p, "rename", x, NULL, from, to))
		return NULL;
	return hd_host_view(hd_build_rename(p, T(x), from, to));
}

int hd_host_replace_in(struct hd_plan *p, struct hd_node *reader, struct hd_tensor *old, struct hd_tensor *with)
{
	int found = 0;

	HD_TRY(hd_host_may_replace(p, old, with));
	if (!hd_arg_node(p, "replace_in", "reader", reader))
		return p->err->code;
	for (uint32_t i = 0; i < reader->nin; i++)
		if (reader->ins[i] == old) {
			hd_set_input(p, N(reader), i, T(with));
			found = 1;
		}
	if (!found)
		return hd_plan_fail(p, HD_EINVAL, "replace_in: %s does not read %s (%s)", reader->op->name, old->name,
				    old->spec);
	if (T(old)->placed)
		T(with)->at = T(old)->at;
	return HD_OK;
}

struct hd_tensor *hd_host_updated(struct hd_plan *p, struct hd_tensor *leaf)
{
	if (!hd_may_build(p, "updated") || !hd_arg_tensor(p, "updated", "leaf", leaf))
		return NULL;
	if (leaf->node)
		return hd_plan_fail(p, HD_EBUG, "updated: (%s) is not a leaf", leaf->spec), NULL;
	return T(leaf)->assign ? &T(leaf)->assign->v : NULL;
}

int hd_host_every(struct hd_plan *p, int64_t steps)
{
	struct cursor was;

	if (!hd_may_build(p, "every"))
		return p->err->code;
	if (steps < 1)
		return hd_plan_fail(p, HD_EINVAL, "every: %lld steps, at least 1", (long long)steps);
	if (p->cursor.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W))
		return hd_plan_fail(p, HD_ENOTSUP, "every: %lld steps: nodes of a micro-batch run in every step",
				    (long long)steps);
	was = p->cursor;
	p->cursor = (struct cursor){ .before = was.before,
				     .phase = was.phase,
				     .block = was.block,
				     .queue = was.queue,
				     .reason = was.reason,
				     .only = was.only,
				     .period = steps > 1 ? steps : 0 };
	return HD_OK;
}

struct hd_tensor *hd_host_local(struct hd_plan *p, struct hd_tensor *x, const struct hd_axis *axis)
{
	const struct hd_place *at;

	if (!hd_may_build(p, "local") || !hd_arg_tensor(p, "local", "tensor", x) ||
	    !hd_arg_axis(p, "local", "axis", axis))
		return NULL;
	at = &T(x)->at.on[A(axis)->id];
	if (!hd_in_slot(p, "lower") || at->kind != HD_PLACE_PARTIAL || at->red != HD_RED_SUM)
		return hd_plan_fail(p, HD_EINVAL, "local: (%s) is not a term of a sum along %s in slot lower", x->spec,
				    axis->name),
		       NULL;
	return hd_host_view(hd_build_local(p, T(x), A(axis)));
}

int hd_host_own(struct hd_plan *p, struct hd_tensor *state, const struct hd_axis *axis, uint32_t relayout)
{
	struct tensor *t = T(state);

	if (!hd_may_build(p, "own") || !hd_arg_tensor(p, "own", "state", state) || !hd_arg_axis(p, "own", "axis", axis))
		return p->err->code;
	if (state->node || state->what != HD_TENSOR_STATE || !hd_in_slot(p, "lower"))
		return hd_plan_fail(p, HD_EINVAL, "own: %s (%s) is not a state in slot lower",
				    *state->name ? state->name : "a tensor", state->spec);
	if (relayout != HD_RESHARD_ZERO && relayout != HD_RESHARD_REFUSE)
		return hd_plan_fail(p, HD_EINVAL,
				    "own: relayout %u of %s: values that each member owns are not terms of a sum",
				    relayout, state->name);
	if (t->at.on[A(axis)->id].kind != HD_PLACE_REPLICATED)
		return hd_plan_fail(p, HD_EINVAL, "own: %s (%s) is not replicated along %s: its members already differ",
				    state->name, state->spec, axis->name);
	t->own |= 1u << A(axis)->id;
	t->on_reshard = relayout;
	return HD_OK;
}

/* -- pieces -------------------------------------------------------------------------------------------------------- */
#define MOST_PIECES (1 << 20)

static int pieces_fit(struct hd_plan *p, const char *call, struct hd_tensor *const *xs,
		      const struct hd_dim *const *dims, uint32_t n, int64_t parts)
{
	if (!hd_arg_tensors(p, call, xs, n, 1, MOST_PIECES))
		return 0;
	if (!dims)
		return hd_plan_fail(p, HD_EBUG, "%s: the dims are NULL", call), 0;
	for (uint32_t i = 0; i < n; i++)
		if (!hd_arg_dim(p, call, "dim", dims[i]))
			return 0;
	if (parts < 1 || parts > MOST_PIECES)
		return hd_plan_fail(p, HD_EINVAL, "%s: %lld pieces, not 1 to %d", call, (long long)parts, MOST_PIECES),
		       0;
	return 1;
}

struct hd_tensor *hd_host_pack_pieces(struct hd_plan *p, struct hd_tensor *const *xs, const struct hd_dim *const *dims,
				      uint32_t n, int64_t parts)
{
	if (!hd_may_build_pieces(p, "pack_pieces") || !pieces_fit(p, "pack_pieces", xs, dims, n, parts) ||
	    !hd_arg_in_step(p, "pack_pieces", xs, n))
		return NULL;
	return hd_host_view(hd_build_pack_pieces(p, (struct tensor *const *)xs, dims, n, parts));
}

int hd_host_unpack_pieces(struct hd_plan *p, struct hd_tensor *flat, struct hd_tensor *const *like,
			  const struct hd_dim *const *dims, uint32_t n, int64_t parts, struct hd_tensor **out)
{
	if (!hd_may_build_pieces(p, "unpack_pieces") || !hd_arg_tensor(p, "unpack_pieces", "flat tensor", flat) ||
	    !pieces_fit(p, "unpack_pieces", like, dims, n, parts) || !hd_arg_in_step(p, "unpack_pieces", &flat, 1))
		return p->err->code;
	if (!out)
		return hd_plan_fail(p, HD_EBUG, "unpack_pieces: the array for the results is NULL");
	return hd_build_unpack_pieces(p, T(flat), (struct tensor *const *)like, dims, n, parts, (struct tensor **)out);
}
