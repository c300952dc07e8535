/* SPDX-License-Identifier: Apache-2.0
 * The work of one thread in a product on tiles: the products of a panel, and writing them to c.
 */
#include <config.h>
#include "kernels/cpu/tiles/tiles.h"
#if HD_AMX
#include <immintrin.h>
#include <string.h>
#pragma GCC target( \
	"avx512f,avx512dq,avx512vl,avx512bw,avx512bf16,avx2,fma,amx-tile,amx-bf16,prefer-vector-width=512,prfchw")

#define SIDE HD_AMX_SIDE
#define TILE 512 /* bf16 in a tile */

/* ---- products -------------------------------------------------------------------------------- */

static inline __m512 raise(__m256i x)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* Returns 16 elements, zero outside the mask. */
static inline __m512 read_row(const void *x, int low, int64_t at, __mmask16 mask)
{
	if (low)
		return raise(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)x + at));
	return _mm512_maskz_loadu_ps(mask, (const float *)x + at);
}

struct amx_ready { /* complete sums of a block of c, and how many of their rows have been written to c */
	float *sums;
	const struct hd_amx_out *out;
	int64_t from, row; /* from: column of c; row: first row that remains */
};

/* Writes rows up to `end` of a block from its sums to c. whole: c has all 32 columns, which is nearly always so. The
 * masks then are constants, which the compiler optimizes away. */
static inline __attribute__((always_inline)) void finish_any(const struct amx_ready *r, int64_t end, const int low,
							     const int sum, const int whole)
{
	const struct hd_amx_out *o = r->out;
	__mmask32 mask = whole ? 0xffffffffu : (1u << (o->cols - r->from)) - 1;
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
			x0 = _mm512_add_ps(x0, read_row(o->from, low, at, left));
			x1 = _mm512_add_ps(x1, read_row(o->from, low, at + 16, right));
		}
		if (low && whole && o->past) {
			_mm512_stream_si512((__m512i *)((uint16_t *)o->c + at), (__m512i)_mm512_cvtne2ps_pbh(x1, x0));
		} else if (low) {
			_mm512_mask_storeu_epi16((uint16_t *)o->c + at, mask, (__m512i)_mm512_cvtne2ps_pbh(x1, x0));
		} else if (whole && o->past) {
			_mm512_stream_ps((float *)o->c + at, x0);
			_mm512_stream_ps((float *)o->c + at + 16, x1);
		} else {
			_mm512_mask_storeu_ps((float *)o->c + at, left, x0);
			_mm512_mask_storeu_ps((float *)o->c + at + 16, right, x1);
		}
	}
}

static inline __attribute__((always_inline)) void finish_sum(const struct amx_ready *r, int64_t end, const int low,
							     const int sum)
{
	if (r->out->cols - r->from >= SIDE)
		finish_any(r, end, low, sum, 1);
	else
		finish_any(r, end, low, sum, 0);
}

static void finish(struct amx_ready *r, int64_t end)
{
	const struct hd_amx_out *o = r->out;

	end = hd_min(end, o->rows);
	if (r->row >= end)
		return;
	if (o->low && o->from)
		finish_sum(r, end, 1, 1);
	else if (o->low)
		finish_sum(r, end, 1, 0);
	else if (o->from)
		finish_sum(r, end, 0, 1);
	else
		finish_sum(r, end, 0, 0);
	r->row = end;
}

/* b streams through L1, where a stays. */
#define LOAD_B(tile, at) _tile_stream_loadd(tile, at, 64)

/* Multiplies the first tiles of a block. Each of its four tiles is stored to `done` (NULL: there is no previous block)
 * just before its next use. The units would wait for four stores at once. Then the tile starts from `begin` (NULL:
 * zero). */
#define TURN(tile, at) \
	do { \
		if (done) \
			_tile_stored(tile, done + (at), 64); \
		if (begin) \
			_tile_loadd(tile, begin + (at), 64); \
		else \
			_tile_zero(tile); \
	} while (0)

