/* SPDX-License-Identifier: Apache-2.0
 * What one thread does in a product on tiles: packing, the products of a panel, and their way to c.
 */
#include <config.h>
#include "kernels/cpu/matmul/amx.h"
#if HD_AMX
#include <immintrin.h>
#include <string.h>
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx512bf16,avx2,fma,amx-tile,amx-bf16,prefer-vector-width=512")

#define SIDE HD_AMX_SIDE
#define TILE 512 /* elements of bf16 */

/* ---- packing --------------------------------------------------------------------------------- */

static inline void transpose4(__m512i *to, const __m512i *r)
{
	__m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
	__m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);

	to[0] = _mm512_unpacklo_epi64(a, c);
	to[1] = _mm512_unpackhi_epi64(a, c);
	to[2] = _mm512_unpacklo_epi64(b, d);
	to[3] = _mm512_unpackhi_epi64(b, d);
}

/* 16 x 16 of 32 bits */
static inline void transpose(__m512i r[16])
{
	__m512i t[16];

	for (int i = 0; i < 16; i += 4)
		transpose4(t + i, r + i);
	for (int i = 0; i < 4; i++) {
		__m512i a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);
		__m512i c = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
		__m512i d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);

		r[i] = _mm512_shuffle_i32x4(a, c, 0x88);
		r[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
		r[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
		r[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
	}
}

static inline int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* 16 vectors of n (at most 32) elements along k, zeros behind */
static inline void read_along_k(__m512i r[16], const uint16_t *from, int64_t step, int64_t rows, int64_t k)
{
	__mmask32 mask = k >= SIDE ? 0xffffffffu : (1u << k) - 1;

	for (int i = 0; i < 16; i++)
		r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * step) : _mm512_setzero_si512();
}

/* Two rows along n, k and k + 1, become pairs: in each of four pieces of 8 columns, the first four of them in lo */
static inline void read_pairs(__m512i lo[16], __m512i hi[16], const uint16_t *from, int64_t k_step, __mmask32 mask,
			      int64_t k)
{
	for (int i = 0; i < 16; i++, from += 2 * k_step) {
		__m512i even = _mm512_setzero_si512(), odd = even;

		__builtin_prefetch(from + SIDE * k_step, 0, 2); /* of the next tile: lines far apart */
		__builtin_prefetch(from + (SIDE + 1) * k_step, 0, 2);
		if (2 * i < k)
			even = _mm512_maskz_loadu_epi16(mask, from);
		if (2 * i + 1 < k)
			odd = _mm512_maskz_loadu_epi16(mask, from + k_step);
		lo[i] = _mm512_unpacklo_epi16(even, odd);
		hi[i] = _mm512_unpackhi_epi16(even, odd);
	}
}

static inline __mmask32 first_of_32(int64_t n)
{
	return n >= SIDE ? 0xffffffffu : n > 0 ? (1u << n) - 1 : 0;
}

/* b that lies along n: pairs in the order of columns */
static void pack_pairs(uint16_t *to, const uint16_t *from, int64_t k_step, int64_t n, int64_t k)
{
	const __m512i left = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
	const __m512i right = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
	__m512i lo[16], hi[16];

	for (int64_t at = 0; at < k; at += SIDE, to += HD_AMX_PANEL) {
		read_pairs(lo, hi, from + at * k_step, k_step, first_of_32(n), k - at);
		for (int i = 0; i < 16; i++) {
			_mm512_store_si512(to + SIDE * i, _mm512_permutex2var_epi64(lo[i], left, hi[i]));
			_mm512_store_si512(to + TILE + SIDE * i, _mm512_permutex2var_epi64(lo[i], right, hi[i]));
		}
	}
}

/* a that lies along m */
static void pack_across(uint16_t *to, const uint16_t *from, int64_t k_step, int64_t n, int64_t k)
{
	__m512i lo[16], hi[16];

	for (int64_t at = 0; at < k; at += SIDE, to += HD_AMX_PANEL) {
		read_pairs(lo, hi, from + at * k_step, k_step, first_of_32(n), k - at);
		transpose(lo);
		transpose(hi);
		for (int i = 0; i < 16; i++) {
			uint16_t *row = to + SIDE * (i / 4 * 8 + i % 4);

			_mm512_store_si512(row, lo[i]);
			_mm512_store_si512(row + SIDE * 4, hi[i]);
		}
	}
}

static void pack_tiles(uint16_t *to, const uint16_t *from, int64_t step, int64_t n, int64_t k)
{
	for (int64_t at = 0; at < k; at += SIDE)
		for (int64_t i = 0; i < SIDE; i += 16, to += TILE) {
			__m512i r[16];

			read_along_k(r, from + i * step + at, step, n > i ? least(n - i, 16) : 0, k - at);
			transpose(r);
			for (int j = 0; j < 16; j++)
				_mm512_store_si512(to + SIDE * j, r[j]);
		}
}

/* Rows of a that lie along k: copied one by one, as memory likes to be read. */
static void copy_rows(uint16_t *to, const uint16_t *from, int64_t step, int64_t n, int64_t k)
{
	for (int64_t i = 0; i < SIDE; i++, from += step)
		for (int64_t at = 0; at < k; at += SIDE) {
			__mmask32 mask = i >= n ? 0 : k - at >= SIDE ? 0xffffffffu : (1u << (k - at)) - 1;

			_mm512_store_si512(to + at * SIDE + i * SIDE, _mm512_maskz_loadu_epi16(mask, from + at));
		}
}

