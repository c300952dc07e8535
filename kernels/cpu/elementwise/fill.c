/* SPDX-License-Identifier: Apache-2.0
 * fill: one value everywhere, times the loss scale where it is the seed of backward.
 */
#include <config.h>
#include "kernels/cpu/base/simd.h"
#include "kernels/prepare/elementwise.h"

HD_PREPARE(prepare, "fill", HD_DTYPE_F32, hd_prepare_fill(c, p))

HD_CLONES static void fill(float *y, float value, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = value;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	float *y = out[0], value = (float)(p->n[1] ? p->f[0] * r->loss_scale : p->f[0]);
	int64_t n = p->n[0];

	(void)in;
	for (int64_t i = 0; i < n && p->n[2]; i++)
		((double *)out[0])[i] = p->n[1] ? p->f[0] * r->loss_scale : p->f[0];
	if (p->n[2])
		return;
#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += HD_CHUNK)
		fill(y + i, value, hd_min(HD_CHUNK, n - i));
}

const struct hd_kernel hd_cpu_fill = { .name = "fill", .prepare = prepare, .run = run };
