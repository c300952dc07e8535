/* SPDX-License-Identifier: Apache-2.0
 * gelu and gelu_d, tanh form: (1 + tanh u) / 2 = 1 / (1 + exp(-2u)) = s, so
 *
 *	y = x s		dx = dy (s + x s (1 - s) 2u')	with u = sqrt(2/pi) (x + 0.044715 x^3)
 *
 * which takes one exponential and one division, and keeps small values for large negative x. 
 * From |x| = 16 on s is 0 or 1 exactly; the derivative stops there, before u' overflows.
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/prepare/elementwise.h"

#define TWO_ROOT_2_PI 1.5957691216f
#define CUBIC 0.044715f

HD_PREPARE_LOW(prepare, "gelu", "t", "t", hd_prepare_alike(c, p, 1, 1))
HD_PREPARE_LOW(prepare_d, "gelu_d", "t", "t", hd_prepare_alike(c, p, 2, 1))

HD_CLONES static void gelu(float *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = x[j] * hd_sigmoid(TWO_ROOT_2_PI * x[j] * (1 + CUBIC * x[j] * x[j]));
}

HD_CLONES static void gelu_d(float *dx, const float *x, const float *dy, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		float v = hd_clamp(x[j], -16, 16), q = CUBIC * v * v, s = hd_sigmoid(TWO_ROOT_2_PI * v * (1 + q));

		dx[j] = dy[j] * (s + v * s * (1 - s) * (TWO_ROOT_2_PI * (1 + 3 * q)));
	}
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = hd_used(r, p->n[0]), t = p->n[14], step = hd_vector_step(t);

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += step) {
		float x[HD_PIECE], y[HD_PIECE];
		int64_t k = hd_min(step, n - i);

		gelu(hd_write_to(out[0], t, i, y), hd_read(in[0], t, i, k, x), k);
		hd_write(out[0], t, i, k, y);
	}
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = hd_used(r, p->n[0]), t = p->n[14], step = hd_vector_step(t);

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += step) {
		float x[HD_PIECE], dy[HD_PIECE], dx[HD_PIECE];
		int64_t k = hd_min(step, n - i);

		gelu_d(hd_write_to(out[0], t, i, dx), hd_read(in[0], t, i, k, x), hd_read(in[1], t, i, k, dy), k);
		hd_write(out[0], t, i, k, dx);
	}
}

const struct hd_kernel hd_cpu_gelu = { .name = "gelu", .flags = HD_K_ROWS, .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_gelu_d = { .name = "gelu_d", .flags = HD_K_ROWS, .prepare = prepare_d, .run = run_d };
