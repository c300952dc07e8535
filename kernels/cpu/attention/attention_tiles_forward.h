/* SPDX-License-Identifier: Apache-2.0
 * attention in tiles of bf16 (attention_tiles.h).
 *
 * A task is a range of queries of all heads that read one kv head; it packs the keys and values that they see. A block
 * of 32 queries computes its scores against a chunk of up to 256 keys in fp32. From them it computes probabilities in
 * bf16, whose rows are tiles as they are, and adds their product with the values. A chunk of keys meets 256 queries
 * before the next chunk follows. Only the probabilities and the result are rounded to bf16. How the queries are
 * divided into tasks changes no result.
 */
#ifndef HD_KERNELS_CPU_ATTENTION_ATTENTION_TILES_FORWARD_H
#define HD_KERNELS_CPU_ATTENTION_ATTENTION_TILES_FORWARD_H
#include <math.h>
#include <string.h>
#include "kernels/cpu/attention/attention_tiles_backward.h"

struct att_block {       /* a block of queries with its running softmax */
	float max[ROWS]; /* of scores */
	__m512 sum[ROWS];
	int32_t n, fresh; /* number of queries; fresh: nothing is summed yet */
};

struct att_forward {
	const struct hd_attention *t;
	uint16_t *k, *v; /* packed from key k0 on: k as columns, v as pairs */
	uint16_t *q;     /* rows of a chunk of queries */
	uint16_t *p;     /* tile (row / 16, key / 32) of a chunk of keys */
	float *o, *s;    /* o: tile (row / 16, d / 16) per block; s: tile (row / 16, key / 16) of a chunk */
	struct att_block *block;
	int64_t k0, k1, parts;
};

/* What a block of queries sees of a chunk of keys: row i sees keys from[i] .. to[i] - 1 of the chunk. */
struct att_view {
	int64_t from[ROWS], to[ROWS];
	int64_t first, end; /* blocks first .. end - 1 contain all keys that any row sees */
};

/* Describes n queries from q on against `keys` keys from k on. Returns 0 if no row sees a key. */
static int view_set(const struct hd_attention *t, struct att_view *w, int64_t q, int64_t n, int64_t k, int64_t keys)
{
	for (int64_t i = 0; i < ROWS; i++) {
		int64_t at = t->q0 + q + hd_att_min(i, n - 1);

		w->from[i] = hd_att_before_window(t, at, t->k0 + k, keys);
		w->to[i] = hd_att_seen(t, at, t->k0 + k, keys);
	}
	w->first = w->from[0] / ROWS;
	w->end = (w->to[ROWS - 1] + ROWS - 1) / ROWS;
	return w->first < w->end;
}

/* Returns whether all rows see all keys of block j. */
INLINE int is_whole(const struct att_view *w, int64_t j)
{
	return w->from[ROWS - 1] <= j * ROWS && w->to[0] >= (j + 1) * ROWS;
}

static void scores(const struct att_forward *f, const uint16_t *q, const uint16_t *k, const struct att_view *w)
{
	struct att_step row = { .row = f->parts, .k = 1 }, col = { .col = f->parts, .k = 1 };
	struct att_step s = { .row = 2 * CHUNK, .col = 1 };
	struct att_open open = { .c = NULL };

	for (int64_t j = w->first; j < w->end; j++)
		tiles_product(&open, f->s + 2 * j * WORD, s, q, row, k + 2 * j * f->parts * HALF, col, f->parts, 0);
	tiles_close(&open);
	if (f->t->softcap > 0)
		for (int h = 0; h < 2; h++)
			cap_scores(f->t, f->s + 2 * (h * CHUNK + w->first) * WORD, (w->end - w->first) * 2 * WORD);
}

