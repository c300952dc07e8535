/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for cast: conversion between float dtypes, and to and from bytes and signs.
 *
 * Every element passes through double. To bf16 and fp16 it is rounded to nearest even, via fp32 as on the other
 * devices. Signs: bit i % 8 of byte i / 8 is 1 where the number is not negative (0 and NaN count as +1). To bytes: the
 * nearest of 0 to 255 (of -128 to 127), ties to even; NaN is 0. To 8-bit floats: the nearest, or the largest for
 * numbers beyond it.
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/elementwise.h"

HD_PREPARE(prepare, "cast", HD_DTYPE_F64, hd_prepare_cast(c, p))

/* 5 bits of exponent, 10 of fraction; exponent 0 has no leading one, 31 is infinity or NaN. */
static double of_f16(uint16_t h)
{
	int e = h >> 10 & 31, f = h & 1023;
	double v = e == 31 ? (f ? NAN : INFINITY) : e ? ldexp(1024 + f, e - 25) : ldexp(f, -24);

	return h & 0x8000 ? -v : v;
}

static uint16_t to_f16(double v)
{
	uint16_t sign = signbit(v) ? 0x8000 : 0;
	double a = fabs(v);
	int e;

	if (v != v)
		return (uint16_t)(sign | 0x7e00);
	if (a >= 65520)
		return (uint16_t)(sign | 0x7c00);
	frexp(a, &e); /* a is below 2^e */
	e = a < 0x1p-14 ? -13 : e;
	/* in units of the last place; a carry continues into the exponent */
	return (uint16_t)(sign + (uint16_t)rint(ldexp(a, 11 - e)) + (uint16_t)((e + 13) << 10));
}

/* Returns the value of an 8-bit float with m bits of fraction. e4m3 has numbers where e5m2 has infinity. */
static double of_float8(uint8_t h, int m, int bias)
{
	int e = (h & 0x7f) >> m, f = h & ((1 << m) - 1), last = 0x7f >> m;
	double v = e ? ldexp((1 << m) + f, e - bias - m) : ldexp(f, 1 - bias - m);

	if (m == 3 ? (h & 0x7f) == 0x7f : e == last)
		v = m == 3 || f ? NAN : INFINITY;
	return h & 0x80 ? -v : v;
}

/* Applies the definition: returns the nearest of all numbers from 0 to the largest, ties to even. */
static uint8_t to_float8(double v, int m, int bias, int largest)
{
	uint8_t sign = signbit(v) ? 0x80 : 0;
	double a = fabs(v);
	int best = 0;

	if (v != v)
		return (uint8_t)(sign | 0x7f);
	for (int k = 1; k <= largest; k++) {
		double middle = (of_float8((uint8_t)(k - 1), m, bias) + of_float8((uint8_t)k, m, bias)) / 2;

		best = a > middle || (a == middle && k % 2 == 0) ? k : best;
	}
	return (uint8_t)(sign | best);
}

static double get(const void *x, uint32_t dtype, int64_t i)
{
	uint32_t bits;
	float f;

	if (dtype == HD_DTYPE_F64)
		return ((const double *)x)[i];
	if (dtype == HD_DTYPE_F32)
		return ((const float *)x)[i];
	if (dtype == HD_DTYPE_B1)
		return ((const uint8_t *)x)[i / 8] >> i % 8 & 1 ? 1 : -1;
	if (dtype == HD_DTYPE_U8)
		return ((const uint8_t *)x)[i];
	if (dtype == HD_DTYPE_I8)
		return ((const int8_t *)x)[i];
	if (dtype == HD_DTYPE_E4M3)
		return of_float8(((const uint8_t *)x)[i], 3, 7);
	if (dtype == HD_DTYPE_E5M2)
		return of_float8(((const uint8_t *)x)[i], 2, 15);
	if (dtype == HD_DTYPE_F16)
		return of_f16(((const uint16_t *)x)[i]);
	bits = (uint32_t)((const uint16_t *)x)[i] << 16;
	memcpy(&f, &bits, 4);
	return f;
}

static uint16_t to_bf16(float f)
{
	uint32_t bits, low;

	memcpy(&bits, &f, 4);
	if (f != f)
		return (uint16_t)(bits >> 16 | 0x40); /* rounding could carry a NaN into infinity */
	low = bits & 0xffff;
	bits >>= 16;
	if (low > 0x8000 || (low == 0x8000 && bits & 1))
		bits++;
	return (uint16_t)bits;
}

static void put(void *y, uint32_t dtype, int64_t i, double v)
{
	if (dtype == HD_DTYPE_F64) {
		((double *)y)[i] = v;
	} else if (dtype == HD_DTYPE_F32) {
		((float *)y)[i] = (float)v;
	} else if (dtype == HD_DTYPE_BF16) {
		((uint16_t *)y)[i] = to_bf16((float)v);
	} else if (dtype == HD_DTYPE_F16) {
		((uint16_t *)y)[i] = to_f16((float)v);
	} else if (dtype == HD_DTYPE_U8) {
		((uint8_t *)y)[i] = (uint8_t)(v > 0 ? (v < 255 ? rint(v) : 255) : 0);
	} else if (dtype == HD_DTYPE_I8) {
		((int8_t *)y)[i] = (int8_t)(v != v ? 0 : v < -128 ? -128 : v > 127 ? 127 : rint(v));
	} else if (dtype == HD_DTYPE_E4M3) {
		((uint8_t *)y)[i] = to_float8((float)v, 3, 7, 0x7e);
	} else if (dtype == HD_DTYPE_E5M2) {
		((uint8_t *)y)[i] = to_float8((float)v, 2, 15, 0x7b);
	} else {
		uint8_t *byte = (uint8_t *)y + i / 8;

		*byte = (uint8_t)(i % 8 ? *byte : 0);
		*byte |= (uint8_t)(!(v < 0) << i % 8);
	}
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	(void)r;
	for (int64_t i = 0; i < p->n[0]; i++)
		put(out[0], (uint32_t)p->n[2], i, get(in[0], (uint32_t)p->n[1], i));
}

const struct hd_kernel hd_ref_cast = { .name = "cast", .prepare = prepare, .run = run };
