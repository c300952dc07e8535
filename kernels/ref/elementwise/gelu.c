/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels for gelu, gelu_d, gelu_slope and gelu_slope_d: the tanh form (Hendrycks and Gimpel 2016).
 *
 *	u = sqrt(2/pi) (x + 0.044715 x^3)	y = x (1 + tanh u) / 2
 *	slope = (1 + tanh u) / 2 + x (1 - tanh^2 u) u' / 2	dx = dy slope
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/elementwise.h"

#define ROOT_2_PI 0.79788456080286535588

HD_PREPARE(prepare, "gelu", HD_DTYPE_F64, hd_prepare_same_dims(c, p, 1, 1))
HD_PREPARE(prepare_d, "gelu_d", HD_DTYPE_F64, hd_prepare_same_dims(c, p, 2, 1))
HD_PREPARE(prepare_slope, "gelu_slope", HD_DTYPE_F64, hd_prepare_same_dims(c, p, 1, 2))
HD_PREPARE(prepare_slope_d, "gelu_slope_d", HD_DTYPE_F64, hd_prepare_slope_d(c, p))

static double gelu(double x)
{
	return x * (1 + tanh(ROOT_2_PI * (x + 0.044715 * x * x * x))) / 2;
}

static double slope(double x)
{
	double t = tanh(ROOT_2_PI * (x + 0.044715 * x * x * x));

	return (1 + t + x * (1 - t * t) * ROOT_2_PI * (1 + 3 * 0.044715 * x * x)) / 2;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *x = in[0];
	double *y = out[0];
	int64_t n = hd_used(r, p->n[0]);

	for (int64_t i = 0; i < n; i++)
		y[i] = gelu(x[i]);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *x = in[0], *dy = in[1];
	double *dx = out[0];
	int64_t n = hd_used(r, p->n[0]);

	for (int64_t i = 0; i < n; i++)
		dx[i] = dy[i] * slope(x[i]);
}

static void run_slope(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *x = in[0];
	double *y = out[0], *s = out[1];
	int64_t n = hd_used(r, p->n[0]);

	for (int64_t i = 0; i < n; i++) {
		double of = x[i];

		y[i] = gelu(of);
		s[i] = slope(of);
	}
}

static void run_slope_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *s = in[0], *dy = in[1];
	double *dx = out[0], *sums = out[1];
	int64_t n = hd_used(r, p->n[0]), cols = p->n[1];

	for (int64_t j = 0; j < cols && !r->acc; j++)
		sums[j] = 0;
	for (int64_t i = 0; i < n; i++) {
		dx[i] = s[i] * dy[i];
		if (cols)
			sums[i % cols] += dx[i];
	}
}

const struct hd_kernel hd_ref_gelu = { .name = "gelu", .flags = HD_K_ROWS, .prepare = prepare, .run = run };
const struct hd_kernel hd_ref_gelu_d = { .name = "gelu_d", .flags = HD_K_ROWS, .prepare = prepare_d, .run = run_d };
const struct hd_kernel hd_ref_gelu_slope = {
	.name = "gelu_slope", .flags = HD_K_ROWS, .prepare = prepare_slope, .run = run_slope
};
const struct hd_kernel hd_ref_gelu_slope_d = {
	.name = "gelu_slope_d", .flags = HD_K_ROWS | HD_K_ACC_REST, .prepare = prepare_slope_d, .run = run_slope_d
};