INLINE void largest_of(__m512 *max, const float *s, const struct att_view *w, int64_t row, int64_t j, const int masked)
{
#pragma GCC unroll 16
	for (int i = 0; i < 16; i++) {
		__m512 a = _mm512_load_ps(s + i * 16), b = _mm512_load_ps(s + WORD + i * 16);

		if (!masked) {
			max[i] = _mm512_max_ps(max[i], _mm512_max_ps(a, b));
			continue;
		}
		max[i] = _mm512_mask_max_ps(max[i], lanes(w->from[row + i], w->to[row + i], j * ROWS), max[i], a);
		max[i] = _mm512_mask_max_ps(max[i], lanes(w->from[row + i], w->to[row + i], j * ROWS + 16), max[i], b);
	}
}

/* Returns the largest score of each of 16 rows in this chunk. */
static __m512 largest(const float *s, const struct att_view *w, int64_t row)
{
	__m512 max[16];

#pragma GCC unroll 16
	for (int i = 0; i < 16; i++)
		max[i] = _mm512_set1_ps(-INFINITY);
	for (int64_t j = w->first; j < w->end; j++)
		if (is_whole(w, j))
			largest_of(max, s + 2 * j * WORD, w, row, j, 0);
		else
			largest_of(max, s + 2 * j * WORD, w, row, j, 1);
	return across(max, 0);
}

/* Computes the probabilities of 16 rows and a block of keys. less: subtracted from each row's scores times factor. */
INLINE void powers(uint16_t *p, __m512 *sum, const float *s, const float *less, float factor, const struct att_view *w,
		   int64_t row, int64_t j, const int masked)
{
	__m512 by = _mm512_set1_ps(factor);

#pragma GCC unroll 4
	for (int i = 0; i < 16; i++) {
		__m512 off = _mm512_set1_ps(less[i]);
		__m512 a = exp2_(_mm512_fmsub_ps(_mm512_load_ps(s + i * 16), by, off));
		__m512 b = exp2_(_mm512_fmsub_ps(_mm512_load_ps(s + WORD + i * 16), by, off));

		if (masked) {
			a = _mm512_maskz_mov_ps(lanes(w->from[row + i], w->to[row + i], j * ROWS), a);
			b = _mm512_maskz_mov_ps(lanes(w->from[row + i], w->to[row + i], j * ROWS + 16), b);
		}
		sum[i] = _mm512_add_ps(sum[i], _mm512_add_ps(a, b));
		_mm512_store_si512(p + i * 32, (__m512i)_mm512_cvtne2ps_pbh(b, a));
	}
}

/* Multiplies the sums and results of 16 rows so far by the rows' factors. */
INLINE void rescale(struct att_block *x, float *o, const float *by, int64_t row, int64_t parts)
{
	for (int i = 0; i < 16; i++) {
		__m512 f = _mm512_set1_ps(by[i]);

		x->sum[row + i] = _mm512_mul_ps(x->sum[row + i], f);
		for (int64_t d = 0; d < 2 * parts; d++)
			_mm512_store_ps(o + d * WORD + i * 16, _mm512_mul_ps(_mm512_load_ps(o + d * WORD + i * 16), f));
	}
}

/* Turns the scores of 16 rows into probabilities. */
static void softmax(const struct att_forward *f, struct att_block *x, float *o, const struct att_view *w, int64_t row)
{
	const float *s = f->s + row / 16 * 2 * CHUNK * WORD;
	uint16_t *p = f->p + row / 16 * CHUNK * HALF;
	float less[16] __attribute__((aligned(64))), by[16] __attribute__((aligned(64))), factor = att_factor(f->t);
	__m512 was = _mm512_load_ps(x->max + row), max = _mm512_max_ps(largest(s, w, row), was), use;

	/* a row that has seen nothing: all its terms become 0 */
	use = _mm512_mask_mov_ps(max, _mm512_cmp_ps_mask(max, _mm512_set1_ps(-INFINITY), _CMP_EQ_OQ),
				 _mm512_setzero_ps());
	_mm512_store_ps(x->max + row, max);
	_mm512_store_ps(less, _mm512_mul_ps(use, _mm512_set1_ps(factor)));
	_mm512_store_ps(by, exp2_(_mm512_mul_ps(_mm512_sub_ps(was, use), _mm512_set1_ps(factor))));
	if (!x->fresh)
		rescale(x, o + row / 16 * 2 * f->parts * WORD, by, row, f->parts);
	for (int64_t j = w->first; j < w->end; j++)
		if (is_whole(w, j))
			powers(p + j * HALF, x->sum + row, s + 2 * j * WORD, less, factor, w, row, j, 0);
		else
			powers(p + j * HALF, x->sum + row, s + 2 * j * WORD, less, factor, w, row, j, 1);
}

