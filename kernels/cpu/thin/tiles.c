/* SPDX-License-Identifier: Apache-2.0
 * Thin products of bf16 on the tiles of x86-64 (AMX).
 *
 *	b along k	16 of its columns form a tile without packing: y', the transpose of y, is b' a'
 *	b along n	DEEP rows of 64 columns are packed into pairs in L1, and are used there
 *
 * In both, blocks of b are prefetched in the order of memory while others are in use.
 */
#include <config.h>
#include "kernels/cpu/thin/thin.h"
#if HD_AMX
#include "kernels/cpu/base/simd.h"
HD_AMX_TARGET

#define SIDE HD_AMX_SIDE
#define TILE 512 /* bf16 in a tile */
#define WORD 256 /* fp32 in a tile */
#define DEEP 64  /* rows of b in a block */
#define WIDE 64  /* columns of b that are packed together */

static int64_t steps(int64_t k)
{
	return (k + SIDE - 1) / SIDE;
}

size_t hd_thin_tiles_bytes(int64_t k, int along_k)
{
	int64_t packed = along_k ? steps(k) * HD_AMX_PANEL : DEEP * WIDE;
	int64_t sums = along_k ? 4 : HD_THIN_PANEL / WIDE * 8;

	return (size_t)(packed * 2 + sums * WORD * 4 + 64);
}

/* Packs a. Where b is along k, a is the right operand, in pairs; else it is the left one. */
void hd_thin_tiles_pack(uint16_t *to, const struct hd_thin_job *j, const uint16_t *a, int64_t step)
{
	hd_amx_pack(to, a, step, 1, j->m, j->k, j->along_k);
}

/* -- b along k --------------------------------------------------------------------------------- */
/* Two tiles of 16 columns of b. Distances in elements: `step` between rows of a tile, `next` to the second tile, `on`
 * to the next k. */
struct b_tiles {
	const uint16_t *at;
	int64_t step, next, on;
};

/* Computes y' of 32 columns and 16 rows of a, or 32 rows with `two`. */
static inline __attribute__((always_inline)) void columns(float *sums, const struct b_tiles *b, const uint16_t *a,
							  int64_t n, struct hd_fetch *f, const int two)
{
	const uint16_t *at = b->at;

	HD_TILE_ZERO(0);
	HD_TILE_ZERO(1);
	HD_TILE_ZERO(2);
	HD_TILE_ZERO(3);
	for (int64_t k = 0; k < n; k++, at += b->on, a += HD_AMX_PANEL) {
		HD_TILE_LOAD(4, at, 2 * b->step);
		HD_TILE_LOAD(6, a, 64);
		HD_TILE_DPBF16(0, 4, 6);
		if (two) {
			HD_TILE_LOAD(7, a + TILE, 64);
			HD_TILE_DPBF16(1, 4, 7);
		}
		HD_TILE_LOAD(5, at + b->next, 2 * b->step);
		HD_TILE_DPBF16(2, 5, 6);
		if (two)
			HD_TILE_DPBF16(3, 5, 7);
		hd_fetch_lines(f, SIDE);
	}
	HD_TILE_STORE(0, sums, 64);
	HD_TILE_STORE(1, sums + WORD, 64);
	HD_TILE_STORE(2, sums + 2 * WORD, 64);
	HD_TILE_STORE(3, sums + 3 * WORD, 64);
}

/* Writes y of `cols` columns, at most 32, from their transposed sums. */
static void store_transposed(const struct hd_thin_job *j, float *y, int64_t y_step, const float *sums, int64_t cols)
{
	for (int64_t i = 0; i < j->m; i++)
		for (int64_t c = 0; c < cols; c++)
			y[i * y_step + c] = sums[(c / 16 * 2 + i / 16) * WORD + c % 16 * 16 + i % 16];
}

static void along_k(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, float *sums,
		    uint16_t *packed)
{
	const uint16_t *b = (const uint16_t *)j->b + from * j->b_step;

	for (int64_t at = 0; at < n; at += SIDE, b += SIDE * j->b_step) {
		int64_t cols = hd_min(SIDE, n - at);
		struct b_tiles left = { b, j->b_step, 16 * j->b_step, SIDE };
		struct hd_fetch f =
			hd_fetch_of(b + SIDE * j->b_step, j->k * 2, hd_min(SIDE, n - at - SIDE), j->b_step * 2);

		if (cols < SIDE || j->k % SIDE) { /* tiles would reach beyond b */
			hd_amx_pack(packed, b, j->b_step, 1, cols, j->k, 0);
			left = (struct b_tiles){ packed, SIDE, TILE, HD_AMX_PANEL };
		}
		if (j->m > 16)
			columns(sums, &left, j->tiles, steps(j->k), &f, 1);
		else
			columns(sums, &left, j->tiles, steps(j->k), &f, 0);
		store_transposed(j, y + at, y_step, sums, cols);
	}
}

