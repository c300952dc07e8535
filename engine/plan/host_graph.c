/* SPDX-License-Identifier: Apache-2.0
 * What plugins read of the graph and change in it: struct hd_graph_api (heddle/graph.h), and what ops of theirs record.
 */
#include <config.h>
#include "engine/plan/host_impl.h"
#include "engine/device/call.h"
#include "engine/graph/placement.h"
#include "engine/ops/movement.h"
#include "engine/ops/record.h"
#include "engine/device/device.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- graph: read ------------------------------------------------------------------------------------------------------------ */
/* A plugin's op in a node of another section is lowered there: two sections of one plugin share the op, not the nodes. */
static int owner_matches(const struct node *n, uint32_t flags)
{
	if (flags & HD_MATCH_MINE)
		return n->inst >= 0 && n->inst == n->plan->slot.inst;
	return n->inst < 0 || n->inst == n->plan->slot.inst || n->plan->slot.inst < 0 || flags & HD_MATCH_OTHERS;
}

/* "key=value" among "key=value key=value ..." */
static int has_attr(const char *attr, const char *one)
{
	size_t n = strlen(one);

	for (const char *at = attr; (at = strstr(at, one)); at++)
		if ((at == attr || at[-1] == ' ') && (!at[n] || at[n] == ' '))
			return 1;
	return 0;
}

static int reads(const struct node *n, const struct hd_tensor *t)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (n->v.ins[i] == t)
			return 1;
	return 0;
}

enum { MANY = 1 << 20 }; /* inputs of join, pick, pack */

/* Nobody reads it any more, though it stands in the list until the slot's end. */
static int is_replaced(const struct node *n)
{
	uint32_t k = 0;

	while (k < n->v.nout && n->outs[k]->replaced_by)
		k++;
	return n->v.nout && k == n->v.nout;
}

static int matches(const struct node *n, const struct hd_match *m)
{
	if (is_replaced(n))
		return 0;
	if (m->op && n->v.op != m->op)
		return 0;
	if (m->kind && strcmp(m->kind, n->v.kind))
		return 0;
	if (m->axis && (!n->v.reshard || n->v.reshard->axis != m->axis))
		return 0;
	if (!owner_matches(n, m->flags) || (m->attr && !has_attr(n->attr, m->attr)) ||
	    (m->reads && !reads(n, m->reads)))
		return 0;
	return !m->phases || n->v.phase & m->phases;
}

/* The walk that prev was the last node of.  Of several that stand there, the one with this match, or the innermost. */
static size_t walk_of(struct hd_plan *p, const struct node *prev, const struct hd_match *m)
{
	size_t found = p->nwalks;

	for (size_t i = 0; prev && i < p->nwalks; i++)
		if (p->walks[i].at == prev && (found == p->nwalks || p->walks[i].by == m || p->walks[found].by != m))
			found = i;
	if (found < p->nwalks)
		return found;
	p->walks = hd_grow(p->walks, p->nwalks, &p->cap_walks, sizeof(*p->walks));
	p->walks[p->nwalks] = (struct node_walk){ m, prev, p->nnodes };
	return p->nwalks++;
}

static struct hd_node *graph_node_next(struct hd_plan *p, struct hd_node *prev, const struct hd_match *m)
{
	struct hd_match x;
	struct node *n;
	size_t w;

	if (!HD_TAKE(p, "node_next", &x, m, reads) ||
	    !hd_args_flags(p, "node_next", "flags", x.flags, HD_MATCH_OTHERS | HD_MATCH_MINE) ||
	    !hd_args_flags(p, "node_next", "phases", x.phases, 63))
		return NULL;
	if ((prev && !hd_arg_node(p, "node_next", "node before", prev)) ||
	    (x.axis && !hd_arg_axis(p, "node_next", "axis", x.axis)) ||
	    (x.reads && !hd_arg_tensor(p, "node_next", "tensor that is read", x.reads)))
		return NULL;
	w = walk_of(p, prev ? N(prev) : NULL, m);
	for (n = prev ? N(prev)->next : p->first; n; n = n->next)
		if (n->id < p->walks[w].limit && matches(n, &x)) {
			p->walks[w].at = n;
			return &n->v;
		}
	for (p->nwalks--; w < p->nwalks; w++)
		p->walks[w] = p->walks[w + 1];
	return NULL;
}

