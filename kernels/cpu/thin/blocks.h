/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/thin/blocks.h - thin products with vectors of HD_VL floats. Their cost is reading b from memory, once.
 * So all rows of a use a block of b while the next block is prefetched:
 *
 *	b along k	BAND columns of b, for dot products with the rows of a
 *	b along n	DEEP rows of b, which are added up, each times its elements of a
 *
 * A sum runs from the first term to the last, whatever the panel, so nothing depends on the threads. bf16 becomes fp32
 * in registers.
 */
#include "kernels/cpu/base/simd.h"
#include "kernels/cpu/thin/thin.h"

#define INLINE static inline __attribute__((always_inline))
#define DEEP 16 /* rows of b in a block */
#define BAND 4  /* columns of b in a block */

typedef float vec __attribute__((vector_size(4 * HD_VL), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * HD_VL)));
typedef uint16_t halves __attribute__((vector_size(2 * HD_VL), aligned(2), may_alias));

INLINE vec get(const void *b, const int low, int64_t at)
{
	if (!low)
		return *(const vec *)((const float *)b + at);
#if HD_VL == 16 /* the compiler's own conversion takes four more instructions */
	return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(
					      _mm256_loadu_si256((const void *)((const uint16_t *)b + at))),
				      16);
#elif HD_VL == 8
	return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)((const uint16_t *)b + at))),
				      16);
#else
	return (vec)(__builtin_convertvector(*(const halves *)((const uint16_t *)b + at), words) << 16);
#endif
}

INLINE float get_one(const void *b, const int low, int64_t at)
{
	return low ? hd_of_bf16(((const uint16_t *)b)[at]) : ((const float *)b)[at];
}

/* Sums the lanes by halves, which do not wait for each other. */
INLINE float total(vec v)
{
#pragma GCC unroll 4
	for (int by = HD_VL / 2; by; by /= 2) {
		vec other;

#pragma GCC unroll 16
		for (int i = 0; i < HD_VL; i++)
			other[i] = v[i ^ by];
		v += other;
	}
	return v[0];
}

/* -- b along n --------------------------------------------------------------------------------- */
struct thin_block {
	/* Rows k .. k + deep - 1 of b, columns from col on; first: y is overwritten, else added to. */
	int64_t k, deep, col, first;
	float *y;
	int64_t y_step, each; /* each: lines prefetched per row of b */
};

/* Computes `rows` rows of y x `wide` vectors. */
INLINE void sums(const struct hd_thin_job *j, const struct thin_block *o, struct hd_fetch *f, int64_t row, int64_t at,
		 const int rows, const int wide, const int low)
{
	const float *x = j->rows + row * j->row_step + o->k;
	int64_t b = o->k * j->b_step + o->col + at;
	vec s[8][4] = { 0 };

	for (int64_t k = 0; k < o->deep; k++, b += j->b_step) {
		vec v[4];

#pragma GCC unroll 4
		for (int c = 0; c < wide; c++)
			v[c] = get(j->b, low, b + c * HD_VL);
#pragma GCC unroll 8
		for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
			for (int c = 0; c < wide; c++)
				s[r][c] += x[r * j->row_step + k] * v[c];
		hd_fetch_lines(f, o->each);
	}
#pragma GCC unroll 8
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int c = 0; c < wide; c++) {
			vec *y = (vec *)(o->y + (row + r) * o->y_step + at + c * HD_VL);

			if (o->first)
				*y = s[r][c];
			else
				*y += s[r][c];
		}
}

/* Computes one column of one row of y. */
INLINE void sum_one(const struct hd_thin_job *j, const struct thin_block *o, int64_t row, int64_t at, const int low)
{
	const float *x = j->rows + row * j->row_step + o->k;
	float s = 0, *y = o->y + row * o->y_step + at;

	for (int64_t k = 0; k < o->deep; k++)
		s += x[k] * get_one(j->b, low, (o->k + k) * j->b_step + o->col + at);
	*y = o->first ? s : *y + s;
}

/* Computes all rows of y x `wide` vectors. */
INLINE void stripe(const struct hd_thin_job *j, struct thin_block *o, struct hd_fetch *f, int64_t at, const int wide,
		   const int low)
{
	int64_t row = 0, lines = hd_parts(wide * HD_VL * (low ? 2 : 4), 64);

	o->each = j->m > 2 * HD_MR ? hd_parts(lines, 2) : lines;
	for (; row + HD_MR <= j->m; row += HD_MR)
		sums(j, o, f, row, at, HD_MR, wide, low);
	for (; HD_MR > 4 && row + 4 <= j->m; row += 4)
		sums(j, o, f, row, at, 4, wide, low);
	for (; row + 2 <= j->m; row += 2)
		sums(j, o, f, row, at, 2, wide, low);
	for (; row < j->m; row++)
		sums(j, o, f, row, at, 1, wide, low);
}

