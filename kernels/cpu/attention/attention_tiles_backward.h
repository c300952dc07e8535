/* SPDX-License-Identifier: Apache-2.0
 * attention_d in tiles of bf16 (attention_tiles.h).
 *
 * A task is all heads that read one kv head of a sequence. Scores are computed as keys x queries. So the values of a
 * query (lse, delta) lie along vectors, and nothing is summed across lanes. The probabilities and ds in bf16 then are
 * left operands of dv and dk as they are. Two interleaved lines of ds are right operands too: dq is computed
 * transposed, as turned keys times ds. 256 keys meet 256 queries at a time. dk and dv of all keys, and dq of all
 * queries of a head, stay in fp32. Only the probabilities, ds and the results are rounded to bf16.
 */
#ifndef HD_KERNELS_CPU_ATTENTION_ATTENTION_TILES_BACKWARD_H
#define HD_KERNELS_CPU_ATTENTION_ATTENTION_TILES_BACKWARD_H
#include <math.h>
#include <string.h>
#include "kernels/cpu/attention/attention_tiles.h"

struct att_backward {
	const struct hd_attention *t;
	uint16_t *q, *q_pairs, *d_o, *d_o_pairs; /* of one head; q and d_o as columns */
	uint16_t *k, *v, *k_turned;              /* k and v as rows */
	uint16_t *p, *ds;                        /* for a block of keys: tile (key / 16, query / 32) of a chunk */
	uint16_t *ds_pairs; /* for a chunk: block (query / 32, key / 32), two tiles of interleaved lines 2i, 2i + 1 */
	float *s, *dp;      /* for two blocks: tile (key / 16, query / 16) */
	float *dq;          /* block query / 32: tile (d / 16, half of the queries) */
	float *dk, *dv;     /* block key / 32: tile (key / 16, d / 16) */
	float *lse, *delta; /* lse for powers of 2 */
	/* Per block: whether dq, or dk and dv, have been written. If not, the next product overwrites them. */
	char *q_begun, *k_begun;
	int64_t parts, queries, keys; /* the last two in blocks */
};

/* What a block of queries sees of a block of keys. */
struct att_cross {
	/* Queries from .. to - 1 of the block see the first key. Both bounds are one higher for each further key. */
	int64_t from, to;
	int64_t keys; /* keys of the block; no query sees the others */
	int64_t n;    /* queries */
};

/* Describes block i of queries and block j of keys in x. Returns 0 if no query sees a key. */
static int cross_set(const struct hd_attention *t, struct att_cross *x, int64_t i, int64_t j)
{
	int64_t apart = t->k0 + j * ROWS - t->q0 - i * ROWS;

	x->n = hd_att_min(ROWS, t->seq - i * ROWS);
	x->keys = hd_att_min(ROWS, t->keys - j * ROWS);
	x->from = t->causal ? apart : -2 * ROWS;
	x->to = t->window ? apart + t->window : 4 * ROWS;
	return x->from < x->n && x->to + x->keys - 1 > 0;
}

static int all_cross(const struct att_cross *x)
{
	return x->keys == ROWS && x->from + ROWS - 1 <= 0 && x->to >= ROWS;
}

/* ---- a pair of blocks ------------------------------------------------------------------------ */

/* The values of the queries in half a block. */
struct att_lanes {
	__m512 lse, delta;
};

/* Turns the scores and dp of a key against 32 queries into its lines of probabilities and ds. part: 1 / softcap,
 * or 0. */