/* A parameter's gradients have homes too: where contributions are added up, and where the update reads their sum. */
static int has_home(const struct tensor *t, uint32_t what)
{
	return !t->v.node || (what == HD_TENSOR_GRAD && t->v.of &&
			      (N(t->v.node)->is->role == OP_ROLE_ACCUMULATE || N(t->v.node)->is->role == OP_ROLE_SYNC));
}

static struct hd_tensor *graph_leaf_next(struct hd_plan *p, struct hd_tensor *prev, uint32_t what)
{
	if (!hd_args_one_of(p, "leaf_next", "what", what, HD_TENSOR_MASTER) ||
	    (prev && !hd_arg_tensor(p, "leaf_next", "leaf before", prev)))
		return NULL;
	for (size_t i = prev ? (size_t)T(prev)->id + 1 : 0; i < p->ntensors; i++) {
		struct tensor *t = p->tensors[i];

		if (t->v.what == what && has_home(t, what) && !t->source)
			return &t->v;
	}
	return NULL;
}

static const struct hd_place *graph_place(struct hd_plan *p, const struct hd_tensor *t, const struct hd_axis *axis)
{
	static const struct hd_place whole;

	if (!t || !axis || !hd_arg_tensor(p, "place", "tensor", t) || !hd_arg_axis(p, "place", "axis", axis))
		return &whole;
	if (t->what == HD_TENSOR_GRAD && !T(t)->placed && t->of && !(T(t)->stored >> A(axis)->id & 1))
		t = t->of;
	return T(t)->stored >> A(axis)->id & 1 ? &T(t)->storage.on[A(axis)->id] : &T(t)->at.on[A(axis)->id];
}

static double graph_attr(const char *attr, const char *key, double otherwise)
{
	return attr && key ? hd_attr_num(attr, key, otherwise) : otherwise; /* there is no plan that could fail */
}

static uint32_t graph_attr_dims(struct hd_plan *p, const char *attr, const char *key, const struct hd_dim **dims)
{
	const char *text = attr && key && dims ? hd_attr_text(attr, key) : NULL;

	if (!attr || !key || !dims)
		return (uint32_t)(hd_plan_fail(p, HD_EBUG, "attr_dims: the %s NULL",
					       !attr ? "attributes are"
					       : key ? "array is"
						     : "key is"),
				  0);
	return text ? hd_parse_dims(p, text, dims) : 0;
}

/* -- graph: change ---------------------------------------------------------------------------------------------------------- */
/* The local sizes of a leaf are those of its home at once: another section may cut what is left.  Where it is stays as it is
 * until all have spoken. */
static void resize(struct hd_plan *p, struct tensor *leaf)
{
	struct placement was = leaf->at;

	for (int a = 0; a < p->naxes; a++)
		if (leaf->stored >> a & 1)
			leaf->at.on[a] = leaf->storage.on[a];
	hd_localize(p, leaf);
	leaf->at = was;
}

static int graph_storage(struct hd_plan *p, const struct hd_storage_args *args)
{
	struct hd_storage_args x;

	if (!hd_in_slot(p, "storage"))
		return hd_out_of_turn(p, "storage", "storage");
	if (!HD_TAKE(p, "storage", &x, args, reserved))
		return p->err->code;
	if (!hd_arg_tensor(p, "storage", "leaf", x.leaf) || !hd_arg_axis(p, "storage", "axis", x.axis) ||
	    hd_place_check(p, "storage", x.place, x.axis, x.leaf) < 0)
		return p->err->code;
	if (!has_home(T(x.leaf), x.leaf->what))
		return hd_plan_fail(p, HD_EINVAL,
				    "storage: (%s) is made by %s in each step and has no storage of its own",
				    x.leaf->spec, x.leaf->node->op->name);
	if (!hd_args_zero(p, "storage", "reserved", x.reserved) || hd_set_space(p, T(x.leaf), x.space) < 0)
		return p->err->code;
	T(x.leaf)->storage.on[A(x.axis)->id] = hd_storage_place(p, T(x.leaf), x.place, A(x.axis));
	T(x.leaf)->stored |= 1u << A(x.axis)->id;
	if (!x.leaf->node && T(x.leaf)->placed)
		resize(p, T(x.leaf));
	return p->err->code;
}

/* Placement after a plugin's own communication is the plugin's word.  That there is none at all can be seen, from `t` back
 * to what the reshard has, over the nodes that were made after the reshard. */
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