INLINE void use_block(const struct hd_thin_job *j, struct thin_block *o, struct hd_fetch *f, int64_t n, const int low)
{
	int64_t at = 0;

	for (; j->m < HD_MR && at + 4 * HD_VL <= n; at += 4 * HD_VL)
		stripe(j, o, f, at, 4, low);
	for (; at + 2 * HD_VL <= n; at += 2 * HD_VL)
		stripe(j, o, f, at, 2, low);
	for (; at + HD_VL <= n; at += HD_VL)
		stripe(j, o, f, at, 1, low);
	for (; at < n; at++)
		for (int64_t row = 0; row < j->m; row++)
			sum_one(j, o, row, at, low);
	hd_fetch_lines(f, INT64_MAX);
}

INLINE void along_n(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, const int low)
{
	int64_t bytes = low ? 2 : 4;

	for (int64_t k = 0; k < j->k; k += DEEP) {
		struct thin_block o = { k, hd_min(DEEP, j->k - k), from, k == 0, y, y_step, 0 };
		struct hd_fetch f = hd_fetch_of((const char *)j->b + ((k + DEEP) * j->b_step + from) * bytes, n * bytes,
						hd_min(DEEP, j->k - k - DEEP), j->b_step * bytes);

		use_block(j, &o, &f, n, low);
	}
}

/* -- b along k --------------------------------------------------------------------------------- */
/* Computes the dot products of some rows and columns. */
INLINE void dots(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t row, int64_t col, struct hd_fetch *f,
		 int64_t each, const int rows, const int cols, const int low)
{
	const float *x = j->rows + row * j->row_step;
	int64_t b = col * j->b_step, k = 0;
	vec s[4][BAND] = { 0 };

	for (; k + HD_VL <= j->k; k += HD_VL) {
		vec v[BAND];

#pragma GCC unroll 4
		for (int c = 0; c < cols; c++)
			v[c] = get(j->b, low, b + c * j->b_step + k);
#pragma GCC unroll 4
		for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
			for (int c = 0; c < cols; c++)
				s[r][c] += *(const vec *)(x + r * j->row_step + k) * v[c];
		hd_fetch_lines(f, each);
	}
	for (int r = 0; r < rows; r++)
		for (int c = 0; c < cols; c++) {
			float sum = total(s[r][c]);

			for (int64_t i = k; i < j->k; i++)
				sum += x[r * j->row_step + i] * get_one(j->b, low, b + c * j->b_step + i);
			y[(row + r) * y_step + c] = sum;
		}
}

/* Computes `cols` columns of all rows. */
INLINE void band(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t col, struct hd_fetch *f, const int cols,
		 const int low)
{
	int64_t lines = hd_parts(BAND * HD_VL * (low ? 2 : 4), 64), row = 0;

	for (; HD_MR == 8 && row + 4 <= j->m; row += 4) /* with HD_MR 4, registers would not suffice */
		dots(j, y, y_step, row, col, f, j->m > 4 ? hd_parts(lines, 2) : lines, 4, cols, low);
	for (; row + 2 <= j->m; row += 2)
		dots(j, y, y_step, row, col, f, lines, 2, cols, low);
	for (; row < j->m; row++)
		dots(j, y, y_step, row, col, f, lines, 1, cols, low);
}

INLINE void along_k(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, const int low)
{
	int64_t at = 0, bytes = low ? 2 : 4;

	for (; at + BAND <= n; at += BAND) {
		const char *next = (const char *)j->b + (from + at + BAND) * j->b_step * bytes;
		struct hd_fetch f = hd_fetch_of(next, j->k * bytes, hd_min(BAND, n - at - BAND), j->b_step * bytes);

		band(j, y + at, y_step, from + at, &f, BAND, low);
	}
	for (; at < n; at++) {
		struct hd_fetch none = { 0 };

		band(j, y + at, y_step, from + at, &none, 1, low);
	}
}

#include "kernels/cpu/thin/stream.h"

void HD_THIN_ISA(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n)
{
	if (j->m <= HD_THIN_ROWS)
		stream_few(j, y, y_step, from, n);
	else if (j->along_k && j->low)
		along_k(j, y, y_step, from, n, 1);
	else if (j->along_k)
		along_k(j, y, y_step, from, n, 0);
	else if (j->low)
		along_n(j, y, y_step, from, n, 1);
	else
		along_n(j, y, y_step, from, n, 0);
}
