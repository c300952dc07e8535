/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/low.h - a copy of lower precision: casts, and what updates leave beside the master.
 */
#ifndef HD_KERNELS_CPU_LOW_H
#define HD_KERNELS_CPU_LOW_H
#include "kernels/cpu/simd.h"

HD_CLONES static void hd_lower(uint16_t *low, const float *w, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		low[j] = hd_bf16_of(w[j]);
}

#endif
