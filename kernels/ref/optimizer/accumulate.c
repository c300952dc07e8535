/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for accumulate: y = x, or y += x.
 */
#include <config.h>
#include "kernels/prepare/elementwise.h"

HD_PREPARE(prepare, "accumulate", HD_DTYPE_F64, hd_prepare_same_dims(c, p, 1, 1))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *x = in[0];
	double *y = out[0];

	for (int64_t i = 0; i < p->n[0]; i++)
		y[i] = r->acc ? y[i] + x[i] : x[i];
}

const struct hd_kernel hd_ref_accumulate = { .name = "accumulate", .flags = HD_K_ACC, .prepare = prepare, .run = run };
