/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/thin/stream.h - thin products of at most HD_THIN_ROWS rows, which take as long as reading b. b is read
 * once, in the order of memory, some of its rows together. Each of its lines is prefetched AHEAD bytes before its use.
 * Part of blocks.h.
 */
#include "kernels/cpu/thin/few.h"

/* Distance of prefetches in bytes, as measured with both forms of b and on two processors. */
#define AHEAD(low) ((low) ? 8192 : 2048)
#define DEEP_AHEAD 6144 /* for each of DEPTH rows */

/* -- b along n: y is a sum of rows of b ------------------------------------------------------------------- */
INLINE void add_row(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t k, int64_t from, int64_t n,
		    int64_t ahead, const int rows, const int low)
{
	int64_t b = k * j->b_step + from, at = 0;
	vec x[HD_THIN_ROWS];

#pragma GCC unroll 4
	for (int r = 0; r < rows; r++)
		x[r] = (vec){ 0 } + j->rows[r * j->row_step + k];
	for (; at + 4 * HD_VL <= n; at += 4 * HD_VL) {
#pragma GCC unroll 4
		for (int c = 0; c < 4; c++) {
			vec v = get(j->b, low, b + at + c * HD_VL);

#pragma GCC unroll 4
			for (int r = 0; r < rows; r++)
				*(vec *)(y + r * y_step + at + c * HD_VL) += x[r] * v;
		}
		fetch(j, b + at, ahead, 4 * HD_VL, low);
	}
	for (; at + HD_VL <= n; at += HD_VL)
#pragma GCC unroll 4
		for (int r = 0; r < rows; r++)
			*(vec *)(y + r * y_step + at) += x[r] * get(j->b, low, b + at);
	for (; at < n; at++)
		for (int r = 0; r < rows; r++)
			y[r * y_step + at] += x[r][0] * get_one(j->b, low, b + at);
}

/* Adds one vector of columns of DEPTH rows of b to y, in the order of the rows. */
INLINE void add_deep_vec(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t b, vec x[][DEPTH],
			 const int rows, const int low)
{
	vec sum[HD_THIN_ROWS];

#pragma GCC unroll 4
	for (int r = 0; r < rows; r++)
		sum[r] = *(vec *)(y + r * y_step);
#pragma GCC unroll 4
	for (int d = 0; d < DEPTH; d++) {
		vec v = get(j->b, low, b + d * j->b_step);

#pragma GCC unroll 4
		for (int r = 0; r < rows; r++)
			sum[r] += x[r][d] * v;
	}
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++)
		*(vec *)(y + r * y_step) = sum[r];
}

INLINE void add_deep(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t k, int64_t from, int64_t n,
		     const int rows, const int low)
{
	int64_t b = k * j->b_step + from, at = 0;
	vec x[HD_THIN_ROWS][DEPTH];

#pragma GCC unroll 4
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int d = 0; d < DEPTH; d++)
			x[r][d] = (vec){ 0 } + j->rows[r * j->row_step + k + d];
	for (; at + 4 * HD_VL <= n; at += 4 * HD_VL) {
#pragma GCC unroll 4
		for (int c = 0; c < 4; c++)
			add_deep_vec(j, y + at + c * HD_VL, y_step, b + at + c * HD_VL, x, rows, low);
		fetch_deep(j, b, at, n, DEEP_AHEAD, 4 * HD_VL, DEPTH, low);
	}
	for (; at + HD_VL <= n; at += HD_VL)
		add_deep_vec(j, y + at, y_step, b + at, x, rows, low);
	for (int d = 0; d < DEPTH; d++)
		for (int64_t i = at; i < n; i++)
			for (int r = 0; r < rows; r++)
				y[r * y_step + i] += x[r][d][0] * get_one(j->b, low, b + d * j->b_step + i);
}

INLINE void stream_n(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, const int rows,
		     const int low)
{
	int64_t ahead = ahead_of(j, n, AHEAD(low), low), k = 0;

	for (int r = 0; r < rows; r++)
		memset(y + r * y_step, 0, (size_t)n * sizeof(*y));
	for (; k + DEPTH <= j->k; k += DEPTH)
		add_deep(j, y, y_step, k, from, n, rows, low);
	for (; k < j->k; k++)
		add_row(j, y, y_step, k, from, n, ahead, rows, low);
}

/* -- b along k: y is dot products with columns of b, in order; BAND of them are finished together ---------- */
INLINE vec row_at(const struct hd_thin_job *j, int64_t row, int64_t k)
{
	return *(const vec *)(j->rows + row * j->row_step + k);
}

INLINE void dot(const struct hd_thin_job *j, vec *s, int64_t b, int64_t ahead, const int rows, const int low)
{
	const int chains = HD_THIN_ROWS / rows; /* independent sums per row, so that additions overlap */
	vec sum[HD_THIN_ROWS][HD_THIN_ROWS] = { 0 };
	int64_t k = 0;

	for (; k + 4 * HD_VL <= j->k; k += 4 * HD_VL) {
#pragma GCC unroll 4
		for (int c = 0; c < 4; c++)
#pragma GCC unroll 4
			for (int r = 0; r < rows; r++)
				sum[r][c % chains] += row_at(j, r, k + c * HD_VL) * get(j->b, low, b + k + c * HD_VL);
		fetch(j, b + k, ahead, 4 * HD_VL, low);
	}
	for (; k + HD_VL <= j->k; k += HD_VL)
#pragma GCC unroll 4
		for (int r = 0; r < rows; r++)
			sum[r][0] += row_at(j, r, k) * get(j->b, low, b + k);
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++) {
		s[r] = sum[r][0];
#pragma GCC unroll 4
		for (int c = 1; c < chains; c++)
			s[r] += sum[r][c];
	}
}

INLINE float finish(const struct hd_thin_job *j, vec s, int64_t row, int64_t b, const int low)
{
	float sum = total(s);

	for (int64_t k = j->k / HD_VL * HD_VL; k < j->k; k++)
		sum += j->rows[row * j->row_step + k] * get_one(j->b, low, b + k);
	return sum;
}

INLINE void stream_k(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, const int rows,
		     const int low)
{
	int64_t ahead = ahead_of(j, j->k, AHEAD(low), low);

	for (int64_t at = 0; at < n; at += BAND) {
		int64_t b = (from + at) * j->b_step, cols = hd_min(BAND, n - at);
		vec s[BAND][HD_THIN_ROWS];

		for (int64_t c = 0; c < cols; c++)
			dot(j, s[c], b + c * j->b_step, ahead, rows, low);
		for (int64_t c = 0; c < cols; c++)
			for (int r = 0; r < rows; r++)
				y[r * y_step + at + c] = finish(j, s[c][r], r, b + c * j->b_step, low);
	}
}

INLINE void stream(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, const int rows)
{
	if (!n)
		return;
	if (j->along_k && j->low)
		stream_k(j, y, y_step, from, n, rows, 1);
	else if (j->along_k)
		stream_k(j, y, y_step, from, n, rows, 0);
	else if (j->low)
		stream_n(j, y, y_step, from, n, rows, 1);
	else
		stream_n(j, y, y_step, from, n, rows, 0);
}
