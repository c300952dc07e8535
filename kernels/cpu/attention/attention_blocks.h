/* SPDX-License-Identifier: Apache-2.0
 * The attention kernels for one width of vectors.  A .c file for each instruction set includes
 * this, with HD_VL (floats of a vector), HD_MR (rows of a register tile) and HD_ISA (the name of
 * the table) defined.
 *
 * All products are sums of outer products: a tile of HD_MR rows and two vectors of columns stays
 * in registers, a is read by broadcasts (row-major or transposed), b row by row.  So a panel of k
 * is kept transposed for q k^T and as it is for ds k; nothing else is ever transposed.  Where a
 * causal block is partly masked, tiles and terms that no row of the tile can see are left out; with a window also those
 * that all rows have passed.
 */
#include "kernels/cpu/attention/attention.h"
#include <math.h>
#include <string.h>

typedef float V __attribute__((vector_size(HD_VL * 4), may_alias));
typedef float VU __attribute__((vector_size(HD_VL * 4), aligned(4), may_alias));
typedef uint16_t HU __attribute__((vector_size(HD_VL * 2), aligned(2), may_alias));
typedef uint32_t VI __attribute__((vector_size(HD_VL * 4)));
typedef int32_t VS __attribute__((vector_size(HD_VL * 4)));
#define BLOCK HD_ATT_BLOCK
#define TILES (BLOCK / HD_MR)
#define INLINE static inline __attribute__((always_inline))

