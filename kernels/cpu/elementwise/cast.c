/* SPDX-License-Identifier: Apache-2.0
 * cast: conversion between float dtypes, and to and from bytes and signs (see the reference).
 *
 * A conversion that is neither from nor to fp32 passes through fp32 in a piece that stays in L1.
 */
#include <config.h>
#include "engine/base/float8.h"
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/simd.h"
#include "kernels/prepare/elementwise.h"

#define PIECE 2048 /* a multiple of 8, so that pieces of signs begin at whole bytes */

HD_PREPARE(prepare, "cast", HD_DTYPE_F32, hd_prepare_cast(c, p))

HD_CLONES static void from_f64(float *y, const double *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = (float)x[j];
}

HD_CLONES static void to_f64(double *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = x[j];
}

HD_CLONES static void from_f16(float *y, const uint16_t *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = hd_of_f16(x[j]);
}

HD_CLONES static void to_f16(uint16_t *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = hd_f16_of(x[j]);
}

HD_CLONES static void from_signs(float *y, const uint8_t *x, int64_t n)
{
	int64_t whole = n / 8 * 8;

	for (int64_t j = 0; j < whole; j += 8) {
		uint32_t byte = x[j / 8];

#pragma omp simd
		for (int k = 0; k < 8; k++)
			y[j + k] = (float)(int32_t)(byte >> k & 1) * 2 - 1;
	}
	for (int64_t j = whole; j < n; j++)
		y[j] = (float)(x[j / 8] >> j % 8 & 1) * 2 - 1;
}

HD_CLONES static void to_signs(uint8_t *y, const float *x, int64_t n)
{
	for (int64_t j = 0; j < n; j += 8) {
		uint32_t byte = 0, top = (uint32_t)hd_min(8, n - j);

		for (uint32_t k = 0; k < top; k++)
			byte |= (uint32_t) !(x[j + k] < 0) << k;
		y[j / 8] = (uint8_t)byte;
	}
}

HD_CLONES static void from_u8(float *y, const uint8_t *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = (float)(int32_t)x[j];
}

HD_CLONES static void to_u8(uint8_t *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		float v = x[j] > 0 ? x[j] : 0;

		y[j] = (uint8_t)(int32_t)hd_roundf_all(v < 255 ? v : 255);
	}
}

HD_CLONES static void from_i8(float *y, const int8_t *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = (float)(int32_t)x[j];
}

HD_CLONES static void to_i8(int8_t *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		float v = x[j] == x[j] ? x[j] : 0;

		v = v > -128 ? v : -128;
		y[j] = (int8_t)(int32_t)hd_roundf_all(v < 127 ? v : 127);
	}
}

HD_CLONES static void from_e4m3(float *y, const uint8_t *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = hd_of_e4m3(x[j]);
}

HD_CLONES static void to_e4m3(uint8_t *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = hd_e4m3_of(x[j]);
}

HD_CLONES static void from_e5m2(float *y, const uint8_t *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = hd_of_e5m2(x[j]);
}

HD_CLONES static void to_e5m2(uint8_t *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = hd_e5m2_of(x[j]);
}

static void piece(void *y, uint32_t ytype, const void *x, uint32_t xtype, int64_t from, int64_t n)
{
	float tmp[PIECE], *to = ytype == HD_DTYPE_F32 ? (float *)y + from : tmp;

	if (xtype == HD_DTYPE_F32)
		x = (const float *)x + from;
	else if (xtype == HD_DTYPE_F64)
		from_f64(to, (const double *)x + from, n);
	else if (xtype == HD_DTYPE_BF16)
		hd_bf16_to_f32(to, (const uint16_t *)x + from, n);
	else if (xtype == HD_DTYPE_F16)
		from_f16(to, (const uint16_t *)x + from, n);
	else if (xtype == HD_DTYPE_U8)
		from_u8(to, (const uint8_t *)x + from, n);
	else if (xtype == HD_DTYPE_I8)
		from_i8(to, (const int8_t *)x + from, n);
	else if (xtype == HD_DTYPE_E4M3)
		from_e4m3(to, (const uint8_t *)x + from, n);
	else if (xtype == HD_DTYPE_E5M2)
		from_e5m2(to, (const uint8_t *)x + from, n);
	else
		from_signs(to, (const uint8_t *)x + from / 8, n);
	if (xtype != HD_DTYPE_F32)
		x = to;
	if (ytype == HD_DTYPE_F64)
		to_f64((double *)y + from, x, n);
	else if (ytype == HD_DTYPE_BF16)
		hd_store_bf16((uint16_t *)y + from, x, n);
	else if (ytype == HD_DTYPE_F16)
		to_f16((uint16_t *)y + from, x, n);
	else if (ytype == HD_DTYPE_U8)
		to_u8((uint8_t *)y + from, x, n);
	else if (ytype == HD_DTYPE_I8)
		to_i8((int8_t *)y + from, x, n);
	else if (ytype == HD_DTYPE_E4M3)
		to_e4m3((uint8_t *)y + from, x, n);
	else if (ytype == HD_DTYPE_E5M2)
		to_e5m2((uint8_t *)y + from, x, n);
	else if (ytype == HD_DTYPE_B1)
		to_signs((uint8_t *)y + from / 8, x, n);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	uint32_t xtype = (uint32_t)p->n[1], ytype = (uint32_t)p->n[2];
	int64_t n = p->n[0], width = HD_BITS(xtype) / 8;

	(void)r;
#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += PIECE) {
		if (xtype != ytype)
			piece(out[0], ytype, in[0], xtype, i, hd_min(PIECE, n - i));
		else if (out[0] != in[0])
			memcpy((char *)out[0] + i * width, (char *)in[0] + i * width,
			       (size_t)(hd_min(PIECE, n - i) * width));
	}
}

const struct hd_kernel hd_cpu_cast = { .name = "cast", .prepare = prepare, .run = run };
