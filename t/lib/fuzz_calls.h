/* SPDX-License-Identifier: Apache-2.0
 * t/lib/fuzz_calls.h - calls each function that the engine offers plugins, with arguments that t/plugins/fuzz.c draws.
 */
#ifndef HD_T_LIB_FUZZ_CALLS_H
#define HD_T_LIB_FUZZ_CALLS_H
#include "fuzz_op.h"

#define CALL(name) static void call_##name(struct hd_strategy *s, struct hd_plan *p)

CALL(opt)
{
	const char *key = TEXT(s, "seed", "wild", "calls", "counts", "ratio", "depth");

	switch (draw(s, 4)) {
	case 0: s->h->opt_int(p, is_wild(s) ? key : "seed"); break;
	case 1: s->h->opt_num(p, is_wild(s) ? key : "ratio"); break;
	case 2: s->h->opt_str(p, is_wild(s) ? key : "counts"); break;
	default: s->h->opt_text(p, is_wild(s) ? key : "file");
	}
}
CALL(query)
{
	s->h->query(p, is_wild(s) ? any_text(s) : "heddle.node_size");
}
CALL(alloc)
{
	size_t n = is_wild(s) ? (size_t)any_number(s) : draw(s, 1000);
	char *at = s->h->alloc(p, n);

	if (at && n)
		at[0] = at[n - 1] = 1;
}
CALL(log)
{
	s->h->log(p, (int32_t)(is_wild(s) ? any_number(s) : HD_LOG_DEBUG), is_wild(s) ? any_text(s) : __FILE__, 1, "%s",
		  "said");
}
CALL(fail)
{
	if (is_wild(s))
		s->h->fail(p, (int32_t)any_number(s), "%s", TEXT(s, "wild: a reason", "no reason"));
}
CALL(dim)
{
	keep(s, DIM, s->h->dim(p, TEXT(s, "batch", "seq", "embed", "heads", "mlp", "vocab")));
}
CALL(dim_new)
{
	keep(s, DIM, s->h->dim_new(p, TEXT(s, "one", "two"), 1 + (count_of(s, 1) & INT32_MAX)));
}
CALL(axis)
{
	struct args a;
	struct hd_axis_args *x = (void *)&a;

	if (!sized(s, &a, sizeof(*x)))
		x = NULL;
	else
		x->suffix = TEXT(s, "other", NULL), x->n = count_of(s, 1), x->spare = number(s, 2);
	if (is_wild(s))
		keep(s, AXIS, s->h->axis(p, x));
}
CALL(axis_next)
{
	keep(s, AXIS, s->h->axis_next(p, draw(s, 2) ? handle(s, AXIS) : NULL));
}
CALL(group)
{
	const struct hd_axis *axes[20] = { handle(s, AXIS) };
	struct args a;
	struct hd_group_args *x = (void *)&a;

	for (int i = 1; i < 20; i++)
		axes[i] = handle(s, AXIS);
	if (sized(s, &a, sizeof(*x)))
		x->axes = is_wild(s) && !draw(s, 4) ? NULL : axes, x->naxes = count(s, 1, 1, 20),
		x->role = (uint32_t)number(s, s->spare ? 3 : 1);
	keep(s, GROUP, s->h->group(p, x));
}
CALL(rule)
{
	struct args a;
	struct hd_rule_args *x = (void *)&a;

	if (sized(s, &a, sizeof(*x))) {
		x->dim = TEXT(s, "batch", "bacth", "layer", "seq"), x->axis = handle(s, AXIS);
		x->kind = TEXT(s, NULL, "norm", "einsum"),
		x->flags = is_wild(s) ? (uint32_t)any_number(s) : HD_RULE_IF_DIVIDES;
		x->reserved = is_wild(s);
	}
	if (is_wild(s))
		s->h->rule(p, x);
}
CALL(block_next)
{
	keep(s, BLOCK, s->h->block_next(p, draw(s, 2) ? handle(s, BLOCK) : NULL));
}
CALL(stage)
{
	struct args a;
	struct hd_stage_args *x = (void *)&a;

	if (sized(s, &a, sizeof(*x)))
		x->block = handle(s, BLOCK), x->axis = handle(s, AXIS), x->coord = number(s, 2),
		x->chunk = number(s, 1);
	if (is_wild(s))
		s->h->stage(p, x);
}
CALL(unit)
{
	struct args a;
	struct hd_unit_args *x = (void *)&a;

	if (sized(s, &a, sizeof(*x)))
		x->axis = handle(s, AXIS), x->coord = number(s, 2), x->chunk = number(s, 1), x->micro = number(s, 2),
		x->kind = 1u << draw(s, is_wild(s) ? 7 : 3), x->reserved = is_wild(s);
	if (is_wild(s))
		s->h->unit(p, x);
}
CALL(node_next)
{
	struct args a;
	struct hd_match *m = (void *)&a;
	struct hd_node *n;

	if (!sized(s, &a, sizeof(*m)))
		return (void)s->g->node_next(p, NULL, NULL);
	m->kind = TEXT(s, NULL, "einsum", "reshard", "norm"), m->phases = is_wild(s) ? (uint32_t)any_number(s) : 0;
	m->op = draw(s, 9) ? NULL : handle(s, OP), m->axis = draw(s, 9) ? NULL : handle(s, AXIS);
	m->flags = (uint32_t)number(s, 3), m->attr = is_wild(s) ? any_text(s) : NULL,
	m->reads = draw(s, 9) ? NULL : tensor(s);
	n = s->g->node_next(p, draw(s, 2) ? (void *)(uintptr_t)handle(s, NODE) : NULL, m);
	keep(s, NODE, n);
	for (uint32_t i = 0; n && i < n->nin; i++)
		keep(s, TENSOR, n->ins[i]);
	for (uint32_t i = 0; n && i < n->nout; i++)
		keep(s, TENSOR, n->outs[i]);
}
CALL(leaf_next)
{
	made(s, s->g->leaf_next(p, draw(s, 2) ? tensor(s) : NULL, (uint32_t)number(s, 5)));
}
CALL(place)
{
	s->g->place(p, tensor(s), handle(s, AXIS));
}
CALL(attr)
{
	(void)p;
	s->g->attr(is_wild(s) ? any_text(s) : "a=1 b=2", is_wild(s) ? any_text(s) : "b", 0);
}
CALL(attr_dims)
{
	const struct hd_dim *dims[HD_MAX_DIMS];

	s->g->attr_dims(p,
			is_wild(s) ? "out=batch,seq,embed,mlp,vocab,heads,batch,seq,embed,mlp"
				   : TEXT(s, "out=batch,seq"),
			TEXT(s, "out", "in"), dims);
}
CALL(storage)
{
	struct args a;
	struct hd_storage_args *x = (void *)&a;
	struct hd_tensor *leaf = tensor(s);
	struct hd_place at = place(s, leaf);

	if (sized(s, &a, sizeof(*x)))
		x->leaf = leaf, x->axis = handle(s, AXIS), x->place = is_wild(s) ? NULL : &at, x->space = is_wild(s),
		x->reserved = is_wild(s);
	if (is_wild(s))
		s->g->storage(p, x);
}
CALL(replace)
{
	struct hd_tensor *x = tensor(s);

	s->g->replace(p, x, is_wild(s) ? tensor(s) : s->g->map(p, &x, 1, "a"));
}
/* Makes a reader read a copy of its operand, which is made before it. */
CALL(replace_in)
{
	struct hd_node *reader = (void *)(uintptr_t)handle(s, NODE);
	struct hd_tensor *x, *copy;

	if (is_wild(s))
		return (void)s->g->replace_in(p, reader, tensor(s), tensor(s));
	if (!is_known(s, NODE, reader) || !reader->nin)
		return;
	x = reader->ins[draw(s, reader->nin)];
	hd_cursor(s->g, p, reader, NULL);
	copy = x->dtype == HD_DTYPE_F64 ? s->g->map(p, &x, 1, "a") : NULL;
	if (copy)
		s->g->replace_in(p, reader, x, copy);
}
/* Returns the sum of a flat tensor, by a reduce-scatter and an all-gather. */
static struct hd_tensor *sum_in_pieces(void *ctx, struct hd_plan *p, const struct hd_group *members,
				       struct hd_tensor *flat)
{
	struct hd_strategy *s = ctx;
	struct hd_tensor *piece;