struct att_span { /* of one tile of rows: the terms it sums and the columns it needs */
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

INLINE VS iota(void)
{
	VS x;

	for (int i = 0; i < HD_VL; i++)
		x[i] = i;
	return x;
}

INLINE V vmax(V a, V b)
{
#ifdef HD_RED_MAX /* one instruction; made of a comparison it is four */
	return (V)HD_RED_MAX(a, b);
#else
	return choose(a > b, a, b);
#endif
}

/* Lane i is lane from[i] of a and b side by side. */
INLINE V lanes(V a, V b, VS from)
{
#ifdef __clang__ /* whose shuffles take constants alone */
	V x;

	for (int i = 0; i < HD_VL; i++)
		x[i] = from[i] < HD_VL ? a[from[i]] : b[from[i] - HD_VL];
	return x;
#else
	return __builtin_shuffle(a, b, from);
#endif
}

INLINE float vsum(V x)
{
	for (int w = HD_VL / 2; w; w /= 2)
		x += lanes(x, x, iota() ^ w);
	return x[0];
}

/* Of vectors a and b: what they have in the lanes without bit w, and with it, side by side */
INLINE V low_lanes(V a, V b, int w)
{
	VS lane = iota(), odd = (lane & w) != 0;

	return lanes(a, b, lane + (odd & (HD_VL - w)));
}

INLINE V high_lanes(V a, V b, int w)
{
	VS lane = iota(), odd = (lane & w) != 0;

	return lanes(a, b, lane + w + (odd & (HD_VL - w)));
}

INLINE void transpose_stage(V *x, int w)
{
#pragma GCC unroll 16
	for (int i = 0; i < HD_VL; i++)
		if (!(i & w)) {
			V a = x[i], b = x[i + w];

			x[i] = low_lanes(a, b, w);
			x[i + w] = high_lanes(a, b, w);
		}
}

INLINE void transpose(V *x) /* HD_VL vectors */
{
#if HD_VL >= 16
	transpose_stage(x, 8);
#endif
#if HD_VL >= 8
	transpose_stage(x, 4);
#endif
	transpose_stage(x, 2);
	transpose_stage(x, 1);
}

INLINE void max_stage(V *x, int w) /* 2w vectors to w */
{
#pragma GCC unroll 8
	for (int i = 0; i < w; i++)
		x[i] = vmax(low_lanes(x[i], x[i + w], w), high_lanes(x[i], x[i + w], w));
}

INLINE V maxima(V *x) /* lane i: the largest of x[i], i < HD_VL */
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

/* exp by 2^n times a polynomial on [-ln2/2, ln2/2] (minimax, 3e-9 relative); 0 below the
 * normal numbers. */
INLINE V vexp(V x)
{
	VS normal = x > -87.0f;
	V t = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds, and leaves n in the low bits */
	V n = t - 12582912.0f;
	V r = x - n * 0.693359375f + n * 2.12194440e-4f;
	V p = r * 1.38145392e-3f + 8.36874542e-3f;

	p = p * r + 4.16683908e-2f;
	p = p * r + 1.66665204e-1f;
	p = p * r + 4.99999934e-1f;
	p = p * r + 1.0f;
	p = p * r + 1.0f;
	return (V)(((VI)p + ((VI)t << 23)) & (VI)normal);
}

/* Small arguments by a polynomial (Cephes, single precision), others by exp; NaN stays. */
INLINE V vtanh(V x)
{
	V a = (V)((VI)x & 0x7fffffff), z = x * x, p, q;

	p = z * -5.70498872745e-3f + 2.06390887954e-2f;
	p = p * z - 5.37397155531e-2f;
	p = p * z + 1.33314422036e-1f;
	p = p * z - 3.33332819422e-1f;
	p = p * z * x + x;
	q = choose(a < 20.0f, a, (V){ 0 } + 20.0f); /* 1 from there on */
	q = 1.0f - 2.0f / (vexp(q + q) + 1.0f);
	q = (V)((VI)q | ((VI)x & 0x80000000));
	return choose(x == x, choose(a < 0.625f, p, q), x);
}

/* ---- products -------------------------------------------------------------------------------- */

/* c (HD_MR x nv vectors) = [c +] sum over k of a(row, k) b(k, column); a's steps are `row`
 * and `col` elements */
INLINE void tile(float *c, int64_t ldc, const float *a, int64_t row, int64_t col, const float *b, int64_t ldb, int k0,
		 int k1, int add, const int nv)
{
	V x[HD_MR][2];

#pragma GCC unroll 8
	for (int i = 0; i < HD_MR; i++)
		for (int j = 0; j < nv; j++)
			x[i][j] = add ? load(c + i * ldc + j * HD_VL) : (V){ 0 };
	for (int64_t k = k0; k < k1; k++) {
		V b0 = load(b + k * ldb), b1 = nv > 1 ? load(b + k * ldb + HD_VL) : b0;

#pragma GCC unroll 8
		for (int i = 0; i < HD_MR; i++) {
			float s = a[i * row + k * col];

			x[i][0] += s * b0;
			if (nv > 1)
				x[i][1] += s * b1;
		}
	}
#pragma GCC unroll 8
	for (int i = 0; i < HD_MR; i++)
		for (int j = 0; j < nv; j++)
			store(c + i * ldc + j * HD_VL, x[i][j]);
}

INLINE void product(float *c, int64_t ldc, const float *a, int64_t row, int64_t col, const float *b, int64_t ldb,
		    const struct att_span *s, int ntiles, int add)
{
	for (int i = 0; i < ntiles; i++) {
		const float *ai = a + i * HD_MR * row;
		float *ci = c + i * HD_MR * ldc;
		int j = 0;

		for (; j + HD_VL < s[i].cols; j += 2 * HD_VL)
			tile(ci + j, ldc, ai, row, col, b + j, ldb, s[i].k0, s[i].k1, add, 2);
		if (j < s[i].cols)
			tile(ci + j, ldc, ai, row, col, b + j, ldb, s[i].k0, s[i].k1, add, 1);
	}
}

/* a row-major, its rows lda apart */
static __attribute__((noinline)) void product_n(float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
						int64_t ldb, const struct att_span *s, int ntiles, int add)
{
	product(c, ldc, a, lda, 1, b, ldb, s, ntiles, add);
}

/* a transposed: row i is column i of a BLOCK x BLOCK block */
static __attribute__((noinline)) void product_t(float *c, int64_t ldc, const float *a, const float *b, int64_t ldb,
						const struct att_span *s, int ntiles, int add)
{
	product(c, ldc, a, 1, BLOCK, b, ldb, s, ntiles, add);
}

/* ---- panels ---------------------------------------------------------------------------------- */

/* Operands may be bf16; panels and all arithmetic are fp32.  An operand's rows are read as they are, or a row (of `dim`)
 * at a time is brought into fp32. */
INLINE const void *element(const struct hd_attention *t, const void *x, int64_t at)
{
	return t->low ? (const void *)((const uint16_t *)x + at) : (const void *)((const float *)x + at);
}

/* HD_VL floats from element `at` on */
INLINE V take(const struct hd_attention *t, const void *x, int64_t at)
{
	if (!t->low)
		return *(const VU *)((const float *)x + at);
	return (V)(__builtin_convertvector(*(const HU *)((const uint16_t *)x + at), VI) << 16);
}

INLINE float take_one(const struct hd_attention *t, const void *x, int64_t at)
{
	return t->low ? hd_of_bf16(((const uint16_t *)x)[at]) : ((const float *)x)[at];
}

INLINE void give_one(const struct hd_attention *t, void *x, int64_t at, float v)
{
	if (t->low)
		((uint16_t *)x)[at] = hd_bf16_of(v);
	else
		((float *)x)[at] = v;
}

INLINE void give(const struct hd_attention *t, void *x, int64_t at, V v)
{
	VI u = (VI)v, near = (u + 0x7fff + (u >> 16 & 1)) >> 16, nan = u >> 16 | 0x40;
	VS number = v == v;

	if (!t->low)
		*(VU *)((float *)x + at) = v;
	else
		*(HU *)((uint16_t *)x + at) = __builtin_convertvector((near & (VI)number) | (nan & ~(VI)number), HU);
}

/* n rows of `dim` elements, `step` apart -> BLOCK rows of `padded`, times `factor`, the rest zero */
static void pack_rows(const struct hd_attention *t, float *to, const void *x, int64_t step, int64_t n, float factor)
{
	int64_t whole = t->dim / HD_VL * HD_VL;

	for (int64_t i = 0; i < n; i++, to += hd_att_padded(t)) {
		for (int64_t d = 0; d < whole; d += HD_VL)
			store(to + d, take(t, x, i * step + d) * factor);
		for (int64_t d = whole; d < hd_att_padded(t); d++)
			to[d] = d < t->dim ? take_one(t, x, i * step + d) * factor : 0;
	}
	if (n < BLOCK)
		memset(to, 0, (size_t)((BLOCK - n) * hd_att_padded(t)) * sizeof(*to));
}

/* the same rows -> dim rows of BLOCK */
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
				v[k] = take(t, x, (i + k) * step + d);
			transpose(v);
#pragma GCC unroll 16
			for (int k = 0; k < HD_VL; k++)
				store(to + (d + k) * BLOCK + i, v[k]);
		}
	for (int64_t d = 0; d < t->dim; d++)
		for (int64_t i = d < whole ? rows : 0; i < n; i++)
			to[d * BLOCK + i] = take_one(t, x, i * step + d);
}

