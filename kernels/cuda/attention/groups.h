/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/attention/groups.h - what attention by wgmma shares, forward and backward (attention_wgmma.cu, attention_wgmma_d.cu):
 * blocks of three groups of four warps.  Of the first one warp fetches tiles; each of the others has half of the block's rows.
 */
#ifndef HD_KERNELS_CUDA_ATTENTION_GROUPS_H
#define HD_KERNELS_CUDA_ATTENTION_GROUPS_H
#include "kernels/cuda/attention/tiles.h"
#include "kernels/cuda/base/hopper.h"

#define THREADS 384
#define ROWS 128 /* queries or keys of a block */
#define KEYS 128 /* of a tile, beside queries */

#ifdef HD_HOPPER
/* Tiles of keys that queries i0 ... i0 + ROWS - 1 look at: keys from ... on, so many. */
struct span {
	int64_t from;
	int n;
};

HD_DEV span span_of(const hd_att &t, int64_t i0)
{
	int64_t from = t.passed(i0) / KEYS * KEYS, end = t.seen(hd_least(i0 + ROWS, t.seq) - 1);

	return span{ from, end > from ? (int)((end - from + KEYS - 1) / KEYS) : 0 };
}

/* N rows of a head, which arrive at a barrier that expects them. */
template <int D, int N>
HD_DEV void fetch_rows(unsigned char *to, const hd_tensor_map *m, int head, int64_t row, int b, uint64_t *there)
{
	for (int c = 0; c < D; c += 64)
		fetch_tile(to + c / 64 * N * HD_ROW_BYTES, m, c, head, (int)row, b, there);
}

/* s (64 x N) = 64 of a's ROWS rows times the N rows of b. */
template <int D, int N> HD_DEV void begin_scores(float (*s)[4], const unsigned char *a, const unsigned char *b)
{
#pragma unroll
	for (int d = 0; d < D; d += 16)
		group_mma<N>(s, hd_tile(a + d / 64 * ROWS * HD_ROW_BYTES + d % 64 * 2, 8 * HD_ROW_BYTES, 16),
			     hd_tile(b + d / 64 * N * HD_ROW_BYTES + d % 64 * 2, 8 * HD_ROW_BYTES, 16), d > 0);
	group_commit();
}

/* o (64 x D) += p (64 x N, in registers) times the N rows of v. */
template <int D, int N> HD_DEV void begin_sum(float (*o)[4], uint32_t (*p)[4], const unsigned char *v)
{
#pragma unroll
	for (int kk = 0; kk < N / 16; kk++)
		group_mma_t<D>(o, p[kk], hd_tile(v + kk * 16 * HD_ROW_BYTES, 8 * HD_ROW_BYTES, N * HD_ROW_BYTES), 1);
	group_commit();
}

/* Scores as operands: not while a product reads those of the tile before, which may lie in the same registers. */
template <int N> HD_DEV void pack_scores(uint32_t (*p)[4], float (*s)[4])
{
#pragma unroll
	for (int kk = 0; kk < N / 16; kk++)
		fragment_of_sums(p[kk], s, kk);
}

HD_DEV void let_go(uint64_t *free)
{
	if (threadIdx.x % 32 == 0)
		barrier_arrive(free);
}
#endif

#endif
