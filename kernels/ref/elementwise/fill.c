/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for fill: one value everywhere, times the loss scale where it is the seed of backward.
 */
#include <config.h>
#include "kernels/prepare/elementwise.h"

HD_PREPARE(prepare, "fill", HD_DTYPE_F64, hd_prepare_fill(c, p))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	double *y = out[0];

	(void)in;
	for (int64_t i = 0; i < p->n[0]; i++)
		y[i] = p->n[1] ? p->f[0] * r->loss_scale : p->f[0];
}

const struct hd_kernel hd_ref_fill = { .name = "fill", .prepare = prepare, .run = run };
