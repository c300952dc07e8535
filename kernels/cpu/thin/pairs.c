/* SPDX-License-Identifier: Apache-2.0
 * Thin products of bf16 with the vector instruction that multiplies pairs of bf16 (base/pairs.h), at twice the rate of
 * blocks.h.
 *
 *	b along k	a vector of a row of a times one of a column of b: pairs as they are in memory
 *	b along n	two rows of b are interleaved to pairs in registers, times a pair of a in all lanes
 *
 * As in blocks.h, all rows of a use a block of b while the next one is prefetched.
 */
#include <config.h>
#include "kernels/cpu/thin/thin.h"
#if HD_AMX
#include "kernels/cpu/base/simd.h"
#include <immintrin.h>
HD_AMX_TARGET

#define INLINE static inline __attribute__((always_inline))
#include "kernels/cpu/thin/few.h"

#define DEEP 64 /* rows of b in a block, an even number */
#define BAND 4  /* columns of b in a block */
#define WIDE 32 /* columns, or terms, in a vector of bf16 */

/* Returns a mask of the first n of 32 elements. */
INLINE __mmask32 first(int64_t n)
{
	return n >= 32 ? ~(__mmask32)0 : (__mmask32)((1u << n) - 1);
}

/* -- b along n --------------------------------------------------------------------------------- */
struct pairs_block {
	const uint16_t *b; /* its rows, from the job's first column on */
	int64_t k, deep;   /* rows k..k + deep - 1 of the job's b */
	float *y;
	int64_t y_step, each; /* each: lines prefetched per two rows of b */
};

/* Interleaves two rows of 32 columns: pairs[0] gets columns 0-3, 8-11, 16-19, 24-27, pairs[1] the others. Without
 * `both`, the second row is zero. */
INLINE void pair_up(const uint16_t *b, int64_t step, int both, __mmask32 cols, __m512i *pairs)
{
	__m512i upper = _mm512_maskz_loadu_epi16(cols, b), lower = _mm512_setzero_si512();

	if (both)
		lower = _mm512_maskz_loadu_epi16(cols, b + step);
	pairs[0] = _mm512_unpacklo_epi16(upper, lower);
	pairs[1] = _mm512_unpackhi_epi16(upper, lower);
}

/* Returns a pair of a in all lanes, or with its second half zero. */
INLINE __m512bh pair_of(const uint16_t *x, int both)
{
	uint32_t pair = *x;

	if (both)
		memcpy(&pair, x, sizeof(pair));
	return (__m512bh)_mm512_set1_epi32((int)pair);
}

/* Brings 32 columns from pair_up()'s order into their own. */
INLINE void in_order(__m512 v[2], __m512 even, __m512 odd)
{
	const __m512i left = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
	const __m512i right = _mm512_add_epi32(left, _mm512_set1_epi32(8));

	v[0] = _mm512_permutex2var_ps(even, left, odd);
	v[1] = _mm512_permutex2var_ps(even, right, odd);
}

/* Writes sums in pair_up()'s order to 32 columns of y, or adds them. */
INLINE void put_sums(float *y, const __m512 *s, int add, __mmask32 cols)
{
	__m512 v[2];

	in_order(v, s[0], s[1]);
	for (int i = 0; i < 2; i++) {
		__mmask16 m = (__mmask16)(cols >> 16 * i);

		if (add)
			v[i] = _mm512_add_ps(_mm512_maskz_loadu_ps(m, y + 16 * i), v[i]);
		_mm512_mask_storeu_ps(y + 16 * i, m, v[i]);
	}
}

/* Computes `rows` rows of y x 32 columns. */
INLINE void sums(const struct hd_thin_job *j, const struct pairs_block *o, struct hd_fetch *f, int64_t row, int64_t at,
		 __mmask32 cols, const int rows)
{
	const uint16_t *x = j->low_rows + row * j->row_step + o->k, *b = o->b + at;
	__m512 s[8][2] = { 0 };

	for (int64_t k = 0; k < o->deep; k += 2, b += 2 * j->b_step) {
		int both = k + 1 < o->deep;
		__m512i v[2];

		pair_up(b, j->b_step, both, cols, v);
#pragma GCC unroll 8
		for (int r = 0; r < rows; r++) {
			__m512bh pair = pair_of(x + r * j->row_step + k, both);

			s[r][0] = _mm512_dpbf16_ps(s[r][0], pair, (__m512bh)v[0]);
			s[r][1] = _mm512_dpbf16_ps(s[r][1], pair, (__m512bh)v[1]);
		}
		hd_fetch_lines(f, o->each);
	}
#pragma GCC unroll 8
	for (int r = 0; r < rows; r++)
		put_sums(o->y + (row + r) * o->y_step + at, s[r], o->k > 0, cols);
}