INLINE void key_line(const float *s, const float *dp, const struct att_lanes *q, float factor, float part,
		     __mmask32 seen, const int masked, __m512i *p, __m512i *ds)
{
	__m512 x[2], d[2];

#pragma GCC unroll 2
	for (int h = 0; h < 2; h++) {
		__m512 score = _mm512_load_ps(s + h * WORD);

		x[h] = exp2_(_mm512_fmsub_ps(score, _mm512_set1_ps(factor), q[h].lse));
		d[h] = _mm512_mul_ps(x[h], _mm512_sub_ps(_mm512_load_ps(dp + h * WORD), q[h].delta));
		if (part > 0) {
			__m512 of = _mm512_mul_ps(score, _mm512_set1_ps(part));

			d[h] = _mm512_mul_ps(d[h], _mm512_fnmadd_ps(of, of, _mm512_set1_ps(1)));
		}
		if (masked) {
			x[h] = _mm512_maskz_mov_ps((__mmask16)(seen >> 16 * h), x[h]);
			d[h] = _mm512_maskz_mov_ps((__mmask16)(seen >> 16 * h), d[h]);
		}
	}
	*p = (__m512i)_mm512_cvtne2ps_pbh(x[1], x[0]);
	*ds = (__m512i)_mm512_cvtne2ps_pbh(d[1], d[0]);
}

INLINE __mmask32 queries_seeing(const struct att_cross *x, int64_t key)
{
	if (key >= x->keys)
		return 0;
	return lanes(x->from + key, x->to + key, 0) | (__mmask32)lanes(x->from + key, x->to + key, 16) << 16;
}

/* Writes p, ds and pairs of two blocks. p, ds: tiles of keys 0 to 15 and of keys 16 to 31, CHUNK apart; pairs: two
 * adjacent tiles. */
INLINE void key_lines(const struct att_backward *f, const struct att_lanes *q, const struct att_cross *x, uint16_t *p,
		      uint16_t *ds, uint16_t *pairs, float part, const int masked)
{
	float factor = att_factor(f->t);

	for (int64_t r = 0; r < ROWS; r += 2) {
		const float *s = f->s + r / 16 * 2 * WORD + r % 16 * 16, *dp = f->dp + (s - f->s);
		int64_t at = r / 16 * CHUNK * HALF + r % 16 * 32;
		__m512i pl[2], dl[2];

#pragma GCC unroll 2
		for (int i = 0; i < 2; i++) {
			key_line(s + 16 * i, dp + 16 * i, q, factor, part, masked ? queries_seeing(x, r + i) : 0,
				 masked, &pl[i], &dl[i]);
			_mm512_store_si512(p + at + 32 * i, pl[i]);
			_mm512_store_si512(ds + at + 32 * i, dl[i]);
		}
		_mm512_store_si512(pairs + r / 2 * 32, _mm512_unpacklo_epi16(dl[0], dl[1]));
		_mm512_store_si512(pairs + HALF + r / 2 * 32, _mm512_unpackhi_epi16(dl[0], dl[1]));
	}
}

