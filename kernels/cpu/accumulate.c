/* SPDX-License-Identifier: Apache-2.0
 * accumulate: y = x, or y += x.
 */
#include <config.h>
#include "kernels/cpu/simd.h"
#include "kernels/prepare/elementwise.h"

HD_PREPARE(prepare, "accumulate", HD_F32, hd_prepare_alike(c, p, 1, 1))

HD_CLONES static void add_to(float *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] += x[j];
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const float *x = in[0];
	float *y = out[0];
	int64_t n = p->n[0];

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += HD_CHUNK) {
		if (r->acc)
			add_to(y + i, x + i, hd_min(HD_CHUNK, n - i));
		else if (x != y)
			memcpy(y + i, x + i, (size_t)hd_min(HD_CHUNK, n - i) * sizeof(*y));
	}
}

const struct hd_kernel hd_cpu_accumulate = {
	.name = "accumulate", .flags = HD_K_ACC, .prepare = prepare, .run = run };
