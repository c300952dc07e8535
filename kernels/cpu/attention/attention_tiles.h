/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/attention/attention_tiles.h - what attention in tiles of bf16 and its backward share: products of tiles,
 * the forms in which operands are packed for them, and exp. The file that includes this defines ON_UNITS. If 1,
 * products run on matrix units; if 0, on vector instructions that multiply pairs of bf16.
 *
 * A tile is 1 KB: 16 rows of 32 bf16 or of 16 fp32. Sequences are cut into blocks of 32 rows and head_dim into parts
 * of 32, padded with zeros. An operand (queries or keys x head_dim) is packed in one or more of four forms, where each
 * part of each block takes two tiles:
 *	rows	tile (row / 16, part): rows as they are; left operand of a sum over head_dim
 *	columns	tile (row / 16, part): line i has elements 2i, 2i + 1 of each row; right operand of a sum over head_dim
 *	pairs	tile (row / 32, d / 16): line i has rows 2i, 2i + 1 of each d; right operand of a sum over rows
 *	turned	tile (row / 32, d / 16): line i has d = i of all 32 rows; left operand of a sum over rows
 */
#ifndef HD_KERNELS_CPU_ATTENTION_ATTENTION_TILES_H
#define HD_KERNELS_CPU_ATTENTION_ATTENTION_TILES_H
#include <immintrin.h>
#include <string.h>
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/base/amx.h"
#include "kernels/cpu/base/elementary.h"
HD_AMX_TARGET

#define INLINE static inline __attribute__((always_inline))
#define ROWS 32             /* of a block */
#define CHUNK 8             /* blocks of a chunk, over which a sum over rows runs at once */
#define HALF 512            /* bf16 in a tile */
#define WORD 256            /* fp32 in a tile */
#define LOG2E 1.4426950409f /* exponentials are computed as powers of 2 */

/* ---- products -------------------------------------------------------------------------------- */

/* Distances between the tiles of an operand or result, in tiles. row, col: to the next row and column of the product's
 * 2 x 2 tiles; k: to the next step of the sum. */
struct att_step {
	int64_t row, col, k;
};

/* The product whose sums are still in the units, with its destination c; c is NULL if there is none. Begin with none
 * and end with tiles_close(). */
struct att_open {
	float *c;
	struct att_step s;
};

#if ON_UNITS
INLINE void begin_tiles(void)
{
	hd_amx_begin();
}

INLINE void end_tiles(void)
{
	hd_amx_end();
}

/* Stores a tile's sum of the previous product just before the tile is needed, so that stores are spread out. The units
 * would wait for four at once. Then the tile starts from c or from zero. */
#define TILE_TURN(tile, row_, col_) \
	do { \
		if (o->c) \
			HD_TILE_STORE(tile, o->c + ((row_)*o->s.row + (col_)*o->s.col) * WORD, 64); \
		if (add) \
			HD_TILE_LOAD(tile, c + ((row_)*sc.row + (col_)*sc.col) * WORD, 64); \
		else \
			HD_TILE_ZERO(tile); \
	} while (0)

/* Computes c (2 x 2 tiles) = [c +] the sum over n >= 1 steps of a (2 x 1) b (1 x 2). c is not written until the next
 * product or tiles_close(). It must not be the c of the previous product. */
