/* SPDX-License-Identifier: Apache-2.0
 * Builds sums in a stated order from single messages and additions.
 *
 * Each message and each addition is a node: a ring over n members has 2 (n - 1) of them. Transports on the host have
 * one call for the complete sum, with bit-identical results. On a device, kernels do the additions, and its library
 * only the messages.
 */
#include <config.h>
#include "engine/host/host_impl.h"
#include "engine/graph/placement.h"
#include "engine/ops/movement.h"
#include <stdlib.h>

#define MOST 8 /* maximum number of terms that one node adds */

static struct tensor *placed_like(struct tensor *y, const struct tensor *like)
{
	if (y)
		hd_placed_like(y, like);
	return y;
}

static struct tensor *map(struct hd_plan *p, struct tensor *const *x, uint32_t n, const char *text)
{
	return x[0] && x[n - 1] ? placed_like(hd_map_new(p, x, n, text), x[0]) : NULL;
}

static struct tensor *cast(struct hd_plan *p, struct tensor *x, uint32_t dtype)
{
	return x ? placed_like(hd_op1(p, "cast", &x, 1, "dtype=%u", dtype), x) : NULL;
}

/* Sends x to the member `by` places further, and returns what arrives, in the dtype of x. It is sent in dtype wire, if
 * given; fp16 values are multiplied by 1024 on the way. */
static struct tensor *shift(struct hd_plan *p, struct group *g, struct tensor *x, int64_t by, uint32_t wire)
{
	uint32_t dtype = x ? x->v.dtype : 0;

	if (x && wire == HD_DTYPE_F16)
		x = map(p, &x, 1, "a * 1024");
	if (x && wire)
		x = cast(p, x, wire);
	x = hd_build_comm(p, HD_COMM_SHIFT, g, x, NULL, by);
	if (x && wire)
		x = cast(p, x, dtype);
	return x && wire == HD_DTYPE_F16 ? map(p, &x, 1, "a / 1024") : x;
}

static struct tensor *ring_sum(struct hd_plan *p, struct group *g, struct tensor *x, const struct hd_dim *dim,
			       uint32_t wire)
{
	struct hd_pos at = { .group = &g->v, .mul = 1 };
	struct tensor *sum[2];

	sum[0] = hd_build_chunk(p, x, dim, g->v.n, &at);
	for (int32_t i = 1; i < g->v.n; i++) {
		at.add = -i;
		sum[1] = shift(p, g, sum[0], 1, wire);
		sum[0] = hd_build_chunk(p, x, dim, g->v.n, &at);
		sum[0] = map(p, sum, 2, "a + b"); /* what arrives is added to this member's term of the piece */
	}
	return sum[0];
}

static struct tensor *ring_gather(struct hd_plan *p, struct group *g, struct tensor *x, const struct hd_dim *dim,
				  struct tensor **got)
{
	got[0] = x;
	for (int64_t i = 1; i < g->v.n; i++)
		got[i] = shift(p, g, got[i - 1], 1, 0);
	return got[g->v.n - 1] ? hd_build_join(p, got, (uint32_t)g->v.n, dim,
					       &(struct hd_pos){ .group = &g->v, .mul = 1, .add = 1, .step = -1 })
			       : NULL;
}

/* Returns ((x[0] + x[1]) + x[2]) + ..., in nodes of at most MOST terms. */
static struct tensor *from_the_left(struct hd_plan *p, struct tensor *const *x, int64_t n)
{
	static const char *const sums[] = { "a",
					    "a",
					    "a + b",
					    "a + b + c",
					    "a + b + c + d",
					    "a + b + c + d + e",
					    "a + b + c + d + e + f",
					    "a + b + c + d + e + f + g",
					    "a + b + c + d + e + f + g + h" };
	struct tensor *term[MOST] = { x[0] };
	uint32_t k = 1;

	for (int64_t i = 1; i < n; i++) {
		term[k++] = x[i];
		if (k < MOST && i + 1 < n)
			continue;
		term[0] = map(p, term, k, sums[k]);
		k = 1;
	}
	return term[0];
}

/* Returns piece me + ahead of the sum, added in member order. In step i, each member sends member me + i that one's
 * piece, and gets its own piece from member me - i. piece: room for 2 n tensors. */
static struct tensor *ordered_sum(struct hd_plan *p, struct group *g, struct tensor *x, const struct hd_dim *dim,
				  int32_t ahead, uint32_t wire, struct tensor **piece)
{
	int64_t n = g->v.n;
	struct tensor **from = piece + n;

	for (int32_t i = 0; i < n; i++) {
		piece[i] = hd_build_chunk(p, x, dim, n, &(struct hd_pos){ .group = &g->v, .mul = 1, .add = i + ahead });
		if (i)
			piece[i] = shift(p, g, piece[i], i, wire);
		if (!piece[i])
			return NULL;
	}
	for (int32_t j = 0; j < n; j++)
		from[j] = hd_build_pick(p, piece, (uint32_t)n, &(struct hd_pos){ .group = &g->v, .mul = 1, .add = -j });
	return from_the_left(p, from, n);
}

struct tensor *hd_build_ordered_comm(struct hd_plan *p, uint32_t kind, struct group *g, struct tensor *x,
				     const struct hd_dim *dim, uint32_t wire)
{
	struct tensor **room = hd_alloc(2 * (size_t)g->v.n * sizeof(*room)), *y;

	if (kind == HD_COMM_RING_ALL_GATHER)
		y = ring_gather(p, g, x, dim, room);
	else if (kind == HD_COMM_RING_REDUCE_SCATTER && !p->config.rank_order)
		y = ring_sum(p, g, x, dim, wire);
	else
		y = ordered_sum(p, g, x, dim, kind == HD_COMM_RING_REDUCE_SCATTER, wire, room);
	free(room);
	return y;
}
