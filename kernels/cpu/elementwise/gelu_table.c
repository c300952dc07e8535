/* SPDX-License-Identifier: Apache-2.0
 * The table of gelu, and whether it is faster than computing.
 */
#include <config.h>
#include "engine/base/err.h"
#include "kernels/cpu/base/amx.h"
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/pairs.h"
#include "kernels/cpu/elementwise/gelu_table.h"
#if HD_AMX
#include <immintrin.h>
#include <pthread.h>

enum { VALUES = 1 << 16, SAMPLE = HD_PIECE, TRIES = 20, STEP = 32 };

static uint32_t table[VALUES]; /* indexed by the bits of x: gelu in the low half, its slope in the high half */
static int fast;

static void fill(void)
{
	float x[SAMPLE], y[SAMPLE], slope[SAMPLE];
	uint16_t low[2][SAMPLE];

	for (int from = 0; from < VALUES; from += SAMPLE) {
		for (int j = 0; j < SAMPLE; j++)
			x[j] = hd_of_bf16((uint16_t)(from + j));
		hd_gelu_slope(y, slope, x, SAMPLE);
		hd_store_bf16(low[0], y, SAMPLE);
		hd_store_bf16(low[1], slope, SAMPLE);
		for (int j = 0; j < SAMPLE; j++)
			table[from + j] = low[0][j] | (uint32_t)low[1][j] << 16;
	}
}

#pragma GCC push_options
HD_AMX_TARGET

int64_t hd_gelu_look_up(uint16_t *y, uint16_t *slope, const uint16_t *x, int64_t n)
{
	const __m512i words = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
	const __m512i low =
		_mm512_or_si512(_mm512_slli_epi32(words, 2), /* the low halves of the words of two vectors */
				_mm512_slli_epi32(_mm512_add_epi32(_mm512_slli_epi32(words, 2), _mm512_set1_epi32(2)),
						  16));
	const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(1));
	int64_t j = 0;

	for (; j + STEP <= n; j += STEP) {
		__m512i bits = _mm512_loadu_si512(x + j);
		__m512i a = _mm512_i32gather_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(bits)), table, 4);
		__m512i b = _mm512_i32gather_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(bits, 1)), table, 4);

		_mm512_storeu_si512(y + j, _mm512_permutex2var_epi16(a, low, b));
		if (slope)
			_mm512_storeu_si512(slope + j, _mm512_permutex2var_epi16(a, high, b));
	}
	return j;
}

void hd_look_up(float *y, const float *from, const uint16_t *x, int64_t n)
{
	int64_t j = 0;

	for (; j + 16 <= n; j += 16)
		_mm512_storeu_ps(y + j, _mm512_i32gather_ps(_mm512_cvtepu16_epi32(
								    _mm256_loadu_si256((const __m256i_u *)(x + j))),
							    from, 4));
	for (; j < n; j++)
		y[j] = from[x[j]];
}
#pragma GCC pop_options

/* Compares the shortest of several tries, because other processes run on this processor too. The sample covers -4 to
 * 4, as in a layer. */
static void measure(void)
{
	float x[SAMPLE], y[SAMPLE], slope[SAMPLE];
	uint16_t low[3][SAMPLE];
	double looking = 1, computing = 1;

	fill();
	for (int j = 0; j < SAMPLE; j++)
		low[0][j] = hd_bf16_of((float)j * (8.0f / SAMPLE) - 4);
	for (int t = 0; t < TRIES; t++) {
		double from = hd_seconds(), between;

		hd_gelu_look_up(low[1], low[2], low[0], SAMPLE);
		between = hd_seconds();
		hd_bf16_to_f32(x, low[0], SAMPLE);
		hd_gelu_slope(y, slope, x, SAMPLE);
		hd_store_bf16(low[1], y, SAMPLE);
		hd_store_bf16(low[2], slope, SAMPLE);
		computing = hd_seconds() - between < computing ? hd_seconds() - between : computing;
		looking = between - from < looking ? between - from : looking;
	}
	fast = looking < computing;
}

int hd_gelu_table_fast(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (!hd_pairs_here())
		return 0;
	pthread_once(&once, measure);
	return fast;
}
#else
int hd_gelu_table_fast(void)
{
	return 0;
}

int64_t hd_gelu_look_up(uint16_t *y, uint16_t *slope, const uint16_t *x, int64_t n)
{
	(void)y;
	(void)slope;
	(void)x;
	(void)n;
	return 0;
}

void hd_look_up(float *y, const float *from, const uint16_t *x, int64_t n)
{
	for (int64_t j = 0; j < n; j++)
		y[j] = from[x[j]];
}
#endif