/* Computes all rows of y x 32 columns. */
INLINE void stripe(const struct hd_thin_job *j, struct pairs_block *o, struct hd_fetch *f, int64_t at, __mmask32 cols)
{
	int64_t row = 0;

	o->each = j->m > 8 ? 1 : 2;
	for (; row + 8 <= j->m; row += 8)
		sums(j, o, f, row, at, cols, 8);
	for (; row + 4 <= j->m; row += 4)
		sums(j, o, f, row, at, cols, 4);
	for (; row + 2 <= j->m; row += 2)
		sums(j, o, f, row, at, cols, 2);
	for (; row < j->m; row++)
		sums(j, o, f, row, at, cols, 1);
}

static void along_n(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n)
{
	const uint16_t *b = (const uint16_t *)j->b + from;

	for (int64_t k = 0, at; k < j->k; k += DEEP, b += DEEP * j->b_step) {
		struct pairs_block o = { b, k, hd_min(DEEP, j->k - k), y, y_step, 0 };
		struct hd_fetch f =
			hd_fetch_of(b + DEEP * j->b_step, n * 2, hd_min(DEEP, j->k - k - DEEP), j->b_step * 2);

		for (at = 0; at + WIDE <= n; at += WIDE)
			stripe(j, &o, &f, at, first(WIDE));
		if (at < n)
			stripe(j, &o, &f, at, first(n - at));
		hd_fetch_lines(&f, INT64_MAX);
	}
}

/* -- b along k --------------------------------------------------------------------------------- */
/* Returns a vector whose lane i is the sum of all lanes of s[i]. */
INLINE __m512 total_of_each(const __m512 s[16])
{
	__m512 four[4], two[2];

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		const __m512 *v = s + 4 * i;
		__m512d left = (__m512d)_mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
		__m512d right = (__m512d)_mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));

		four[i] =
			_mm512_add_ps((__m512)_mm512_unpacklo_pd(left, right), (__m512)_mm512_unpackhi_pd(left, right));
	}
#pragma GCC unroll 2
	for (int i = 0; i < 2; i++)
		two[i] = _mm512_add_ps(_mm512_shuffle_f32x4(four[2 * i], four[2 * i + 1], 0x88),
				       _mm512_shuffle_f32x4(four[2 * i], four[2 * i + 1], 0xdd));
	return _mm512_add_ps(_mm512_shuffle_f32x4(two[0], two[1], 0x88), _mm512_shuffle_f32x4(two[0], two[1], 0xdd));
}

/* Adds 32 terms of some rows and columns to s. */
INLINE void multiply(__m512 s[16], const struct hd_thin_job *j, const uint16_t *x, const uint16_t *b, __mmask32 terms,
		     const int rows, const int cols)
{
	__m512i v[BAND];

#pragma GCC unroll 4
	for (int c = 0; c < cols; c++)
		v[c] = _mm512_maskz_loadu_epi16(terms, b + c * j->b_step);
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++) {
		__m512i row = _mm512_maskz_loadu_epi16(terms, x + r * j->row_step);

#pragma GCC unroll 4
		for (int c = 0; c < cols; c++)
			s[r * BAND + c] = _mm512_dpbf16_ps(s[r * BAND + c], (__m512bh)row, (__m512bh)v[c]);
	}
}

INLINE void dots(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t row, const uint16_t *b,
		 struct hd_fetch *f, int64_t each, const int rows, const int cols)
{
	const uint16_t *x = j->low_rows + row * j->row_step;
	__m512 s[16] = { 0 };
	float all[4][BAND];
	int64_t k = 0;