INLINE void tiles_product(struct att_open *o, float *c, struct att_step sc, const uint16_t *a, struct att_step sa,
			  const uint16_t *b, struct att_step sb, int64_t n, int add)
{
	HD_TILE_LOAD(4, a, 64);
	HD_TILE_LOAD(6, b, 64);
	TILE_TURN(0, 0, 0);
	HD_TILE_DPBF16(0, 4, 6);
	HD_TILE_LOAD(7, b + sb.col * HALF, 64);
	TILE_TURN(1, 0, 1);
	HD_TILE_DPBF16(1, 4, 7);
	HD_TILE_LOAD(5, a + sa.row * HALF, 64);
	TILE_TURN(2, 1, 0);
	HD_TILE_DPBF16(2, 5, 6);
	TILE_TURN(3, 1, 1);
	HD_TILE_DPBF16(3, 5, 7);
	for (int64_t k = 1; k < n; k++) {
		a += sa.k * HALF;
		b += sb.k * HALF;
		HD_TILE_LOAD(4, a, 64);
		HD_TILE_LOAD(6, b, 64);
		HD_TILE_LOAD(7, b + sb.col * HALF, 64);
		HD_TILE_LOAD(5, a + sa.row * HALF, 64);
		HD_TILE_DPBF16(0, 4, 6);
		HD_TILE_DPBF16(1, 4, 7);
		HD_TILE_DPBF16(2, 5, 6);
		HD_TILE_DPBF16(3, 5, 7);
	}
	*o = (struct att_open){ c, sc };
}

INLINE void tiles_close(struct att_open *o)
{
	if (o->c) {
		HD_TILE_STORE(0, o->c, 64);
		HD_TILE_STORE(1, o->c + o->s.col * WORD, 64);
		HD_TILE_STORE(2, o->c + o->s.row * WORD, 64);
		HD_TILE_STORE(3, o->c + (o->s.row + o->s.col) * WORD, 64);
	}
	o->c = NULL;
}
#else
INLINE void begin_tiles(void)
{
}

INLINE void end_tiles(void)
{
}

enum { STRIP = 8 }; /* rows whose sums fit in the registers */

/* Computes STRIP rows of two tiles: c (STRIP x 32) = [c +] the sum over n steps of a (STRIP x 32) b (32 x 32). */
INLINE void strip_product(float *c, int64_t c_col, const uint16_t *a, int64_t a_k, const uint16_t *b,
			  struct att_step sb, int64_t n, int add)
{
	__m512 x[STRIP], y[STRIP];

#pragma GCC unroll 8
	for (int r = 0; r < STRIP; r++) {
		x[r] = add ? _mm512_load_ps(c + r * 16) : _mm512_setzero_ps();
		y[r] = add ? _mm512_load_ps(c + c_col * WORD + r * 16) : _mm512_setzero_ps();
	}
	for (int64_t k = 0; k < n; k++, a += a_k * HALF, b += sb.k * HALF)
		for (int i = 0; i < 32; i += 2) {
			__m512bh low = (__m512bh)_mm512_load_si512(b + i * 16);
			__m512bh high = (__m512bh)_mm512_load_si512(b + sb.col * HALF + i * 16);

#pragma GCC unroll 8
			for (int r = 0; r < STRIP; r++) {
				int32_t pair;
				__m512bh both;

				memcpy(&pair, a + r * 32 + i, sizeof(pair));
				both = (__m512bh)_mm512_set1_epi32(pair);
				x[r] = _mm512_dpbf16_ps(x[r], both, low);
				y[r] = _mm512_dpbf16_ps(y[r], both, high);
			}
		}
#pragma GCC unroll 8
	for (int r = 0; r < STRIP; r++) {
		_mm512_store_ps(c + r * 16, x[r]);
		_mm512_store_ps(c + c_col * WORD + r * 16, y[r]);
	}
}

/* Does the same, but writes c at once. */
INLINE void tiles_product(struct att_open *o, float *c, struct att_step sc, const uint16_t *a, struct att_step sa,
			  const uint16_t *b, struct att_step sb, int64_t n, int add)
{
	(void)o;
	for (int64_t r = 0; r < ROWS; r += STRIP)
		strip_product(c + r / 16 * sc.row * WORD + r % 16 * 16, sc.col,
			      a + r / 16 * sa.row * HALF + r % 16 * 32, sa.k, b, sb, n, add);
}

INLINE void tiles_close(struct att_open *o)
{
	(void)o;
}
#endif

/* ---- packing --------------------------------------------------------------------------------- */

struct att_operand { /* n rows of dim bf16, `step` elements apart; rows after them are read as zeros */
	const uint16_t *x;
	int64_t step, n, dim;
};

static inline int64_t att_parts(const struct hd_attention *t)
{
	return (t->dim + 31) / 32;
}

