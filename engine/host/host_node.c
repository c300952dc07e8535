/* SPDX-License-Identifier: Apache-2.0
 * Builders of nodes within a rank, for plugins: ops, and rearrangements of elements.
 */
#include <config.h>
#include "engine/host/host_impl.h"
#include "engine/ops/movement.h"
#include <stdarg.h>

enum { MANY = 1 << 20 }; /* maximum number of inputs of join, pick and pack */

const struct hd_op *hd_host_op(struct hd_plan *p, const char *name)
{
	const struct op *op = name ? hd_op_find(name) : NULL;

	if (!name)
		hd_plan_fail(p, HD_EBUG, "op: the name is NULL");
	return op ? &op->v : NULL;
}

/* Gives a new tensor the placement of its first input, which has one in slot lower. */
static struct hd_tensor *placed_like(struct tensor *y, struct tensor *like)
{
	if (!y)
		return NULL;
	hd_placed_like(y, like);
	return &y->v;
}

struct hd_node *hd_host_node(struct hd_plan *p, const struct hd_op *op, struct hd_tensor *const *ins, uint32_t nin,
			     const char *attr, ...)
{
	const char *text = "";
	va_list v;
	struct node *n;

	va_start(v, attr);
	if (attr)
		text = hd_plan_vtext(p, attr, v);
	va_end(v);
	if (!hd_may_build(p, "node") || !hd_arg_op(p, op, ins, nin, text) || !hd_arg_in_step(p, op->name, ins, nin))
		return NULL;
	n = hd_node_new(p, op, hd_op_traits(op), (struct tensor *const *)ins, nin, text);
	for (uint32_t k = 0; n && nin && k < n->v.nout; k++)
		placed_like(n->outs[k], T(ins[0]));
	return n ? &n->v : NULL;
}

struct hd_tensor *hd_host_einsum(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin,
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

struct hd_tensor *hd_host_map(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin, const char *expr, ...)
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

struct hd_tensor *hd_host_cast(struct hd_plan *p, struct hd_tensor *x, uint32_t dtype)
{
	struct tensor *t = T(x);

	if (!hd_may_build(p, "cast") || !hd_arg_tensor(p, "cast", "tensor", x) || !hd_arg_in_step(p, "cast", &x, 1))
		return NULL;
	if (!hd_dtype_known(dtype))
		return hd_plan_fail(p, HD_EINVAL, "cast: %#x is not a dtype", dtype), NULL;
	return placed_like(hd_op1(p, "cast", &t, 1, "dtype=%u", dtype), t);
}

struct hd_tensor *hd_host_chunk(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *dim, int64_t parts,
				const struct hd_pos *at)
{
	if (!hd_may_build_pieces(p, "chunk") || !hd_arg_tensor(p, "chunk", "tensor", x) ||
	    !hd_arg_dim(p, "chunk", "dim", dim) || !hd_arg_pos(p, "chunk", at) || !hd_arg_in_step(p, "chunk", &x, 1))
		return NULL;
	if (parts < 1)
		return hd_plan_fail(p, HD_EINVAL, "chunk: %lld parts of %s", (long long)parts, dim->name), NULL;
	return hd_host_view(hd_build_chunk(p, T(x), dim, parts, at));
}

/* Checks that the inputs can be pieces of one tensor: they must have equal dims, local sizes and dtypes. */
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

struct hd_tensor *hd_host_join(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, const struct hd_dim *dim,
			       const struct hd_pos *at)
{
	if (!hd_may_build_pieces(p, "join") || !hd_arg_dim(p, "join", "dim", dim) || !pieces_alike(p, "join", xs, n) ||
	    (at && !hd_arg_pos(p, "join", at)) || !hd_arg_in_step(p, "join", xs, n))
		return NULL;
	return hd_host_view(hd_build_join(p, (struct tensor *const *)xs, n, dim, at));
}

struct hd_tensor *hd_host_pick(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, const struct hd_pos *at)
{
	if (!hd_may_build_pieces(p, "pick") || !pieces_alike(p, "pick", xs, n) || !hd_arg_pos(p, "pick", at) ||
	    !hd_arg_in_step(p, "pick", xs, n))
		return NULL;
	return hd_host_view(hd_build_pick(p, (struct tensor *const *)xs, n, at));
}

struct hd_tensor *hd_host_pack(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, int64_t multiple)
{
	if (!hd_may_build_pieces(p, "pack") || !hd_arg_tensors(p, "pack", xs, n, 1, MANY) ||
	    !hd_arg_in_step(p, "pack", xs, n))
		return NULL;
	if (multiple > 1 << 24)
		return hd_plan_fail(p, HD_EINVAL, "pack: a multiple of %lld, more than %d", (long long)multiple,
				    1 << 24),
		       NULL;
	return hd_host_view(hd_build_pack(p, (struct tensor *const *)xs, n, multiple));
}

int hd_host_unpack(struct hd_plan *p, struct hd_tensor *flat, struct hd_tensor *const *like, uint32_t n,
		   struct hd_tensor **out)
{
	if (!hd_may_build_pieces(p, "unpack") || !hd_arg_tensor(p, "unpack", "flat tensor", flat) ||
	    !hd_arg_tensors(p, "unpack", like, n, 0, MANY) || !hd_arg_in_step(p, "unpack", &flat, 1))
		return p->err->code;
	if (n && !out)
		return hd_plan_fail(p, HD_EBUG, "unpack: the array for the results is NULL");
	return hd_build_unpack(p, T(flat), (struct tensor *const *)like, n, (struct tensor **)out);
}