/* A plugin's op is lowered by the section that it is of. */
static int may_replace(struct hd_plan *p, const struct hd_tensor *old)
{
	const struct node *n = old->node ? N(old->node) : NULL;

	if (!n || n->inst < 0 || n->inst == p->slot.inst || p->slot.inst < 0 || !hd_in_slot(p, "lower"))
		return 1;
	hd_plan_fail(p, HD_EINVAL, "replace: %s of (%s) is an op of [strategy %s], which lowers it itself",
		     n->v.op->name, old->spec, p->inst[n->inst].name);
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
		return hd_plan_fail(p, HD_EINVAL,
				    "replace: (%s) is still a partial sum on %s: no communication lies between it and "
				    "the tensor that the reshard has",
				    with->spec, N(old->node)->reshard.axis->name);
	for (uint32_t i = 0; i < old->ndim; i++)
		if (old->local[i] != with->local[i])
			return hd_plan_fail(p, HD_EINVAL, "replace: %s has %lld elements instead of %lld",
					    old->dims[i]->name, (long long)with->local[i], (long long)old->local[i]);
	return HD_OK;
}

static int graph_replace(struct hd_plan *p, struct hd_tensor *old, struct hd_tensor *with)
{
	HD_TRY(hd_host_may_replace(p, old, with));
	if (old == with)
		return HD_OK;
	if (T(old)->placed)
		hd_placed_like(T(with), T(old));
	hd_replace(p, T(old), T(with));
	return HD_OK;
}

/* That node, where a plugin puts something in place of a node that is no movement. */
static char *reason_of(struct hd_plan *p, const struct node *n)
{
	const char *of = n->v.block[0] ? " of " : "";

	if (n->reason || !hd_in_slot(p, "lower") || n->v.nin < 2 || !n->v.nout)
		return n->reason;
	return hd_plan_text(p, "%s%s%s: (%s) and (%s) make (%s)", n->v.op->name, of, n->v.block, n->ins[0]->spec,
			    n->ins[1]->spec, n->outs[0]->spec);
}

static int graph_cursor(struct hd_plan *p, const struct hd_cursor_args *args)
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

/* Program order is the order of start: an order that the nodes were not built in cannot be had.  Sync runs as it becomes
 * ready, so there it must be said. */
static int graph_after(struct hd_plan *p, struct hd_tensor *t, const struct hd_tensor *u)
{
	struct dependency *w;

	if (!hd_may_build(p, "after") || !hd_arg_tensor(p, "after", "tensor", t) ||
	    !hd_arg_tensor(p, "after", "tensor that it is to wait for", u))
		return p->err->code;
	if (!t->node || !u->node)
		return p->err->code;
	if (hd_node_precedes(p, N(t->node), N(u->node)))
		return hd_plan_fail(p, HD_EINVAL,
				    "after: %s of (%s) was built before %s of (%s), which it is to wait for",
				    t->node->op->name, t->spec, u->node->op->name, u->spec);
	w = hd_plan_alloc(p, sizeof(*w));
	*w = (struct dependency){ N(t->node)->waits, T(u) };
	N(t->node)->waits = w;
	return HD_OK;
}

/* -- graph: build ------------------------------------------------------------------------------------------------------------ */
static const struct hd_op *graph_op(struct hd_plan *p, const char *name)
{
	const struct op *op = name ? hd_op_find(name) : NULL;

	if (!name)
		hd_plan_fail(p, HD_EBUG, "op: the name is NULL");
	return op ? &op->v : NULL;
}

/* In slot lower a new tensor is where its first input is. */
static struct hd_tensor *placed_like(struct tensor *y, struct tensor *like)
{
	if (!y)
		return NULL;
	hd_placed_like(y, like);
	return &y->v;
}

static struct hd_node *graph_node(struct hd_plan *p, const struct hd_op *op, struct hd_tensor *const *ins, uint32_t nin,
				  const char *attr, ...)
{
	const char *text = "";
	va_list v;
	struct node *n;

	va_start(v, attr);
	if (attr)
		text = hd_plan_vtext(p, attr, v);
	va_end(v);
	if (!hd_may_build(p, "node") || !hd_arg_op(p, op, ins, nin) || !hd_arg_in_step(p, op->name, ins, nin))
		return NULL;
	n = hd_node_new(p, op, hd_op_traits(op), (struct tensor *const *)ins, nin, text);
	for (uint32_t k = 0; n && nin && k < n->v.nout; k++)
		placed_like(n->outs[k], T(ins[0]));
	return n ? &n->v : NULL;
}