	for (; k + WIDE <= j->k; k += WIDE) {
		multiply(s, j, x + k, b + k, first(WIDE), rows, cols);
		hd_fetch_lines(f, each);
	}
	if (k < j->k)
		multiply(s, j, x + k, b + k, first(j->k - k), rows, cols);
	_mm512_storeu_ps(all, total_of_each(s));
	for (int r = 0; r < rows; r++)
		memcpy(y + (row + r) * y_step, all[r], (size_t)cols * sizeof(*y));
}

/* Computes `cols` columns of all rows. */
INLINE void band(const struct hd_thin_job *j, float *y, int64_t y_step, const uint16_t *b, struct hd_fetch *f,
		 const int cols)
{
	int64_t row = 0, each = j->m > 8 ? 1 : 2;

	for (; row + 4 <= j->m; row += 4)
		dots(j, y, y_step, row, b, f, each, 4, cols);
	for (; row + 2 <= j->m; row += 2)
		dots(j, y, y_step, row, b, f, BAND, 2, cols);
	for (; row < j->m; row++)
		dots(j, y, y_step, row, b, f, BAND, 1, cols);
}

static void along_k(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n)
{
	const uint16_t *b = (const uint16_t *)j->b + from * j->b_step;
	int64_t at = 0;

	for (; at + BAND <= n; at += BAND, b += BAND * j->b_step) {
		struct hd_fetch f =
			hd_fetch_of(b + BAND * j->b_step, j->k * 2, hd_min(BAND, n - at - BAND), j->b_step * 2);

		band(j, y + at, y_step, b, &f, BAND);
	}
	for (; at < n; at++, b += j->b_step) {
		struct hd_fetch none = { 0 };

		band(j, y + at, y_step, b, &none, 1);
	}
}

/* -- at most HD_THIN_ROWS rows: b is read once, in the order of memory (stream.h) ------------------------- */
/* Distance of prefetches in bytes, as measured on one processor. One row takes so little work that hardware
 * prefetching does as well. */
#define AHEAD(rows) ((rows) == 1 ? 1024 : 8192)
#define DEEP_AHEAD(rows) ((rows) == 1 ? 8192 : 6144) /* for each of PAIRED rows */
#define PAIRED(rows) ((rows) == 1 ? 2 : DEPTH)

/* Sets 32 columns of y, in pair_up()'s order, to the sum of `deep` rows of b, or adds it. */
INLINE void add_rows(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t k, int64_t b, const int add,
		     const int rows, const int deep)
{
	__m512i v[DEPTH];

#pragma GCC unroll 2
	for (int d = 0; d < deep; d += 2)
		pair_up((const uint16_t *)j->b + b + d * j->b_step, j->b_step, d + 1 < deep, first(WIDE), v + d);
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++, y += y_step) {
		__m512 s[2] = { 0 };

		if (add) {
			s[0] = _mm512_loadu_ps(y);
			s[1] = _mm512_loadu_ps(y + 16);
		}
#pragma GCC unroll 2
		for (int d = 0; d < deep; d += 2) {
			__m512bh pair = pair_of(j->low_rows + r * j->row_step + k + d, d + 1 < deep);

			s[0] = _mm512_dpbf16_ps(s[0], pair, (__m512bh)v[d]);
			s[1] = _mm512_dpbf16_ps(s[1], pair, (__m512bh)v[d + 1]);
		}
		_mm512_storeu_ps(y, s[0]);
		_mm512_storeu_ps(y + 16, s[1]);
	}
}

/* Processes `deep` rows of b of n columns, a multiple of 32. */
INLINE void stream_rows(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t k, int64_t from, int64_t n,
			const int rows, const int deep)
{
	int64_t b = k * j->b_step + from;

	for (int64_t at = 0; at < n; at += WIDE) {
		if (k)
			add_rows(j, y + at, y_step, k, b + at, 1, rows, deep);
		else
			add_rows(j, y + at, y_step, k, b + at, 0, rows, deep);
		if (deep == PAIRED(rows))
			fetch_deep(j, b, at, n, DEEP_AHEAD(rows), WIDE, PAIRED(rows), 1);
	}
}