INLINE __mmask32 first_of_32(int64_t n)
{
	return n >= 32 ? ~0U : n > 0 ? (1U << n) - 1 : 0;
}

/* Returns part k of row i. whole: the row exists and has all 32 elements. */
INLINE __m512i part(const struct att_operand *r, int64_t i, int64_t k, const int whole)
{
	if (whole)
		return _mm512_loadu_si512(r->x + i * r->step + k * 32);
	if (i >= r->n)
		return _mm512_setzero_si512();
	return _mm512_maskz_loadu_epi16(first_of_32(r->dim - k * 32), r->x + i * r->step + k * 32);
}

/* Transposes 16 x 16 words of 32 bits. */
INLINE void transpose16(__m512i *x)
{
	__m512i y[16];

#pragma GCC unroll 8
	for (int i = 0; i < 16; i += 2) {
		y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
		y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 16; i += 4) {
		x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
		x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
		x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
		x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) { /* lanes of x[i], x[i + 4], x[i + 8], x[i + 12]: rows 0-3, 4-7, 8-11, 12-15 */
		y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
		y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
		y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
		y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
		x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd);
		x[i + 4] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0x88);
		x[i + 12] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0xdd);
	}
}

INLINE void store_tile(void *to, const __m512i *x)
{
#pragma GCC unroll 16
	for (int i = 0; i < 16; i++)
		_mm512_store_si512((char *)to + i * 64, x[i]);
}

/* Interleaves two rows into pairs (a[i], b[i]): *low has elements 0 to 15, *high 16 to 31. */
INLINE void pair_up(__m512i a, __m512i b, __m512i *low, __m512i *high)
{
	const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
	const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
	__m512i l = _mm512_unpacklo_epi16(a, b), h = _mm512_unpackhi_epi16(a, b);

	*low = _mm512_permutex2var_epi64(l, first, h);
	*high = _mm512_permutex2var_epi64(l, second, h);
}

/* Where an operand is packed to, in each form; a form that is NULL is skipped. */
struct att_forms {
	uint16_t *rows, *columns, *pairs, *turned;
};

/* Packs 16 rows from row i on, of part k of `parts`. whole: they all exist, and the part has all 32 elements. */
INLINE void pack_sixteen(const struct att_forms *f, const struct att_operand *r, int64_t i, int64_t k, int64_t parts,
			 const int whole)
{
	__m512i x[16];
	int64_t at = (i / 16 * parts + k) * HALF;

#pragma GCC unroll 16
	for (int j = 0; j < 16; j++)
		x[j] = part(r, i + j, k, whole);
	if (f->rows)
		store_tile(f->rows + at, x);
	if (f->columns) {
		transpose16(x);
		store_tile(f->columns + at, x);
	}
}

INLINE void pack_pairs(const struct att_forms *f, const struct att_operand *r, int64_t i, int64_t k, int64_t parts,
		       const int whole)
{
	__m512i x[2][16];

#pragma GCC unroll 16
	for (int j = 0; j < 16; j++)
		pair_up(part(r, i + 2 * j, k, whole), part(r, i + 2 * j + 1, k, whole), &x[0][j], &x[1][j]);
#pragma GCC unroll 2
	for (int h = 0; h < 2; h++) {
		int64_t at = (i / ROWS * 2 * parts + 2 * k + h) * HALF;

		if (f->pairs)
			store_tile(f->pairs + at, x[h]);
		if (f->turned) {
			transpose16(x[h]);
			store_tile(f->turned + at, x[h]);
		}
	}
}

INLINE void pack_block(const struct att_forms *f, const struct att_operand *r, int64_t i, int64_t k, int64_t parts,
		       const int whole)
{
	if (f->rows || f->columns) {
		pack_sixteen(f, r, i, k, parts, whole);
		pack_sixteen(f, r, i + 16, k, parts, whole);
	}
	if (f->pairs || f->turned)
		pack_pairs(f, r, i, k, parts, whole);
}

