/* SPDX-License-Identifier: Apache-2.0
 * Packs operands of products into tiles.
 */
#include <config.h>
#include "kernels/cpu/base/amx.h"
#if HD_AMX
#include <immintrin.h>
HD_AMX_TARGET

#define SIDE HD_AMX_SIDE
#define TILE 512 /* bf16 in a tile */

static inline void transpose4(__m512i *to, const __m512i *r)
{
	__m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
	__m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);

	to[0] = _mm512_unpacklo_epi64(a, c);
	to[1] = _mm512_unpackhi_epi64(a, c);
	to[2] = _mm512_unpacklo_epi64(b, d);
	to[3] = _mm512_unpackhi_epi64(b, d);
}

/* Transposes 16 x 16 elements of 32 bits. */
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

/* Reads the first 32 of the k elements along k of each of 16 rows. Zeros stand for missing elements and rows. */
static inline void read_along_k(__m512i r[16], const uint16_t *from, int64_t step, int64_t rows, int64_t k)
{
	__mmask32 mask = k >= SIDE ? 0xffffffffu : (1u << k) - 1;

	for (int i = 0; i < 16; i++)
		r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * step) : _mm512_setzero_si512();
}

/* Interleaves rows along n, k and k + 1, into pairs. In each group of 8 columns, lo gets the first four, hi the
 * others. */
static inline void read_pairs(__m512i lo[16], __m512i hi[16], const uint16_t *from, int64_t k_step, __mmask32 mask,
			      int64_t k)
{
	for (int i = 0; i < 16; i++, from += 2 * k_step) {
		__m512i even = _mm512_setzero_si512(), odd = even;

		__builtin_prefetch(from + SIDE * k_step, 0, 2); /* of the next tile, whose lines are far apart */
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

/* Packs a b that is contiguous along n: pairs in the order of columns. */
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

/* Packs an a that is contiguous along m. */
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

/* Packs rows of a that are contiguous along k, one by one, so that memory is read in long pieces. */
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
#endif
