/* SPDX-License-Identifier: Apache-2.0
 * The attention kernels for one vector width. A .c file for each instruction set includes this. It first defines HD_VL
 * (floats of a vector), HD_MR and HD_NV (rows and vectors of a register tile) and HD_ISA (the name of the table).
 *
 * All products are sums of outer products: a tile of HD_MR rows and HD_NV vectors of columns stays in registers. a is
 * read by broadcasts (row-major or transposed), b row by row. So k is packed transposed for q k^T and as rows for ds
 * k; backward also packs v transposed, for do v^T. Where a causal block is partly masked, tiles and terms that no row
 * of the tile can see are skipped. With a window, so are keys that are before the windows of all rows.
 */
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/base/lanes.h"
#include <math.h>
#include <string.h>

#define BLOCK HD_ATT_BLOCK
#define TILES (BLOCK / HD_MR)

struct att_span { /* of one tile of rows: the terms k0 .. k1 - 1 that it sums and the number of columns that it needs */
	int k0, k1, cols;
};

/* ---- vectors --------------------------------------------------------------------------------- */

INLINE V load(const float *p)
{
	return *(const V *)p;
}

INLINE void store(float *p, V x)
{
	*(V *)p = x;
}

INLINE V choose(VS mask, V a, V b)
{
	return (V)(((VI)a & (VI)mask) | ((VI)b & ~(VI)mask));
}

INLINE V vmax(V a, V b)
{
#ifdef HD_RED_MAX /* one instruction, where a comparison and a selection take four */
	return (V)HD_RED_MAX(a, b);
#else
	return choose(a > b, a, b);
#endif
}

INLINE float vsum(V x)
{
	for (int w = HD_VL / 2; w; w /= 2)
		x += lanes(x, x, iota() ^ w);
	return x[0];
}

INLINE void max_stage(V *x, int w) /* reduces 2w vectors to w */
{
#pragma GCC unroll 8
	for (int i = 0; i < w; i++)
		x[i] = vmax(low_lanes(x[i], x[i + w], w), high_lanes(x[i], x[i + w], w));
}

INLINE V maxima(V *x) /* lane i: the largest lane of x[i], i < HD_VL */
{
#if HD_VL >= 16
	max_stage(x, 8);
#endif
#if HD_VL >= 8
	max_stage(x, 4);
#endif
	max_stage(x, 2);
	max_stage(x, 1);
	return x[0];
}

/* Returns exp(x) as 2^n times a polynomial on [-ln2/2, ln2/2] (minimax, 3e-9 relative), or 0 below the normal
 * numbers. NaN stays NaN. */
INLINE V vexp(V x)
{
	VS tiny = x <= -87.0f;
	V t = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds, and leaves n in the low bits */
	V n = t - 12582912.0f;
	V r = x - n * 0.693359375f + n * 2.12194440e-4f;
	V p = r * 1.38145392e-3f + 8.36874542e-3f;

	p = p * r + 4.16683908e-2f;
	p = p * r + 1.66665204e-1f;
	p = p * r + 4.99999934e-1f;
	p = p * r + 1.0f;
	p = p * r + 1.0f;
	return (V)(((VI)p + ((VI)t << 23)) & ~(VI)tiny);
}

