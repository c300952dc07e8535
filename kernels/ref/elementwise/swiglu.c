/* SPDX-License-Identifier: Apache-2.0
 * Reference of swiglu and swiglu_d: a gated unit (Shazeer 2020).
 *
 *	s = 1 / (1 + exp(-a))	y = a s b	da = dy b s (1 + a (1 - s))	db = dy a s
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/elementwise.h"

HD_PREPARE(prepare, "swiglu", HD_DTYPE_F64, hd_prepare_alike(c, p, 2, 1))
HD_PREPARE(prepare_d, "swiglu_d", HD_DTYPE_F64, hd_prepare_alike(c, p, 3, 2))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *a = in[0], *b = in[1];
	double *y = out[0];

	int64_t n = hd_used(r, p->n[0]);

	for (int64_t i = 0; i < n; i++)
		y[i] = a[i] / (1 + exp(-a[i])) * b[i];
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *a = in[0], *b = in[1], *dy = in[2];
	double *da = out[0], *db = out[1];

	int64_t n = hd_used(r, p->n[0]);

	for (int64_t i = 0; i < n; i++) {
		double s = 1 / (1 + exp(-a[i])), gate = a[i] * s, slope = s * (1 + a[i] * (1 - s)), up = b[i],
		       d = dy[i];

		da[i] = d * up * slope;
		db[i] = d * gate;
	}
}

const struct hd_kernel hd_ref_swiglu = { .name = "swiglu", .flags = HD_K_ROWS, .prepare = prepare, .run = run };
const struct hd_kernel hd_ref_swiglu_d = { .name = "swiglu_d", .flags = HD_K_ROWS, .prepare = prepare_d, .run = run_d };
