/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for clip: the norm of the gradient, and the factor that brings it down to the limit (Pascanu et al.
 * 2013).
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/optimizer.h"

HD_PREPARE(prepare, "clip", HD_DTYPE_F64, hd_prepare_clip(c, p))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	double limit = p->f[0], norm = sqrt(*(const double *)in[0]);

	(void)r;
	*(double *)out[0] = limit > 0 && norm > limit ? limit / norm : 1;
	*(double *)out[1] = norm;
}

const struct hd_kernel hd_ref_clip = { .name = "clip", .prepare = prepare, .run = run };