	if (is_wild(s))
		return tensor(s);
	piece = flat ? hd_comm(s->g, p, HD_COMM_REDUCE_SCATTER, members, flat, flat->dims[0], 0) : NULL;
	return piece ? hd_comm(s->g, p, HD_COMM_ALL_GATHER, members, piece, piece->dims[0], 0) : NULL;
}
CALL(bucket_sums)
{
	const struct hd_bucket_args a = { .size = sizeof(a),
					  .h = s->h,
					  .axis = is_wild(s) ? handle(s, AXIS) : s->axis,
					  .bytes = count_of(s, 600),
					  .sum = draw(s, 2) ? sum_in_pieces : NULL,
					  .ctx = s };

	if (!s->in_lower && !is_wild(s))
		return;
	hd_bucket_sums(p, &a);
	forget_nodes(s);
}
CALL(cursor)
{
	struct args a;
	struct hd_cursor_args *x = (void *)&a;
	const struct hd_node *n = handle(s, NODE);

	if (sized(s, &a, sizeof(*x)))
		x->anchor = (void *)(uintptr_t)n, x->queue = draw(s, 2) ? NULL : handle(s, GROUP);
	s->g->cursor(p, x);
	for (uint32_t i = 0; is_known(s, NODE, n) && i < n->nin; i++)
		keep(s, TENSOR, n->ins[i]);
}
CALL(after)
{
	s->g->after(p, tensor(s), tensor(s));
}
CALL(op)
{
	keep(s, OP,
	     s->g->op(p, TEXT(s, "gelu", "norm", "attention", "add", "dropout", "adamw", "sgd", "copy", "route")));
}
CALL(node)
{
	struct hd_tensor *ins[64];
	const struct hd_op *op = draw(s, 3) && (s->n[OP] || is_wild(s)) ? handle(s, OP) : make_op(s, p);
	struct hd_node *n;

	tensors(s, ins, 64);
	n = s->g->node(p, op, is_wild(s) && !draw(s, 4) ? NULL : ins, count(s, 1, 2, 64), "%s",
		       TEXT(s, "a=1", "p=0.5 site=1", "eps=1e-5", "causal=1 scale=0.5") ? "x=1" : "");
	keep(s, NODE, n);
	for (uint32_t i = 0; n && i < n->nout; i++)
		keep(s, TENSOR, n->outs[i]);
}
CALL(einsum)
{
	struct hd_tensor *ins[8];
	const struct hd_dim *dims[12];

	tensors(s, ins, 8);
	for (int i = 0; i < 12; i++)
		dims[i] = dim_of(s, ins[0]);
	made(s, s->g->einsum(p, ins, count(s, 1, 2, 8), dims, count(s, 0, 1, 12)));
}
CALL(map)
{
	struct hd_tensor *ins[64];
	const char *expr = TEXT(s, "a", "a * 2 + 1", "where(a, 1, a)", "round(a)", "exp(-abs(a))", "a / 3");

	tensors(s, ins, 64);
	made(s, s->g->map(p, ins, count(s, 1, 1, 64), expr ? "%s" : NULL, expr ? expr : ""));
}
CALL(cast)
{
	made(s, s->g->cast(p, tensor(s), dtype(s)));
}
CALL(chunk)
{
	struct hd_tensor *x = tensor(s);
	struct hd_pos at = position(s);

	made(s, s->g->chunk(p, x, dim_of(s, x), count_of(s, 2), is_wild(s) ? NULL : &at));
}
CALL(join)
{
	struct hd_tensor *xs[64];
	struct hd_pos at = position(s);

	tensors(s, xs, 64);
	made(s, s->g->join(p, xs, count(s, 1, 4, 64), dim_of(s, xs[0]), draw(s, 2) ? NULL : &at));
}
CALL(pick)
{
	struct hd_tensor *xs[64];
	struct hd_pos at = position(s);

	tensors(s, xs, 64);
	made(s, s->g->pick(p, xs, count(s, 1, 4, 64), is_wild(s) ? NULL : &at));
}
CALL(pack)
{
	struct hd_tensor *xs[64], *flat, *out[64];
	uint32_t n = count(s, 1, 4, 64);

	tensors(s, xs, 64);
	flat = made(s, s->g->pack(p, xs, n, number(s, 3)));
	if (!is_wild(s) && !flat)
		return;
	n = is_wild(s) ? count(s, 1, 4, 64) : n;
	if (s->g->unpack(p, is_wild(s) ? tensor(s) : flat, xs, n, is_wild(s) ? NULL : out) >= 0 && flat)
		made(s, out[draw(s, n)]);
}
CALL(pack_pieces)
{
	struct hd_tensor *xs[64], *flat, *like[64], *out[64];
	const struct hd_dim *dims[64];
	uint32_t n = count(s, 1, 4, 64);
	int64_t parts = count_of(s, 2);
	struct hd_pos at = { .add = 0 };

	tensors(s, xs, 64);
	for (uint32_t i = 0; i < 64; i++)
		dims[i] = dim_of(s, xs[i]);
	flat = made(s, s->g->pack_pieces(p, is_wild(s) && !draw(s, 4) ? NULL : xs, dims, n, parts));
	if (!is_wild(s) && !flat)
		return;
	for (uint32_t i = 0; i < 64; i++)
		like[i] = i < n && !is_wild(s) ? s->g->chunk(p, xs[i], dims[i], parts, &at) : tensor(s);
	n = is_wild(s) ? count(s, 1, 4, 64) : n;
	if (s->g->unpack_pieces(p, is_wild(s) ? tensor(s) : flat, like, dims, n, is_wild(s) ? any_number(s) : parts,
				is_wild(s) ? NULL : out) >= 0 &&
	    flat)
		made(s, out[draw(s, n)]);
}
CALL(comm)
{
	struct args a;
	struct hd_comm_args *x = (void *)&a;
	struct hd_tensor *t = tensor(s);

	if (sized(s, &a, sizeof(*x)))
		x->group = handle(s, GROUP), x->x = t, x->dim = draw(s, 2) ? NULL : dim_of(s, t),
		x->index = number(s, 2), x->kind = 1 + (uint32_t)number(s, s->spare ? 16 : 14),
		x->mul = x->kind == HD_COMM_PERMUTE ? number(s, 2) : is_wild(s), x->wire = is_wild(s);
	made(s, s->g->comm(p, x));
}
CALL(reshard)
{
	struct hd_tensor *x = tensor(s);
	struct hd_place to = place(s, x);

	made(s, s->g->reshard(p, x, handle(s, AXIS), is_wild(s) && draw(s, 2) ? NULL : &to));
}
CALL(state)
{
	struct args a;
	struct hd_state_args *x = (void *)&a;
	struct hd_tensor *like = tensor(s), *state;
	char name[2] = { (char)('a' + draw(s, 26)), 0 };

	if (sized(s, &a, sizeof(*x)))
		x->name = is_wild(s) ? any_text(s) : name, x->like = like,
		x->dtype = is_known(s, TENSOR, like) ? like->dtype : dtype(s), x->relayout = (uint32_t)number(s, 3);
	state = made(s, s->g->state(p, x));
	if (draw(s, 2))
		s->g->initial(p, is_wild(s) ? tensor(s) : state, (uint32_t)number(s, 3), is_wild(s) ? NAN : 1);
	s->g->assign(p, is_wild(s) ? tensor(s) : state, is_wild(s) ? tensor(s) : s->g->map(p, &like, 1, "a"));
}
CALL(local)
{
	struct hd_tensor *x = tensor(s);
	const struct hd_place *at = is_known(s, TENSOR, x) ? s->g->place(p, x, s->axis) : NULL;

	if (is_wild(s) || ((s->lowering || s->once) && at && at->kind == HD_PLACE_PARTIAL))
		made(s, s->g->local(p, x, is_wild(s) ? handle(s, AXIS) : s->axis));
}
CALL(own)
{
	struct hd_tensor *like = tensor(s), *state;
	char name[3] = { 'o', (char)('a' + draw(s, 26)), 0 };

	if (!is_wild(s) && !((s->lowering || s->once) && is_known(s, TENSOR, like)))
		return;
	state = made(s, hd_state(s->g, p, name, like, is_known(s, TENSOR, like) ? like->dtype : dtype(s),
				 (uint32_t)number(s, 3)));
	s->g->own(p, is_wild(s) ? tensor(s) : state, is_wild(s) ? handle(s, AXIS) : s->axis,
		  1 + (uint32_t)number(s, 2));
	s->g->assign(p, state, s->g->map(p, &like, 1, "a"));
}
CALL(only)
{
	struct hd_members m = members(s);

	if (is_wild(s) || s->lowering)
		s->g->only(p, draw(s, 2) ? NULL : &m);
}
CALL(either)
{
	struct hd_members m = members(s);
	struct hd_tensor *x = tensor(s);

	made(s, s->g->either(p, is_wild(s) ? NULL : &m, x, is_wild(s) ? tensor(s) : s->g->map(p, &x, 1, "-a")));
}
CALL(scalar)
{
	uint32_t what = (uint32_t)number(s, 4);

	made(s, s->g->scalar(p, what, what == HD_SCALAR_INDEX || is_wild(s) ? handle(s, GROUP) : NULL));
}
CALL(made)
{
	const struct hd_tensor *x = tensor(s);
	const struct hd_dim *dims[12];
	uint32_t n = is_known(s, TENSOR, x) && !is_wild(s) ? x->ndim : count(s, 0, 2, 12);

	for (uint32_t i = 0; i < 12; i++)
		dims[i] = is_known(s, TENSOR, x) && i < x->ndim && !is_wild(s) ? x->dims[i] : handle(s, DIM);
	switch (draw(s, 3)) {
	case 0: made(s, s->g->constant(p, dims, n, is_wild(s) ? INFINITY : 1)); break;
	case 1: made(s, s->g->iota(p, dims, n, n && !is_wild(s) && n < 12 ? dims[draw(s, n)] : handle(s, DIM))); break;
	default: made(s, s->g->random(p, dims, n, TEXT(s, "x", "y"), (int32_t)number(s, 2)));
	}
}
CALL(rename)
{
	struct hd_tensor *x = tensor(s);
	const struct hd_dim *from = dim_of(s, x), *to = handle(s, DIM);

	if (is_known(s, TENSOR, x) && x->ndim && !is_wild(s)) {
		from = x->dims[draw(s, x->ndim)];
		to = s->h->dim_new(p, draw(s, 2) ? from->name : "r", from->n);
	}
	made(s, s->g->rename(p, x, from, to));
}
CALL(index)
{
	struct hd_tensor *x = tensor(s), *values = NULL, *index = NULL;
	const struct hd_dim *along = dim_of(s, x),
			    *k = is_wild(s) ? handle(s, DIM) : s->h->dim_new(p, "k", 1 + (count_of(s, 1) & INT32_MAX));

	s->g->topk(p, x, along, k, (int32_t)number(s, 2), is_wild(s) ? NULL : &values, &index);
	made(s, values);
	made(s, index);
	if (draw(s, 2))
		made(s, s->g->gather(p, x, is_wild(s) ? tensor(s) : index, along));
	else
		made(s, s->g->scatter(p, is_wild(s) ? x : values, is_wild(s) ? tensor(s) : index, k, along,
				      (int32_t)number(s, 2)));
}
CALL(updated)
{
	made(s, s->g->updated(p, !is_wild(s) ? s->g->leaf_next(p, NULL, HD_TENSOR_PARAM) : tensor(s)));
}
CALL(every)
{
	if (is_wild(s) || s->once)
		s->g->every(p, count_of(s, 3));
}