/* to x from element `at` on */
static void unpack_rows(const struct hd_attention *t, void *x, int64_t at, int64_t step, const float *from, int64_t n,
			float factor)
{
	int64_t whole = t->dim / HD_VL * HD_VL;

	for (int64_t i = 0; i < n; i++, at += step, from += hd_att_padded(t)) {
		for (int64_t d = 0; d < whole; d += HD_VL)
			give(t, x, at + d, load(from + d) * factor);
		for (int64_t d = whole; d < t->dim; d++)
			give_one(t, x, at + d, from[d] * factor);
	}
}

/* ---- a pair of blocks ------------------------------------------------------------------------ */

struct pair { /* block of queries against block of keys */
	int nq, nk, tiles_q, tiles_k;
	int seen[BLOCK];   /* per query: so many of the keys; grows with the query */
	int passed[BLOCK]; /* and so many of the first of them not; likewise */
	struct att_span scores[TILES], by_key[TILES], by_query[TILES];
};

static int pair_set(const struct hd_attention *t, struct pair *p, int64_t i, int64_t j)
{
	int64_t q = t->q0 + i * BLOCK, k = t->k0 + j * BLOCK;

	p->nq = (int)(t->seq - i * BLOCK < BLOCK ? t->seq - i * BLOCK : BLOCK);
	p->nk = (int)(t->keys - j * BLOCK < BLOCK ? t->keys - j * BLOCK : BLOCK);
	if (!hd_att_seen(t, q + p->nq - 1, k, p->nk) || hd_att_passed(t, q, k, p->nk) == p->nk)
		return 0;
	p->tiles_q = (p->nq + HD_MR - 1) / HD_MR;
	p->tiles_k = (p->nk + HD_MR - 1) / HD_MR;
	for (int r = 0; r < BLOCK; r++) {
		p->seen[r] = (int)hd_att_seen(t, q + r, k, p->nk);
		p->passed[r] = (int)hd_att_passed(t, q + r, k, p->nk);
	}
	for (int a = 0; a < p->tiles_q; a++) {
		int most = p->seen[a * HD_MR + HD_MR - 1];

		p->scores[a] = (struct att_span){ 0, (int)t->dim, most };
		p->by_key[a] = (struct att_span){ p->passed[a * HD_MR], most, (int)hd_att_padded(t) };
	}
	for (int a = 0; a < p->tiles_k; a++) {
		int r = 0, end = p->nq;

		while (r < p->nq && p->seen[r] <= a * HD_MR)
			r++;
		while (end > r && p->passed[end - 1] >= (a + 1) * HD_MR)
			end--;
		p->by_query[a] = (struct att_span){ r, end, (int)hd_att_padded(t) };
	}
	return 1;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Running softmax of one block of queries. */
struct att_rows {
	V sum[BLOCK]; /* each lane for its columns */
	V max[BLOCK / HD_VL];
};

INLINE VS is_seen(int c, int passed, int seen)
{
	return (iota() + c < seen) & (iota() + c >= passed);
}

INLINE V visible(const float *s, int c, int passed, int seen, const int masked) /* HD_VL scores from column c on */
{
	if (!masked)
		return load(s + c);
	return choose(is_seen(c, passed, seen), load(s + c), (V){ 0 } - INFINITY);
}

static __attribute__((noinline)) void cap_scores(const struct hd_attention *t, float *s, int rows)
{
	V cap = (V){ 0 } + t->softcap, part = (V){ 0 } + 1 / t->softcap;

	for (int i = 0; i < rows * BLOCK; i += HD_VL)
		store(s + i, cap * vtanh(load(s + i) * part));
}

/* Scores of one row s -> exp(s - max); what was summed before is rescaled */
INLINE void softmax_row(const struct hd_attention *t, float *s, float *o, V *sum, float max, float by, int passed,
			int seen, const int masked)
{
	V total = *sum * by;

#pragma GCC unroll 4
	for (int c = 0; c < BLOCK; c += HD_VL) {
		V x = vexp(visible(s, c, passed, seen, masked) - max);

		store(s + c, x);
		total += x;
	}
	*sum = total;
	for (int64_t d = 0; d < hd_att_padded(t); d += HD_VL)
		store(o + d, load(o + d) * by);
}

/* HD_VL rows at once, so that their maxima come out as one vector: a maximum per row would
 * wait for its own lanes */
INLINE void softmax_rows(const struct hd_attention *t, V *sum, V *max, float *s, float *o, const int *passed,
			 const int *seen, const int masked)
{
	V x[HD_VL], now, by;

#pragma GCC unroll 16
	for (int i = 0; i < HD_VL; i++) {
		x[i] = visible(s + i * BLOCK, 0, passed[i], seen[i], masked);
		for (int c = HD_VL; c < BLOCK; c += HD_VL)
			x[i] = vmax(x[i], visible(s + i * BLOCK, c, passed[i], seen[i], masked));
	}
	now = vmax(maxima(x), *max);
	by = vexp(*max - now);
	*max = now;
	if (masked) /* nothing seen yet: all terms become 0 */
		now = choose(now > -INFINITY, now, (V){ 0 });
	for (int i = 0; i < HD_VL; i++)
		softmax_row(t, s + i * BLOCK, o + i * hd_att_padded(t), &sum[i], now[i], by[i], passed[i], seen[i],
			    masked);
}

static void softmax(const struct hd_attention *t, struct att_rows *st, float *s, float *o, const struct pair *p)
{
	if (t->softcap > 0)
		cap_scores(t, s, p->nq);
	for (int g = 0; g * HD_VL < p->nq; g++, s += HD_VL * BLOCK, o += HD_VL * hd_att_padded(t)) {
		const int *passed = p->passed + g * HD_VL, *seen = p->seen + g * HD_VL;

		if (seen[0] == BLOCK && !passed[HD_VL - 1])
			softmax_rows(t, st->sum + g * HD_VL, &st->max[g], s, o, passed, seen, 0);
		else
			softmax_rows(t, st->sum + g * HD_VL, &st->max[g], s, o, passed, seen, 1);
	}
}

static void finish(const struct hd_attention *t, const struct att_rows *st, void *o, int64_t at, float *lse,
		   const float *from, int64_t n)
{
	for (int64_t r = 0; r < n; r++) {
		float sum = vsum(st->sum[r]);

		unpack_rows(t, o, at + r * t->heads * t->dim, 0, from + r * hd_att_padded(t), 1, sum > 0 ? 1 / sum : 0);
		lse[r] = sum > 0 ? st->max[r / HD_VL][r % HD_VL] + logf(sum) : -INFINITY;
	}
}

/* The block of keys that the window of query block i begins in. */
static int64_t first_block(const struct hd_attention *t, int64_t i)
{
	return hd_att_passed(t, t->q0 + i * BLOCK, t->k0, t->keys) / BLOCK;
}

struct att_keys { /* blocks from block 0 on, those that a task needs: k as columns, v as rows */
	float *kt, *v;
	float *q, *o, *s; /* a block of queries, its result, its scores against a block of keys */
};

/* Block i of queries of head h */
static void forward_block(const struct hd_attention *t, const struct att_keys *x, void *const *out, void *const *in,
			  int64_t b, int64_t h, int64_t i)
{
	int64_t n = hd_att_least(BLOCK, t->seq - i * BLOCK), w = hd_att_padded(t), panel = BLOCK * w;
	int64_t at = ((b * t->seq + i * BLOCK) * t->heads + h) * t->dim, nkb = hd_att_blocks(t->keys);
	struct pair p;
	struct att_rows st;

	pack_rows(t, x->q, element(t, in[0], at), t->heads * t->dim, n, t->scale);
	memset(x->o, 0, (size_t)panel * sizeof(*x->o));
	memset(&st, 0, sizeof(st));
	for (int g = 0; g < BLOCK / HD_VL; g++)
		st.max[g] = (V){ 0 } - INFINITY;
	for (int64_t j = first_block(t, i); j < nkb && pair_set(t, &p, i, j); j++) {
		product_n(x->s, BLOCK, x->q, w, x->kt + j * panel, BLOCK, p.scores, p.tiles_q, 0);
		softmax(t, &st, x->s, x->o, &p);
		product_n(x->o, w, x->s, BLOCK, x->v + j * panel, w, p.by_key, p.tiles_q, 1);
	}
	finish(t, &st, out[0], at, (float *)out[1] + (b * t->heads + h) * t->seq + i * BLOCK, x->o, n);
}

static void forward(const struct hd_attention *t, float *scratch, void *const *out, void *const *in,
		    const struct hd_att_task *task)
{
	int64_t step = t->kv_heads * t->dim, panel = BLOCK * hd_att_padded(t), all = hd_att_blocks(t->keys) * panel;
	int64_t base = (task->b * t->keys * t->kv_heads + task->kv) * t->dim, from = task->from / BLOCK;
	int64_t seen = hd_att_blocks(hd_att_seen(t, t->q0 + task->to - 1, t->k0, t->keys));
	struct att_keys x = { scratch, scratch + all, scratch + 2 * all };

	x.o = x.q + panel;
	x.s = x.o + panel;
	for (int64_t j = first_block(t, from); j < seen; j++) {
		int64_t n = hd_att_least(BLOCK, t->keys - j * BLOCK), at = base + j * BLOCK * step;

		pack_columns(t, x.kt + j * panel, element(t, in[1], at), step, n);
		pack_rows(t, x.v + j * panel, element(t, in[2], at), step, n, 1);
	}
	for (int64_t h = 0; h < t->heads; h++)
		for (int64_t i = from; i < hd_att_blocks(task->to) && hd_att_reads(t, h, task); i++)
			forward_block(t, &x, out, in, task->b, h, i);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct panels {
	float *k, *kt, *vt, *dk, *dv; /* keys, all blocks */
	float *q, *d_o, *dq;          /* queries of one head, all blocks; q times scale */
	float *lse, *delta;
	float *s, *dp; /* BLOCK x BLOCK */
};

static void panels_set(const struct hd_attention *t, struct panels *x, float *scratch)
{
	int64_t keys = hd_att_blocks(t->keys) * BLOCK, seq = hd_att_blocks(t->seq) * BLOCK;

	x->k = scratch;
	x->kt = x->k + keys * hd_att_padded(t);
	x->vt = x->kt + keys * hd_att_padded(t);
	x->dk = x->vt + keys * hd_att_padded(t);
	x->dv = x->dk + keys * hd_att_padded(t);
	x->q = x->dv + keys * hd_att_padded(t);
	x->d_o = x->q + seq * hd_att_padded(t);
	x->dq = x->d_o + seq * hd_att_padded(t);
	x->lse = x->dq + seq * hd_att_padded(t);
	x->delta = x->lse + seq;
	x->s = x->delta + seq;
	x->dp = x->s + BLOCK * BLOCK;
}

INLINE float vdot(const struct hd_attention *t, const void *x, const void *y, int64_t at, int64_t n)
{
	V sum = { 0 };
	float tail = 0;
	int64_t i = 0;

	for (; i + HD_VL <= n; i += HD_VL)
		sum += take(t, x, at + i) * take(t, y, at + i);
	for (; i < n; i++)
		tail += take_one(t, x, at + i) * take_one(t, y, at + i);
	return vsum(sum) + tail;
}

static void pack_head(const struct hd_attention *t, struct panels *x, void *const *in, int64_t b, int64_t h)
{
	int64_t step = t->heads * t->dim, blocks = hd_att_blocks(t->seq), panel = BLOCK * hd_att_padded(t);

	for (int64_t i = 0; i < blocks; i++) {
		int64_t n = t->seq - i * BLOCK < BLOCK ? t->seq - i * BLOCK : BLOCK;
		int64_t at = ((b * t->seq + i * BLOCK) * t->heads + h) * t->dim;

		pack_rows(t, x->q + i * panel, element(t, in[0], at), step, n, t->scale);
		pack_rows(t, x->d_o + i * panel, element(t, in[5], at), step, n, 1);
		for (int64_t r = 0; r < BLOCK; r++) {
			float lse =
				r < n ? ((const float *)in[4])[(b * t->heads + h) * t->seq + i * BLOCK + r] : INFINITY;

			x->lse[i * BLOCK + r] = lse > -INFINITY ? lse : INFINITY; /* sees nothing: all terms 0 */
			x->delta[i * BLOCK + r] = r < n ? vdot(t, in[3], in[5], at + r * step, t->dim) : 0;
		}
	}
	memset(x->dq, 0, (size_t)(blocks * panel) * sizeof(*x->dq));
}

/* Of one row, s: scores -> probabilities; dp -> ds.  part: 1 / softcap, or 0 */
INLINE void row_d(float *s, float *dp, float lse, float delta, float part, int passed, int seen, const int masked)
{
#pragma GCC unroll 4
	for (int c = 0; c < BLOCK; c += HD_VL) {
		V x = vexp(load(s + c) - lse);
		V d = x * (load(dp + c) - delta), of = load(s + c) * part;

		d *= 1.0f - of * of;
		if (masked) {
			VS in = is_seen(c, passed, seen);

			x = (V)((VI)x & (VI)in);
			d = (V)((VI)d & (VI)in);
		}
		store(s + c, x);
		store(dp + c, d);
	}
}

static void probabilities(const struct hd_attention *t, float *s, float *dp, const struct pair *p, const float *lse,
			  const float *delta)
{
	float part = t->softcap > 0 ? 1 / t->softcap : 0;

	if (t->softcap > 0)
		cap_scores(t, s, p->tiles_q * HD_MR);
	for (int r = 0; r < p->tiles_q * HD_MR; r++, s += BLOCK, dp += BLOCK) {
		if (p->seen[r] == BLOCK && !p->passed[r])
			row_d(s, dp, lse[r], delta[r], part, 0, BLOCK, 0);
		else
			row_d(s, dp, lse[r], delta[r], part, p->passed[r], p->seen[r], 1);
	}
}

static void head_d(const struct hd_attention *t, struct panels *x)
{
	int64_t w = hd_att_padded(t), panel = BLOCK * w;
	struct pair p;

	for (int64_t j = 0; j < hd_att_blocks(t->keys); j++)
		for (int64_t i = 0; i < hd_att_blocks(t->seq); i++) {
			const float *q = x->q + i * panel, *d_o = x->d_o + i * panel;

			if (!pair_set(t, &p, i, j))
				continue;
			product_n(x->s, BLOCK, q, w, x->kt + j * panel, BLOCK, p.scores, p.tiles_q, 0);
			product_n(x->dp, BLOCK, d_o, w, x->vt + j * panel, BLOCK, p.scores, p.tiles_q, 0);
			probabilities(t, x->s, x->dp, &p, x->lse + i * BLOCK, x->delta + i * BLOCK);
			product_t(x->dv + j * panel, w, x->s, d_o, w, p.by_query, p.tiles_k, 1);
			product_t(x->dk + j * panel, w, x->dp, q, w, p.by_query, p.tiles_k, 1);
			product_n(x->dq + i * panel, w, x->dp, BLOCK, x->k + j * panel, w, p.by_key, p.tiles_q, 1);
		}
}

static void backward(const struct hd_attention *t, float *scratch, void *const *out, void *const *in,
		     const struct hd_att_task *task)
{
	int64_t step = t->kv_heads * t->dim, panel = BLOCK * hd_att_padded(t), nkb = hd_att_blocks(t->keys);
	int64_t b = task->b, base = (b * t->keys * t->kv_heads + task->kv) * t->dim;
	struct panels x;

	panels_set(t, &x, scratch);
	for (int64_t j = 0; j < nkb; j++) {
		int64_t n = hd_att_least(BLOCK, t->keys - j * BLOCK), at = base + j * BLOCK * step;

		pack_rows(t, x.k + j * panel, element(t, in[1], at), step, n, 1);
		pack_columns(t, x.kt + j * panel, element(t, in[1], at), step, n);
		pack_columns(t, x.vt + j * panel, element(t, in[2], at), step, n);
	}
	memset(x.dk, 0, (size_t)(2 * nkb * panel) * sizeof(*x.dk));
	for (int64_t h = 0; h < t->heads; h++) {
		if (!hd_att_reads(t, h, task))
			continue;
		pack_head(t, &x, in, b, h);
		head_d(t, &x);
		unpack_rows(t, out[0], (b * t->seq * t->heads + h) * t->dim, t->heads * t->dim, x.dq, t->seq, t->scale);
	}
	unpack_rows(t, out[1], base, step, x.dk, t->keys, 1);
	unpack_rows(t, out[2], base, step, x.dv, t->keys, 1);
}

static int64_t floats(const struct hd_attention *t, int backward)
{
	int64_t keys = hd_att_blocks(t->keys) * BLOCK, seq = hd_att_blocks(t->seq) * BLOCK, padded = hd_att_padded(t);

	if (backward)
		return (5 * keys + 3 * seq) * padded + 2 * seq + 2 * BLOCK * BLOCK;
	return (2 * keys + 2 * BLOCK) * padded + BLOCK * BLOCK;
}

const struct hd_att_isa HD_ISA = { .floats = floats, .forward = forward, .backward = backward };
