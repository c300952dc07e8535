/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/columns.h - sums over the rows of a matrix, computed by the kernel that produces or reads it.
 *
 * Blocks of a fixed number of rows are summed in fp32, each by any thread. Then the blocks are added in order, in
 * double. So no sum depends on the number of threads. The sums of blocks are in scratch.
 */
#ifndef HD_KERNELS_CPU_BASE_COLUMNS_H
#define HD_KERNELS_CPU_BASE_COLUMNS_H
#include <stdlib.h>
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/scratch.h"

struct hd_column_sums {
	int64_t rows, cols; /* cols: of all sums together */
	int64_t block;      /* rows of a block */
};
static inline int64_t hd_column_sums_blocks(const struct hd_column_sums *c)
{
	return (c->rows + c->block - 1) / c->block;
}

/* A block has 64 rows, or 256 where that would be many blocks. */
static inline struct hd_column_sums hd_column_sums_of(int64_t rows, int64_t cols)
{
	return (struct hd_column_sums){ rows, cols, rows > 8192 ? 256 : 64 };
}

/* Returns the bytes of scratch: blocks x cols floats. */
static inline int64_t hd_column_sums_bytes(const struct hd_column_sums *c)
{
	return hd_column_sums_blocks(c) * c->cols * (int64_t)sizeof(float);
}

#define HD_COLUMNS_PIECE 256

HD_CLONES static inline void hd_column_sums_piece(float *y, const float *part, int64_t step, int64_t blocks, int64_t n,
						  int acc)
{
	double sum[HD_COLUMNS_PIECE];

	for (int64_t j = 0; j < n; j++)
		sum[j] = acc ? (double)y[j] : 0;
	for (int64_t b = 0; b < blocks; b++, part += step) {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			sum[j] += (double)part[j];
	}
	for (int64_t j = 0; j < n; j++)
		y[j] = (float)sum[j];
}

/* Adds up the n sums from `from` on, and writes them to y or, with acc, adds them. */
__attribute__((unused)) static void hd_column_sums_join(const struct hd_column_sums *c, int64_t from, int64_t n,
							float *y, int acc)
{
	int64_t blocks = hd_column_sums_blocks(c);

#pragma omp parallel for schedule(static) if (n * blocks >= HD_SMALL)
	for (int64_t j = 0; j < n; j += HD_COLUMNS_PIECE)
		hd_column_sums_piece(y + j, (const float *)hd_scratch() + from + j, c->cols, blocks,
				     hd_min(HD_COLUMNS_PIECE, n - j), acc);
}

#endif