/* Computes o = [o +] p v. */
static void mix(const struct att_forward *f, float *o, const uint16_t *v, const struct att_view *w, int add)
{
	struct att_step p = { .row = CHUNK, .k = 1 }, s = { .row = 2 * f->parts, .col = 1 };
	struct att_step pairs = { .col = 1, .k = 2 * f->parts };
	struct att_open open = { .c = NULL };

	for (int64_t d = 0; d < f->parts; d++)
		tiles_product(&open, o + 2 * d * WORD, s, f->p + w->first * HALF, p,
			      v + (w->first * 2 * f->parts + 2 * d) * HALF, pairs, w->end - w->first, add);
	tiles_close(&open);
}

/* Processes block i of the chunk of queries that begins at query q, against the chunk of keys from k on. */
static void process_block(const struct att_forward *f, int64_t q, int64_t i, int64_t k)
{
	struct att_block *x = &f->block[i];
	float *o = f->o + i * 4 * f->parts * WORD;
	struct att_view w;

	if (!view_set(f->t, &w, q + i * ROWS, x->n, k, hd_att_min(CHUNK * ROWS, f->k1 - k)))
		return;
	scores(f, f->q + i * 2 * f->parts * HALF, f->k + (k - f->k0) / 16 * f->parts * HALF, &w);
	softmax(f, x, o, &w, 0);
	softmax(f, x, o, &w, 16);
	mix(f, o, f->v + (k - f->k0) / ROWS * 2 * f->parts * HALF, &w, !x->fresh);
	x->fresh = 0;
}

/* Turns the sums and maxima of 16 rows into lse and the factors of the result. */
static void close_rows(const struct att_forward *f, struct att_block *x, int64_t row, float *lse, float *by)
{
	float factor = f->t->softcap > 0 ? 1 : f->t->scale, sum[16] __attribute__((aligned(64)));

	_mm512_store_ps(sum, across(x->sum + row, 1));
#pragma omp simd
	for (int i = 0; i < 16; i++) {
		int none = x->max[row + i] == -INFINITY;

		lse[i] = none ? -INFINITY : x->max[row + i] * factor + hd_logf_all(sum[i]);
		by[i] = none ? 0 : 1 / sum[i];
	}
}

static void finish(const struct att_forward *f, int64_t i, uint16_t *out, float *lse)
{
	const struct hd_attention *t = f->t;
	struct att_block *x = &f->block[i];
	float by[ROWS], all[ROWS];

	close_rows(f, x, 0, all, by);
	close_rows(f, x, 16, all + 16, by + 16);
	memcpy(lse, all, (size_t)x->n * sizeof(*lse));
	if (x->fresh)
		memset(f->o + i * 4 * f->parts * WORD, 0, (size_t)(4 * f->parts * WORD) * sizeof(*f->o));
	for (int64_t r = 0; r < x->n; r++)
		for (int64_t d = 0; d < f->parts; d++) {
			const float *o = f->o + (i * 4 * f->parts + r / 16 * 2 * f->parts + 2 * d) * WORD + r % 16 * 16;
			__m512 scale = _mm512_set1_ps(by[r]);

			give_part(out + r * t->heads * t->dim + d * 32, _mm512_mul_ps(_mm512_load_ps(o), scale),
				  _mm512_mul_ps(_mm512_load_ps(o + WORD), scale), t->dim - d * 32);
		}
}

