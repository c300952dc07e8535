/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels for norm, norm_d and norm_dw: layer norm (Ba, Kiros and Hinton 2016) and RMS norm (Zhang and
 * Sennrich 2019).
 *
 *	n = (x - mean) * rstd		y = n w + b
 *	g = w dy			dx = rstd (g - mean(g) - n mean(g n))
 *	dw = sum of dy n over rows	db = sum of dy
 *
 * RMS norm has mean = 0 and no mean(g).
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/norm.h"

HD_PREPARE(prepare, "norm", HD_DTYPE_F64, hd_prepare_norm(c, p))
HD_PREPARE(prepare_d, "norm_d", HD_DTYPE_F64, hd_prepare_norm_d(c, p))
HD_PREPARE(prepare_d_add, "norm_d_add", HD_DTYPE_F64, hd_prepare_norm_d_add(c, p))
HD_PREPARE(prepare_dw, "norm_dw", HD_DTYPE_F64, hd_prepare_norm_dw(c, p))

static double mean_of(const double *x, int64_t n)
{
	double s = 0;

	for (int64_t j = 0; j < n; j++)
		s += x[j];
	return s / (double)n;
}

static double spread_of(const double *x, double mean, int64_t n)
{
	double s = 0;

	for (int64_t j = 0; j < n; j++)
		s += (x[j] - mean) * (x[j] - mean);
	return s / (double)n;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t cols = p->n[1], rms = p->n[2];
	const double *w = in[1], *b = p->n[3] ? in[2] : NULL;
	double *rstds = out[1], *means = rms ? NULL : out[2];

	(void)r;
	for (int64_t i = 0; i < p->n[0]; i++) {
		const double *x = (const double *)in[0] + i * cols;
		double *y = (double *)out[0] + i * cols;
		double mean = rms ? 0 : mean_of(x, cols), rstd = 1 / sqrt(spread_of(x, mean, cols) + p->f[0]);

		for (int64_t j = 0; j < cols; j++)
			y[j] = (x[j] - mean) * rstd * w[j] + (b ? b[j] : 0);
		rstds[i] = rstd;
		if (means)
			means[i] = mean;
	}
}

/* add: a row that is added, or NULL. */
static void row_d(double *dx, const double *x, const double *w, double rstd, double mean, const double *dy,
		  const double *add, int64_t cols, int rms)
{
	double sum = 0, dot = 0;

	for (int64_t j = 0; j < cols; j++) {
		sum += w[j] * dy[j];
		dot += w[j] * dy[j] * (x[j] - mean) * rstd;
	}
	sum = rms ? 0 : sum / (double)cols;
	dot /= (double)cols;
	for (int64_t j = 0; j < cols; j++)
		dx[j] = rstd * (w[j] * dy[j] - sum - (x[j] - mean) * rstd * dot) + (add ? add[j] : 0);
}

static void rows_d(const struct hd_prep *p, double *dx, const double *add, void *const *in)
{
	int64_t cols = p->n[1], rms = p->n[2];
	const double *x = in[0], *w = in[1], *rstd = in[2], *mean = rms ? NULL : in[3], *dy = in[rms ? 3 : 4];

	for (int64_t i = 0; i < p->n[0]; i++)
		row_d(dx + i * cols, x + i * cols, w, rstd[i], mean ? mean[i] : 0, dy + i * cols,
		      add ? add + i * cols : NULL, cols, rms != 0);
}

/* Returns the sum of a column of y, or of its products with (x - mean) rstd if x is not NULL. */
static double column_sum(const double *y, const double *x, const double *rstd, const double *mean, int64_t rows,
			 int64_t cols)
{
	double sum = 0;

	for (int64_t i = 0; i < rows; i++)
		sum += y[i * cols] * (x ? (x[i * cols] - (mean ? mean[i] : 0)) * rstd[i] : 1);
	return sum;
}

static void put(double *to, double sum, int acc)
{
	*to = acc ? *to + sum : sum;
}

/* Computes the results of norm_d after the first. */
static void sums_d(const struct hd_prep *p, void *const *out, void *const *in, int acc)
{
	int64_t rows = p->n[0], cols = p->n[1], rms = p->n[2], weights = p->n[3];
	const double *x = in[0], *rstd = in[2], *mean = rms ? NULL : in[3], *dy = in[rms ? 3 : 4], *dx = out[0];
	double *const *sums = (double *const *)out + 1;

	for (int64_t j = 0; j < cols; j++) {
		if (weights > 0)
			put(sums[0] + j, column_sum(dy + j, x + j, rstd, mean, rows, cols), acc);
		if (weights > 1)
			put(sums[1] + j, column_sum(dy + j, NULL, NULL, NULL, rows, cols), acc);
		if (p->n[4])
			put(sums[weights] + j, column_sum(dx + j, NULL, NULL, NULL, rows, cols), acc);
	}
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	rows_d(p, out[0], NULL, in);
	sums_d(p, out, in, r->acc);
}

static void run_d_add(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	rows_d(p, out[0], in[0], in + 1);
	sums_d(p, out, in + 1, r->acc);
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t cols = p->n[1], rms = p->n[2];
	const double *x = in[0], *rstd = in[1], *mean = rms ? NULL : in[2], *dy = in[rms ? 2 : 3];
	double *dw = out[0], *db = p->n[3] ? out[1] : NULL;

	for (int64_t j = 0; j < cols; j++) {
		put(dw + j, column_sum(dy + j, x + j, rstd, mean, p->n[0], cols), r->acc);
		if (db)
			put(db + j, column_sum(dy + j, NULL, NULL, NULL, p->n[0], cols), r->acc);
	}
}

const struct hd_kernel hd_ref_norm = { .name = "norm", .prepare = prepare, .run = run };
const struct hd_kernel hd_ref_norm_d = { .name = "norm_d", .flags = HD_K_ACC_REST, .prepare = prepare_d, .run = run_d };
const struct hd_kernel hd_ref_norm_d_add = {
	.name = "norm_d_add", .flags = HD_K_ACC_REST, .prepare = prepare_d_add, .run = run_d_add
};
const struct hd_kernel hd_ref_norm_dw = { .name = "norm_dw", .flags = HD_K_ACC, .prepare = prepare_dw, .run = run_dw };
