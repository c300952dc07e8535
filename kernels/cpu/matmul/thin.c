/* SPDX-License-Identifier: Apache-2.0
 * Products of a few rows with a large matrix, as generation makes them: c (m, n) = a (m, k) b (k, n), m at most HD_THIN_ROWS.  What
 * costs is reading b once, so b is read as it lies, in long runs:
 *
 *	b along k	each column of b is a dot product with each row of a
 *	b along n	rows of b are added up, times what a has of them, in pieces of k, whose sums are added in their order
 *
 * The pieces follow from the shape alone, so no bit depends on the number of threads.
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/matmul/matmul.h"
#include <stdlib.h>

enum { LEAST = 1 << 16, PIECES = 8, COLUMNS = 64, STEP = 8, RUN = 512 };

struct hd_thin {
	int64_t m, n, k, a_m, a_k, b_n, b_k, c_m;
	uint32_t low, low_c;
	/* Scratch, of the run at hand: */
	float *rows;    /* (m, k): a, contiguous and in fp32 */
	float *partial; /* (PIECES, m, n), where b lies along n */
};

static int fits(const struct hd_mm_shape *s)
{
	const int64_t *n = s->n, *a = s->stride[HD_MM_A], *b = s->stride[HD_MM_B], *c = s->stride[HD_MM_C];

	return s->ndim == 3 && n[0] <= HD_THIN_ROWS && n[1] >= COLUMNS && n[2] >= COLUMNS && n[1] * n[2] >= LEAST &&
	       c[1] == 1 && a[2] >= 1 && (b[1] == 1 || b[2] == 1) && s->dtype[HD_MM_A] == s->dtype[HD_MM_B] &&
	       b[1] > 0 && b[2] > 0;
}

static int64_t floats_of_rows(int64_t m, int64_t k)
{
	return (m * k + 15) / 16 * 16;
}

int64_t hd_thin_bytes(const struct hd_mm_shape *s)
{
	int64_t partial = s->stride[HD_MM_B][2] != 1 ? PIECES * s->n[0] * s->n[1] : 0;

	return fits(s) ? (floats_of_rows(s->n[0], s->n[2]) + partial) * (int64_t)sizeof(float) : 0;
}

struct hd_thin *hd_thin_create(const struct hd_mm_shape *s)
{
	struct hd_thin *t;

	if (!fits(s))
		return NULL;
	t = hd_alloc(sizeof(*t));
	*t = (struct hd_thin){ .m = s->n[0], .n = s->n[1], .k = s->n[2], .a_m = s->stride[HD_MM_A][0] };
	t->a_k = s->stride[HD_MM_A][2];
	t->b_n = s->stride[HD_MM_B][1];
	t->b_k = s->stride[HD_MM_B][2];
	t->c_m = s->stride[HD_MM_C][0];
	t->low = s->dtype[HD_MM_A] == HD_DTYPE_BF16;
	t->low_c = s->dtype[HD_MM_C] == HD_DTYPE_BF16;
	return t;
}

void hd_thin_destroy(struct hd_thin *t)
{
	free(t);
}

/* -- b along k --------------------------------------------------------------------------------- */
static inline __attribute__((always_inline)) float dot_any(const float *x, const void *b, int64_t at, int64_t k,
							   const int low)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < k; i++)
		sum += x[i] * hd_get(b, low, at + i);
	return sum;
}

/* Columns from..to-1 of y (n a row) */
HD_CLONES static void dots(const struct hd_thin *t, float *y, const void *b, int64_t from, int64_t to)
{
	for (int64_t j = from; j < to; j++)
		for (int64_t i = 0; i < t->m; i++)
			y[i * COLUMNS + j - from] = dot_any(t->rows + i * t->k, b, j * t->b_n, t->k, 0);
}

HD_CLONES static void dots_low(const struct hd_thin *t, float *y, const void *b, int64_t from, int64_t to)
{
	for (int64_t j = from; j < to; j++)
		for (int64_t i = 0; i < t->m; i++)
			y[i * COLUMNS + j - from] = dot_any(t->rows + i * t->k, b, j * t->b_n, t->k, 1);
}

/* -- b along n --------------------------------------------------------------------------------- */
/* y += x[0..7] times eight rows of b */
static inline __attribute__((always_inline)) void eight_any(float *y, const float *x, const void *b, int64_t at,
							    int64_t stride, int64_t n, const int low)
{
	float x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3], x4 = x[4], x5 = x[5], x6 = x[6], x7 = x[7];

#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] += (x0 * hd_get(b, low, at + j) + x1 * hd_get(b, low, at + stride + j)) +
			(x2 * hd_get(b, low, at + 2 * stride + j) + x3 * hd_get(b, low, at + 3 * stride + j)) +
			((x4 * hd_get(b, low, at + 4 * stride + j) + x5 * hd_get(b, low, at + 5 * stride + j)) +
			 (x6 * hd_get(b, low, at + 6 * stride + j) + x7 * hd_get(b, low, at + 7 * stride + j)));
}

static inline __attribute__((always_inline)) void one_any(float *y, float x, const void *b, int64_t at, int64_t n,
							  const int low)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] += x * hd_get(b, low, at + j);
}