INLINE void stream_n(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, const int rows)
{
	int64_t k = 0, whole = n / WIDE * WIDE;

	for (; k + PAIRED(rows) <= j->k; k += PAIRED(rows))
		stream_rows(j, y, y_step, k, from, whole, rows, PAIRED(rows));
	for (; k + 2 <= j->k; k += 2)
		stream_rows(j, y, y_step, k, from, whole, rows, 2);
	for (; k < j->k; k++)
		stream_rows(j, y, y_step, k, from, whole, rows, 1);
	for (int r = 0; r < rows; r++)
		for (int64_t at = 0; at < whole; at += WIDE) {
			float *to = y + r * y_step + at;
			__m512 v[2];

			in_order(v, _mm512_loadu_ps(to), _mm512_loadu_ps(to + 16));
			_mm512_storeu_ps(to, v[0]);
			_mm512_storeu_ps(to + 16, v[1]);
		}
	if (whole < n)
		along_n(j, y + whole, y_step, from + whole, n - whole);
}

INLINE __m512 add_pairs(__m512 s, const uint16_t *x, const uint16_t *b, __mmask32 terms)
{
	return _mm512_dpbf16_ps(s, (__m512bh)_mm512_maskz_loadu_epi16(terms, x),
				(__m512bh)_mm512_maskz_loadu_epi16(terms, b));
}

/* Computes the product of one column of b, at element b, with all rows: per row a vector whose lanes remain to be
 * summed. */
INLINE void dot(const struct hd_thin_job *j, __m512 *sums, int64_t b, int64_t ahead, const int rows)
{
	const int chains = HD_THIN_ROWS / rows; /* independent sums per row, so that additions overlap */
	const uint16_t *at = (const uint16_t *)j->b + b;
	__m512 s[HD_THIN_ROWS][HD_THIN_ROWS] = { 0 };
	int64_t k = 0;

	for (; k + 4 * WIDE <= j->k; k += 4 * WIDE) {
#pragma GCC unroll 4
		for (int c = 0; c < 4; c++)
#pragma GCC unroll 4
			for (int r = 0; r < rows; r++)
				s[r][c % chains] =
					add_pairs(s[r][c % chains], j->low_rows + r * j->row_step + k + c * WIDE,
						  at + k + c * WIDE, first(WIDE));
		fetch(j, b + k, ahead, 4 * WIDE, 1);
	}
	for (; k < j->k; k += WIDE) {
#pragma GCC unroll 4
		for (int r = 0; r < rows; r++)
			s[r][0] = add_pairs(s[r][0], j->low_rows + r * j->row_step + k, at + k, first(j->k - k));
		fetch(j, b + k, ahead, WIDE, 1);
	}
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++) {
		sums[r] = s[r][0];
#pragma GCC unroll 4
		for (int c = 1; c < chains; c++)
			sums[r] = _mm512_add_ps(sums[r], s[r][c]);
	}
}

/* Computes columns in groups that have at most 16 sums together. */
INLINE void stream_k(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, const int rows)
{
	const int together = rows == 3 ? 4 : 16 / rows;
	int64_t ahead = ahead_of(j, j->k, AHEAD(rows), 1);

	for (int64_t at = 0; at < n; at += together) {
		int64_t cols = hd_min(together, n - at);
		__m512 s[16] = { 0 };
		float all[16];

		for (int64_t c = 0; c < cols; c++) {
			__m512 column[HD_THIN_ROWS];

			dot(j, column, (from + at + c) * j->b_step, ahead, rows);
			for (int r = 0; r < rows; r++)
				s[r * together + c] = column[r];
		}
		_mm512_storeu_ps(all, total_of_each(s));
		for (int r = 0; r < rows; r++)
			memcpy(y + r * y_step + at, all + r * together, (size_t)cols * sizeof(*y));
	}
}

INLINE void stream(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, const int rows)
{
	if (j->along_k)
		stream_k(j, y, y_step, from, n, rows);
	else
		stream_n(j, y, y_step, from, n, rows);
}

void hd_thin_pairs(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n)
{
	if (j->m <= HD_THIN_ROWS)
		stream_few(j, y, y_step, from, n);
	else if (j->along_k)
		along_k(j, y, y_step, from, n);
	else
		along_n(j, y, y_step, from, n);
}
#endif
