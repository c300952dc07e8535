/* SPDX-License-Identifier: Apache-2.0
 * swiglu and swiglu_d: y = a s b with s = 1 / (1 + exp(-a)); da = dy b s (1 + a (1 - s)), db =
 * dy a s.
 */
#include <config.h>
#include "kernels/cpu/simd.h"
#include "kernels/prepare/elementwise.h"

HD_PREPARE(prepare, "swiglu", HD_F32, hd_prepare_alike(c, p, 2, 1))
HD_PREPARE(prepare_d, "swiglu_d", HD_F32, hd_prepare_alike(c, p, 3, 2))

HD_CLONES static void swiglu(float *y, const float *a, const float *b, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = a[j] * hd_sigmoid(a[j]) * b[j];
}

HD_CLONES static void swiglu_d(float *da, float *db, const float *a, const float *b,
			       const float *dy, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		float v = a[j], up = b[j], d = dy[j],
		      s = hd_sigmoid(v); /* outputs may lie on inputs */

		da[j] = d * up * (s * (1 + v * (1 - s)));
		db[j] = d * (v * s);
	}
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const float *a = in[0], *b = in[1];
	float *y = out[0];
	int64_t n = hd_used(r, p->n[0]);

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += HD_CHUNK)
		swiglu(y + i, a + i, b + i, hd_min(HD_CHUNK, n - i));
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in,
		  const struct hd_run *r)
{
	const float *a = in[0], *b = in[1], *dy = in[2];
	float *da = out[0], *db = out[1];
	int64_t n = hd_used(r, p->n[0]);

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += HD_CHUNK)
		swiglu_d(da + i, db + i, a + i, b + i, dy + i, hd_min(HD_CHUNK, n - i));
}

const struct hd_kernel hd_cpu_swiglu = { .name = "swiglu", .flags = HD_K_ROWS, .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_swiglu_d = { .name = "swiglu_d", .flags = HD_K_ROWS, .prepare = prepare_d, .run = run_d };
