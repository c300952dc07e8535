/* SPDX-License-Identifier: Apache-2.0
 * Products of a few rows with a large matrix. Threads divide the columns among themselves in units, so no bit depends
 * on their number. Each computes its columns in the way that is fastest on this processor (blocks.h, pairs.c,
 * tiles.c).
 *
 * For at most HD_THIN_ROWS rows with b along n, a thread's columns would be short runs of memory. There k is cut into
 * PIECES, whose number depends on the shape alone. A thread reads complete rows of b, and the sums of the pieces are
 * added in order.
 */
#include <config.h>
#include "kernels/cpu/thin/thin.h"
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/pairs.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 1 << 16, COLUMNS = 64, PIECES = 8, LONG = 4096 };

struct hd_thin {
	int64_t m, n, k, a_m, a_k, b_step, c_m;
	int low, low_c, along_k, tiles, pairs;
	hd_thin_fn *blocks; /* the kernel of one thread; pairs: it takes rows of bf16 */
	int64_t width;      /* columns of y in a panel */
	/* Pieces of k, whose sums are added in order, or 0 if k is not cut; runs of columns. */
	int64_t pieces, runs;
	int64_t operand, each, threads; /* operand, each: bytes of a as it is packed, and of scratch per thread */
};

static int fits(const struct hd_mm_shape *s, int64_t rows)
{
	const int64_t *n = s->n, *a = s->stride[HD_MM_A], *b = s->stride[HD_MM_B], *c = s->stride[HD_MM_C];

	return s->ndim == 3 && n[0] <= rows && n[0] > 0 && n[1] >= COLUMNS && n[2] >= COLUMNS && n[1] * n[2] >= LEAST &&
	       c[1] == 1 && a[2] >= 1 && (b[1] == 1 || b[2] == 1) && s->dtype[HD_MM_A] == s->dtype[HD_MM_B] &&
	       b[1] > 0 && b[2] > 0 &&
	       (!s->dtype[HD_MM_BIAS] || (s->stride[HD_MM_BIAS][0] == 0 && s->stride[HD_MM_BIAS][1] == 1));
}

hd_thin_fn *hd_thin_best(void)
{
#if HD_X86
	if (hd_has_avx512())
		return hd_thin_avx512;
	if (hd_has_avx2())
		return hd_thin_avx2;
#endif
	return hd_thin_plain;
}

static int64_t up(int64_t n)
{
	return (n + 63) / 64 * 64;
}

/* Chooses the pieces and the runs of columns: enough for all threads, with the sums of a run in L1. */
static void cut(struct hd_thin *t, int threads)
{
	int64_t share = t->n <= LONG ? PIECES : 1, least = hd_parts(t->m * t->n, 2 * LONG);

	if (t->m > HD_THIN_ROWS || t->along_k)
		return;
	t->pieces = share;
	while (threads % share)
		share /= 2;
	t->runs = hd_min(threads / share, hd_parts(t->n, 4 * HD_THIN_UNIT));
	t->runs = t->runs < least ? least : t->runs;
}

static void size(struct hd_thin *t, int threads)
{
	t->width = t->along_k ? HD_THIN_UNIT : HD_THIN_PANEL;
	cut(t, threads);
	t->operand = up(t->m * t->k * 4) + up(t->pieces * t->m * t->n * 4);
	t->each = up(t->m * t->width * 4);
#if HD_AMX
	if (t->tiles) {
		t->operand = up((t->k + 31) / 32 * 32 * 32 * 2);
		t->each += up((int64_t)hd_thin_tiles_bytes(t->k, t->along_k));
	}
#endif
	t->threads = threads;
}

static void choose_pairs(struct hd_thin *t)
{
#if HD_AMX
	t->pairs = t->low && t->a_k == 1 && !t->tiles && hd_pairs_fast();
	if (t->pairs)
		t->blocks = hd_thin_pairs;
#endif
}