static struct hd_tensor *graph_einsum(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin,
				      const struct hd_dim *const *dims, uint32_t ndim)
{
	const char *spec = "out=";
	struct tensor *t[2];

	if (!hd_may_build(p, "einsum") || !hd_arg_tensors(p, "einsum", ins, nin, 1, 2) ||
	    !hd_arg_in_step(p, "einsum", ins, nin))
		return NULL;
	if (ndim > HD_MAX_DIMS || (ndim && !dims))
		return hd_plan_fail(p, HD_EINVAL, "einsum: %u dims of the result, not 0 to %d", ndim, HD_MAX_DIMS),
		       NULL;
	for (uint32_t i = 0; i < ndim; i++) {
		if (!hd_arg_dim(p, "einsum", "dim", dims[i]))
			return NULL;
		if (!hd_has_dim(T(ins[0]), dims[i]) && !hd_has_dim(T(ins[nin - 1]), dims[i]))
			return hd_plan_fail(p, HD_EINVAL, "einsum: no input has the dim %s of the result",
					    dims[i]->name),
			       NULL;
		spec = hd_plan_text(p, "%s%s%s", spec, i ? "," : "", dims[i]->name);
	}
	t[0] = T(ins[0]);
	t[1] = T(ins[nin - 1]);
	return placed_like(hd_op1(p, nin == 2 ? "einsum" : "sum", t, nin, "%s", spec), t[0]);
}

static struct hd_tensor *graph_map(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin, const char *expr, ...)
{
	const char *text;
	va_list v;

	if (!hd_may_build(p, "map") || !hd_arg_tensors(p, "map", ins, nin, 1, HD_MAX_INS) ||
	    !hd_arg_in_step(p, "map", ins, nin))
		return NULL;
	if (!expr)
		return hd_plan_fail(p, HD_EBUG, "map: the text is NULL"), NULL;
	va_start(v, expr);
	text = hd_plan_vtext(p, expr, v);
	va_end(v);
	return placed_like(hd_map_new(p, (struct tensor *const *)ins, nin, text), T(ins[0]));
}

static struct hd_tensor *graph_cast(struct hd_plan *p, struct hd_tensor *x, uint32_t dtype)
{
	struct tensor *t = T(x);

	if (!hd_may_build(p, "cast") || !hd_arg_tensor(p, "cast", "tensor", x) || !hd_arg_in_step(p, "cast", &x, 1))
		return NULL;
	if (!hd_dtype_known(dtype))
		return hd_plan_fail(p, HD_EINVAL, "cast: %#x is not a dtype", dtype), NULL;
	return placed_like(hd_op1(p, "cast", &t, 1, "dtype=%u", dtype), t);
}

static struct hd_tensor *view(struct tensor *t)
{
	return t ? &t->v : NULL;
}

static struct hd_tensor *graph_chunk(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *dim, int64_t parts,
				     const struct hd_pos *at)
{
	if (!hd_may_build(p, "chunk") || !hd_arg_tensor(p, "chunk", "tensor", x) ||
	    !hd_arg_dim(p, "chunk", "dim", dim) || !hd_arg_pos(p, "chunk", at) || !hd_arg_in_step(p, "chunk", &x, 1))
		return NULL;
	if (parts < 1)
		return hd_plan_fail(p, HD_EINVAL, "chunk: %lld parts of %s", (long long)parts, dim->name), NULL;
	return view(hd_build_chunk(p, T(x), dim, parts, at));
}

/* Pieces of one tensor: equal dims, sizes and dtypes. */
static int pieces_alike(struct hd_plan *p, const char *call, struct hd_tensor *const *xs, uint32_t n)
{
	if (!hd_arg_tensors(p, call, xs, n, 1, MANY))
		return 0;
	for (uint32_t i = 1; i < n; i++)
		if (xs[i]->ndim != xs[0]->ndim || xs[i]->dtype != xs[0]->dtype ||
		    memcmp(xs[i]->dims, xs[0]->dims, xs[0]->ndim * sizeof(*xs[0]->dims)) ||
		    memcmp(xs[i]->local, xs[0]->local, xs[0]->ndim * sizeof(*xs[0]->local))) {
			hd_plan_fail(
				p, HD_EINVAL,
				"%s: input %u (%s) of %lld elements of %u bits is not like input 0 (%s) of %lld of %u",
				call, i, xs[i]->spec, (long long)hd_local_count(T(xs[i])), HD_BITS(xs[i]->dtype),
				xs[0]->spec, (long long)hd_local_count(T(xs[0])), HD_BITS(xs[0]->dtype));
			return 0;
		}
	return 1;
}

