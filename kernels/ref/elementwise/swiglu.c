/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels for swiglu and swiglu_d: a gated unit (Shazeer 2020), y = a s(a) b.
 *
 *	s = 1 / (1 + exp(-a))
 *	with gelu: s = (1 + tanh u) / 2, u = sqrt(2/pi) (a + 0.044715 a^3), or s = (1 + erf(a / sqrt 2)) / 2
 *	da = dy b (s + a s')	db = dy a s
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/elementwise.h"

HD_PREPARE(prepare, "swiglu", HD_DTYPE_F64, hd_prepare_gate(c, p, 2, 1))
HD_PREPARE(prepare_d, "swiglu_d", HD_DTYPE_F64, hd_prepare_gate(c, p, 3, 2))

#define ROOT_2_PI 0.79788456080286535588

/* Returns s, and its derivative in *slope. */
static double open_part(int64_t gate, double a, double *slope)
{
	double s, t = gate == HD_GATE_SILU ? 0 : tanh(ROOT_2_PI * (a + 0.044715 * a * a * a));

	if (gate == HD_GATE_GELU_TANH) {
		*slope = (1 - t * t) * ROOT_2_PI * (1 + 3 * 0.044715 * a * a) / 2;
		return (1 + t) / 2;
	}
	if (gate == HD_GATE_GELU_ERF) {
		*slope = ROOT_2_PI / 2 * exp(-a * a / 2);
		return erfc(-a / sqrt(2)) / 2;
	}
	s = 1 / (1 + exp(-a));
	*slope = s * (1 - s);
	return s;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *a = in[0], *b = in[1];
	double *y = out[0], slope;

	int64_t n = hd_used(r, p->n[0]);

	for (int64_t i = 0; i < n; i++)
		y[i] = a[i] * open_part(p->n[1], a[i], &slope) * b[i];
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *a = in[0], *b = in[1], *dy = in[2];
	double *da = out[0], *db = out[1];

	int64_t n = hd_used(r, p->n[0]);

	for (int64_t i = 0; i < n; i++) {
		double slope, s = open_part(p->n[1], a[i], &slope), v = a[i], up = b[i], d = dy[i];

		da[i] = d * up * (s + v * slope);
		db[i] = d * v * s;
	}
}

const struct hd_kernel hd_ref_swiglu = { .name = "swiglu", .flags = HD_K_ROWS, .prepare = prepare, .run = run };
const struct hd_kernel hd_ref_swiglu_d = { .name = "swiglu_d", .flags = HD_K_ROWS, .prepare = prepare_d, .run = run_d };
