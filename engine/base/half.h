/* SPDX-License-Identifier: Apache-2.0
 * engine/base/half.h - conversion between bf16 or fp16 and fp32, to nearest even, in a form that compilers vectorize.
 */
#ifndef HD_ENGINE_HALF_H
#define HD_ENGINE_HALF_H
#include <stdint.h>
#include <string.h>

static inline float hd_float_of(uint32_t u)
{
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static inline uint32_t hd_bits_of(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return u;
}

/* Rounding could carry a NaN into infinity, so a NaN is truncated and made quiet instead. */
static inline uint16_t hd_bf16_of(float f)
{
	uint32_t bits = hd_bits_of(f), nan = bits >> 16 | 0x40, near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

	return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : near);
}

static inline float hd_of_bf16(uint16_t h)
{
	return hd_float_of((uint32_t)h << 16);
}

/* 2^112 moves fp16's exponent range into fp32's: subnormals come out right without a separate case. */
static inline float hd_of_f16(uint16_t h)
{
	uint32_t u = hd_bits_of(hd_float_of((uint32_t)(h & 0x7fff) << 13) * 0x1p112f);

	return hd_float_of(u | ((h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0) | (uint32_t)(h & 0x8000) << 16);
}

/* Cases are selected without branches, so that loops vectorize. */
static inline uint16_t hd_f16_of(float f)
{
	uint32_t u = hd_bits_of(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
	/* Subnormals: fp32 numbers near 0.5 are multiples of 2^-24, as fp16's subnormals are, so this sum is rounded
	 * to one. */
	uint32_t tiny = hd_bits_of(hd_float_of(a) + 0.5f) - 0x3f000000;
	uint32_t r = ((a + 0xfff + (a >> 13 & 1)) >> 13) - (112 << 10);

	r = a < 0x38800000 ? tiny : r;
	r = a >= 0x477ff000 ? 0x7c00 : r; /* 65520 and above round to infinity */
	r = a > 0x7f800000 ? 0x7e00 : r;
	return (uint16_t)(sign | r);
}

static inline void hd_bf16_from_floats(void *to, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		((uint16_t *)to)[i] = hd_bf16_of(x[i]);
}

#endif