static struct hd_tensor *graph_join(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n,
				    const struct hd_dim *dim, const struct hd_pos *at)
{
	if (!hd_may_build(p, "join") || !hd_arg_dim(p, "join", "dim", dim) || !pieces_alike(p, "join", xs, n) ||
	    (at && !hd_arg_pos(p, "join", at)) || !hd_arg_in_step(p, "join", xs, n))
		return NULL;
	return view(hd_build_join(p, (struct tensor *const *)xs, n, dim, at));
}

static struct hd_tensor *graph_pick(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, const struct hd_pos *at)
{
	if (!hd_may_build(p, "pick") || !pieces_alike(p, "pick", xs, n) || !hd_arg_pos(p, "pick", at) ||
	    !hd_arg_in_step(p, "pick", xs, n))
		return NULL;
	return view(hd_build_pick(p, (struct tensor *const *)xs, n, at));
}

/* The members are few or many, but there are some and some are not, so that a node is on no rank by mistake. */
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

static int graph_only(struct hd_plan *p, const struct hd_members *who)
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

/* With no `yes` and `no` that are alike, a rank would read past the end of the one that it chooses. */
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

static struct hd_tensor *graph_either(struct hd_plan *p, const struct hd_members *who, struct hd_tensor *yes,
				      struct hd_tensor *no)
{
	if (!hd_may_build(p, "either") || !hd_arg_tensor(p, "either", "tensor of the members", yes) ||
	    !hd_arg_tensor(p, "either", "tensor of the others", no))
		return NULL;
	if (!who || !are_members(p, "either", who))
		return hd_plan_fail(p, HD_EBUG, "either: the members are NULL"), NULL;
	return alike(p, yes, no) ? view(hd_build_either(p, who, T(yes), T(no))) : NULL;
}

/* Communication that some members alone begin waits for ever. */
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

static struct hd_tensor *graph_pack(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, int64_t multiple)
{
	if (!hd_may_build(p, "pack") || !hd_arg_tensors(p, "pack", xs, n, 1, MANY) || !hd_arg_in_step(p, "pack", xs, n))
		return NULL;
	if (multiple > 1 << 24)
		return hd_plan_fail(p, HD_EINVAL, "pack: a multiple of %lld, more than %d", (long long)multiple,
				    1 << 24),
		       NULL;
	return view(hd_build_pack(p, (struct tensor *const *)xs, n, multiple));
}

static int graph_unpack(struct hd_plan *p, struct hd_tensor *flat, struct hd_tensor *const *like, uint32_t n,
			struct hd_tensor **out)
{
	if (!hd_may_build(p, "unpack") || !hd_arg_tensor(p, "unpack", "flat tensor", flat) ||
	    !hd_arg_tensors(p, "unpack", like, n, 0, MANY) || !hd_arg_in_step(p, "unpack", &flat, 1))
		return p->err->code;
	if (n && !out)
		return hd_plan_fail(p, HD_EBUG, "unpack: the array for the results is NULL");
	return hd_build_unpack(p, T(flat), (struct tensor *const *)like, n, (struct tensor **)out);
}

