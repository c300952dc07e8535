/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/rows/norm.h - rows in registers, for norm and its gradients.
 *
 * ROW threads hold a row: a warp, or a block if rows are long.  K: vectors per thread.
 */
#ifndef HD_KERNELS_CUDA_ROWS_NORM_H
#define HD_KERNELS_CUDA_ROWS_NORM_H
#include "kernels/cuda/base/columns.h"
extern "C" {
#include "kernels/prepare/norm.h"
}

#define THREADS 128
#define FOUR \
	4 /* elements of a vector of a row: with fp32 weights and bf16 rows, lanes still read adjacent 16-byte pieces */

/* Returns the sum over the threads of a row.  No other sum uses scratch, so one barrier suffices. */
template <int ROW> HD_DEV float row_sum(float x, float *scratch)
{
	x = warp_sum(x);
	if (ROW == HD_WARP)
		return x;
	if (threadIdx.x % HD_WARP == 0)
		scratch[threadIdx.x / HD_WARP] = x;
	__syncthreads();
	x = scratch[0];
	for (int i = 1; i < ROW / HD_WARP; i++)
		x += scratch[i];
	return x;
}

/* Returns whether vector k of this thread is in the row.  With the K and ROW that `hold_row` selects, the first
 * vectors always are, which saves comparisons. */
template <int K, int ROW> HD_DEV bool in_row(int k, int first, int cols)
{
	const int always = K <= 4 ? 0 : ROW == HD_WARP ? K - 2 : K / 2;

	return k < always || first + k * ROW * FOUR < cols;
}

template <int K, int ROW, class T> HD_DEV void fetch_row(vec<FOUR, T> *v, const T *x, int first, int cols)
{
#pragma unroll
	for (int k = 0; k < K; k++)
		if (in_row<K, ROW>(k, first, cols))
			v[k] = fetch<FOUR>(x + first + k * ROW * FOUR);
}

/* Calls l.launch<K, ROW>() with the fewest registers that hold a row.  Returns 0 if none do. */
template <class L> static int hold_row(int64_t cols, const L &l)
{
	if (cols <= 4 * HD_WARP * FOUR)
		l.template launch<4, HD_WARP>();
	else if (cols <= 6 * HD_WARP * FOUR)
		l.template launch<6, HD_WARP>();
	else if (cols <= 8 * HD_WARP * FOUR)
		l.template launch<8, HD_WARP>();
	else if (cols <= 8 * 64 * FOUR)
		l.template launch<8, 64>();
	else if (cols <= 8 * 128 * FOUR)
		l.template launch<8, 128>();
	else if (cols <= 8 * 256 * FOUR)
		l.template launch<8, 256>();
	else
		return 0;
	return 1;
}

/* Return the number of threads of a block, and of blocks. */
template <int ROW> static unsigned row_threads(void)
{
	return ROW == HD_WARP ? THREADS : ROW;
}
template <int ROW> static unsigned row_blocks(int64_t rows)
{
	return (unsigned)((rows * ROW + row_threads<ROW>() - 1) / row_threads<ROW>());
}

#endif
