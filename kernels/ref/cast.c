/* SPDX-License-Identifier: Apache-2.0
 * Reference of cast: conversion between float dtypes, and to and from signs.
 *
 * Every element goes through double; to bf16 it rounds to nearest even, by way of fp32 as the
 * other devices do.  Signs: bit i % 8 of byte i / 8 is 1 where the number is not negative (0
 * and NaN count as +1).
 */
#include <config.h>
#include "kernels/prepare/elementwise.h"

HD_PREPARE(prepare, "cast", HD_F64, hd_prepare_cast(c, p))

static double get(const void *x, uint32_t dtype, int64_t i)
{
	uint32_t bits;
	float f;

	if (dtype == HD_F64)
		return ((const double *)x)[i];
	if (dtype == HD_F32)
		return ((const float *)x)[i];
	if (dtype == HD_B1)
		return ((const uint8_t *)x)[i / 8] >> i % 8 & 1 ? 1 : -1;
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
	if (dtype == HD_F64) {
		((double *)y)[i] = v;
	} else if (dtype == HD_F32) {
		((float *)y)[i] = (float)v;
	} else if (dtype == HD_BF16) {
		((uint16_t *)y)[i] = to_bf16((float)v);
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