/* Computes queries q .. q + n - 1 of a head, at most a chunk. */
static void chunk(const struct att_forward *f, uint16_t *o, float *lse, const uint16_t *x, int64_t q, int64_t n)
{
	const struct hd_attention *t = f->t;
	int64_t step = t->heads * t->dim, blocks = (n + ROWS - 1) / ROWS;
	int64_t k = f->k0 + hd_att_before_window(t, t->q0 + q, t->k0 + f->k0, f->k1 - f->k0) / ROWS * ROWS;
	int64_t end = f->k0 + hd_att_seen(t, t->q0 + q + n - 1, t->k0 + f->k0, f->k1 - f->k0);

	pack(&(struct att_forms){ .rows = f->q }, &(struct att_operand){ x, step, n, t->dim });
	for (int64_t i = 0; i < blocks; i++) {
		struct att_block *b = &f->block[i];

		*b = (struct att_block){ .n = (int32_t)hd_att_min(ROWS, n - i * ROWS), .fresh = 1 };
		for (int r = 0; r < ROWS; r++)
			b->max[r] = -INFINITY;
	}
	for (; k < end; k += CHUNK * ROWS)
		for (int64_t i = 0; i < blocks; i++)
			process_block(f, q, i, k);
	for (int64_t i = 0; i < blocks; i++)
		finish(f, i, o + i * ROWS * step, lse + i * ROWS);
}

static void forward_set(const struct hd_attention *t, struct att_forward *f, float *scratch)
{
	int64_t keys = (t->keys + ROWS - 1) / ROWS;

	f->t = t;
	f->parts = att_parts(t);
	f->block = (struct att_block *)scratch;
	f->s = (float *)(f->block + CHUNK);
	f->o = f->s + 4 * CHUNK * WORD;
	f->p = (uint16_t *)(f->o + CHUNK * 4 * f->parts * WORD);
	f->q = f->p + 2 * CHUNK * HALF;
	f->k = f->q + CHUNK * 2 * f->parts * HALF;
	f->v = f->k + keys * 2 * f->parts * HALF;
}

static int64_t floats(const struct hd_attention *t, int backward)
{
	int64_t keys = (t->keys + ROWS - 1) / ROWS, parts = att_parts(t);
	int64_t whole = 4 * CHUNK + 4 * CHUNK * parts, half = 2 * CHUNK + 2 * CHUNK * parts + 4 * keys * parts;

	if (backward)
		return floats_d(t);
	return CHUNK * (int64_t)sizeof(struct att_block) / 4 + (whole + half) * WORD;
}

static void forward(const struct hd_attention *t, float *scratch, void *const *out, void *const *in,
		    const struct hd_att_task *task)
{
	int64_t from = task->from, to = task->to, at;
	struct att_forward f;
	struct att_operand keys;

	forward_set(t, &f, scratch);
	f.k0 = hd_att_before_window(t, t->q0 + from, t->k0, t->keys) / ROWS * ROWS;
	f.k1 = hd_att_seen(t, t->q0 + to - 1, t->k0, t->keys);
	at = ((task->b * t->keys + f.k0) * t->kv_heads + task->kv) * t->dim;
	keys = (struct att_operand){ (const uint16_t *)in[1] + at, t->kv_heads * t->dim, f.k1 - f.k0, t->dim };
	begin_tiles();
	pack(&(struct att_forms){ .columns = f.k }, &keys);
	keys.x = (const uint16_t *)in[2] + at;
	pack(&(struct att_forms){ .pairs = f.v }, &keys);
	for (int64_t h = 0; h < t->heads; h++)
		for (int64_t q = from; q < to && hd_att_reads(t, h, task); q += CHUNK * ROWS) {
			at = ((task->b * t->seq + q) * t->heads + h) * t->dim;
			chunk(&f, (uint16_t *)out[0] + at, (float *)out[1] + (task->b * t->heads + h) * t->seq + q,
			      (const uint16_t *)in[0] + at, q, hd_att_min(CHUNK * ROWS, to - q));
		}
	end_tiles();
}
#endif
