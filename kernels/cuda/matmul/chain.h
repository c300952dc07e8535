/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/matmul/chain.h - what the kernels of a sum of products share (chain.cu, chain_wgmma.cu).
 */
#ifndef HD_KERNELS_CUDA_MATMUL_CHAIN_H
#define HD_KERNELS_CUDA_MATMUL_CHAIN_H
#include "kernels/cuda/matmul/product.h"
#include "kernels/cuda/matmul/tile.h"

/* The terms of the sum.  The rows of a (m, depth) are `a_step` elements apart.  Those of b, which is (depth,
 * columns) or (columns, depth), are b_step apart. */
struct hd_terms {
	const bf16 *a[HD_CHAIN_MOST], *b[HD_CHAIN_MOST];
	int64_t a_step[HD_CHAIN_MOST], b_step[HD_CHAIN_MOST];
	/* steps: of DEEP; the last step of each term takes the remainder */
	int32_t depth[HD_CHAIN_MOST], m, columns, n, steps;
};

/* A position along all depths. */
struct hd_chain_place {
	int32_t term, d;

	HD_DEV void next(const hd_terms &t)
	{
		d += DEEP;
		if (d >= t.depth[term]) {
			d = 0;
			term++;
		}
	}
};

/* Writes the sums x of two adjacent columns, from (row, col) on: c = (add ? add : 0) + x */
HD_DEV void hd_put_sum(const hd_terms &t, int64_t c_step, bf16 *c, const bf16 *add, int row, int col, float *x)
{
	if (row >= t.m || col >= t.columns)
		return;
	if (add)
		add_two(x, add + (int64_t)row * c_step + col);
	put_two(c + (int64_t)row * c_step + col, x);
}

/* hd_chain_wgmma_has returns 1 if this GPU runs the kernel and it is enabled.  turned: b is (columns, depth). */
int hd_chain_wgmma_has(void);
int hd_chain_wgmma(const hd_terms *t, int turned, int64_t c_step, bf16 *c, const bf16 *add, const struct hd_run *r);

#endif
