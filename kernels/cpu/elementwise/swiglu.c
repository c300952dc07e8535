/* SPDX-License-Identifier: Apache-2.0
 * swiglu and swiglu_d: y = a s b with s = 1 / (1 + exp(-a)); da = dy b s (1 + a (1 - s)), db =
 * dy a s.
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/prepare/elementwise.h"

HD_PREPARE_LOW(prepare, "swiglu", "t", "t", hd_prepare_alike(c, p, 2, 1))
HD_PREPARE_LOW(prepare_d, "swiglu_d", "t", "t", hd_prepare_alike(c, p, 3, 2))

HD_CLONES static void swiglu(float *y, const float *a, const float *b, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = a[j] * hd_sigmoid(a[j]) * b[j];
}

HD_CLONES static void swiglu_d(float *da, float *db, const float *a, const float *b, const float *dy, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		float v = a[j], up = b[j], d = dy[j], s = hd_sigmoid(v); /* outputs may lie on inputs */

		da[j] = d * up * (s * (1 + v * (1 - s)));
		db[j] = d * (v * s);
	}
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = hd_used(r, p->n[0]), t = p->n[14], step = hd_vector_step(t);

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += step) {
		float a[HD_PIECE], b[HD_PIECE], y[HD_PIECE];
		int64_t k = hd_min(step, n - i);

		swiglu(hd_write_to(out[0], t, i, y), hd_read(in[0], t, i, k, a), hd_read(in[1], t, i, k, b), k);
		hd_write(out[0], t, i, k, y);
	}
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = hd_used(r, p->n[0]), t = p->n[14], step = hd_vector_step(t);

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += step) {
		float a[HD_PIECE], b[HD_PIECE], dy[HD_PIECE], da[HD_PIECE], db[HD_PIECE];
		int64_t k = hd_min(step, n - i);

		swiglu_d(hd_write_to(out[0], t, i, da), hd_write_to(out[1], t, i, db), hd_read(in[0], t, i, k, a),
			 hd_read(in[1], t, i, k, b), hd_read(in[2], t, i, k, dy), k);
		hd_write(out[0], t, i, k, da);
		hd_write(out[1], t, i, k, db);
	}
}

const struct hd_kernel hd_cpu_swiglu = { .name = "swiglu", .flags = HD_K_ROWS, .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_swiglu_d = { .name = "swiglu_d", .flags = HD_K_ROWS, .prepare = prepare_d, .run = run_d };