/* Returns 0 if thin products do not support this shape. */
static int plan(struct hd_thin *t, const struct hd_mm_shape *s, int64_t rows, int tiles, int threads)
{
	if (!fits(s, rows))
		return 0;
	*t = (struct hd_thin){ .m = s->n[0], .n = s->n[1], .k = s->n[2], .a_m = s->stride[HD_MM_A][0] };
	t->a_k = s->stride[HD_MM_A][2];
	t->along_k = s->stride[HD_MM_B][2] == 1;
	t->b_step = s->stride[HD_MM_B][t->along_k ? 1 : 2];
	t->c_m = s->stride[HD_MM_C][0];
	t->low = s->dtype[HD_MM_A] == HD_DTYPE_BF16;
	t->low_c = s->dtype[HD_MM_C] == HD_DTYPE_BF16;
	t->blocks = hd_thin_best();
	t->tiles = t->low && t->m > HD_THIN_ROWS && t->a_k == 1 && tiles;
	choose_pairs(t);
	size(t, threads);
	return 1;
}

int64_t hd_thin_bytes(const struct hd_mm_shape *s, int64_t rows, int tiles, int threads)
{
	struct hd_thin t;

	return plan(&t, s, rows, tiles, threads) ? t.operand + t.threads * t.each : 0;
}

struct hd_thin *hd_thin_create(const struct hd_mm_shape *s, int64_t rows, int tiles)
{
	struct hd_thin t, *kept;

	if (!plan(&t, s, rows, tiles, omp_get_max_threads()))
		return NULL;
	kept = hd_alloc(sizeof(*kept));
	*kept = t;
	return kept;
}

void hd_thin_destroy(struct hd_thin *t)
{
	free(t);
}

/* -- run --------------------------------------------------------------------------------------- */
struct thin_result {
	void *c;
	const void *bias;
	uint32_t bias_dtype;
	int keep;
};

/* Computes c[i, from + j] = (keep ? c : 0) + bias + y[j]. Overwrites y. */
static void write_result(const struct hd_thin *t, const struct thin_result *r, int64_t i, int64_t from, int64_t n,
			 float *y)
{
	uint32_t dtype = t->low_c ? HD_DTYPE_BF16 : HD_DTYPE_F32;
	int64_t at = i * t->c_m + from;
	float tmp[HD_PIECE];

	if (r->keep)
		hd_add_floats(y, hd_read(r->c, dtype, at, n, tmp), n);
	if (r->bias)
		hd_add_floats(y, hd_read(r->bias, r->bias_dtype, from, n, tmp), n);
	if (t->low_c)
		hd_store_bf16((uint16_t *)r->c + at, y, n);
	else
		memcpy((float *)r->c + at, y, (size_t)n * sizeof(*y));
}

_Static_assert(HD_THIN_PANEL <= HD_PIECE && HD_THIN_PANEL % HD_THIN_UNIT == 0, "a panel is a piece");

/* Computes columns from..to - 1 on one thread. */
static void part(const struct hd_thin *t, const struct hd_thin_job *j, const struct thin_result *r, int64_t from,
		 int64_t to, char *mem)
{
	float *y = (float *)mem;

	for (; from < to; from += t->width) {
		int64_t n = hd_min(t->width, to - from);

#if HD_AMX
		if (t->tiles)
			hd_thin_tiles(j, y, t->width, from, n, mem + up(t->m * t->width * 4));
		else
#endif
			t->blocks(j, y, t->width, from, n);
		for (int64_t i = 0; i < t->m; i++)
			write_result(t, r, i, from, n, y + i * t->width);
	}
}

/* Adds the sums of all pieces in order, for columns from..to - 1. */
static void join(const struct hd_thin *t, const struct thin_result *r, const float *sums, int64_t from, int64_t to,
		 float *y)
{
	for (; from < to; from += HD_PIECE)
		for (int64_t i = 0, n = hd_min(HD_PIECE, to - from); i < t->m; i++) {
			memcpy(y, sums + i * t->n + from, (size_t)n * sizeof(*y));
			for (int64_t p = 1; p < t->pieces; p++)
				hd_add_floats(y, sums + (p * t->m + i) * t->n + from, n);
			write_result(t, r, i, from, n, y);
		}
}