/* Root and shift are of members; a dim that is made new has one entry a member, and there is room for it. */
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
		hd_plan_fail(p, HD_EINVAL,
			     "comm: a permutation by mul = %lld among %lld members: two of them would go to one",
			     (long long)a->mul, (long long)n);
	else if (a->kind != HD_COMM_PERMUTE && a->mul)
		hd_plan_fail(p, HD_EINVAL, "comm: mul = %lld is of permutations, and this is %s", (long long)a->mul,
			     hd_comm_kind_name(a->kind));
	else if (a->kind != HD_COMM_PERMUTE && (hd_in_slot(p, "rewrite") || hd_in_slot(p, "vjp")))
		hd_plan_fail(p, HD_EINVAL,
			     "comm: %s in slot %s, where nothing is placed yet: only a permutation may be",
			     hd_comm_kind_name(a->kind), p->slot.name);
	else if ((hd_comm_is_joined(a->kind) || a->kind == HD_COMM_GATHER) && a->dim && !hd_has_dim(T(a->x), a->dim) &&
		 a->dim->n != n)
		hd_plan_fail(p, HD_EINVAL, "comm: the new dim %s has %lld entries, and there are %lld members",
			     a->dim->name, (long long)a->dim->n, (long long)n);
	else if (a->x->ndim == HD_MAX_DIMS && (hd_comm_is_joined(a->kind) || a->kind == HD_COMM_GATHER ||
					       hd_comm_is_split(a->kind) || a->kind == HD_COMM_SCATTER))
		hd_plan_fail(p, HD_EINVAL, "comm: (%s) has %d dims, and one a member must be added", a->x->spec,
			     HD_MAX_DIMS);
	return !p->err->code;
}

static struct tensor *build_comm(struct hd_plan *p, const struct hd_comm_args *a)
{
	struct tensor *y;

	if (a->kind == HD_COMM_PERMUTE)
		return hd_build_permute(p, G(a->group), T(a->x), a->mul, a->index);
	if (a->kind >= HD_COMM_RING_REDUCE_SCATTER && !hd_comm_is_served(a->kind) && p->config.device == HD_DEVICE_CUDA)
		return hd_build_turns(p, a->kind, G(a->group), T(a->x), a->dim, a->wire);
	y = hd_build_comm(p, a->kind, G(a->group), T(a->x), a->dim, a->index);
	if (y && a->wire)
		hd_comm_set_wire(p, y, a->wire);
	return y;
}

static struct hd_tensor *graph_comm(struct hd_plan *p, const struct hd_comm_args *args)
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
	if (!hd_arg_wire(p, &a) || !hd_arg_served(p, &a) || !comm_fits(p, &a) || !is_for_all(p, "comm", G(a.group)))
		return NULL;
	return view(build_comm(p, &a));
}

static struct hd_tensor *graph_reshard(struct hd_plan *p, struct hd_tensor *x, const struct hd_axis *axis,
				       const struct hd_place *to)
{
	struct axis *a = A(axis);

	if (!hd_may_build(p, "reshard") || !hd_arg_tensor(p, "reshard", "tensor", x) ||
	    !hd_arg_axis(p, "reshard", "axis", axis) || hd_place_check(p, "reshard", to, axis, x) < 0 ||
	    !is_for_all(p, "reshard", hd_group_get(p, &a, 1, HD_ROLE_CORE)))
		return NULL;
	return view(hd_reshard_step(p, T(x), A(axis), to));
}

static struct hd_tensor *new_state(struct hd_plan *p, const struct hd_state_args *x)
{
	const struct hd_tensor *like = x->like;
	struct tensor *t, *l = T(like);
	char *full;

