/* SPDX-License-Identifier: Apache-2.0
 * cast: conversion between float dtypes, and to and from signs (see the reference).
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/elementwise.h"
}

HD_CUDA_PREPARE(prepare, "cast", hd_prepare_cast(c, p))

struct f16 {
	uint16_t bits;
};

/* 2^112 moves the range of fp16's exponent into fp32's, subnormals with it. */
HD_DEV float to_float(f16 x)
{
	uint32_t u = hd_float_bits(hd_bits_float((uint32_t)(x.bits & 0x7fff) << 13) * 0x1p112f);

	return hd_bits_float(u | ((x.bits & 0x7c00) == 0x7c00 ? 0x7f800000 : 0) | (uint32_t)(x.bits & 0x8000) << 16);
}

HD_DEV void from_float(f16 *y, float x) /* to nearest even */
{
	uint32_t u = hd_float_bits(x), a = u & 0x7fffffff, r = ((a + 0xfff + (a >> 13 & 1)) >> 13) - (112 << 10);

	if (a < 0x38800000) /* subnormal: the unit of 0.5f is 2^-24 */
		r = hd_float_bits(hd_bits_float(a) + 0.5f) - 0x3f000000;
	if (a >= 0x477ff000) /* 65520 and above */
		r = a > 0x7f800000 ? 0x7e00 : 0x7c00;
	y->bits = (uint16_t)((u >> 16 & 0x8000) | r);
}

HD_DEV float to_float(uint8_t x)
{
	return (float)x;
}
HD_DEV void from_float(uint8_t *y, float x) /* to the nearest of 0 to 255; NaN: 0 */
{
	float v = x > 0 ? x : 0;

	*y = (uint8_t)(int)rintf(v < 255 ? v : 255);
}

struct i8 {
	int8_t v;
};

HD_DEV float to_float(i8 x)
{
	return (float)x.v;
}
HD_DEV void from_float(i8 *y, float x) /* to the nearest of -128 to 127; NaN: 0 */
{
	float v = x == x ? x : 0;

	v = v > -128 ? v : -128;
	y->v = (int8_t)(int)rintf(v < 127 ? v : 127);
}

/* As engine/base/float8.h. */
template <int M, int BIAS, int LARGEST> struct float8 {
	uint8_t bits;
};
typedef float8<3, 7, 0x7e> e4m3;
typedef float8<2, 15, 0x7b> e5m2;

template <int M, int BIAS, int LARGEST> HD_DEV float to_float(float8<M, BIAS, LARGEST> x)
{
	uint32_t a = x.bits & 0x7f, sign = (uint32_t)(x.bits & 0x80) << 24;
	uint32_t u = hd_float_bits(hd_bits_float(a << (23 - M)) * hd_bits_float((uint32_t)(254 - BIAS) << 23));

	if (M == 3 ? a == 0x7f : a >= 0x7c)
		u |= M == 3 ? 0x7fc00000 : 0x7f800000;
	return hd_bits_float(u | sign);
}

template <int M, int BIAS, int LARGEST> HD_DEV void from_float(float8<M, BIAS, LARGEST> *y, float x)
{
	uint32_t u = hd_float_bits(x), a = u & 0x7fffffff, unit = (uint32_t)(127 + 24 - BIAS - M) << 23;
	uint32_t r = ((a + ((1u << (22 - M)) - 1) + (a >> (23 - M) & 1)) >> (23 - M)) - ((uint32_t)(127 - BIAS) << M);

	if (a < (uint32_t)(128 - BIAS) << 23)
		r = hd_float_bits(hd_bits_float(a) + hd_bits_float(unit)) - unit;
	else if (r > LARGEST)
		r = LARGEST;
	if (a > 0x7f800000)
		r = 0x7f;
	y->bits = (uint8_t)((u >> 24 & 0x80) | r);
}

/* To double only from double does not pass through float. */
template <class Y, class X> struct cast {
	Y *y;
	const X *x;

	template <int N> HD_DEV void at(int64_t i) const
	{
		pack<X, N> a = *(const pack<X, N> *)(x + i);
		pack<Y, N> b;

		for (int k = 0; k < N; k++)
			from_float(&b.v[k], to_float(a.v[k]));
		*(pack<Y, N> *)(y + i) = b;
	}
};

