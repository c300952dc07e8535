/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/simd.h - what the vector loops of the cpu kernels share.
 *
 * HD_CLONES before a function compiles it for AVX-512, AVX2 and the baseline, chosen when the
 * program starts.  The region of an `omp parallel` is compiled apart and would not inherit
 * that, so a kernel's run holds the threads and calls cloned functions on pieces.  Pieces have
 * sizes that do not depend on the number of threads.
 *
 * Functions here are plain scalar code without calls and branches, so that `omp simd` loops can
 * take them in.
 */
#ifndef HD_KERNELS_CPU_SIMD_H
#define HD_KERNELS_CPU_SIMD_H
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "engine/base/half.h"

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && \
	!defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if __GNUC__ >= 12
#define HD_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#endif
#ifndef HD_CLONES
#define HD_CLONES
#endif

#define HD_CHUNK 4096	/* elements of one piece of an elementwise kernel: operands fit L1 or L2 */
#define HD_SMALL 16384	/* fewer elements: waking the threads costs more than they save */

static inline int64_t hd_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* The columns of thread t of n: whole cache lines, so that two threads never write one. */
static inline void hd_columns(int64_t cols, int t, int n, int64_t *from, int64_t *to)
{
	int64_t lines = (cols + 15) / 16;

	*from = hd_min(cols, lines * t / n * 16);
	*to = hd_min(cols, lines * (t + 1) / n * 16);
}

/* NaN stays NaN. */
static inline float hd_clamp(float x, float low, float high)
{
	x = x > high ? high : x;
	return x < low ? low : x;
}

/* e^x within 1 ulp or so; 0 where it would be denormal, inf from 88.4 on; NaN stays NaN.
 * x = n ln 2 + r with |r| <= ln(2)/2: adding 1.5 * 2^23 rounds to n, and adding 127 as well
 * leaves the exponent of 2^n in the low bits, of which a shift makes 2^n (0 for n = -127, inf
 * for 128).  e^r by Cephes' polynomial. */
static inline float hd_expf(float x)
{
	const float magic = 0x1.8p23f + 127;
	float t, n, r, p;

	t = x * 1.44269504f + magic;
	n = t - magic;
	r = x - n * 0x1.62e4p-1f;		/* ln 2 in two parts: 15 bits times n is exact */
	r = r - n * 1.42860682e-6f;
	p = 1.9875691500e-4f;
	p = p * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * (r * r) + r + 1;
	p *= hd_float_of(hd_bits_of(t) << 23);
	p = x < -87.5f ? 0 : p; /* here, not before: gcc would make three paths of a clamped x */
	return x > 88.3f ? HUGE_VALF : p;
}

static inline float hd_sigmoid(float x)
{
	return 1 / (1 + hd_expf(-x));
}

#endif
