/* SPDX-License-Identifier: Apache-2.0
 * What one thread does in a product on tiles: the products of a panel, and their way to c.
 */
#include <config.h>
#include "kernels/cpu/matmul/amx.h"
#if HD_AMX
#include <immintrin.h>
#include <string.h>
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx512bf16,avx2,fma,amx-tile,amx-bf16,prefer-vector-width=512")

#define SIDE HD_AMX_SIDE
#define TILE 512 /* elements of bf16 */

static inline int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
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