/* Returns tanh(x): by a polynomial for small arguments (Cephes, single precision), else by exp. NaN stays NaN. */
INLINE V vtanh(V x)
{
	V a = (V)((VI)x & 0x7fffffff), z = x * x, p, q;

	p = z * -5.70498872745e-3f + 2.06390887954e-2f;
	p = p * z - 5.37397155531e-2f;
	p = p * z + 1.33314422036e-1f;
	p = p * z - 3.33332819422e-1f;
	p = p * z * x + x;
	q = choose(a < 20.0f, a, (V){ 0 } + 20.0f); /* tanh is 1 from there on */
	q = 1.0f - 2.0f / (vexp(q + q) + 1.0f);
	q = (V)((VI)q | ((VI)x & 0x80000000));
	return choose(x == x, choose(a < 0.625f, p, q), x);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Computes c (HD_MR x nv vectors) = [c +] the sum over k0 <= k < k1 of a(row, k) b(k, column). a's rows are `row`
 * elements apart, its columns `col`. */
INLINE void tile(float *c, int64_t ldc, const float *a, int64_t row, int64_t col, const float *b, int64_t ldb, int k0,
		 int k1, int add, const int nv)
{
	V x[HD_MR][HD_NV], y[HD_NV];

#pragma GCC unroll 8
	for (int i = 0; i < HD_MR; i++)
		for (int j = 0; j < nv; j++)
			x[i][j] = add ? load(c + i * ldc + j * HD_VL) : (V){ 0 };
#pragma GCC unroll 4
	for (int64_t k = k0; k < k1; k++) {
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			y[j] = load(b + k * ldb + j * HD_VL);
#pragma GCC unroll 8
		for (int i = 0; i < HD_MR; i++) {
			float s = a[i * row + k * col];

#pragma GCC unroll 4
			for (int j = 0; j < nv; j++)
				x[i][j] += s * y[j];
		}
	}
#pragma GCC unroll 8
	for (int i = 0; i < HD_MR; i++)
		for (int j = 0; j < nv; j++)
			store(c + i * ldc + j * HD_VL, x[i][j]);
}

/* Returns the width of the next tile, in vectors, where `left` are left. It leaves no single vector after a wide tile,
 * because its sums would wait for each other. */
INLINE int tile_width(int left)
{
	return HD_NV > 2 && left > 2 && left != 4 ? HD_NV : left < 2 ? left : 2;
}

INLINE void product(float *c, int64_t ldc, const float *a, int64_t row, int64_t col, const float *b, int64_t ldb,
		    const struct att_span *s, int ntiles, int add)
{
	for (int i = 0; i < ntiles; i++) {
		const float *ai = a + i * HD_MR * row;
		float *ci = c + i * HD_MR * ldc;
		int n = (s[i].cols + HD_VL - 1) / HD_VL;

		for (int j = 0, nv = 0; j < n; j += nv) {
			float *cj = ci + j * HD_VL;
			const float *bj = b + j * HD_VL;

			nv = tile_width(n - j);
			if (nv > 2)
				tile(cj, ldc, ai, row, col, bj, ldb, s[i].k0, s[i].k1, add, HD_NV);
			else if (nv > 1)
				tile(cj, ldc, ai, row, col, bj, ldb, s[i].k0, s[i].k1, add, 2);
			else
				tile(cj, ldc, ai, row, col, bj, ldb, s[i].k0, s[i].k1, add, 1);
		}
	}
}

/* product() with a row-major, its rows lda apart. */
static __attribute__((noinline)) void product_n(float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
						int64_t ldb, const struct att_span *s, int ntiles, int add)
{
	product(c, ldc, a, lda, 1, b, ldb, s, ntiles, add);
}

/* product() with a transposed: its row i is column i of a BLOCK x BLOCK block. */
static __attribute__((noinline)) void product_t(float *c, int64_t ldc, const float *a, const float *b, int64_t ldb,
						const struct att_span *s, int ntiles, int add)
{
	product(c, ldc, a, 1, BLOCK, b, ldb, s, ntiles, add);
}

/* ---- panels ---------------------------------------------------------------------------------- */

/* Operands may be bf16; panels and all arithmetic are fp32. element() returns the address of element `at`; the
 * load_ and store_ functions below convert. */
INLINE const void *element(const struct hd_attention *t, const void *x, int64_t at)
{
	return t->low ? (const void *)((const uint16_t *)x + at) : (const void *)((const float *)x + at);
}

/* Returns HD_VL floats from element `at` on. */
INLINE V load_operand(const struct hd_attention *t, const void *x, int64_t at)
{
	return load_floats(x, t->low, at);
}

INLINE float load_element(const struct hd_attention *t, const void *x, int64_t at)
{
	return t->low ? hd_of_bf16(((const uint16_t *)x)[at]) : ((const float *)x)[at];
}

INLINE void store_element(const struct hd_attention *t, void *x, int64_t at, float v)
{
	if (t->low)
		((uint16_t *)x)[at] = hd_bf16_of(v);
	else
		((float *)x)[at] = v;
}

INLINE void store_result(const struct hd_attention *t, void *x, int64_t at, V v)
{
	VI u = (VI)v, near = (u + 0x7fff + (u >> 16 & 1)) >> 16, nan = u >> 16 | 0x40;
	VS number = v == v;

	if (!t->low)
		*(VU *)((float *)x + at) = v;
	else
		*(HU *)((uint16_t *)x + at) = __builtin_convertvector((near & (VI)number) | (nan & ~(VI)number), HU);
}

/* Packs n rows of `dim` elements, `step` apart, as BLOCK rows of padded width, times `factor`. The rest is zero. */
static void pack_rows(const struct hd_attention *t, float *to, const void *x, int64_t step, int64_t n, float factor)
{
	int64_t whole = t->dim / HD_VL * HD_VL;

	for (int64_t i = 0; i < n; i++, to += hd_att_padded(t)) {
		for (int64_t d = 0; d < whole; d += HD_VL)
			store(to + d, load_operand(t, x, i * step + d) * factor);
		for (int64_t d = whole; d < hd_att_padded(t); d++)
			to[d] = d < t->dim ? load_element(t, x, i * step + d) * factor : 0;
	}
	if (n < BLOCK)
		memset(to, 0, (size_t)((BLOCK - n) * hd_att_padded(t)) * sizeof(*to));
}

/* Packs the same rows transposed, as dim rows of BLOCK. */
static void pack_columns(const struct hd_attention *t, float *to, const void *x, int64_t step, int64_t n)
{
	int64_t rows = n / HD_VL * HD_VL, whole = t->dim / HD_VL * HD_VL;
	V v[HD_VL];

	if (n < BLOCK)
		memset(to, 0, (size_t)(t->dim * BLOCK) * sizeof(*to));
	for (int64_t i = 0; i < rows; i += HD_VL)
		for (int64_t d = 0; d < whole; d += HD_VL) {
#pragma GCC unroll 16
			for (int k = 0; k < HD_VL; k++)
				v[k] = load_operand(t, x, (i + k) * step + d);
			transpose(v);
#pragma GCC unroll 16
			for (int k = 0; k < HD_VL; k++)
				store(to + (d + k) * BLOCK + i, v[k]);
		}
	for (int64_t d = 0; d < t->dim; d++)
		for (int64_t i = d < whole ? rows : 0; i < n; i++)
			to[d * BLOCK + i] = load_element(t, x, i * step + d);
}

/* Writes n packed rows, times `factor`, to x from element `at` on, `step` apart. */
static void unpack_rows(const struct hd_attention *t, void *x, int64_t at, int64_t step, const float *from, int64_t n,
			float factor)
{
	int64_t whole = t->dim / HD_VL * HD_VL;

	for (int64_t i = 0; i < n; i++, at += step, from += hd_att_padded(t)) {
		for (int64_t d = 0; d < whole; d += HD_VL)
			store_result(t, x, at + d, load(from + d) * factor);
		for (int64_t d = whole; d < t->dim; d++)
			store_element(t, x, at + d, from[d] * factor);
	}
}

/* ---- a pair of blocks ------------------------------------------------------------------------ */

struct pair { /* a block of queries against a block of keys */
	int nq, nk, tiles_q, tiles_k;
	int seen[BLOCK];  /* per query: how many of the keys it may see by the causal mask; never decreases */
	int begin[BLOCK]; /* per query: how many of the first ones are before its window; never decreases */
	struct att_span scores[TILES], by_key[TILES], by_query[TILES];
};

static int pair_set(const struct hd_attention *t, struct pair *p, int64_t i, int64_t j)
{
	int64_t q = t->q0 + i * BLOCK, k = t->k0 + j * BLOCK;

	p->nq = (int)(t->seq - i * BLOCK < BLOCK ? t->seq - i * BLOCK : BLOCK);
	p->nk = (int)(t->keys - j * BLOCK < BLOCK ? t->keys - j * BLOCK : BLOCK);
	if (!hd_att_seen(t, q + p->nq - 1, k, p->nk) || hd_att_before_window(t, q, k, p->nk) == p->nk)
		return 0;
	p->tiles_q = (p->nq + HD_MR - 1) / HD_MR;
	p->tiles_k = (p->nk + HD_MR - 1) / HD_MR;
	for (int r = 0; r < BLOCK; r++) {
		p->seen[r] = (int)hd_att_seen(t, q + r, k, p->nk);
		p->begin[r] = (int)hd_att_before_window(t, q + r, k, p->nk);
	}
	for (int a = 0; a < p->tiles_q; a++) {
		int most = p->seen[a * HD_MR + HD_MR - 1];

		p->scores[a] = (struct att_span){ 0, (int)t->dim, most };
		p->by_key[a] = (struct att_span){ p->begin[a * HD_MR], most, (int)hd_att_padded(t) };
	}
	for (int a = 0; a < p->tiles_k; a++) {
		int r = 0, end = p->nq;

		while (r < p->nq && p->seen[r] <= a * HD_MR)
			r++;
		while (end > r && p->begin[end - 1] >= (a + 1) * HD_MR)
			end--;
		p->by_query[a] = (struct att_span){ r, end, (int)hd_att_padded(t) };
	}
	return 1;
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* Running softmax of one block of queries. */
struct att_rows {
	V sum[BLOCK]; /* each lane sums its own columns */
	V max[BLOCK / HD_VL];
};

INLINE VS is_seen(int c, int begin, int seen)
{
	return (iota() + c < seen) & (iota() + c >= begin);
}

/* Returns HD_VL scores from column c on, -INFINITY where they are masked. */
INLINE V visible(const float *s, int c, int begin, int seen, const int masked)
{
	if (!masked)
		return load(s + c);
	return choose(is_seen(c, begin, seen), load(s + c), (V){ 0 } - INFINITY);
}

static __attribute__((noinline)) void cap_scores(const struct hd_attention *t, float *s, int rows)
{
	V cap = (V){ 0 } + t->softcap, part = (V){ 0 } + 1 / t->softcap;

	for (int i = 0; i < rows * BLOCK; i += HD_VL)
		store(s + i, cap * vtanh(load(s + i) * part));
}

/* Replaces the scores s of one row with exp(s - max), and multiplies by `by` what was summed before. */
INLINE void softmax_row(const struct hd_attention *t, float *s, float *o, V *sum, float max, float by, int begin,
			int seen, const int masked)
{
	V total = *sum * by;

#pragma GCC unroll 4
	for (int c = 0; c < BLOCK; c += HD_VL) {
		V x = vexp(visible(s, c, begin, seen, masked) - max);

		store(s + c, x);
		total += x;
	}
	*sum = total;
	for (int64_t d = 0; d < hd_att_padded(t); d += HD_VL)
		store(o + d, load(o + d) * by);
}

/* Processes HD_VL rows at once, so that their maxima come out as one vector. A maximum per row would wait for its own
 * lanes. */
INLINE void softmax_rows(const struct hd_attention *t, V *sum, V *max, float *s, float *o, const int *begin,
			 const int *seen, const int masked)
{
	V x[HD_VL], before, now, by;

#pragma GCC unroll 16
	for (int i = 0; i < HD_VL; i++) {
		x[i] = visible(s + i * BLOCK, 0, begin[i], seen[i], masked);
		for (int c = HD_VL; c < BLOCK; c += HD_VL)
			x[i] = vmax(x[i], visible(s + i * BLOCK, c, begin[i], seen[i], masked));
	}
	now = vmax(maxima(x), *max);
	before = *max;
	*max = now;
	if (masked) /* nothing seen yet: all terms become 0 */
		now = choose(now == -INFINITY, (V){ 0 }, now);
	by = vexp(before - now);
	for (int i = 0; i < HD_VL; i++)
		softmax_row(t, s + i * BLOCK, o + i * hd_att_padded(t), &sum[i], now[i], by[i], begin[i], seen[i],
			    masked);
}

static void softmax(const struct hd_attention *t, struct att_rows *st, float *s, float *o, const struct pair *p)
{
	if (t->softcap > 0)
		cap_scores(t, s, p->nq);
	for (int g = 0; g * HD_VL < p->nq; g++, s += HD_VL * BLOCK, o += HD_VL * hd_att_padded(t)) {
		const int *begin = p->begin + g * HD_VL, *seen = p->seen + g * HD_VL;

		if (seen[0] == BLOCK && !begin[HD_VL - 1])
			softmax_rows(t, st->sum + g * HD_VL, &st->max[g], s, o, begin, seen, 0);
		else
			softmax_rows(t, st->sum + g * HD_VL, &st->max[g], s, o, begin, seen, 1);
	}
}

static void finish(const struct hd_attention *t, const struct att_rows *st, void *o, int64_t at, float *lse,
		   const float *from, int64_t n)
{
	for (int64_t r = 0; r < n; r++) {
		float sum = vsum(st->sum[r]);

		unpack_rows(t, o, at + r * t->heads * t->dim, 0, from + r * hd_att_padded(t), 1,
			    sum == 0 ? 0 : 1 / sum);
		lse[r] = sum == 0 ? -INFINITY : st->max[r / HD_VL][r % HD_VL] + logf(sum);
	}
}

/* Returns the block of keys in which the window of query block i begins. */
static int64_t first_block(const struct hd_attention *t, int64_t i)
{
	return hd_att_before_window(t, t->q0 + i * BLOCK, t->k0, t->keys) / BLOCK;
}

#include "kernels/cpu/attention/attention_spans.h"

static int64_t floats(const struct hd_attention *t, int backward)
{
	static float none[1];
	struct att_queries x;
	struct att_keys y;
	struct panels z;

	return backward ? panels_set(t, &z, none) : forward_set(t, &y, &x, none);
}

const struct hd_att_isa HD_ISA = { .floats = floats, .forward = forward, .backward = backward };