/* Computes piece i / runs of run i % runs of columns. sums: (pieces, m, n). */
static void compute_piece(const struct hd_thin *t, const struct hd_thin_job *whole, float *sums, int64_t i)
{
	int64_t deep = hd_parts(t->k, t->pieces),
		width = hd_parts(hd_parts(t->n, t->runs), HD_THIN_UNIT) * HD_THIN_UNIT;
	int64_t p = i / t->runs, from = hd_min(i % t->runs * width, t->n), k = hd_min(p * deep, t->k);
	struct hd_thin_job j = *whole;

	j.k = hd_min(deep, t->k - k);
	if (t->pairs)
		j.low_rows += k;
	else
		j.rows += k;
	j.b = (const char *)j.b + k * j.b_step * (j.low ? 2 : 4);
	t->blocks(&j, sums + p * t->m * t->n + from, t->n, from, hd_min(width, t->n - from));
}

/* Returns a as contiguous fp32: in place if it is stored so, else converted in `to`. */
static const float *rows_of(const struct hd_thin *t, float *to, const void *a)
{
	if (!t->low && t->a_k == 1 && (t->a_m == t->k || t->m == 1))
		return a;
	for (int64_t i = 0; i < t->m; i++)
		if (t->low && t->a_k == 1)
			hd_bf16_to_f32(to + i * t->k, (const uint16_t *)a + i * t->a_m, t->k);
		else
			for (int64_t k = 0; k < t->k; k++)
				to[i * t->k + k] = hd_get(a, t->low, i * t->a_m + k * t->a_k);
	return to;
}

/* Brings a into the form that t needs. to: t->operand bytes. */
static void pack_rows(const struct hd_thin *t, struct hd_thin_job *j, void *to, const void *a)
{
	if (t->tiles) {
#if HD_AMX
		j->tiles = to;
		hd_thin_tiles_pack(to, j, a, t->a_m);
#endif
	} else if (t->pairs) {
		j->low_rows = a;
		j->row_step = t->a_m;
	} else {
		j->rows = rows_of(t, to, a);
	}
}

void hd_thin_run(const struct hd_thin *t, void *scratch, int keep, void *c, const void *a, const void *b,
		 const void *bias, uint32_t bias_dtype)
{
	const struct thin_result r = { c, bias, bias_dtype, keep };
	struct hd_thin_job j = { .m = t->m, .k = t->k, .row_step = t->k, .b = b, .b_step = t->b_step, .low = t->low };
	float *sums = (float *)((char *)scratch + up(t->m * t->k * 4));
	int64_t units = hd_parts(t->n, HD_THIN_UNIT);

	j.along_k = t->along_k;
	pack_rows(t, &j, scratch, a);
#pragma omp parallel num_threads((int)t->threads)
	{
		int64_t me = omp_get_thread_num(), all = omp_get_num_threads(), n = t->pieces * t->runs;
		int64_t from = units * me / all * HD_THIN_UNIT,
			to = hd_min(t->n, units * (me + 1) / all * HD_THIN_UNIT);
		char *mem = (char *)scratch + t->operand + me * t->each;

#if HD_AMX
		if (t->tiles)
			hd_amx_begin();
#endif
		if (t->pieces) {
			for (int64_t i = n * me / all; i < n * (me + 1) / all; i++)
				compute_piece(t, &j, sums, i);
#pragma omp barrier
			join(t, &r, sums, from, to, (float *)mem);
		} else {
			part(t, &j, &r, from, to, mem);
		}
#if HD_AMX
		if (t->tiles)
			hd_amx_end();
#endif
	}
}
