/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/lanes.h - vectors of HD_VL floats, and how their lanes are rearranged. A file is compiled once for
 * each vector width: it defines HD_VL before it includes this.
 */
#ifndef HD_KERNELS_CPU_BASE_LANES_H
#define HD_KERNELS_CPU_BASE_LANES_H
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline, unused))

typedef float V __attribute__((vector_size(HD_VL * 4), may_alias));
typedef float VU __attribute__((vector_size(HD_VL * 4), aligned(4), may_alias));
typedef uint16_t HU __attribute__((vector_size(HD_VL * 2), aligned(2), may_alias));
typedef uint32_t VI __attribute__((vector_size(HD_VL * 4)));
typedef int32_t VS __attribute__((vector_size(HD_VL * 4)));

/* Returns HD_VL floats from element `at` of x on, which is bf16 if low. */
INLINE V load_floats(const void *x, const int low, int64_t at)
{
	if (!low)
		return *(const VU *)((const float *)x + at);
	return (V)(__builtin_convertvector(*(const HU *)((const uint16_t *)x + at), VI) << 16);
}

INLINE VS iota(void)
{
	VS x;

	for (int i = 0; i < HD_VL; i++)
		x[i] = i;
	return x;
}

/* Returns a vector whose lane i is lane from[i] of a and b concatenated. */
INLINE V lanes(V a, V b, VS from)
{
#ifdef __clang__ /* its shuffles accept only constants */
	V x;

	for (int i = 0; i < HD_VL; i++)
		x[i] = from[i] < HD_VL ? a[from[i]] : b[from[i] - HD_VL];
	return x;
#else
	return __builtin_shuffle(a, b, from);
#endif
}

/* low_lanes() returns the lanes of a and b whose index lacks bit w, high_lanes() the other ones. Those of a land in
 * lanes without bit w, those of b in lanes with it. */
INLINE V low_lanes(V a, V b, int w)
{
	VS lane = iota(), odd = (lane & w) != 0;

	return lanes(a, b, lane + (odd & (HD_VL - w)));
}

INLINE V high_lanes(V a, V b, int w)
{
	VS lane = iota(), odd = (lane & w) != 0;

	return lanes(a, b, lane + w + (odd & (HD_VL - w)));
}

INLINE void transpose_stage(V *x, int w)
{
#pragma GCC unroll 16
	for (int i = 0; i < HD_VL; i++)
		if (!(i & w)) {
			V a = x[i], b = x[i + w];

			x[i] = low_lanes(a, b, w);
			x[i + w] = high_lanes(a, b, w);
		}
}

INLINE void transpose(V *x) /* HD_VL vectors */
{
#if HD_VL >= 16
	transpose_stage(x, 8);
#endif
#if HD_VL >= 8
	transpose_stage(x, 4);
#endif
	transpose_stage(x, 2);
	transpose_stage(x, 1);
}

#endif