template <class Y> struct from_signs {
	Y *y;
	const uint8_t *x;

	template <int N> HD_DEV void at(int64_t i) const
	{
		for (int k = 0; k < N; k++)
			from_float(y + i + k, (float)(x[(i + k) / 8] >> (i + k) % 8 & 1) * 2 - 1);
	}
};

template <class X> struct to_signs { /* an element here is a byte */
	uint8_t *y;
	const X *x;
	int64_t n;

	template <int N> HD_DEV void at(int64_t i) const
	{
		for (int j = 0; j < N; j++) {
			uint32_t byte = 0;

			for (int64_t k = 0; k < 8 && (i + j) * 8 + k < n; k++)
				byte |= (uint32_t) !(to_float(x[(i + j) * 8 + k]) < 0) << k;
			y[i + j] = (uint8_t)byte;
		}
	}
};

template <class Y, class X> static void go(const struct hd_prep *p, void *y, const void *x, const struct hd_run *r)
{
	cast<Y, X> f = { (Y *)y, (const X *)x };

	hd_each<(sizeof(X) + sizeof(Y) > 8 ? 2 : 4)>(r, p->n[0], hd_aligned(x) && hd_aligned(y), f);
}

template <class X> static void from(const struct hd_prep *p, void *y, const void *x, const struct hd_run *r)
{
	if (p->n[2] == HD_DTYPE_F32)
		go<float, X>(p, y, x, r);
	else if (p->n[2] == HD_DTYPE_BF16)
		go<bf16, X>(p, y, x, r);
	else if (p->n[2] == HD_DTYPE_F16)
		go<f16, X>(p, y, x, r);
	else if (p->n[2] == HD_DTYPE_F64)
		go<double, X>(p, y, x, r);
	else if (p->n[2] == HD_DTYPE_U8)
		go<uint8_t, X>(p, y, x, r);
	else if (p->n[2] == HD_DTYPE_I8)
		go<i8, X>(p, y, x, r);
	else if (p->n[2] == HD_DTYPE_E4M3)
		go<e4m3, X>(p, y, x, r);
	else if (p->n[2] == HD_DTYPE_E5M2)
		go<e5m2, X>(p, y, x, r);
	else
		hd_each<1>(r, (p->n[0] + 7) / 8, 1, to_signs<X>{ (uint8_t *)y, (const X *)x, p->n[0] });
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const uint8_t *signs = (const uint8_t *)in[0];

	if (p->n[1] == p->n[2])
		hd_cuda_move(r, out[0], in[0], (size_t)(p->n[0] * (int64_t)HD_BITS(p->n[1]) / 8));
	else if (p->n[1] == HD_DTYPE_F32)
		from<float>(p, out[0], in[0], r);
	else if (p->n[1] == HD_DTYPE_BF16)
		from<bf16>(p, out[0], in[0], r);
	else if (p->n[1] == HD_DTYPE_F16)
		from<f16>(p, out[0], in[0], r);
	else if (p->n[1] == HD_DTYPE_F64)
		from<double>(p, out[0], in[0], r);
	else if (p->n[1] == HD_DTYPE_U8)
		from<uint8_t>(p, out[0], in[0], r);
	else if (p->n[1] == HD_DTYPE_I8)
		from<i8>(p, out[0], in[0], r);
	else if (p->n[1] == HD_DTYPE_E4M3)
		from<e4m3>(p, out[0], in[0], r);
	else if (p->n[1] == HD_DTYPE_E5M2)
		from<e5m2>(p, out[0], in[0], r);
	else if (p->n[2] == HD_DTYPE_F32)
		hd_each<1>(r, p->n[0], 1, from_signs<float>{ (float *)out[0], signs });
	else if (p->n[2] == HD_DTYPE_BF16)
		hd_each<1>(r, p->n[0], 1, from_signs<bf16>{ (bf16 *)out[0], signs });
	else if (p->n[2] == HD_DTYPE_F16)
		hd_each<1>(r, p->n[0], 1, from_signs<f16>{ (f16 *)out[0], signs });
	else
		hd_each<1>(r, p->n[0], 1, from_signs<double>{ (double *)out[0], signs });
}

HD_CUDA_KERNEL(cast, "cast", 0, prepare, run);
