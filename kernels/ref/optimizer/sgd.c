/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for sgd: w = w - lr (factor g + decay w).
 */
#include <config.h>
#include "kernels/prepare/optimizer.h"

HD_PREPARE(prepare, "sgd", HD_DTYPE_F64, hd_prepare_sgd(c, p))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *w = in[0], *g = in[1], *factor = in[2];
	double *w1 = out[0], *low = p->n[1] ? out[1] : NULL;

	for (int64_t i = 0; i < p->n[0]; i++) {
		w1[i] = w[i] - r->lr * (*factor * g[i] + p->f[0] * w[i]);
		if (low)
			low[i] = w1[i];
	}
}

const struct hd_kernel hd_ref_sgd = { .name = "sgd", .prepare = prepare, .run = run };
