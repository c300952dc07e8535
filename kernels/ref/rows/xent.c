/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels for xent, xent_combine, xent_d and xent_both: cross entropy over a vocabulary, of which this rank
 * may hold a slice.
 *
 *	nll = log(sum) + max - target	with sum = sum of exp(z - max)
 *	dz = (exp(z - max) / sum - [target]) dnll
 *
 * Each slice finds max, sum and target. The maxima and sums of all slices combine to those of the whole vocabulary. A
 * slice that is all padding has max -inf and sum 0. xent_both is for a complete vocabulary: it computes all four at
 * once, with a constant dnll.
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/elementwise.h"
#include "kernels/prepare/xent.h"

HD_PREPARE(prepare, "xent", HD_DTYPE_F64, hd_prepare_xent(c, p))
HD_PREPARE(prepare_combine, "xent_combine", HD_DTYPE_F64, hd_prepare_same_dims(c, p, 3, 1))
HD_PREPARE(prepare_d, "xent_d", HD_DTYPE_F64, hd_prepare_xent_d(c, p))
HD_PREPARE(prepare_both, "xent_both", HD_DTYPE_F64, hd_prepare_xent_both(c, p))

static void statistics(const struct hd_prep *p, const double *z, int64_t t, double *max, double *sum, double *target)
{
	*max = -INFINITY;
	*sum = 0;
	for (int64_t j = 0; j < p->n[2]; j++)
		*max = z[j] > *max ? z[j] : *max;
	for (int64_t j = 0; j < p->n[2]; j++)
		*sum += exp(z[j] - *max);
	*target = t >= 0 && t < p->n[2] ? z[t] : 0;
}

static void gradient(const struct hd_prep *p, double *dz, const double *z, int64_t t, double max, double sum,
		     double dnll)
{
	for (int64_t j = 0; j < p->n[1]; j++)
		dz[j] = j >= p->n[2] ? 0 : (exp(z[j] - max) / sum - (j == t)) * dnll;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *targets = in[1];
	double *max = out[0], *sum = out[1], *target = out[2];

	(void)r;
	for (int64_t i = 0; i < p->n[0]; i++)
		statistics(p, (const double *)in[0] + i * p->n[1], targets[i] - p->n[3], &max[i], &sum[i], &target[i]);
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
	for (int64_t i = 0; i < p->n[0]; i++)
		gradient(p, (double *)out[0] + i * p->n[1], (const double *)in[0] + i * p->n[1], targets[i] - p->n[3],
			 max[i], sum[i], dnll[i]);
}

static void run_both(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *targets = in[1];
	double *max = out[1], *sum = out[2], *target = out[3], dnll = p->n[4] ? p->f[0] * r->loss_scale : p->f[0];

	for (int64_t i = 0; i < p->n[0]; i++) {
		const double *z = (const double *)in[0] + i * p->n[1];
		int64_t t = targets[i] - p->n[3];

		statistics(p, z, t, &max[i], &sum[i], &target[i]);
		gradient(p, (double *)out[0] + i * p->n[1], z, t, max[i], sum[i], dnll);
	}
}

const struct hd_kernel hd_ref_xent = { .name = "xent", .prepare = prepare, .run = run };
const struct hd_kernel hd_ref_xent_combine = { .name = "xent_combine", .prepare = prepare_combine, .run = run_combine };
const struct hd_kernel hd_ref_xent_d = { .name = "xent_d", .prepare = prepare_d, .run = run_d };
const struct hd_kernel hd_ref_xent_both = { .name = "xent_both", .prepare = prepare_both, .run = run_both };