static inline __attribute__((always_inline)) void multiply_first(const uint16_t *a, const uint16_t *b, float *done,
								 const float *begin)
{
	_tile_loadd(4, a, 64);
	LOAD_B(6, b);
	TURN(0, 0);
	_tile_dpbf16ps(0, 4, 6);
	LOAD_B(7, b + TILE);
	TURN(1, 256);
	_tile_dpbf16ps(1, 4, 7);
	_tile_loadd(5, a + TILE, 64);
	TURN(2, 512);
	_tile_dpbf16ps(2, 5, 6);
	TURN(3, 768);
	_tile_dpbf16ps(3, 5, 7);
}

static inline __attribute__((always_inline)) void fetch_one(struct hd_amx_ahead *f, const int write)
{
	for (f->due += f->lines; f->due >= HD_AMX_LINE && f->rows > 0; f->due -= HD_AMX_LINE) {
		if (write)
			__builtin_prefetch(f->row + f->at, 1, 2);
		else
			__builtin_prefetch(f->row + f->at, 0, 2);
		f->at += 64;
		if (f->at >= f->width) {
			f->at = 0;
			f->row += f->step;
			f->rows--;
		}
	}
}

static inline void fetch(struct hd_amx_next *next)
{
	fetch_one(&next->a, 0);
	fetch_one(&next->b, 0);
	fetch_one(&next->c, 1);
}

/* Tiles work in parallel with the other units. So between products, finished rows of the block before are written to
 * c. */
static inline void multiply(const uint16_t *a, const uint16_t *b, int64_t tiles, struct amx_ready *before,
			    struct hd_amx_next *next)
{
	int64_t each = before && tiles ? (SIDE + tiles - 1) / tiles : 0;

	for (int64_t i = 0; i < tiles; i++, a += HD_AMX_PANEL, b += HD_AMX_PANEL) {
		_tile_loadd(4, a, 64);
		LOAD_B(6, b);
		LOAD_B(7, b + TILE);
		_tile_loadd(5, a + TILE, 64);
		_tile_dpbf16ps(0, 4, 6);
		_tile_dpbf16ps(1, 4, 7);
		_tile_dpbf16ps(2, 5, 6);
		_tile_dpbf16ps(3, 5, 7);
		if (each)
			finish(before, (i + 1) * each);
		fetch(next);
	}
	if (before)
		finish(before, SIDE);
}

static inline void store_sums(float *to)
{
	_tile_stored(0, to, 64);
	_tile_stored(1, to + 256, 64);
	_tile_stored(2, to + 512, 64);
	_tile_stored(3, to + 768, 64);
}

void hd_amx_panel(const uint16_t *a, const uint16_t *b, int64_t b_step, int64_t tiles, int64_t blocks, float *sums,
		  int first, const struct hd_amx_out *out, struct hd_amx_next *next)
{
	float whole[2][HD_AMX_PANEL] __attribute__((aligned(64)));
	float *done = NULL;

	__asm__ volatile("" : : "r"(whole) : "memory"); /* tiles read what was packed */
	for (int64_t i = 0; i < blocks; i++, b += b_step) {
		struct amx_ready before = { done, out, (i - 1) * SIDE, 0 };

		multiply_first(a, b, done, first ? NULL : sums + i * HD_AMX_PANEL);
		multiply(a + HD_AMX_PANEL, b + HD_AMX_PANEL, tiles - 1, out && done ? &before : NULL, next);
		fetch(next);
		done = out ? whole[i & 1] : sums + i * HD_AMX_PANEL;
	}
	store_sums(done);
	if (out)
		finish(&(struct amx_ready){ done, out, (blocks - 1) * SIDE, 0 }, SIDE);
}

void hd_amx_settle(void)
{
	_mm_sfence();
}
#endif
