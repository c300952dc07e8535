/* SPDX-License-Identifier: Apache-2.0
 * sgd: w = w - lr (factor g + decay w).
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/simd.h"
#include "kernels/prepare/optimizer.h"

HD_PREPARE(prepare, "sgd", HD_DTYPE_F32, hd_prepare_sgd(c, p))

HD_CLONES static void update(float *w1, const float *w, const float *g, float factor, float decay, float lr, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		w1[j] = w[j] - lr * (factor * g[j] + decay * w[j]);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const float *w = in[0], *g = in[1], *factor = in[2];
	float *w1 = out[0], lr = (float)r->lr, decay = (float)p->f[0];
	uint16_t *low = p->n[1] ? out[1] : NULL;
	int64_t n = p->n[0];

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += HD_CHUNK) {
		int64_t k = hd_min(HD_CHUNK, n - i);

		update(w1 + i, w + i, g + i, *factor, decay, lr, k);
		if (low)
			hd_store_bf16(low + i, w1 + i, k);
	}
}

const struct hd_kernel hd_cpu_sgd = { .name = "sgd", .prepare = prepare, .run = run };
