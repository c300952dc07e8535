/* SPDX-License-Identifier: Apache-2.0
 * xent, xent_combine and xent_d: cross entropy over a slice of the vocabulary; the equations
 * are in the reference.
 *
 * xent reads the logits once (Milakov and Gimelshein 2018): a piece of a row gives its maximum
 * and, still in L1, its sum of exponentials around the maximum so far; the sum before it is
 * rescaled where the maximum grew.
 */
#include <config.h>
#include <math.h>
#include "kernels/cpu/base/low.h"
#include "kernels/prepare/elementwise.h"
#include "kernels/prepare/xent.h"

#define PIECE 2048 /* of fp32; bf16 is converted in smaller ones */

HD_PREPARE_LOW(prepare, "xent", "t*", "f", hd_prepare_xent(c, p))
HD_PREPARE(prepare_combine, "xent_combine", HD_DTYPE_F32, hd_prepare_alike(c, p, 3, 1))
HD_PREPARE_LOW(prepare_d, "xent_d", "t*f", "t", hd_prepare_xent_d(c, p))

HD_CLONES static float largest(const float *z, float max, int64_t n)
{
#pragma omp simd reduction(max : max)
	for (int64_t j = 0; j < n; j++)
		max = z[j] > max ? z[j] : max;
	return max;
}

HD_CLONES static float sum_exp(const float *z, float max, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t j = 0; j < n; j++)
		sum += hd_expf(z[j] - max);
	return sum;
}

/* n logits from `at` on */
static void row(const void *logits, int64_t t, int64_t at, int64_t n, float *row_max, float *row_sum)
{
	float max = -INFINITY;
	double sum = 0;
	int64_t step = t == HD_DTYPE_BF16 ? HD_PIECE : PIECE;

	for (int64_t j = 0; j < n; j += step) {
		float wide[HD_PIECE];
		int64_t k = hd_min(step, n - j);
		const float *z = hd_read(logits, t, at + j, k, wide);
		float now = largest(z, max, k);

		if (now == -INFINITY)
			continue; /* exp(-inf + inf) would be NaN */
		if (now > max)
			sum *= hd_expf(max - now);
		max = now;
		sum += sum_exp(z, max, k);
	}
	*row_max = max;
	*row_sum = (float)sum;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *targets = in[1];
	float *max = out[0], *sum = out[1], *target = out[2];

	(void)r;
#pragma omp parallel for schedule(static) if (p->n[0] * p->n[1] >= HD_SMALL)
	for (int64_t i = 0; i < p->n[0]; i++) {
		int64_t t = targets[i] - p->n[3];

		row(in[0], p->n[14], i * p->n[1], p->n[2], &max[i], &sum[i]);
		target[i] = t >= 0 && t < p->n[2] ? hd_get(in[0], p->n[14] == HD_DTYPE_BF16, i * p->n[1] + t) : 0;
	}
}

HD_CLONES static void combine(float *y, const float *max, const float *whole, const float *sum, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = sum[j] * hd_expf(max[j] - whole[j]);
}

static void run_combine(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	(void)r;
	combine(out[0], in[0], in[1], in[2], p->n[0]);
}

HD_CLONES static void row_d(float *dz, const float *z, float max, float scale, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		dz[j] = hd_expf(z[j] - max) * scale;
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *targets = in[1];
	const float *max = in[2], *sum = in[3], *dnll = in[4];
	int64_t cols = p->n[1], real = p->n[2], type = p->n[14], step = type == HD_DTYPE_BF16 ? HD_PIECE : cols;

	(void)r;
#pragma omp parallel for schedule(static) if (p->n[0] * cols >= HD_SMALL)
	for (int64_t i = 0; i < p->n[0]; i++) {
		int64_t t = targets[i] - p->n[3];

		for (int64_t j = 0; j < real; j += step) {
			float z[HD_PIECE], dz[HD_PIECE];
			int64_t n = hd_min(step, real - j);
			float *to = hd_write_to(out[0], type, i * cols + j, dz);

			row_d(to, hd_read(in[0], type, i * cols + j, n, z), max[i], dnll[i] / sum[i], n);
			if (t >= j && t < j + n)
				to[t - j] -= dnll[i];
			hd_write(out[0], type, i * cols + j, n, dz);
		}
		memset(hd_into(out[0], type, i * cols + real), 0, (size_t)(cols - real) * HD_BITS(type) / 8);
	}
}

const struct hd_kernel hd_cpu_xent = { .name = "xent", .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_xent_combine = { .name = "xent_combine", .prepare = prepare_combine, .run = run_combine };
const struct hd_kernel hd_cpu_xent_d = { .name = "xent_d", .prepare = prepare_d, .run = run_d };
