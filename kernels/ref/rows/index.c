/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels for largest, take and put (top-k, gather and scatter), by their definitions. An entry is among the
 * k largest if fewer than k others are larger, or equal and before it.
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/index.h"

HD_PREPARE(prepare_topk, "largest", HD_DTYPE_F64, hd_prepare_topk(c, p))
HD_PREPARE(prepare_gather, "take", HD_DTYPE_F64, hd_prepare_gather(c, p))
HD_PREPARE(prepare_scatter, "put", HD_DTYPE_F64, hd_prepare_scatter(c, p))

static int beats(double a, int64_t i, double b, int64_t j)
{
	return a > b || (a == b && i < j);
}

static void topk_row(const struct hd_prep *p, const double *x, double *value, int32_t *index)
{
	int64_t n = p->n[HD_INDEX_N], inner = p->n[HD_INDEX_INNER], at = 0;

	for (int64_t i = 0; i < n; i++) {
		double v = x[i * inner];
		int64_t better = 0;

		for (int64_t j = 0; j < n; j++)
			better += p->n[HD_INDEX_FLAG] ? beats(fabs(x[j * inner]), j, fabs(v), i)
						      : beats(x[j * inner], j, v, i);
		if (better < p->n[HD_INDEX_K]) {
			value[at * inner] = v;
			index[at++ * inner] = (int32_t)i;
		}
	}
}

static void run_topk(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t inner = p->n[HD_INDEX_INNER], n = p->n[HD_INDEX_N] * inner, k = p->n[HD_INDEX_K] * inner;

	(void)r;
	for (int64_t o = 0; o < p->n[HD_INDEX_OUTER]; o++)
		for (int64_t i = 0; i < inner; i++)
			topk_row(p, (const double *)in[0] + o * n + i, (double *)out[0] + o * k + i,
				 (int32_t *)out[1] + o * k + i);
}

static void run_gather(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t inner = p->n[HD_INDEX_INNER], n = p->n[HD_INDEX_N], k = p->n[HD_INDEX_K];
	const double *x = in[0];
	const int32_t *index = in[1];
	double *y = out[0];

	(void)r;
	for (int64_t i = 0; i < p->n[HD_INDEX_OUTER] * k * inner; i++)
		y[i] = index[i] >= 0 && index[i] < n ? x[(i / (k * inner) * n + index[i]) * inner + i % inner] : 0;
}

static void run_scatter(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t inner = p->n[HD_INDEX_INNER], n = p->n[HD_INDEX_N], k = p->n[HD_INDEX_K];
	const double *x = in[0];
	const int32_t *index = in[1];
	double *y = out[0];

	(void)r;
	memset(y, 0, (size_t)(p->n[HD_INDEX_OUTER] * n * inner) * sizeof(*y));
	for (int64_t i = 0; i < p->n[HD_INDEX_OUTER] * k * inner; i++)
		if (index[i] >= 0 && index[i] < n)
			y[(i / (k * inner) * n + index[i]) * inner + i % inner] += x[i];
}

const struct hd_kernel hd_ref_largest = { .name = "largest", .prepare = prepare_topk, .run = run_topk };
const struct hd_kernel hd_ref_take = { .name = "take", .prepare = prepare_gather, .run = run_gather };
const struct hd_kernel hd_ref_put = { .name = "put", .prepare = prepare_scatter, .run = run_scatter };
