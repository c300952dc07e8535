/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/vectors.h - sums of a row in several vectors at once.  One vector of sums waits for each addition to end; HD_SUMS of
 * them keep the adders busy.  The order of additions is the same on every processor.
 */
#ifndef HD_KERNELS_CPU_BASE_VECTORS_H
#define HD_KERNELS_CPU_BASE_VECTORS_H
#include "kernels/cpu/base/low.h"

#define HD_LANES 16
#define HD_SUMS 4
#define HD_STRIDE (HD_LANES * HD_SUMS)
#define HD_INLINE static inline __attribute__((always_inline, unused))

typedef float hd_floats __attribute__((vector_size(4 * HD_LANES)));

/* Elements j to j + 15 of x, bf16 if low (a constant). */
HD_INLINE void hd_get_floats(hd_floats *v, const void *x, const int low, int64_t j)
{
	typedef uint16_t halves __attribute__((vector_size(2 * HD_LANES)));
	typedef uint32_t words __attribute__((vector_size(4 * HD_LANES)));
	halves h;
	words w;

	if (!low) {
		memcpy(v, (const float *)x + j, sizeof(*v));
		return;
	}
	memcpy(&h, (const uint16_t *)x + j, sizeof(h));
	w = __builtin_convertvector(h, words) << 16;
	memcpy(v, &w, sizeof(*v));
}

/* All lanes of the vectors: the upper half to the lower, and so on. */
HD_INLINE float hd_sum_floats(const hd_floats v[HD_SUMS])
{
	typedef float eight __attribute__((vector_size(32)));
	typedef float four __attribute__((vector_size(16)));
	hd_floats all = (v[0] + v[1]) + (v[2] + v[3]);
	eight e[2];
	four f[2];

	memcpy(e, &all, sizeof(e));
	e[0] += e[1];
	memcpy(f, e, sizeof(f));
	f[0] += f[1];
	return (f[0][0] + f[0][2]) + (f[0][1] + f[0][3]);
}

#endif
