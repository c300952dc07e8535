/* SPDX-License-Identifier: Apache-2.0
 * cast: conversion between float dtypes, and to and from small integers and signs (see the reference).
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/elementwise.h"
}

HD_CUDA_PREPARE(prepare, "cast", hd_prepare_cast(c, p))

struct f16 {
	uint16_t bits;
};

/* A factor of 2^112 moves the range of fp16's exponent, including subnormals, into fp32's. */
HD_DEV float to_float(f16 x)
{
	uint32_t u = hd_float_bits(hd_bits_float((uint32_t)(x.bits & 0x7fff) << 13) * 0x1p112f);

	return hd_bits_float(u | ((x.bits & 0x7c00) == 0x7c00 ? 0x7f800000 : 0) | (uint32_t)(x.bits & 0x8000) << 16);
}

HD_DEV void from_float(f16 *y, float x) /* rounds to nearest even */
{
	uint32_t u = hd_float_bits(x), a = u & 0x7fffffff, r = ((a + 0xfff + (a >> 13 & 1)) >> 13) - (112 << 10);

	if (a < 0x38800000) /* subnormal: the last bit of 0.5f is worth 2^-24 */
		r = hd_float_bits(hd_bits_float(a) + 0.5f) - 0x3f000000;
	if (a >= 0x477ff000) /* 65520 and above become infinity; NaN stays NaN */
		r = a > 0x7f800000 ? 0x7e00 : 0x7c00;
	y->bits = (uint16_t)((u >> 16 & 0x8000) | r);
}

HD_DEV float to_float(uint8_t x)
{
	return (float)x;
}
HD_DEV void from_float(uint8_t *y, float x) /* rounds to the nearest of 0 to 255; NaN becomes 0 */
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
HD_DEV void from_float(i8 *y, float x) /* rounds to the nearest of -128 to 127; NaN becomes 0 */
{
	float v = x == x ? x : 0;

	v = v > -128 ? v : -128;
	y->v = (int8_t)(int)rintf(v < 127 ? v : 127);
}

/* The formats of engine/base/float8.h: mantissa bits, bias, bits of the largest value. */
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

/* The casts that training runs in every step. */
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

template <int N, class X> HD_DEV void floats_at(float *v, const X *x)
{
	pack<X, N> a = *(const pack<X, N> *)x;

	for (int k = 0; k < N; k++)
		v[k] = to_float(a.v[k]);
}
template <int N> HD_DEV void load_any(float *v, const void *x, uint32_t dtype, int64_t i)
{
	if (dtype == HD_DTYPE_F32)
		floats_at<N>(v, (const float *)x + i);
	else if (dtype == HD_DTYPE_BF16)
		floats_at<N>(v, (const bf16 *)x + i);
	else if (dtype == HD_DTYPE_F16)
		floats_at<N>(v, (const f16 *)x + i);
	else if (dtype == HD_DTYPE_F64)
		floats_at<N>(v, (const double *)x + i);
	else if (dtype == HD_DTYPE_U8)
		floats_at<N>(v, (const uint8_t *)x + i);
	else if (dtype == HD_DTYPE_I8)
		floats_at<N>(v, (const i8 *)x + i);
	else if (dtype == HD_DTYPE_E4M3)
		floats_at<N>(v, (const e4m3 *)x + i);
	else
		floats_at<N>(v, (const e5m2 *)x + i);
}

template <int N, class Y> HD_DEV void put_floats(Y *y, const float *v)
{
	pack<Y, N> b;

	for (int k = 0; k < N; k++)
		from_float(&b.v[k], v[k]);
	*(pack<Y, N> *)y = b;
}
template <int N> HD_DEV void store_any(void *y, uint32_t dtype, int64_t i, const float *v)
{
	if (dtype == HD_DTYPE_F32)
		put_floats<N>((float *)y + i, v);
	else if (dtype == HD_DTYPE_BF16)
		put_floats<N>((bf16 *)y + i, v);
	else if (dtype == HD_DTYPE_F16)
		put_floats<N>((f16 *)y + i, v);
	else if (dtype == HD_DTYPE_F64)
		put_floats<N>((double *)y + i, v);
	else if (dtype == HD_DTYPE_U8)
		put_floats<N>((uint8_t *)y + i, v);
	else if (dtype == HD_DTYPE_I8)
		put_floats<N>((i8 *)y + i, v);
	else if (dtype == HD_DTYPE_E4M3)
		put_floats<N>((e4m3 *)y + i, v);
	else
		put_floats<N>((e5m2 *)y + i, v);
}

/* All other pairs of different dtypes pass through float, in one kernel.  All threads take the same branches.  A
 * kernel for each of 54 pairs would dominate the time to compile and load this file. */
struct cast_any {
	void *y;
	const void *x;
	uint32_t to, from;

	template <int N> HD_DEV void at(int64_t i) const
	{
		float v[N];

		load_any<N>(v, x, from, i);
		store_any<N>(y, to, i, v);
	}
};

struct from_signs {
	void *y;
	const uint8_t *x;
	uint32_t to;

	template <int N> HD_DEV void at(int64_t i) const
	{
		for (int k = 0; k < N; k++) {
			float v = (float)(x[(i + k) / 8] >> (i + k) % 8 & 1) * 2 - 1;

			store_any<1>(y, to, i + k, &v);
		}
	}
};

struct to_signs { /* an element here is a byte */
	uint8_t *y;
	const void *x;
	uint32_t from;
	int64_t n;

	template <int N> HD_DEV void at(int64_t i) const
	{
		for (int j = 0; j < N; j++) {
			uint32_t byte = 0;

			for (int64_t k = 0; k < 8 && (i + j) * 8 + k < n; k++) {
				float v;

				load_any<1>(&v, x, from, (i + j) * 8 + k);
				byte |= (uint32_t) !(v < 0) << k;
			}
			y[i + j] = (uint8_t)byte;
		}
	}
};

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	void *y = out[0];
	const void *x = in[0];
	int64_t n = p->n[0];
	uint32_t from = (uint32_t)p->n[1], to = (uint32_t)p->n[2];
	int wide = hd_aligned(x) && hd_aligned(y);

	if (from == to)
		hd_cuda_move(r, y, x, (size_t)(n * (int64_t)HD_BITS(from) / 8));
	else if (from == HD_DTYPE_F32 && to == HD_DTYPE_BF16)
		hd_each<4>(r, n, wide, cast<bf16, float>{ (bf16 *)y, (const float *)x });
	else if (from == HD_DTYPE_BF16 && to == HD_DTYPE_F32)
		hd_each<4>(r, n, wide, cast<float, bf16>{ (float *)y, (const bf16 *)x });
	else if (to == HD_DTYPE_B1)
		hd_each<1>(r, (n + 7) / 8, 1, to_signs{ (uint8_t *)y, x, from, n });
	else if (from == HD_DTYPE_B1)
		hd_each<1>(r, n, 1, from_signs{ y, (const uint8_t *)x, to });
	else if (from == HD_DTYPE_F64 || to == HD_DTYPE_F64)
		hd_each<2>(r, n, wide, cast_any{ y, x, to, from });
	else
		hd_each<4>(r, n, wide, cast_any{ y, x, to, from });
}

HD_CUDA_KERNEL(cast, "cast", 0, prepare, run);
