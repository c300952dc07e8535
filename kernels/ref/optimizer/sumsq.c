/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for sumsq: the sum of squares, for the norm of the gradient.
 */
#include <config.h>
#include "kernels/prepare/optimizer.h"

HD_PREPARE(prepare, "sumsq", HD_DTYPE_F64, hd_prepare_sumsq(c, p))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *x = in[0];
	double *s = out[0], sum = 0;

	for (int64_t i = 0; i < p->n[0]; i++)
		sum += x[i] * x[i];
	*s = r->acc ? *s + sum : sum;
}

const struct hd_kernel hd_ref_sumsq = { .name = "sumsq", .flags = HD_K_ACC, .prepare = prepare, .run = run };