/* -- all calls ----------------------------------------------------------------------------------------------------- */
/* Where a call is valid: everywhere, or only where nodes are built; and whether it needs a tensor. */
enum { ANY = 1, BUILDS = 2, OF_TENSOR = 4 | BUILDS };
static const struct {
	void (*make)(struct hd_strategy *s, struct hd_plan *p);
	int where;
} calls[] = {
	{ call_opt, ANY },
	{ call_query, ANY },
	{ call_alloc, ANY },
	{ call_log, ANY },
	{ call_fail, ANY },
	{ call_dim, ANY },
	{ call_dim_new, ANY },
	{ call_axis, ANY },
	{ call_axis_next, ANY },
	{ call_group, ANY },
	{ call_rule, ANY },
	{ call_block_next, ANY },
	{ call_stage, ANY },
	{ call_unit, ANY },
	{ call_node_next, ANY },
	{ call_leaf_next, ANY },
	{ call_attr, ANY },
	{ call_attr_dims, ANY },
	{ call_op, ANY },
	{ call_storage, ANY },
	{ call_place, OF_TENSOR },
	{ call_replace, OF_TENSOR },
	{ call_cursor, OF_TENSOR },
	{ call_after, OF_TENSOR },
	{ call_node, OF_TENSOR },
	{ call_einsum, OF_TENSOR },
	{ call_map, OF_TENSOR },
	{ call_cast, OF_TENSOR },
	{ call_chunk, OF_TENSOR },
	{ call_join, OF_TENSOR },
	{ call_pick, OF_TENSOR },
	{ call_pack, OF_TENSOR },
	{ call_comm, OF_TENSOR },
	{ call_reshard, OF_TENSOR },
	{ call_state, OF_TENSOR },
	{ call_only, BUILDS },
	{ call_either, OF_TENSOR },
	{ call_scalar, BUILDS },
	{ call_made, OF_TENSOR },
	{ call_rename, OF_TENSOR },
	{ call_index, OF_TENSOR },
	{ call_updated, BUILDS },
	{ call_every, BUILDS },
	{ call_local, OF_TENSOR },
	{ call_own, OF_TENSOR },
	{ call_pack_pieces, OF_TENSOR },
	{ call_replace_in, OF_TENSOR },
	{ call_bucket_sums, BUILDS },
};
enum {
	NCALLS = sizeof(calls) / sizeof(*calls),
	CALLS_ROOM = 512 /* calls of wild seeds are counted from this index on */
};

static int some_calls(struct hd_strategy *s, struct hd_plan *p, int where)
{
	for (int64_t i = 0; i < s->calls; i++) {
		uint64_t k = draw(s, NCALLS);

		if ((!(calls[k].where & where) || (calls[k].where & 4 && !s->n[TENSOR])) && !is_wild(s))
			continue;
		s->made[k + (s->wild ? CALLS_ROOM : 0)]++;
		calls[k].make(s, p);
	}
	return is_wild(s) ? (int)any_number(s) : s->h->status(p);
}

#endif
