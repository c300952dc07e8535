/* SPDX-License-Identifier: Apache-2.0
 * Reference of norm, norm_d and norm_dw: layer norm (Ba, Kiros and Hinton 2016) and RMS norm
 * (Zhang and Sennrich 2019).
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

/* add: or NULL */
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

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	(void)r;
	rows_d(p, out[0], NULL, in);
}

static void run_d_add(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	(void)r;
	rows_d(p, out[0], in[0], in + 1);
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t cols = p->n[1], rms = p->n[2];
	const double *x = in[0], *rstd = in[1], *mean = rms ? NULL : in[2], *dy = in[rms ? 2 : 3];
	double *dw = out[0], *db = p->n[3] ? out[1] : NULL;

	for (int64_t j = 0; j < cols; j++) {
		double w = 0, b = 0;

		for (int64_t i = 0; i < p->n[0]; i++) {
			w += dy[i * cols + j] * (x[i * cols + j] - (mean ? mean[i] : 0)) * rstd[i];
			b += dy[i * cols + j];
		}
		dw[j] = r->acc ? dw[j] + w : w;
		if (db)
			db[j] = r->acc ? db[j] + b : b;
	}
}

const struct hd_kernel hd_ref_norm = { .name = "norm", .prepare = prepare, .run = run };
const struct hd_kernel hd_ref_norm_d = { .name = "norm_d", .prepare = prepare_d, .run = run_d };
const struct hd_kernel hd_ref_norm_d_add = { .name = "norm_d_add", .prepare = prepare_d_add, .run = run_d_add };
const struct hd_kernel hd_ref_norm_dw = { .name = "norm_dw", .flags = HD_K_ACC, .prepare = prepare_dw, .run = run_dw };
