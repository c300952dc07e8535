/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/rows/norm.h - rows in the registers of ROW threads, a warp or a block where rows are long: what norm and its
 * gradients share.  K: vectors of each thread.
 */
#ifndef HD_KERNELS_CUDA_ROWS_NORM_H
#define HD_KERNELS_CUDA_ROWS_NORM_H
#include "kernels/cuda/base/columns.h"
extern "C" {
#include "kernels/prepare/norm.h"
}

#define THREADS 128
#define FOUR \
	4 /* elements of a vector of a row: weights are fp32 beside bf16, and lanes read them side by side by 16 bytes */

/* Over the threads of a row.  scratch is of this sum alone, so one barrier will do. */
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

/* Whether vector k of this thread is in the row.  Of rows that `hold_row` gives to K and ROW the first are, which costs no comparison. */
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

/* l.go<K, ROW>() with the fewest registers that hold a row.  0: none do. */
template <class L> static int hold_row(int64_t cols, const L &l)
{
	if (cols <= 4 * HD_WARP * FOUR)
		l.template go<4, HD_WARP>();
	else if (cols <= 6 * HD_WARP * FOUR)
		l.template go<6, HD_WARP>();
	else if (cols <= 8 * HD_WARP * FOUR)
		l.template go<8, HD_WARP>();
	else if (cols <= 8 * 64 * FOUR)
		l.template go<8, 64>();
	else if (cols <= 8 * 128 * FOUR)
		l.template go<8, 128>();
	else if (cols <= 8 * 256 * FOUR)
		l.template go<8, 256>();
	else
		return 0;
	return 1;
}

/* Threads of a block, and blocks. */
template <int ROW> static unsigned row_threads(void)
{
	return ROW == HD_WARP ? THREADS : ROW;
}
template <int ROW> static unsigned row_blocks(int64_t rows)
{
	return (unsigned)((rows * ROW + row_threads<ROW>() - 1) / row_threads<ROW>());
}

#endif
