/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/elementary.h - exp, log, tanh, erf, round and floor of one float, by range reduction and the
 * polynomials of Cephes (single precision). They have no calls or branches, so a loop over them vectorizes.
 *
 * hd_expf is the short version, for kernels that know their arguments. Functions with the suffix _all take any
 * argument a map expression may have. Their errors are below 2 units in the last place, denormals, infinities and NaN
 * included.
 */
#ifndef HD_KERNELS_CPU_BASE_ELEMENTARY_H
#define HD_KERNELS_CPU_BASE_ELEMENTARY_H
#include <math.h>
#include <stdint.h>
#include "engine/base/half.h"

/* Returns e^r for |r| <= ln(2)/2. */
static inline float hd_exp_reduced(float r)
{
	float p = 1.9875691500e-4f;

	p = p * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	return p * (r * r) + r + 1;
}

/* Returns e^x within about 1 ulp, for |x| <= 87 only; NaN stays NaN. x = n ln 2 + r with |r| <= ln(2)/2: adding
 * 1.5 * 2^23 rounds to n. Adding 127 as well leaves the exponent of 2^n in the low bits. A shift turns them into 2^n
 * (0 for n = -127, inf for 128). */
static inline float hd_expf_within(float x)
{
	const float magic = 0x1.8p23f + 127;
	float t = x * 1.44269504f + magic, n = t - magic, r;

	r = x - n * 0x1.62e4p-1f; /* ln 2 in two parts: 15 bits times n is exact */
	r = r - n * 1.42860682e-6f;
	return hd_exp_reduced(r) * hd_float_of(hd_bits_of(t) << 23);
}

/* The same for any x: 0 below -87.5, inf above 88.3. */
static inline float hd_expf(float x)
{
	float p = hd_expf_within(x);

	p = x < -87.5f ? 0 : p; /* here and not earlier: gcc would split a clamped x into three paths */
	return x > 88.3f ? HUGE_VALF : p;
}

static inline float hd_sigmoid(float x)
{
	return 1 / (1 + hd_expf(-x));
}

/* Returns c ? x : y with bit operations: GCC turns two ?: on one number into jumps, and then does not vectorize. */
static inline float hd_pick(int c, float x, float y)
{
	uint32_t mask = -(uint32_t)c;

	return hd_float_of((hd_bits_of(x) & mask) | (hd_bits_of(y) & ~mask));
}

static inline float hd_expf_all(float x)
{
	const float magic = 0x1.8p23f;                              /* adding it leaves an integer in the low bits */
	float in = hd_pick(x > 89, 89, hd_pick(x < -104, -104, x)); /* the results beyond are inf and 0 as well */
	float t = in * 1.44269504f + magic, n = t - magic, r, y;
	int32_t k = (int32_t)(hd_bits_of(t) - 0x4b400000u), half = k >> 1;

	r = in - n * 0.693359375f;
	r = r + n * 2.12194440e-4f;
	/* 2^k in two factors: k is from -150 to 128 */
	y = hd_exp_reduced(r) * hd_float_of((uint32_t)(half + 127) << 23);
	return y * hd_float_of((uint32_t)(k - half + 127) << 23);
}

static inline float hd_logf_all(float x)
{
	const float smallest = 1.17549435e-38f, largest = 3.40282347e38f;
	int tiny = x < smallest;
	uint32_t root_half = 0x3f3504f3;
	int32_t bits = (int32_t)(hd_bits_of(hd_pick(tiny, x * 8388608, x)) - root_half);
	float e = (float)(bits >> 23) - hd_pick(tiny, 23, 0);
	float m = hd_float_of(((uint32_t)bits & 0x7fffff) + root_half) - 1, z = m * m, y;

	y = 7.0376836292e-2f;
	y = y * m - 1.1514610310e-1f;
	y = y * m + 1.1676998740e-1f;
	y = y * m - 1.2420140846e-1f;
	y = y * m + 1.4249322787e-1f;
	y = y * m - 1.6668057665e-1f;
	y = y * m + 2.0000714765e-1f;
	y = y * m - 2.4999993993e-1f;
	y = y * m + 3.3333331174e-1f;
	y = y * m * z - 2.12194440e-4f * e - 0.5f * z;
	y = m + y + 0.693359375f * e;
	y = hd_pick(x == 0, -__builtin_inff(), hd_pick(x < 0, __builtin_nanf(""), y));
	return hd_pick(x <= largest, y, x); /* inf and nan stay */
}

static inline float hd_tanhf_all(float x)
{
	float a = __builtin_fabsf(x), z = x * x, p, q;

	p = -5.70498872745e-3f;
	p = p * z + 2.06390887954e-2f;
	p = p * z - 5.37397155531e-2f;
	p = p * z + 1.33314422036e-1f;
	p = p * z - 3.33332819422e-1f;
	p = p * z * x + x;
	q = __builtin_copysignf(1 - 2 / (hd_expf_all(a + a) + 1), x);
	return hd_pick(a < 0.625f, p, q);
}

/* Returns erf(x) by polynomials fitted at Chebyshev points: in x x below 1, and of exp(x x) erfc(x) in 1 / (1 + x / 2)
 * above. */
static inline float hd_erff_all(float x)
{
	float a = __builtin_fabsf(x), in = hd_pick(a > 4, 4, a), z = in * in, t = 1 / (1 + 0.5f * in), p, q;

	p = 7.882497111e-5f;
	p = p * z - 8.018854992e-4f;
	p = p * z + 5.189311943e-3f;
	p = p * z - 2.68543288e-2f;
	p = p * z + 1.128359746e-1f;
	p = p * z - 3.76126269e-1f;
	p = p * z * in + 1.128379166f * in;
	q = -5.980060307e-2f;
	q = q * t - 3.831472772e-2f;
	q = q * t + 3.799970444e-1f;
	q = q * t + 1.170335876e-1f;
	q = q * t + 3.250410375e-1f;
	q = q * t + 2.74743234e-1f;
	q = q * t + 5.165090508e-4f;
	q = 1 - q * hd_expf_all(-z);
	p = __builtin_copysignf(hd_pick(a < 1, p, q), x);
	return hd_pick(x == x, p, x);
}

/* Rounds to the nearest whole number, ties to even. A number without a fraction is returned as it is. */
static inline float hd_roundf_all(float x)
{
	float a = __builtin_fabsf(x), y = (a + 0x1p23f) - 0x1p23f;

	return hd_pick(a < 0x1p23f, __builtin_copysignf(y, x), x);
}

static inline float hd_floorf_all(float x)
{
	float y = hd_roundf_all(x);

	return y > x ? y - 1 : y;
}

#endif
