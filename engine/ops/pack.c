/* SPDX-License-Identifier: Apache-2.0
 * Packs tensors into one flat tensor, and unpacks them: complete tensors, or their pieces member by member.
 */
#include <config.h>
#include "engine/ops/ops.h"
#include "engine/ops/movement.h"
#include <stdio.h>
#include <string.h>

/* Pieces begin at multiples of 64 bytes, so that kernels and the memory plan may use them in place. */
static int64_t aligned(uint32_t dtype)
{
	return 64 * 8 / (int64_t)HD_BITS(dtype);
}

static int64_t packed(const struct tensor *t)
{
	int64_t each = aligned(t->v.dtype);

	return (hd_local_count(t) + each - 1) / each * each;
}

struct tensor *hd_build_pack(struct hd_plan *p, struct tensor *const *xs, uint32_t n, int64_t multiple)
{
	struct hd_shape s = { 0 };
	int64_t total = 0, unit = multiple > 0 ? multiple : 1;
	char name[48];

	for (uint32_t i = 0; i < n; i++) {
		if (!xs[i])
			return NULL;
		if (xs[i]->v.dtype != xs[0]->v.dtype)
			return hd_plan_fail(p, HD_EINVAL, "pack: input %u has a different dtype from input 0", i), NULL;
		total += packed(xs[i]);
	}
	/* Like each piece, it ends at a multiple of 64 bytes.  With multiple 1 or 0, it ends where its last piece does:
	 * so unpack finds the pieces of several copies that were gathered one after the other. */
	unit *= aligned(xs[0]->v.dtype);
	total = (total + unit - 1) / unit * unit;
	snprintf(name, sizeof(name), "flat%lld", (long long)total);
	s.dtype = xs[0]->v.dtype;
	s.ndim = 1;
	s.dims[0] = hd_dim_get(p, name, total);
	s.local[0] = total;
	return hd_build_moved(p, "pack", xs, n, "", &s);
}

int hd_build_unpack(struct hd_plan *p, struct tensor *flat, struct tensor *const *like, uint32_t n, struct tensor **out)
{
	int64_t at = 0, need = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (!flat || !like || !like[i])
			return hd_plan_fail(p, HD_EBUG, "unpack: the %s is NULL",
					    flat ? "tensor to be like" : "flat tensor");
		need += packed(like[i]);
	}
	if (n && (flat->v.ndim != 1 || flat->local[0] < need))
		return hd_plan_fail(
			p, HD_EINVAL,
			"unpack: (%s) has %lld elements, but the tensors to be like have %lld as pack lays them out",
			flat->spec, (long long)hd_local_count(flat), (long long)need);
	for (uint32_t i = 0; i < n; i++) {
		struct hd_shape s;

		hd_shape_of(&s, like[i]);
		s.dtype = flat->v.dtype;
		out[i] = hd_build_moved(p, "unpack", &flat, 1, hd_plan_text(p, "at=%lld", (long long)at), &s);
		if (!out[i])
			return p->err->code;
		hd_placed_like(out[i], like[i]);
		at += packed(like[i]);
	}
	return p->err->code;
}

/* Returns the elements of a piece along dim k, rounded up to whole lines of 64 bytes. */
static int64_t packed_piece(const struct tensor *x, int k, int64_t parts)
{
	int64_t each = aligned(x->v.dtype), n = hd_piece(x->local[k], parts);

	for (int i = 0; i < (int)x->v.ndim; i++)
		n *= i == k ? 1 : x->local[i];
	return (n + each - 1) / each * each;
}

static struct tensor *in_pieces(struct hd_plan *p, struct tensor *y, const struct hd_dim *const *dims, uint32_t n,
				int64_t parts)
{
	if (!y)
		return NULL;
	N(y->v.node)->parts = parts;
	N(y->v.node)->alongs = hd_plan_alloc(p, n * sizeof(*dims));
	memcpy(N(y->v.node)->alongs, dims, n * sizeof(*dims));
	return y;
}

struct tensor *hd_build_pack_pieces(struct hd_plan *p, struct tensor *const *xs, const struct hd_dim *const *dims,
				    uint32_t n, int64_t parts)
{
	struct hd_shape s = { 0 };
	int64_t row = 0;

	for (uint32_t i = 0; i < n; i++) {
		int k = xs[i] ? hd_dim_index(xs[i], dims[i]) : -1;

		if (k < 0)
			return hd_plan_fail(p, HD_EINVAL, "pack_pieces: (%s) has no %s", xs[i] ? xs[i]->spec : "",
					    dims[i]->name),
			       NULL;
		if (xs[i]->v.dtype != xs[0]->v.dtype)
			return hd_plan_fail(p, HD_EINVAL, "pack_pieces: input %u has a different dtype from input 0",
					    i),
			       NULL;
		row += packed_piece(xs[i], k, parts);
	}
	s.dtype = xs[0]->v.dtype;
	s.ndim = 1;
	s.dims[0] = hd_dim_get(p, hd_plan_text(p, "flat%lld", (long long)(row * parts)), row * parts);
	s.local[0] = row * parts;
	return in_pieces(p, hd_build_moved(p, "pack", xs, n, hd_plan_text(p, "parts=%lld", (long long)parts), &s), dims,
			 n, parts);
}

int hd_build_unpack_pieces(struct hd_plan *p, struct tensor *flat, struct tensor *const *like,
			   const struct hd_dim *const *dims, uint32_t n, int64_t parts, struct tensor **out)
{
	int64_t at = 0, row = 0;

	for (uint32_t i = 0; flat && i < n; i++)
		row += packed_piece(like[i], 0, 1);
	if (!flat || flat->v.ndim != 1 || flat->local[0] < row * parts)
		return hd_plan_fail(p, HD_EINVAL, "unpack_pieces: (%s) has %lld elements, but %lld pieces have %lld",
				    flat ? flat->spec : "", flat ? (long long)hd_local_count(flat) : 0LL,
				    (long long)parts, (long long)(row * parts));
	for (uint32_t i = 0; i < n; i++) {
		int k = hd_dim_index(like[i], dims[i]);
		struct hd_shape s;

		if (k < 0)
			return hd_plan_fail(p, HD_EINVAL, "unpack_pieces: (%s) has no %s", like[i]->spec,
					    dims[i]->name);
		hd_shape_of(&s, like[i]);
		s.dtype = flat->v.dtype;
		s.local[k] = hd_joined(p, like[i], (uint32_t)k, parts);
		out[i] = in_pieces(p,
				   hd_build_moved(p, "unpack", &flat, 1,
						  hd_plan_text(p, "at=%lld row=%lld parts=%lld", (long long)at,
							       (long long)row, (long long)parts),
						  &s),
				   &dims[i], 1, parts);
		if (!out[i])
			return p->err->code;
		hd_placed_like(out[i], like[i]);
		at += packed_piece(like[i], 0, 1);
	}
	return p->err->code;
}
