/* SPDX-License-Identifier: Apache-2.0
 * Reference of xent, xent_combine and xent_d: cross entropy over a vocabulary of which this
 * rank may hold a slice.
 *
 *	nll = log(sum) + max - target	with sum = sum of exp(z - max)
 *	dz = (exp(z - max) / sum - [target]) dnll
 *
 * Each slice finds max, sum and target; maxima and sums of all slices combine to those of the
 * whole.  A slice that is all padding has max -inf and sum 0.
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/elementwise.h"
#include "kernels/prepare/xent.h"

HD_PREPARE(prepare, "xent", HD_DTYPE_F64, hd_prepare_xent(c, p))
HD_PREPARE(prepare_combine, "xent_combine", HD_DTYPE_F64, hd_prepare_alike(c, p, 3, 1))
HD_PREPARE(prepare_d, "xent_d", HD_DTYPE_F64, hd_prepare_xent_d(c, p))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *targets = in[1];
	double *max = out[0], *sum = out[1], *target = out[2];

	(void)r;
	for (int64_t i = 0; i < p->n[0]; i++) {
		const double *z = (const double *)in[0] + i * p->n[1];
		int64_t t = targets[i] - p->n[3];

		max[i] = -INFINITY;
		sum[i] = 0;
		for (int64_t j = 0; j < p->n[2]; j++)
			max[i] = z[j] > max[i] ? z[j] : max[i];
		for (int64_t j = 0; j < p->n[2]; j++)
			sum[i] += exp(z[j] - max[i]);
		target[i] = t >= 0 && t < p->n[2] ? z[t] : 0;
	}
}

static void run_combine(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *max = in[0], *whole = in[1], *sum = in[2];
	double *y = out[0];

	(void)r;
	for (int64_t i = 0; i < p->n[0]; i++)
		y[i] = sum[i] * exp(max[i] - whole[i]);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *targets = in[1];
	const double *max = in[2], *sum = in[3], *dnll = in[4];

	(void)r;
	for (int64_t i = 0; i < p->n[0]; i++) {
		const double *z = (const double *)in[0] + i * p->n[1];
		double *dz = (double *)out[0] + i * p->n[1];

		for (int64_t j = 0; j < p->n[1]; j++)
			dz[j] = j >= p->n[2] ? 0
					     : (exp(z[j] - max[i]) / sum[i] - (j == targets[i] - p->n[3])) * dnll[i];
	}
}

const struct hd_kernel hd_ref_xent = { .name = "xent", .prepare = prepare, .run = run };
const struct hd_kernel hd_ref_xent_combine = { .name = "xent_combine", .prepare = prepare_combine, .run = run_combine };
const struct hd_kernel hd_ref_xent_d = { .name = "xent_d", .prepare = prepare_d, .run = run_d };