/* Prefetches 32 rows from row i on into L2 while the rows before them are packed. Their cache lines are far apart. */
INLINE void prefetch(const struct att_operand *r, int64_t i)
{
	int64_t end = hd_att_min(i + ROWS, r->n);

	for (; i < end; i++)
		for (int64_t d = 0; d < r->dim; d += 32)
			_mm_prefetch((const char *)(r->x + i * r->step + d), _MM_HINT_T1);
}

static __attribute__((noinline, unused)) void pack(const struct att_forms *f, const struct att_operand *r)
{
	int64_t parts = (r->dim + 31) / 32;

	for (int64_t i = 0; i < r->n; i += ROWS) {
		prefetch(r, i + ROWS);
		for (int64_t k = 0; k < parts; k++)
			if (i + ROWS <= r->n && k * 32 + 32 <= r->dim)
				pack_block(f, r, i, k, parts, 1);
			else
				pack_block(f, r, i, k, parts, 0);
	}
}

/* Stores the first n of 32 floats as bf16. */
INLINE void give_part(uint16_t *to, __m512 low, __m512 high, int64_t n)
{
	_mm512_mask_storeu_epi16(to, first_of_32(n), (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

/* ---- elementary ------------------------------------------------------------------------------ */

/* Returns 2^x, with a polynomial for the fraction of x (minimax, 7.5e-8 relative). -inf gives 0, NaN stays NaN. */
INLINE __m512 exp2_(__m512 x)
{
	__m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
	__m512 p = _mm512_fmadd_ps(f, _mm512_set1_ps(1.87757668e-3f), _mm512_set1_ps(8.98934014e-3f));

	p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.58263179e-2f));
	p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40153617e-1f));
	p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93153073e-1f));
	p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.99999925e-1f));
	return _mm512_scalef_ps(p, x);
}

/* Replaces n contiguous scores with cap tanh(scale score / cap). */
static __attribute__((noinline, unused)) void cap_scores(const struct hd_attention *t, float *s, int64_t n)
{
	float by = t->scale / t->softcap;

#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		s[i] = t->softcap * hd_tanhf_all(s[i] * by);
}

/* Returns the factor of scores (after cap_scores() if there is a cap) in the exponent of 2. */
static inline float att_factor(const struct hd_attention *t)
{
	return t->softcap > 0 ? LOG2E : t->scale * LOG2E;
}

INLINE __m512 stage(__m512 a, __m512 b, int w, int add)
{
	const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	__m512i odd = _mm512_and_si512(lane, _mm512_set1_epi32(w)); /* w where lanes of b are wanted */
	__m512i low = _mm512_add_epi32(lane, _mm512_mullo_epi32(odd, _mm512_set1_epi32(16 / w - 1)));
	__m512 x = _mm512_permutex2var_ps(a, low, b);
	__m512 y = _mm512_permutex2var_ps(a, _mm512_add_epi32(low, _mm512_set1_epi32(w)), b);

	return add ? _mm512_add_ps(x, y) : _mm512_max_ps(x, y);
}

/* Returns a vector whose lane i is the maximum (with `add` the sum) of x[i]. Overwrites x. */
INLINE __m512 across(__m512 *x, int add)
{
#pragma GCC unroll 8
	for (int i = 0; i < 8; i++)
		x[i] = stage(x[i], x[i + 8], 8, add);
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		x[i] = stage(x[i], x[i + 4], 4, add);
	x[0] = stage(x[0], x[2], 2, add);
	x[1] = stage(x[1], x[3], 2, add);
	return stage(x[0], x[1], 1, add);
}

/* Returns a mask of the lanes numbered from .. to - 1, where the vector's first lane is number `lane`. */
INLINE __mmask16 lanes(int64_t from, int64_t to, int64_t lane)
{
	uint32_t below = to - lane >= 16 ? 0xffff : to > lane ? (1U << (to - lane)) - 1 : 0;
	uint32_t passed = from - lane >= 16 ? 0xffff : from > lane ? (1U << (from - lane)) - 1 : 0;

	return (__mmask16)(below & ~passed);
}

#endif
