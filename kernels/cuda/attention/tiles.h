/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/attention/tiles.h - a tile's scores in registers, laid out like the sums of tensor-core products
 * (base/mma.h).
 *
 * A lane has two rows, g and g + 8 of its warp's 16, and in each of them two adjacent columns of every eight.
 */
#ifndef HD_KERNELS_CUDA_ATTENTION_TILES_H
#define HD_KERNELS_CUDA_ATTENTION_TILES_H
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/base/mma.h"

/* Returns x.  The compiler cannot compute anything from the result before this point, so it cannot keep such values
 * in scarce registers across a loop. */
HD_DEV int afresh(int x)
{
#ifndef HD_SIM
	asm volatile("" : "+r"(x));
#endif
	return x;
}

/* Writes sums to two rows of global memory (g and g + 8 of the warp's 16, of which `have` exist), times a factor for
 * each. */
template <int D> HD_DEV void put_rows(bf16 *to, int64_t stride, int64_t have, float (*o)[4], float low, float high)
{
	int lane = afresh((int)threadIdx.x % 32), g = lane / 4, t = lane % 4;

#pragma unroll
	for (int n = 0; n < D / 8; n++) {
		if (g < have)
			*(uint32_t *)(void *)(to + g * stride + n * 8 + 2 * t) =
				hd_bf16_pair(o[n][0] * low, o[n][1] * low);
		if (g + 8 < have)
			*(uint32_t *)(void *)(to + (g + 8) * stride + n * 8 + 2 * t) =
				hd_bf16_pair(o[n][2] * high, o[n][3] * high);
	}
}

HD_DEV float four_max(float x) /* over the four lanes that share a row of sums */
{
	x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
	return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
HD_DEV float four_sum(float x)
{
	x += __shfl_xor_sync(~0u, x, 1);
	return x + __shfl_xor_sync(~0u, x, 2);
}

/* Returns how many of a tile's N elements come before x: 0 ... N. */
template <int N> HD_DEV int within(int64_t x)
{
	return x < 0 ? 0 : x < N ? (int)x : N;
}

template <int N> HD_DEV int within(int x)
{
	return x < 0 ? 0 : x < N ? x : N;
}

/* Sets to -inf the columns before gone[e] and from left[e] on, for each of the lane's two rows e. */
template <int NT> HD_DEV void hide(float (*s)[4], const int *gone, const int *left)
{
	int c = (int)threadIdx.x % 4 * 2, to[2] = { left[0] - c, left[1] - c }, from[2] = { gone[0] - c, gone[1] - c };

#pragma unroll
	for (int n = 0; n < NT; n++)
#pragma unroll
		for (int x = 0; x < 4; x++)
			s[n][x] = n * 8 + x % 2 < to[x / 2] && n * 8 + x % 2 >= from[x / 2] ? s[n][x] : -INFINITY;
}

/* Turns products into capped scores. */
template <int NT> HD_DEV void cap(const hd_att &t, float (*s)[4])
{
#pragma unroll
	for (int n = 0; n < NT; n++)
#pragma unroll
		for (int x = 0; x < 4; x++)
			s[n][x] = t.capped(t.scale * s[n][x]);
}

/* The same; also multiplies d, the gradients of the capped scores, by the cap's slope. */
template <int NT> HD_DEV void cap_both(const hd_att &t, float (*s)[4], float (*d)[4])
{
	cap<NT>(t, s);
#pragma unroll
	for (int n = 0; n < NT; n++)
#pragma unroll
		for (int x = 0; x < 4; x++)
			d[n][x] *= t.slope(s[n][x]);
}

/* Sets to 0 the columns outside from[e] ... to[e] - 1, for each of the lane's two rows e: they are masked or do not
 * exist. */
template <int NT> HD_DEV void drop(float (*p)[4], const int *from, const int *to)
{
	int c = (int)threadIdx.x % 4 * 2, a[2] = { from[0] - c, from[1] - c }, b[2] = { to[0] - c, to[1] - c };

#pragma unroll
	for (int n = 0; n < NT; n++)
#pragma unroll
		for (int x = 0; x < 4; x++) {
			int at = n * 8 + x % 2;

			p[n][x] = at >= a[x / 2] && at < b[x / 2] ? p[n][x] : 0;
		}
}

/* Returns the factor that makes an exponent of 2 from a score with the cap, or from a product. */
HD_DEV float exponent(const hd_att &t)
{
	return t.softcap > 0 ? HD_LOG2E : t.scale * HD_LOG2E;
}

template <int N> HD_DEV void clear(float (*s)[4])
{
#pragma unroll
	for (int n = 0; n < N; n++)
		s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
}

#endif
