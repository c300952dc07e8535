/* SPDX-License-Identifier: Apache-2.0
 * norm, norm_d and norm_dw: layer norm and RMS norm; the equations are in the reference.
 *
 * A row stays in L1 over its passes, so memory is read once.  The variance is taken around the
 * mean (two passes): the difference of two large sums would cancel.  The column sums of norm_dw
 * are made by columns, one thread each, in a fixed order of rows: blocks of rows are summed
 * apart, which also keeps the rounding of long sums small.
 */
#include <config.h>
#include <math.h>
#include <omp.h>
#include "kernels/cpu/simd.h"
#include "kernels/prepare/norm.h"

#define TILE 2048		/* columns whose sums are kept in L1 */
#define BLOCK 64		/* rows */

HD_PREPARE(prepare, "norm", HD_F32, hd_prepare_norm(c, p))
HD_PREPARE(prepare_d, "norm_d", HD_F32, hd_prepare_norm_d(c, p))
HD_PREPARE(prepare_dw, "norm_dw", HD_F32, hd_prepare_norm_dw(c, p))

struct stats { float mean, rstd; };

HD_CLONES static struct stats row_stats(const float *x, int64_t n, int rms, double eps)
{
	float sum = 0, square = 0, mean;

	if (!rms) {
#pragma omp simd reduction(+:sum)
		for (int64_t j = 0; j < n; j++)
			sum += x[j];
	}
	mean = sum / (float)n;
#pragma omp simd reduction(+:square)
	for (int64_t j = 0; j < n; j++)
		square += (x[j] - mean) * (x[j] - mean);
	return (struct stats){ mean, (float)(1 / sqrt((double)square / (double)n + eps)) };
}

HD_CLONES static void row_scale(float *y, const float *x, struct stats s, const float *w,
				const float *b, int64_t n)
{
	if (b) {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			y[j] = (x[j] - s.mean) * s.rstd * w[j] + b[j];
	} else {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			y[j] = (x[j] - s.mean) * s.rstd * w[j];
	}
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t rows = p->n[0], cols = p->n[1], rms = p->n[2];
	const float *x = in[0], *w = in[1], *b = p->n[3] ? in[2] : NULL;
	float *y = out[0], *rstd = out[1], *mean = rms ? NULL : out[2];

	(void)r;
#pragma omp parallel for schedule(static) if (rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < rows; i++) {
		struct stats s = row_stats(x + i * cols, cols, rms != 0, p->f[0]);

		row_scale(y + i * cols, x + i * cols, s, w, b, cols);
		rstd[i] = s.rstd;
		if (mean)
			mean[i] = s.mean;
	}
}

HD_CLONES static void row_d(float *dx, const float *x, const float *w, struct stats s,
			    const float *dy, int64_t n, int rms)
{
	float sum = 0, dot = 0;

#pragma omp simd reduction(+:sum, dot)
	for (int64_t j = 0; j < n; j++) {
		float g = w[j] * dy[j];

		sum += g;
		dot += g * ((x[j] - s.mean) * s.rstd);
	}
	sum = rms ? 0 : sum / (float)n;
	dot /= (float)n;
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		dx[j] = s.rstd * (w[j] * dy[j] - sum - (x[j] - s.mean) * s.rstd * dot);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in,
		  const struct hd_run *r)
{
	int64_t rows = p->n[0], cols = p->n[1], rms = p->n[2];
	const float *x = in[0], *w = in[1], *rstd = in[2], *mean = rms ? NULL : in[3],
		    *dy = in[rms ? 3 : 4];
	float *dx = out[0];

	(void)r;
#pragma omp parallel for schedule(static) if (rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < rows; i++) {
		struct stats s = { mean ? mean[i] : 0, rstd[i] };

		row_d(dx + i * cols, x + i * cols, w, s, dy + i * cols, cols, rms != 0);
	}
}

struct dw {
	const float *x, *rstd, *mean, *dy;
	float *dw, *db;
	int64_t rows, cols;
};

/* Rows from..to-1 of the columns at..at+n-1, on top of w and b. */
HD_CLONES static void block_dw(const struct dw *a, float *w, float *b, int64_t from, int64_t to,
			       int64_t at, int64_t n)
{
	for (int64_t i = from; i < to; i++) {
		const float *x = a->x + i * a->cols + at, *dy = a->dy + i * a->cols + at;
		float mean = a->mean ? a->mean[i] : 0, rstd = a->rstd[i];

#pragma omp simd
		for (int64_t j = 0; j < n; j++) {
			w[j] += dy[j] * ((x[j] - mean) * rstd);
			b[j] += dy[j];
		}
	}
}

static void columns_dw(const struct dw *a, int acc, int64_t at, int64_t n)
{
	float w[TILE], b[TILE];
	float *dw = a->dw + at, *db = a->db ? a->db + at : NULL;

	for (int64_t j = 0; j < n && !acc; j++) {
		dw[j] = 0;
		if (db)
			db[j] = 0;
	}
	for (int64_t i = 0; i < a->rows; i += BLOCK) {
		memset(w, 0, sizeof(w));
		memset(b, 0, sizeof(b));
		block_dw(a, w, b, i, hd_min(a->rows, i + BLOCK), at, n);
		for (int64_t j = 0; j < n; j++) {
			dw[j] += w[j];
			if (db)
				db[j] += b[j];
		}
	}
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in,
		   const struct hd_run *r)
{
	int64_t rms = p->n[2];
	struct dw a = {
		.x = in[0], .rstd = in[1], .mean = rms ? NULL : in[2], .dy = in[rms ? 2 : 3],
		.dw = out[0], .db = p->n[3] ? out[1] : NULL, .rows = p->n[0], .cols = p->n[1],
	};

#pragma omp parallel if (a.rows * a.cols >= HD_SMALL)
	{
		int64_t from, to;

		hd_columns(a.cols, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
		for (; from < to; from += TILE)
			columns_dw(&a, r->acc, from, hd_min(TILE, to - from));
	}
}

const struct hd_kernel hd_cpu_norm = { .name = "norm", .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_norm_d = { .name = "norm_d", .prepare = prepare_d, .run = run_d };
const struct hd_kernel hd_cpu_norm_dw = {
	.name = "norm_dw", .flags = HD_K_ACC, .prepare = prepare_dw, .run = run_dw };