void hd_amx_pack(uint16_t *to, const uint16_t *from, int64_t step, int64_t k_step, int64_t n, int64_t k, int pairs)
{
	if (k_step == 1 && pairs)
		pack_tiles(to, from, step, n, k);
	else if (k_step == 1)
		copy_rows(to, from, step, n, k);
	else if (pairs)
		pack_pairs(to, from, k_step, n, k);
	else
		pack_across(to, from, k_step, n, k);
}

/* ---- products -------------------------------------------------------------------------------- */

static inline __m512 raise(__m256i x)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* 16 elements, or those of the mask */
static inline __m512 read_row(const void *x, int low, int64_t at, __mmask16 mask)
{
	if (low)
		return raise(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)x + at));
	return _mm512_maskz_loadu_ps(mask, (const float *)x + at);
}

struct amx_ready { /* sums of a block of c that are whole, and how many of their rows are in c */
	float *sums;
	const struct hd_amx_out *out;
	int64_t from, row; /* column of c; first row that is left */
};

/* Rows up to `end` of a block, from its sums to c. */
static inline __attribute__((always_inline)) void finish_any(const struct amx_ready *r, int64_t end, const int low,
							     const int sum)
{
	const struct hd_amx_out *o = r->out;
	int64_t cols = least(SIDE, o->cols - r->from);
	__mmask32 mask = cols >= SIDE ? 0xffffffffu : (1u << cols) - 1;
	__mmask16 left = (__mmask16)mask, right = (__mmask16)(mask >> 16);
	__m512 b0 = _mm512_setzero_ps(), b1 = b0;

	if (o->bias) {
		b0 = read_row(o->bias, o->bias_low, r->from, left);
		b1 = read_row(o->bias, o->bias_low, r->from + 16, right);
	}
	for (int64_t i = r->row; i < end; i++) {
		const float *row = r->sums + (i >> 4) * 512 + (i & 15) * 16;
		int64_t at = i * o->step + r->from;
		__m512 x0 = _mm512_add_ps(_mm512_load_ps(row), b0), x1 = _mm512_add_ps(_mm512_load_ps(row + 256), b1);

		if (sum) {
			x0 = _mm512_add_ps(x0, read_row(o->c, low, at, left));
			x1 = _mm512_add_ps(x1, read_row(o->c, low, at + 16, right));
		}
		if (low) {
			_mm512_mask_storeu_epi16((uint16_t *)o->c + at, mask, (__m512i)_mm512_cvtne2ps_pbh(x1, x0));
		} else {
			_mm512_mask_storeu_ps((float *)o->c + at, left, x0);
			_mm512_mask_storeu_ps((float *)o->c + at + 16, right, x1);
		}
	}
}

static void finish(struct amx_ready *r, int64_t end)
{
	const struct hd_amx_out *o = r->out;

	end = least(end, o->rows);
	if (r->row >= end)
		return;
	if (o->low && o->sum)
		finish_any(r, end, 1, 1);
	else if (o->low)
		finish_any(r, end, 1, 0);
	else if (o->sum)
		finish_any(r, end, 0, 1);
	else
		finish_any(r, end, 0, 0);
	r->row = end;
}

/* Tiles work beside the other units: between them, what is ready of the block before goes to c. */
static inline void multiply(const uint16_t *a, const uint16_t *b, int64_t tiles, struct amx_ready *before)
{
	int64_t each = before ? (SIDE + tiles - 1) / tiles : 0;

	for (int64_t i = 0; i < tiles; i++, a += HD_AMX_PANEL, b += HD_AMX_PANEL) {
		_tile_loadd(4, a, 64);
		_tile_loadd(6, b, 64);
		_tile_loadd(7, b + TILE, 64);
		_tile_loadd(5, a + TILE, 64);
		_tile_dpbf16ps(0, 4, 6);
		_tile_dpbf16ps(1, 4, 7);
		_tile_dpbf16ps(2, 5, 6);
		_tile_dpbf16ps(3, 5, 7);
		if (each)
			finish(before, (i + 1) * each);
	}
}

#define SUMS(op, at) \
	do { \
		op(0, (at), 64); \
		op(1, (at) + 256, 64); \
		op(2, (at) + 512, 64); \
		op(3, (at) + 768, 64); \
	} while (0)

void hd_amx_panel(const uint16_t *a, const uint16_t *b, int64_t b_step, int64_t tiles, int64_t blocks, float *sums,
		  int first, const struct hd_amx_out *out)
{
	float whole[2][HD_AMX_PANEL] __attribute__((aligned(64)));
	int64_t lines = out ? out->lines : 0, ahead = (lines + blocks - 1) / blocks;
	struct amx_ready before = { NULL, out, 0, 0 };

	__asm__ volatile("" : : "r"(whole) : "memory"); /* tiles read what was packed */
	for (int64_t i = 0; i < blocks; i++, b += b_step) {
		float *at = sums ? sums + i * HD_AMX_PANEL : whole[0];

		for (int64_t line = i * ahead; line < least(lines, (i + 1) * ahead); line++)
			__builtin_prefetch(out->next + 64 * line, 0, 2);
		if (first) {
			_tile_zero(0);
			_tile_zero(1);
			_tile_zero(2);
			_tile_zero(3);
		} else {
			SUMS(_tile_loadd, at);
		}
		multiply(a, b, tiles, before.sums ? &before : NULL);
		SUMS(_tile_stored, out ? whole[i & 1] : at);
		if (out)
			before = (struct amx_ready){ whole[i & 1], out, i * SIDE, 0 };
	}
	if (before.sums)
		finish(&before, SIDE);
}
#endif
