/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for adamw: Adam with decoupled weight decay (Loshchilov and Hutter 2019).
 *
 *	m = beta1 m + (1 - beta1) g	v = beta2 v + (1 - beta2) g^2
 *	w = w - lr (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + decay w)
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/optimizer.h"

HD_PREPARE(prepare, "adamw", HD_DTYPE_F64, hd_prepare_adamw(c, p))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *w = in[0], *g = in[1], *m = in[2], *v = in[3], *factor = in[4];
	double *w1 = out[0], *m1 = out[1], *v1 = out[2], *low = p->n[1] ? out[3] : NULL;
	double beta1 = p->f[HD_ADAMW_BETA1], beta2 = p->f[HD_ADAMW_BETA2], step = (double)r->step;

	for (int64_t i = 0; i < p->n[0]; i++) {
		double gi = g[i] * *factor, m_hat, v_hat;

		m1[i] = beta1 * m[i] + (1 - beta1) * gi;
		v1[i] = beta2 * v[i] + (1 - beta2) * gi * gi;
		m_hat = m1[i] / (1 - pow(beta1, step));
		v_hat = v1[i] / (1 - pow(beta2, step));
		w1[i] = w[i] - r->lr * (m_hat / (sqrt(v_hat) + p->f[HD_ADAMW_EPS]) + p->f[HD_ADAMW_DECAY] * w[i]);
		if (low)
			low[i] = w1[i];
	}
}

const struct hd_kernel hd_ref_adamw = { .name = "adamw", .prepare = prepare, .run = run };