/* The columns that come next, of eight rows: each row is a run of its own, at whose beginning the processor's own prefetching would
 * begin anew. */
static inline __attribute__((always_inline)) void fetch_eight(const void *b, int64_t at, int64_t stride, int64_t n,
							      const int low)
{
	for (int r = 0; r < STEP; r++)
		for (int64_t j = 0; j < n; j += low ? 32 : 16)
			__builtin_prefetch((const char *)b + (at + r * stride + j) * (low ? 2 : 4), 0, 2);
}

static inline __attribute__((always_inline)) void rows_any(const struct hd_thin *t, float *y, const void *b,
							   int64_t from, int64_t to, const int low)
{
	int64_t k = from;

	memset(y, 0, (size_t)(t->m * t->n) * sizeof(*y));
	for (; k + STEP <= to; k += STEP)
		for (int64_t j = 0; j < t->n; j += RUN) {
			int64_t n = hd_min(RUN, t->n - j);

			if (k + 2 * STEP <= to)
				fetch_eight(b, (k + STEP) * t->b_k + j, t->b_k, n, low);
			for (int64_t i = 0; i < t->m; i++)
				eight_any(y + i * t->n + j, t->rows + i * t->k + k, b, k * t->b_k + j, t->b_k, n, low);
		}
	for (; k < to; k++)
		for (int64_t i = 0; i < t->m; i++)
			one_any(y + i * t->n, t->rows[i * t->k + k], b, k * t->b_k, t->n, low);
}

HD_CLONES static void add_rows(const struct hd_thin *t, float *y, const void *b, int64_t from, int64_t to)
{
	rows_any(t, y, b, from, to, 0);
}

HD_CLONES static void add_rows_low(const struct hd_thin *t, float *y, const void *b, int64_t from, int64_t to)
{
	rows_any(t, y, b, from, to, 1);
}

/* -- both -------------------------------------------------------------------------------------- */
struct thin_result {
	void *c;
	const void *bias;
	uint32_t bias_dtype;
	int keep;
};

/* c[i, from + j] = (keep ? c : 0) + bias + y[j] */
static void put(const struct hd_thin *t, const struct thin_result *r, int64_t i, int64_t from, int64_t n,
		const float *y)
{
	for (int64_t j = 0; j < n; j++) {
		int64_t at = i * t->c_m + from + j;
		float x = y[j] + (r->keep ? hd_get(r->c, (int)t->low_c, at) : 0);

		if (r->bias)
			x += hd_get(r->bias, r->bias_dtype == HD_DTYPE_BF16, from + j);
		hd_put(r->c, (int)t->low_c, at, x);
	}
}

/* The sums of all pieces, in their order. */
HD_CLONES static void join(const struct hd_thin *t, float *y, int64_t i, int64_t from, int64_t n)
{
	memcpy(y, t->partial + i * t->n + from, (size_t)n * sizeof(*y));
	for (int64_t k = 1; k < PIECES; k++) {
		const float *x = t->partial + (k * t->m + i) * t->n + from;

#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			y[j] += x[j];
	}
}

static void along_k(const struct hd_thin *t, const struct thin_result *r, const void *b)
{
#pragma omp parallel for schedule(static)
	for (int64_t from = 0; from < t->n; from += COLUMNS) {
		float y[HD_THIN_ROWS * COLUMNS];
		int64_t to = hd_min(from + COLUMNS, t->n);

		(t->low ? dots_low : dots)(t, y, b, from, to);
		for (int64_t i = 0; i < t->m; i++)
			put(t, r, i, from, to - from, y + i * COLUMNS);
	}
}

static void along_n(const struct hd_thin *t, const struct thin_result *r, const void *b)
{
	int64_t piece = (t->k + PIECES * STEP - 1) / (PIECES * STEP) * STEP;

#pragma omp parallel
	{
#pragma omp for schedule(static)
		for (int64_t p = 0; p < PIECES; p++)
			(t->low ? add_rows_low : add_rows)(t, t->partial + p * t->m * t->n, b, hd_min(p * piece, t->k),
							   hd_min((p + 1) * piece, t->k));
#pragma omp for schedule(static)
		for (int64_t from = 0; from < t->n; from += HD_PIECE)
			for (int64_t i = 0; i < t->m; i++) {
				float y[HD_PIECE];
				int64_t n = hd_min(HD_PIECE, t->n - from);

				join(t, y, i, from, n);
				put(t, r, i, from, n, y);
			}
	}
}

void hd_thin_run(const struct hd_thin *thin, void *scratch, int keep, void *c, const void *a, const void *b,
		 const void *bias, uint32_t bias_dtype)
{
	const struct thin_result r = { c, bias, bias_dtype, keep };
	struct hd_thin own = *thin, *t = &own;

	t->rows = scratch;
	t->partial = t->rows + floats_of_rows(t->m, t->k);
	for (int64_t i = 0; i < t->m; i++)
		for (int64_t k = 0; k < t->k; k++)
			t->rows[i * t->k + k] = hd_get(a, (int)t->low, i * t->a_m + k * t->a_k);
	(t->b_k == 1 ? along_k : along_n)(t, &r, b);
}
