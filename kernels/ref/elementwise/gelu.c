/* SPDX-License-Identifier: Apache-2.0
 * Reference of gelu and gelu_d: the tanh form (Hendrycks and Gimpel 2016).
 *
 *	u = sqrt(2/pi) (x + 0.044715 x^3)	y = x (1 + tanh u) / 2
 *	dx = dy ((1 + tanh u) / 2 + x (1 - tanh^2 u) u' / 2)
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/elementwise.h"

#define ROOT_2_PI 0.79788456080286535588

HD_PREPARE(prepare, "gelu", HD_DTYPE_F64, hd_prepare_alike(c, p, 1, 1))
HD_PREPARE(prepare_d, "gelu_d", HD_DTYPE_F64, hd_prepare_alike(c, p, 2, 1))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *x = in[0];
	double *y = out[0];

	int64_t n = hd_used(r, p->n[0]);

	for (int64_t i = 0; i < n; i++)
		y[i] = x[i] * (1 + tanh(ROOT_2_PI * (x[i] + 0.044715 * x[i] * x[i] * x[i]))) / 2;
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *x = in[0], *dy = in[1];
	double *dx = out[0];

	int64_t n = hd_used(r, p->n[0]);

	for (int64_t i = 0; i < n; i++) {
		double t = tanh(ROOT_2_PI * (x[i] + 0.044715 * x[i] * x[i] * x[i]));
		double slope = ROOT_2_PI * (1 + 3 * 0.044715 * x[i] * x[i]);

		dx[i] = dy[i] * (1 + t + x[i] * (1 - t * t) * slope) / 2;
	}
}

const struct hd_kernel hd_ref_gelu = { .name = "gelu", .flags = HD_K_ROWS, .prepare = prepare, .run = run };
const struct hd_kernel hd_ref_gelu_d = { .name = "gelu_d", .flags = HD_K_ROWS, .prepare = prepare_d, .run = run_d };
