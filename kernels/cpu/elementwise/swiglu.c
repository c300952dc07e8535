/* SPDX-License-Identifier: Apache-2.0
 * swiglu and swiglu_d: y = a s b with s = 1 / (1 + exp(-a)); da = dy b s (1 + a (1 - s)), db =
 * dy a s.  With gelu for a gate s and its derivative are those of gelu.c, or of erf.
 */
#include <config.h>
#include "kernels/cpu/base/elementary.h"
#include "kernels/cpu/base/low.h"
#include "kernels/prepare/elementwise.h"

HD_PREPARE_LOW(prepare, "swiglu", "t", "t", hd_prepare_gate(c, p, 2, 1))
HD_PREPARE_LOW(prepare_d, "swiglu_d", "t", "t", hd_prepare_gate(c, p, 3, 2))

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

#define TWO_ROOT_2_PI 1.5957691216f
#define CUBIC 0.044715f

HD_CLONES static void tanh_gate(float *y, const float *a, const float *b, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = a[j] * hd_sigmoid(TWO_ROOT_2_PI * a[j] * (1 + CUBIC * a[j] * a[j])) * b[j];
}

HD_CLONES static void tanh_gate_d(float *da, float *db, const float *a, const float *b, const float *dy, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		float v = a[j], in = hd_clamp(v, -16, 16), q = CUBIC * in * in, up = b[j], d = dy[j];
		float s = hd_sigmoid(TWO_ROOT_2_PI * in * (1 + q));

		da[j] = d * up * (s + in * s * (1 - s) * (TWO_ROOT_2_PI * (1 + 3 * q)));
		db[j] = d * (v * s);
	}
}

HD_CLONES static void erf_gate(float *y, const float *a, const float *b, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = a[j] * (0.5f + 0.5f * hd_erff_all(0.70710678f * a[j])) * b[j];
}

HD_CLONES static void erf_gate_d(float *da, float *db, const float *a, const float *b, const float *dy, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		float v = a[j], up = b[j], d = dy[j], s = 0.5f + 0.5f * hd_erff_all(0.70710678f * v);

		da[j] = d * up * (s + v * 0.39894228f * hd_expf_all(-0.5f * v * v));
		db[j] = d * (v * s);
	}
}

static void (*const gates[])(float *, const float *, const float *, int64_t) = { swiglu, tanh_gate, erf_gate };
static void (*const gates_d[])(float *, float *, const float *, const float *, const float *,
			       int64_t) = { swiglu_d, tanh_gate_d, erf_gate_d };

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = hd_used(r, p->n[0]), t = p->n[14], step = hd_vector_step(t);

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += step) {
		float a[HD_PIECE], b[HD_PIECE], y[HD_PIECE];
		int64_t k = hd_min(step, n - i);

		gates[p->n[1]](hd_write_to(out[0], t, i, y), hd_read(in[0], t, i, k, a), hd_read(in[1], t, i, k, b), k);
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

		gates_d[p->n[1]](hd_write_to(out[0], t, i, da), hd_write_to(out[1], t, i, db),
				 hd_read(in[0], t, i, k, a), hd_read(in[1], t, i, k, b), hd_read(in[2], t, i, k, dy),
				 k);
		hd_write(out[0], t, i, k, da);
		hd_write(out[1], t, i, k, db);
	}
}

const struct hd_kernel hd_cpu_swiglu = { .name = "swiglu", .flags = HD_K_ROWS, .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_swiglu_d = { .name = "swiglu_d", .flags = HD_K_ROWS, .prepare = prepare_d, .run = run_d };