	full = hd_plan_text(p, "%s.%s.%s", p->inst[p->slot.inst].name, x->name, like->of ? like->of->name : like->name);
	for (size_t i = 0; i < p->ntensors; i++)
		if (p->tensors[i]->v.what == HD_TENSOR_STATE && !strcmp(p->tensors[i]->v.name, full))
			return hd_plan_fail(
				       p, HD_EBUG,
				       "state: there is a state %s already; put the parameter's name into the argument name, "
				       "so that a checkpoint tells them apart",
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

static struct hd_tensor *graph_state(struct hd_plan *p, const struct hd_state_args *args)
{
	struct hd_state_args x;

	if (!HD_TAKE(p, "state", &x, args, relayout))
		return NULL;
	if (!hd_may_build(p, "state") || !hd_arg_name(p, "state", x.name) ||
	    !hd_arg_tensor(p, "state", "tensor to be like", x.like))
		return NULL;
	if (!hd_dtype_known(x.dtype) || HD_BITS(x.dtype) < 16)
		return hd_plan_fail(p, HD_EINVAL, "state: %s has dtype %#x, which is none that a state can have",
				    x.name, x.dtype),
		       NULL;
	if (!hd_args_one_of(p, "state", "relayout", x.relayout, HD_RESHARD_REFUSE))
		return NULL;
	return new_state(p, &x);
}

/* Made in some steps alone, where the first is made in all. */
static int is_second(const struct tensor *t, const struct tensor *value)
{
	const struct hd_node *first = t->assign->v.node, *second = value->v.node;

	return second && N(second)->period && (!first || !N(first)->period);
}

static int may_assign(struct hd_plan *p, const struct hd_tensor *state, const struct hd_tensor *value)
{
	const struct tensor *t = T(state), *v = T(value);

	if (state->node || state->what != HD_TENSOR_STATE || t->inst != p->slot.inst + 1)
		hd_plan_fail(p, HD_EINVAL, "assign: %s (%s) is no state of this section",
			     *state->name ? state->name : "a tensor", state->spec);
	else if (t->then || (t->assign && !is_second(t, v)))
		hd_plan_fail(p, HD_EINVAL, "assign: %s is assigned already", state->name);
	else if (state->ndim != value->ndim || memcmp(t->dims, v->dims, state->ndim * sizeof(*t->dims)))
		hd_plan_fail(p, HD_EINVAL, "assign: %s is (%s) and the value (%s)", state->name, state->spec,
			     value->spec);
	else if (state->dtype != value->dtype)
		hd_plan_fail(p, HD_EINVAL, "assign: %s has dtype %#x and the value %#x", state->name, state->dtype,
			     value->dtype);
	else if (hd_local_count(t) != hd_local_count(v))
		hd_plan_fail(p, HD_EINVAL, "assign: %s has %lld elements on a rank and the value %lld", state->name,
			     (long long)hd_local_count(t), (long long)hd_local_count(v));
	return !p->err->code;
}

static int graph_assign(struct hd_plan *p, struct hd_tensor *state, struct hd_tensor *value)
{
	if (!hd_may_build(p, "assign") || !hd_arg_tensor(p, "assign", "state", state) ||
	    !hd_arg_tensor(p, "assign", "value", value) || !may_assign(p, state, value))
		return p->err->code;
	if (T(state)->assign)
		T(state)->then = T(value), T(value)->assigned = 1;
	else
		hd_assign(T(state), T(value));
	return HD_OK;
}

/* -- record ----------------------------------------------------------------------------------------------------------------- */
static int64_t record_index(struct hd_record *r, const struct hd_group *g)
{
	return r->index(r, g);
}

static int record_launch(struct hd_record *r, const char *kernel, struct hd_tensor *const *ins, uint32_t nin,
			 struct hd_tensor *const *outs, uint32_t nout, const char *attr, ...)
{
	char *text;
	va_list v;
	int rc;

	va_start(v, attr);
	text = hd_vformat(attr ? attr : "", v);
	va_end(v);
	rc = r->launch(r, kernel, ins, nin, outs, nout, text);
	free(text);
	return rc;
}

const struct hd_record_api hd_record_table = { .size = sizeof(struct hd_record_api),
					       .index = record_index,
					       .launch = record_launch };

const struct hd_graph_api hd_graph_table = {
	.size = sizeof(struct hd_graph_api),
	.node_next = graph_node_next,
	.leaf_next = graph_leaf_next,
	.place = graph_place,
	.attr = graph_attr,
	.attr_dims = graph_attr_dims,
	.storage = graph_storage,
	.replace = graph_replace,
	.cursor = graph_cursor,
	.after = graph_after,
	.op = graph_op,
	.node = graph_node,
	.einsum = graph_einsum,
	.map = graph_map,
	.cast = graph_cast,
	.chunk = graph_chunk,
	.join = graph_join,
	.pick = graph_pick,
	.pack = graph_pack,
	.unpack = graph_unpack,
	.comm = graph_comm,
	.reshard = graph_reshard,
	.state = graph_state,
	.assign = graph_assign,
	.only = graph_only,
	.either = graph_either,
	.scalar = hd_host_scalar,
	.constant = hd_host_constant,
	.iota = hd_host_iota,
	.random = hd_host_random,
	.topk = hd_host_topk,
	.gather = hd_host_take,
	.scatter = hd_host_put,
	.initial = hd_host_initial,
	.rename = hd_host_rename,
	.replace_in = hd_host_replace_in,
	.updated = hd_host_updated,
	.every = hd_host_every,
	.local = hd_host_local,
	.own = hd_host_own,
	.pack_pieces = hd_host_pack_pieces,
	.unpack_pieces = hd_host_unpack_pieces,
};
