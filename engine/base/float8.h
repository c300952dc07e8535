/* SPDX-License-Identifier: Apache-2.0
 * engine/base/float8.h - conversion between fp32 and the two 8-bit floats of the Open Compute Project (OFP8, 2023).
 *
 * e4m3 has no infinity and ends at 448; e5m2 ends at 57344. Conversion rounds to nearest even. Values beyond the
 * largest number, infinity too, become the largest number, so that a value scaled slightly too far is not lost. NaN
 * stays NaN.
 */
#ifndef HD_ENGINE_FLOAT8_H
#define HD_ENGINE_FLOAT8_H
#include "engine/base/half.h"

/* Converts f to an 8-bit float with m fraction bits. Zero, subnormals and all other cases are selected without
 * branches, so that loops vectorize. */
static inline uint8_t hd_float8_of(float f, int m, int bias, uint32_t largest)
{
	uint32_t u = hd_bits_of(f), a = u & 0x7fffffff, shift = 23 - (uint32_t)m;
	/* Subnormals are multiples of 2^(1 - bias - m). fp32 numbers near `unit` have the same spacing, so the sum
	 * is rounded to it. */
	uint32_t unit = (uint32_t)(127 + 24 - bias - m) << 23;
	uint32_t tiny = hd_bits_of(hd_float_of(a) + hd_float_of(unit)) - unit;
	uint32_t r = ((a + ((1u << (shift - 1)) - 1) + (a >> shift & 1)) >> shift) - ((uint32_t)(127 - bias) << m);

	r = a < (uint32_t)(128 - bias) << 23 ? tiny : r > largest ? largest : r;
	r = a > 0x7f800000 ? 0x7f : r;
	return (uint8_t)((u >> 24 & 0x80) | r);
}

static inline uint8_t hd_e4m3_of(float f)
{
	return hd_float8_of(f, 3, 7, 0x7e);
}

static inline uint8_t hd_e5m2_of(float f)
{
	return hd_float8_of(f, 2, 15, 0x7b);
}

/* Multiplying by the power of two moves the exponent into fp32's range; subnormals come out right, too. */
static inline float hd_of_e4m3(uint8_t h)
{
	uint32_t u = hd_bits_of(hd_float_of((uint32_t)(h & 0x7f) << 20) * 0x1p120f);

	return hd_float_of(u | ((h & 0x7f) == 0x7f ? 0x7fc00000 : 0) | (uint32_t)(h & 0x80) << 24);
}

static inline float hd_of_e5m2(uint8_t h)
{
	uint32_t u = hd_bits_of(hd_float_of((uint32_t)(h & 0x7f) << 21) * 0x1p112f);

	return hd_float_of(u | ((h & 0x7c) == 0x7c ? 0x7f800000 : 0) | (uint32_t)(h & 0x80) << 24);
}

#endif