/* Computes p, ds and ds_pairs for block i of the queries from block i0 on and block j of the keys from block j0 on. */
static void cross(const struct att_backward *f, const struct att_cross *x, int64_t i0, int64_t i, int64_t j0, int64_t j)
{
	struct att_step row = { .row = f->parts, .k = 1 }, col = { .col = f->parts, .k = 1 },
			s = { .row = 2, .col = 1 };
	int64_t q = (i0 + i) * 2 * f->parts * HALF, k = (j0 + j) * 2 * f->parts * HALF;
	uint16_t *p = f->p + i * HALF, *ds = f->ds + i * HALF, *pairs = f->ds_pairs + (i * CHUNK + j) * 2 * HALF;
	struct att_open open = { .c = NULL };
	struct att_lanes of[2];

	tiles_product(&open, f->s, s, f->k + k, row, f->q + q, col, f->parts, 0);
	tiles_product(&open, f->dp, s, f->v + k, row, f->d_o + q, col, f->parts, 0);
	tiles_close(&open);
	for (int h = 0; h < 2; h++)
		of[h] = (struct att_lanes){ _mm512_load_ps(f->lse + (i0 + i) * ROWS + 16 * h),
					    _mm512_load_ps(f->delta + (i0 + i) * ROWS + 16 * h) };
	if (f->t->softcap > 0) {
		cap_scores(f->t, f->s, 4 * WORD);
		key_lines(f, of, x, p, ds, pairs, 1 / f->t->softcap, 1);
	} else if (all_cross(x)) {
		key_lines(f, of, x, p, ds, pairs, 0, 0);
	} else {
		key_lines(f, of, x, p, ds, pairs, 0, 1);
	}
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* A chunk of ni blocks of queries from block i0 on, and a chunk of nj blocks of keys from block j0 on. */
struct att_chunks {
	int64_t i0, ni, j0, nj;
	int64_t first[CHUNK], end[CHUNK]; /* of each block of queries, the blocks of keys that it sees */
};

/* Computes to (a block of dk or dv) = [to +] the sum over blocks first to end - 1 of queries of p times pairs. */
static void add_keys(const struct att_backward *f, struct att_open *o, float *to, const uint16_t *p,
		     const uint16_t *pairs, int64_t first, int64_t end, int add)
{
	struct att_step c = { .row = 2 * f->parts, .col = 1 }, a = { .row = CHUNK, .k = 1 };
	struct att_step b = { .col = 1, .k = 2 * f->parts };

	for (int64_t d = 0; d < f->parts; d++)
		tiles_product(o, to + 2 * d * WORD, c, p + first * HALF, a, pairs + (first * f->parts + d) * 2 * HALF,
			      b, end - first, add);
}

static void add_queries(const struct att_backward *f, const struct att_chunks *c)
{
	struct att_step s = { .row = 2, .col = 1 }, a = { .row = 1, .k = 2 * f->parts }, b = { .col = 1, .k = 2 };
	struct att_open open = { .c = NULL };

	for (int64_t i = 0; i < c->ni; i++) {
		if (c->first[i] == c->end[i])
			continue;
		for (int64_t d = 0; d < f->parts; d++)
			tiles_product(&open, f->dq + ((c->i0 + i) * f->parts + d) * 4 * WORD, s,
				      f->k_turned + ((c->j0 + c->first[i]) * f->parts + d) * 2 * HALF, a,
				      f->ds_pairs + (i * CHUNK + c->first[i]) * 2 * HALF, b, c->end[i] - c->first[i],
				      f->q_begun[c->i0 + i]);
		f->q_begun[c->i0 + i] = 1;
	}
	tiles_close(&open);
}

/* Sets to zero the blocks that no product has written. */
static void fill_rest(const struct att_backward *f, float *to, const char *begun, int64_t blocks)
{
	size_t size = (size_t)(4 * f->parts * WORD);

	for (int64_t i = 0; i < blocks; i++)
		if (!begun[i])
			memset(to + (size_t)i * size, 0, size * sizeof(*to));
}

static void chunks(const struct att_backward *f, struct att_chunks *c)
{
	int64_t size = 4 * f->parts * WORD, panel = 2 * f->parts * HALF;

	for (int64_t i = 0; i < CHUNK; i++)
		c->first[i] = c->end[i] = 0;
	for (int64_t j = 0; j < c->nj; j++) {
		int64_t first = 0, end = 0;
		struct att_open open = { .c = NULL };
		struct att_cross x;

		for (int64_t i = 0; i < c->ni; i++) {
			if (!cross_set(f->t, &x, c->i0 + i, c->j0 + j))
				continue;
			cross(f, &x, c->i0, i, c->j0, j);
			first = end ? first : i;
			end = i + 1;
			c->first[i] = c->end[i] ? c->first[i] : j;
			c->end[i] = j + 1;
		}
		if (!end)
			continue;
		add_keys(f, &open, f->dv + (c->j0 + j) * size, f->p, f->d_o_pairs + c->i0 * panel, first, end,
			 f->k_begun[c->j0 + j]);
		add_keys(f, &open, f->dk + (c->j0 + j) * size, f->ds, f->q_pairs + c->i0 * panel, first, end,
			 f->k_begun[c->j0 + j]);
		tiles_close(&open);
		f->k_begun[c->j0 + j] = 1;
	}
	add_queries(f, c);
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* Computes delta, the sum of o do over head_dim, for 16 queries from query i on. */
static void set_delta(const struct att_backward *f, const struct att_operand *o, const struct att_operand *d_o,
		      int64_t i)
{
	__m512 sum[16];

	for (int r = 0; r < 16; r++) {
		sum[r] = _mm512_setzero_ps();
		for (int64_t k = 0; k < f->parts; k++)
			sum[r] = _mm512_dpbf16_ps(sum[r], (__m512bh)part(o, i + r, k, 0),
						  (__m512bh)part(d_o, i + r, k, 0));
	}
	_mm512_store_ps(f->delta + i, across(sum, 1));
}

/* Sets lse to infinity for padding and for queries that see nothing, which makes all their probabilities 0. */
static void set_lse(const struct att_backward *f, const float *lse)
{
	for (int64_t i = 0; i < f->queries * ROWS; i++)
		f->lse[i] = i < f->t->seq && lse[i] != -INFINITY ? lse[i] * LOG2E : INFINITY;
}

static void pack_head(const struct att_backward *f, void *const *in, int64_t b, int64_t h)
{
	const struct hd_attention *t = f->t;
	int64_t at = (b * t->seq * t->heads + h) * t->dim;
	struct att_operand q = { (const uint16_t *)in[0] + at, t->heads * t->dim, t->seq, t->dim }, o = q, d_o = q;

	o.x = (const uint16_t *)in[3] + at;
	d_o.x = (const uint16_t *)in[5] + at;
	pack(&(struct att_forms){ .columns = f->q, .pairs = f->q_pairs }, &q);
	pack(&(struct att_forms){ .columns = f->d_o, .pairs = f->d_o_pairs }, &d_o);
	set_lse(f, (const float *)in[4] + (b * t->heads + h) * t->seq);
	for (int64_t i = 0; i < f->queries * ROWS; i += 16)
		set_delta(f, &o, &d_o, i);
	memset(f->q_begun, 0, (size_t)f->queries);
}

/* Writes part k of dq for half h of the queries of block i. Of eight adjacent queries, half 0 contains the first four,
 * and half 1 the other four. */
static void give_half(const struct att_backward *f, uint16_t *to, int64_t i, int64_t k, int64_t h)
{
	const struct hd_attention *t = f->t;
	const float *from = f->dq + ((i * f->parts + k) * 4 + h) * WORD;
	__m512 factor = _mm512_set1_ps(t->scale);
	__m512i x[2][16];

	for (int e = 0; e < 2; e++) {
		for (int j = 0; j < 16; j++)
			x[e][j] = _mm512_load_si512(from + e * 2 * WORD + j * 16);
		transpose16(x[e]);
	}
	for (int j = 0; j < 16; j++) {
		int64_t q = i * ROWS + j / 4 * 8 + h * 4 + j % 4;

		if (q < t->seq)
			give_part(to + q * t->heads * t->dim + k * 32, _mm512_mul_ps((__m512)x[0][j], factor),
				  _mm512_mul_ps((__m512)x[1][j], factor), t->dim - k * 32);
	}
}

static void give_keys(const struct att_backward *f, uint16_t *to, const float *from, float by)
{
	const struct hd_attention *t = f->t;
	__m512 factor = _mm512_set1_ps(by);

	for (int64_t r = 0; r < t->keys; r++)
		for (int64_t k = 0; k < f->parts; k++) {
			const float *x = from + (r / 16 * f->parts + k) * 2 * WORD + r % 16 * 16;

			give_part(to + r * t->kv_heads * t->dim + k * 32, _mm512_mul_ps(_mm512_load_ps(x), factor),
				  _mm512_mul_ps(_mm512_load_ps(x + WORD), factor), t->dim - k * 32);
		}
}

static void head_d(const struct att_backward *f, uint16_t *dq)
{
	for (int64_t j = 0; j < f->keys; j += CHUNK)
		for (int64_t i = 0; i < f->queries; i += CHUNK)
			chunks(f, &(struct att_chunks){ .i0 = i,
							.ni = hd_att_min(CHUNK, f->queries - i),
							.j0 = j,
							.nj = hd_att_min(CHUNK, f->keys - j) });
	fill_rest(f, f->dq, f->q_begun, f->queries);
	for (int64_t i = 0; i < f->queries; i++)
		for (int64_t k = 0; k < f->parts; k++) {
			give_half(f, dq, i, k, 0);
			give_half(f, dq, i, k, 1);
		}
}

/* Lays out the scratch of a task. Returns its end. */
static char *backward_set(const struct hd_attention *t, struct att_backward *f, char *scratch)
{
	int64_t queries = (t->seq + ROWS - 1) / ROWS, keys = (t->keys + ROWS - 1) / ROWS, parts = att_parts(t);
	int64_t halves[] = { queries, queries, queries, queries, keys, keys, keys }; /* times 2 parts */
	uint16_t **half[] = { &f->q, &f->q_pairs, &f->d_o, &f->d_o_pairs, &f->k, &f->v, &f->k_turned };
	float **word[] = { &f->dq, &f->dk, &f->dv, &f->s, &f->dp };
	int64_t words[] = { 4 * queries * parts, 4 * keys * parts, 4 * keys * parts, 4, 4 };
	float **vector[] = { &f->lse, &f->delta };
	uint16_t **small[] = { &f->p, &f->ds, &f->ds_pairs };
	int64_t smalls[] = { 2 * CHUNK, 2 * CHUNK, 2 * CHUNK * CHUNK };

	*f = (struct att_backward){ .t = t, .parts = parts, .queries = queries, .keys = keys };
	for (size_t i = 0; i < sizeof(half) / sizeof(*half); scratch += 1024 * 2 * parts * halves[i], i++)
		*half[i] = (uint16_t *)scratch;
	for (size_t i = 0; i < sizeof(word) / sizeof(*word); scratch += 1024 * words[i], i++)
		*word[i] = (float *)scratch;
	for (size_t i = 0; i < 3; scratch += 1024 * smalls[i], i++)
		*small[i] = (uint16_t *)scratch;
	for (size_t i = 0; i < 2; scratch += 4 * ROWS * queries, i++)
		*vector[i] = (float *)scratch;
	f->q_begun = scratch;
	f->k_begun = scratch + queries;
	return scratch + (queries + keys + 63) / 64 * 64;
}

static int64_t floats_d(const struct hd_attention *t)
{
	static char none[1];
	struct att_backward f;

	return (backward_set(t, &f, none) - none) / (int64_t)sizeof(float);
}

static void backward(const struct hd_attention *t, float *scratch, void *const *out, void *const *in,
		     const struct hd_att_task *task)
{
	int64_t at = (task->b * t->keys * t->kv_heads + task->kv) * t->dim;
	struct att_operand keys = { (const uint16_t *)in[1] + at, t->kv_heads * t->dim, t->keys, t->dim },
			   values = keys;
	struct att_backward f;

	backward_set(t, &f, (char *)scratch);
	values.x = (const uint16_t *)in[2] + at;
	begin_tiles();
	pack(&(struct att_forms){ .rows = f.k, .turned = f.k_turned }, &keys);
	pack(&(struct att_forms){ .rows = f.v }, &values);
	memset(f.k_begun, 0, (size_t)f.keys);
	for (int64_t h = 0; h < t->heads; h++) {
		if (!hd_att_reads(t, h, task))
			continue;
		pack_head(&f, in, task->b, h);
		head_d(&f, (uint16_t *)out[0] + (task->b * t->seq * t->heads + h) * t->dim);
	}
	fill_rest(&f, f.dk, f.k_begun, f.keys);
	fill_rest(&f, f.dv, f.k_begun, f.keys);
	give_keys(&f, (uint16_t *)out[1] + at, f.dk, t->scale);
	give_keys(&f, (uint16_t *)out[2] + at, f.dv, 1);
	end_tiles();
}
#endif
