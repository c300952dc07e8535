/* SPDX-License-Identifier: Apache-2.0
 * What plugins read of the graph and change in it: struct hd_graph_api (heddle/graph.h), and what ops of theirs record.
 */
#include <config.h>
#include "engine/plan/host_impl.h"
#include "engine/graph/placement.h"
#include "engine/ops/movement.h"
#include "engine/ops/record.h"
#include "engine/device/device.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* -- graph: read ------------------------------------------------------------------------------------------------------------ */
/* A plugin's op in a node of another section is lowered there: two sections of one plugin share the op, not the nodes. */
static int owner_matches(const struct node *n, uint32_t flags)
{
	if (flags & HD_MATCH_MINE)
		return n->inst >= 0 && n->inst == n->plan->cur;
	return n->inst < 0 || n->inst == n->plan->cur || n->plan->cur < 0 || flags & HD_MATCH_OTHERS;
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

static int matches(const struct node *n, const struct hd_match *m)
{
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
	struct node *n = prev ? N(prev)->next : p->first;
	struct hd_match x;
	size_t w;

	if (!HD_TAKE(p, "node_next", &x, m, reads) ||
	    !hd_args_flags(p, "node_next", "flags", x.flags, HD_MATCH_OTHERS | HD_MATCH_MINE) ||
	    !hd_args_flags(p, "node_next", "phases", x.phases, 63))
		return NULL;
	w = walk_of(p, prev ? N(prev) : NULL, m);
	for (; n; n = n->next)
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

	(void)p;
	if (!t || !axis)
		return &whole;
	if (t->what == HD_TENSOR_GRAD && !T(t)->placed && t->of && !(T(t)->stored >> A(axis)->id & 1))
		t = t->of;
	return T(t)->stored >> A(axis)->id & 1 ? &T(t)->storage.on[A(axis)->id] : &T(t)->at.on[A(axis)->id];
}

static uint32_t graph_attr_dims(struct hd_plan *p, const char *attr, const char *key, const struct hd_dim **dims)
{
	const char *text = hd_attr_text(attr, key);

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
	if (!x.leaf || !x.axis || !x.place)
		return hd_plan_fail(p, HD_EBUG, "storage: the %s is NULL",
				    !x.leaf  ? "leaf"
				    : x.axis ? "place"
					     : "axis");
	if (!hd_args_one_of(p, "storage", "space", x.space, HD_SPACE_DEVICE) ||
	    !hd_args_zero(p, "storage", "reserved", x.reserved))
		return p->err->code;
	T(x.leaf)->storage.on[A(x.axis)->id] = *x.place;
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
	if (N(t->node)->is->role == OP_ROLE_COMM || N(t->node)->is->role == OP_ROLE_RESHARD ||
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

static int graph_replace(struct hd_plan *p, struct hd_tensor *old, struct hd_tensor *with)
{
	if (!old || !with)
		return hd_plan_fail(p, HD_EBUG, "replace: the %s tensor is NULL", old ? "new" : "old");
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
	if (T(old)->placed)
		hd_placed_like(T(with), T(old));
	hd_replace(p, T(old), T(with));
	return HD_OK;
}

/* Of what a plugin puts in place of a node that is no movement: that node. */
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
	if (!x.anchor)
		return hd_plan_fail(p, HD_EBUG, "cursor: the anchor is NULL");
	p->cursor = (struct cursor){ .before = N(x.anchor),
				     .phase = x.anchor->phase,
				     .block = N(x.anchor)->block,
				     .queue = x.queue ? G(x.queue) : NULL,
				     .reason = reason_of(p, N(x.anchor)) };
	return HD_OK;
}

/* Program order is the order of start: an order that the nodes were not built in cannot be had.  Sync runs as it becomes
 * ready, so there it must be said. */
static int graph_after(struct hd_plan *p, struct hd_tensor *t, const struct hd_tensor *u)
{
	struct wait *w;

	if (!t || !u || !t->node || !u->node)
		return p->err->code;
	for (const struct node *n = N(t->node)->next; n; n = n->next)
		if (n == N(u->node))
			return hd_plan_fail(p, HD_EINVAL,
					    "after: %s of (%s) was built before %s of (%s), which it is to wait for",
					    t->node->op->name, t->spec, u->node->op->name, u->spec);
	w = hd_plan_alloc(p, sizeof(*w));
	*w = (struct wait){ N(t->node)->waits, T(u) };
	N(t->node)->waits = w;
	return HD_OK;
}

/* -- graph: build ------------------------------------------------------------------------------------------------------------ */
static const struct hd_op *graph_op(struct hd_plan *p, const char *name)
{
	const struct op *op = hd_op_find(name);

	(void)p;
	return op ? &op->v : NULL;
}

/* In slot lower a new tensor is where its first input is. */
static struct hd_tensor *settled(struct tensor *y, struct tensor *like)
{
	if (!y)
		return NULL;
	hd_placed_like(y, like);
	return &y->v;
}

static struct hd_node *graph_node(struct hd_plan *p, const struct hd_op *op, struct hd_tensor *const *ins, uint32_t nin,
				  const char *attr, ...)
{
	char *text;
	va_list v;
	struct node *n;

	va_start(v, attr);
	text = hd_vformat(attr, v);
	va_end(v);
	n = hd_node_new(p, op, hd_op_traits(op), (struct tensor *const *)ins, nin, text);
	free(text);
	for (uint32_t k = 0; n && nin && k < n->v.nout; k++)
		settled(n->outs[k], T(ins[0]));
	return n ? &n->v : NULL;
}

static struct hd_tensor *graph_einsum(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin,
				      const struct hd_dim *const *dims, uint32_t ndim)
{
	char *spec = NULL;
	struct tensor *y, *t[2] = { nin > 0 ? T(ins[0]) : NULL, nin > 1 ? T(ins[1]) : NULL };

	if (nin > 2)
		return hd_plan_fail(p, HD_EINVAL, "einsum of %u tensors", nin), NULL;
	for (uint32_t i = 0; i < ndim; i++)
		hd_append(&spec, "%s%s", i ? "," : "", dims[i]->name);
	y = hd_op1(p, nin == 2 ? "einsum" : "sum", t, nin, "out=%s", spec ? spec : "");
	free(spec);
	return settled(y, t[0]);
}

static struct hd_tensor *graph_map(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin, const char *expr, ...)
{
	char *text;
	va_list v;
	struct tensor *y;

	va_start(v, expr);
	text = hd_vformat(expr, v);
	va_end(v);
	y = hd_map_new(p, (struct tensor *const *)ins, nin, text);
	free(text);
	return settled(y, nin ? T(ins[0]) : NULL);
}

static struct hd_tensor *graph_cast(struct hd_plan *p, struct hd_tensor *x, uint32_t dtype)
{
	static const uint32_t known[] = { HD_DTYPE_F32, HD_DTYPE_F64, HD_DTYPE_F16, HD_DTYPE_BF16,
					  HD_DTYPE_I32, HD_DTYPE_I64, HD_DTYPE_U8,  HD_DTYPE_B1 };
	struct tensor *t = T(x);
	size_t i = 0;

	while (i < HD_LEN(known) && known[i] != dtype)
		i++;
	if (i == HD_LEN(known))
		return hd_plan_fail(p, HD_EINVAL, "cast: %#x is no dtype", dtype), NULL;
	return x ? settled(hd_op1(p, "cast", &t, 1, "dtype=%u", dtype), t) : NULL;
}

static struct hd_tensor *view(struct tensor *t)
{
	return t ? &t->v : NULL;
}

static struct hd_tensor *graph_chunk(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *dim, int64_t parts,
				     const struct hd_pos *at)
{
	return view(hd_build_chunk(p, T(x), dim, parts, at));
}

static struct hd_tensor *graph_join(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n,
				    const struct hd_dim *dim, const struct hd_pos *at)
{
	return view(hd_build_join(p, (struct tensor *const *)xs, n, dim, at));
}

static struct hd_tensor *graph_pick(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, const struct hd_pos *at)
{
	return view(hd_build_pick(p, (struct tensor *const *)xs, n, at));
}

/* The members are few or many, but there are some and some are not, so that a node is on no rank by mistake. */
static int are_members(struct hd_plan *p, const char *call, const struct hd_members *who)
{
	const struct group *g = G(who->group);

	if (!g)
		return hd_plan_fail(p, HD_EBUG, "%s: the group is NULL", call), 0;
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
		return hd_plan_fail(p, HD_EINVAL, "%s: members %d to %d of the %lld of %s", call, who->from,
				    who->to - 1, (long long)g->v.n, g->name),
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
	if (!yes || !no)
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
	return view(hd_build_pack(p, (struct tensor *const *)xs, n, multiple));
}

static int graph_unpack(struct hd_plan *p, struct hd_tensor *flat, struct hd_tensor *const *like, uint32_t n,
			struct hd_tensor **out)
{
	return hd_build_unpack(p, T(flat), (struct tensor *const *)like, n, (struct tensor **)out);
}

static struct hd_tensor *graph_comm(struct hd_plan *p, const struct hd_comm_args *args)
{
	struct hd_comm_args a;

	if (!HD_TAKE(p, "comm", &a, args, reserved))
		return NULL;
	if (!a.group)
		return hd_plan_fail(p, HD_EBUG, "comm: the group is NULL"), NULL;
	if (a.kind < HD_COMM_ALL_REDUCE || a.kind > HD_COMM_ALL_MAX)
		return hd_plan_fail(p, HD_EINVAL, "comm: %u is no kind of collective", a.kind), NULL;
	if (!hd_args_zero(p, "comm", "reserved", a.reserved) || !is_for_all(p, "comm", G(a.group)))
		return NULL;
	return view(hd_build_comm(p, a.kind, G(a.group), T(a.x), a.dim, a.index));
}

static struct hd_tensor *graph_reshard(struct hd_plan *p, struct hd_tensor *x, const struct hd_axis *axis,
				       const struct hd_place *to)
{
	struct axis *a = A(axis);

	if (axis && !is_for_all(p, "reshard", hd_group_get(p, &a, 1, HD_ROLE_CORE)))
		return NULL;
	return x && axis ? view(hd_reshard_step(p, T(x), A(axis), to)) : NULL;
}

static struct hd_tensor *new_state(struct hd_plan *p, const struct hd_state_args *x)
{
	const struct hd_tensor *like = x->like;
	struct tensor *t, *l = T(like);
	char *full;

	full = hd_plan_text(p, "%s.%s.%s", p->inst[p->cur].name, x->name, like->of ? like->of->name : like->name);
	for (size_t i = 0; i < p->ntensors; i++)
		if (p->tensors[i]->v.what == HD_TENSOR_STATE && !strcmp(p->tensors[i]->v.name, full))
			return hd_plan_fail(
				       p, HD_EBUG,
				       "state: there is a state %s already; a checkpoint could not tell them apart",
				       full),
			       NULL;
	t = hd_tensor_new(p, full, HD_TENSOR_STATE, x->dtype, l->dims, l->v.ndim);
	t->v.of = like->of;
	hd_placed_like(t, l);
	memcpy(t->local, l->local, sizeof(t->local));
	t->step = 1;
	t->init = HD_INIT_ZERO;
	t->on_reshard = x->relayout;
	return &t->v;
}

static struct hd_tensor *graph_state(struct hd_plan *p, const struct hd_state_args *args)
{
	struct hd_state_args x;

	if (!HD_TAKE(p, "state", &x, args, relayout))
		return NULL;
	if (!x.name || !x.like)
		return hd_plan_fail(p, HD_EBUG, "state: the %s is NULL", x.name ? "tensor to be like" : "name"), NULL;
	if (!hd_args_one_of(p, "state", "relayout", x.relayout, HD_RESHARD_REFUSE))
		return NULL;
	return new_state(p, &x);
}

static int graph_assign(struct hd_plan *p, struct hd_tensor *state, struct hd_tensor *value)
{
	if (!state || !value)
		return hd_plan_fail(p, HD_EBUG, "assign: the %s is NULL", state ? "value" : "state");
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
	text = hd_vformat(attr, v);
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
	.attr = hd_attr_num,
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
};
