/* SPDX-License-Identifier: Apache-2.0
 * adamw: Adam with decoupled weight decay in one pass over w, g, m and v; the equations are in the reference.
 *
 * Constants of the step are computed in double. 1 - lr * decay would lose a small lr * decay in fp32, so the decay is
 * subtracted with the rest.
 */
#include <config.h>
#include <math.h>
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/simd.h"
#include "kernels/prepare/optimizer.h"

struct adamw_step {
	float *w1, *m1, *v1;
	const float *w, *g, *m, *v;
	uint16_t *low;
	float factor, beta1, rest1, beta2, rest2, eps, decay, lr, unbias1, root2;
};

HD_PREPARE(prepare, "adamw", HD_DTYPE_F32, hd_prepare_adamw(c, p))

HD_CLONES static void update(const struct adamw_step *a, int64_t from, int64_t to)
{
	const struct adamw_step s = *a;

#pragma omp simd
	for (int64_t i = from; i < to; i++) {
		float w = s.w[i], g = s.g[i] * s.factor;
		float m = s.beta1 * s.m[i] + s.rest1 * g, v = s.beta2 * s.v[i] + s.rest2 * (g * g);
		float move = m * s.unbias1 / (sqrtf(v) * s.root2 + s.eps) + s.decay * w;

		s.m1[i] = m;
		s.v1[i] = v;
		s.w1[i] = w - s.lr * move;
	}
}

static struct adamw_step step_of(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	double beta1 = p->f[HD_ADAMW_BETA1], beta2 = p->f[HD_ADAMW_BETA2], t = (double)r->step;

	return (struct adamw_step){
		.w1 = out[0],
		.m1 = out[1],
		.v1 = out[2],
		.low = p->n[1] ? out[3] : NULL,
		.w = in[0],
		.g = in[1],
		.m = in[2],
		.v = in[3],
		.factor = *(const float *)in[4],
		.beta1 = (float)beta1,
		.rest1 = (float)(1 - beta1),
		.beta2 = (float)beta2,
		.rest2 = (float)(1 - beta2),
		.eps = (float)p->f[HD_ADAMW_EPS],
		.decay = (float)p->f[HD_ADAMW_DECAY],
		.lr = (float)r->lr,
		.unbias1 = (float)(1 / (1 - pow(beta1, t))),
		.root2 = (float)(1 / sqrt(1 - pow(beta2, t))),
	};
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	struct adamw_step s = step_of(p, out, in, r);
	int64_t n = p->n[0];

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += HD_CHUNK) {
		int64_t to = hd_min(n, i + HD_CHUNK);

		update(&s, i, to);
		if (s.low)
			hd_store_bf16_past(s.low + i, s.w1 + i, to - i);
	}
}

const struct hd_kernel hd_cpu_adamw = { .name = "adamw", .prepare = prepare, .run = run };
