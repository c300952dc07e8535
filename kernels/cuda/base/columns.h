/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/base/columns.h - sums over the rows of a matrix, for many columns at once.
 *
 * A block has 32 adjacent vectors of columns (a tile) and every nth group of rows (a slab, of n slabs).  It writes
 * its sums to a row of `part`, and a second launch adds these rows: blocks of one launch are never ordered.  So the
 * shape alone determines the order of a sum.
 */
#ifndef HD_KERNELS_CUDA_BASE_COLUMNS_H
#define HD_KERNELS_CUDA_BASE_COLUMNS_H
#include "kernels/cuda/base/cuda.h"

#define HD_LANES 8 /* warps of a block: rows read at a time */
#define HD_JOIN 8  /* slabs that a thread reads at once */

/* Returns the number of slabs: enough to get `blocks` blocks with the given tiles, but each slab has at least `each`
 * groups of rows.  It must not depend on the operands' addresses: scratch memory is requested before these are
 * known. */
static inline int64_t hd_slabs(int64_t rows, int64_t cols, int vector, int64_t blocks, int64_t each)
{
	int64_t tiles = (cols + HD_WARP * vector - 1) / (HD_WARP * vector),
		slabs = hd_least(blocks / (tiles ? tiles : 1), rows / (HD_LANES * each));

	return slabs < 1 ? 1 : slabs;
}

/* Adds the sums of a block's lanes in order, and writes the first `have` columns to `to`. */
template <int N, class P>
HD_DEV void hd_join_lanes(P *to, P (*lanes)[HD_WARP * N], const P *mine, int lane, int c, int64_t have)
{
	for (int k = 0; k < N; k++)
		lanes[lane][c + k] = mine[k];
	__syncthreads();
	for (int i = (int)threadIdx.x; i < HD_WARP * N && i < have; i += HD_WARP * HD_LANES) {
		P sum = lanes[0][i];

		for (int k = 1; k < HD_LANES; k++)
			sum += lanes[k][i];
		to[i] = sum;
	}
	__syncthreads();
}

/* Adds up the first `cols` columns over all slabs, 32 columns per block.  A warp reads every 32nd slab of them, then
 * adds up one column and calls f.put(column, sum). */
template <class P, class F>
__global__ void __launch_bounds__(HD_WARP *HD_WARP)
	hd_join_slabs(const P *part, int64_t slabs, int64_t stride, int64_t cols, F f)
{
	HD_SHARED(P, lanes, [HD_WARP][HD_WARP + 1]);
	int lane = (int)threadIdx.x / HD_WARP, c = (int)threadIdx.x % HD_WARP;
	int64_t first = (int64_t)blockIdx.x * HD_WARP, col = first + c;
	P sum = 0;

	for (int64_t s = lane; s < slabs && col < cols; s += HD_WARP * HD_JOIN) {
		P x[HD_JOIN];

#pragma unroll
		for (int k = 0; k < HD_JOIN; k++)
			x[k] = s + k * HD_WARP < slabs ? part[(s + k * HD_WARP) * stride + col] : 0;
#pragma unroll
		for (int k = 0; k < HD_JOIN; k++)
			sum += x[k];
	}
	lanes[lane][c] = sum;
	__syncthreads();
	sum = warp_sum(lanes[c][lane]);
	if (c == 0 && first + lane < cols)
		f.put(first + lane, sum);
}
template <class P, class F>
static void hd_join(const struct hd_run *r, const P *part, int64_t slabs, int64_t stride, int64_t cols, F f)
{
	HD_LAUNCH((hd_join_slabs<P, F>), (unsigned)((cols + HD_WARP - 1) / HD_WARP), HD_WARP * HD_WARP, 0, r, part,
		  slabs, stride, cols, f);
}

#endif