/* -- b along n --------------------------------------------------------------------------------- */
/* Computes sums (2 x 4 tiles) of 64 columns [+]= n steps of a times n steps of b, both packed. */
static inline __attribute__((always_inline)) void rows(float *sums, const uint16_t *a, const uint16_t *b, int64_t n,
						       int first, struct hd_fetch *f)
{
	if (first) {
		HD_TILE_ZERO(0);
		HD_TILE_ZERO(1);
		HD_TILE_ZERO(2);
		HD_TILE_ZERO(3);
	} else {
		HD_TILE_LOAD(0, sums, 64);
		HD_TILE_LOAD(1, sums + WORD, 64);
		HD_TILE_LOAD(2, sums + 2 * WORD, 64);
		HD_TILE_LOAD(3, sums + 3 * WORD, 64);
	}
	for (int64_t k = 0; k < n; k++, a += HD_AMX_PANEL, b += HD_AMX_PANEL) {
		HD_TILE_LOAD(4, a, 64);
		HD_TILE_LOAD(5, b, 64);
		HD_TILE_DPBF16(0, 4, 5);
		HD_TILE_LOAD(6, b + TILE, 64);
		HD_TILE_DPBF16(1, 4, 6);
		HD_TILE_LOAD(7, b + DEEP * SIDE, 64);
		HD_TILE_DPBF16(2, 4, 7);
		HD_TILE_LOAD(5, b + DEEP * SIDE + TILE, 64);
		HD_TILE_DPBF16(3, 4, 5);
		hd_fetch_lines(f, SIDE);
	}
	HD_TILE_STORE(0, sums, 64);
	HD_TILE_STORE(1, sums + WORD, 64);
	HD_TILE_STORE(2, sums + 2 * WORD, 64);
	HD_TILE_STORE(3, sums + 3 * WORD, 64);
}

/* Processes one block of rows of b. */
static void use_block(const struct hd_thin_job *j, float *sums, uint16_t *packed, int64_t k, int64_t from, int64_t n)
{
	int64_t deep = hd_min(DEEP, j->k - k), next = hd_min(DEEP, j->k - k - DEEP);
	const uint16_t *b = (const uint16_t *)j->b + k * j->b_step + from;
	struct hd_fetch f = hd_fetch_of(b + DEEP * j->b_step, n * 2, next > 0 ? next : 0, j->b_step * 2);
	const uint16_t *a = j->tiles + k * SIDE;

	for (int64_t at = 0; at < n; at += WIDE, sums += 8 * WORD) {
		for (int64_t c = 0; c < WIDE; c += SIDE)
			hd_amx_pack(packed + c * DEEP, b + at + c, 1, j->b_step, hd_min(SIDE, n - at - c), deep, 1);
		rows(sums, a, packed, steps(deep), !k, &f);
		if (j->m > 16)
			rows(sums + 4 * WORD, a + TILE, packed, steps(deep), !k, &f);
	}
	hd_fetch_lines(&f, INT64_MAX);
}

static void along_n(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, float *sums,
		    uint16_t *packed)
{
	for (int64_t k = 0; k < j->k; k += DEEP)
		use_block(j, sums, packed, k, from, n);
	for (int64_t i = 0; i < j->m; i++)
		for (int64_t c = 0; c < n; c += 16)
			memcpy(y + i * y_step + c,
			       sums + (c / WIDE * 8 + i / 16 * 4 + c % WIDE / 16) * WORD + i % 16 * 16,
			       (size_t)hd_min(16, n - c) * sizeof(*y));
}

void hd_thin_tiles(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, void *scratch)
{
	float *sums = (float *)(((uintptr_t)scratch + 63) / 64 * 64);
	int64_t words = (j->along_k ? 4 : HD_THIN_PANEL / WIDE * 8) * WORD;

	(j->along_k ? along_k : along_n)(j, y, y_step, from, n, sums, (uint16_t *)(sums + words));
}
#endif
