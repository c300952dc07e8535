/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/matmul/tile.h - how a block of 256 threads computes 128 x 128 of a product on tensor cores.
 *
 * Operands are bf16, and sums are in fp32 in one order.  Operands arrive in shared memory in stages of 64 of the
 * depth, copied two ahead (mma.h has the layout of a tile).
 */
#ifndef HD_KERNELS_CUDA_MATMUL_TILE_H
#define HD_KERNELS_CUDA_MATMUL_TILE_H
#include "kernels/cuda/base/mma.h"

#define TILE 128 /* rows and columns of a block's product */
#define DEEP 64  /* of the summed dim in a stage */
#define STAGES 3
#define THREADS 256
#define STAGE (2 * TILE * DEEP) /* elements of both operands */
#define SHARED_BYTES ((size_t)STAGES * STAGE * sizeof(bf16))

/* Copies ROWS rows of D elements from (row, col) of a matrix of have_rows x have_cols (a multiple of 8); zeros
 * outside it. */
template <int D, int ROWS>
HD_DEV void fill_part(bf16 *tile, const bf16 *from, int64_t stride, int64_t row, int64_t col, int64_t have_rows,
		      int64_t have_cols)
{
	const int PIECES = D / 8, STEP = THREADS / PIECES;
	int piece = (int)threadIdx.x % PIECES, r = (int)threadIdx.x / PIECES;
	int64_t more = col + piece * 8 < have_cols ? have_rows - row - r : 0;
	int left = more < ROWS ? (int)more : ROWS;
	bf16 *to = tile_at<D>(tile, r, piece * 8);
	const bf16 *at = from + (row + r) * stride + col + piece * 8;

	static_assert(THREADS % PIECES == 0 && STEP % 8 == 0 && ROWS % STEP == 0, "a tile is whole rounds of copies");
#pragma unroll
	for (int k = 0; k < ROWS; k += STEP, at += STEP * stride)
		copy_piece(to + k * D, k < left ? at : from, k < left);
}

/* Loads rows m = row ... row + 15 and d = col ... col + 15 as an A fragment, where the tile's rows are d. */
template <int D> HD_DEV void fragment_at(uint32_t *a, bf16 *tile, int row, int col)
{
	int lane = (int)threadIdx.x & 31;

	matrices(a, tile_at<D>(tile, col + lane / 16 * 8 + lane % 8, row + lane / 8 % 2 * 8), 1);
}

/* Adds a stage's products to a warp's 64 x 32 at (wm, wn).  TA: the rows of ta are those of the depth.  TB: the rows
 * of tb are columns of the product. */
template <int TA, int TB> HD_DEV void add_products(float (*sum)[4][4], bf16 *ta, bf16 *tb, int wm, int wn)
{
#pragma unroll
	for (int k = 0; k < DEEP; k += 16) {
		uint32_t fa[4][4], fb[2][4];

#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (TA)
				fragment_at<TILE>(fa[i], ta, wm + i * 16, k);
			else
				fragment_a<DEEP>(fa[i], ta, wm + i * 16, k);
		}
#pragma unroll
		for (int j = 0; j < 2; j++) {
			if (TB)
				fragment_b<DEEP>(fb[j], tb, wn + j * 16, k);
			else
				fragment_bt<TILE>(fb[j], tb, k, wn + j * 16);
		}
#pragma unroll
		for (int i = 0; i < 4; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				mma(sum[i][j], fa[i], fb[j / 2] + j % 2 * 2);
	}
}

/* add_two adds two adjacent columns at y to x; put_two stores them. */
HD_DEV void add_two(float *x, const float *y)
{
	x[0] += y[0], x[1] += y[1];
}
HD_DEV void add_two(float *x, const bf16 *y)
{
	x[0] += to_float(y[0]), x[1] += to_float(y[1]);
}
HD_DEV void put_two(float *y, const float *x)
{
	store<2>(y, x);
}
HD_DEV void put_two(bf16 *y, const float *x)
{
	store<2>(y, x);
}

#endif
