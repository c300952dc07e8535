/* SPDX-License-Identifier: Apache-2.0
 * position and position_dw: a learned vector per position, added to every sequence.
 */
#include <config.h>
#include "kernels/cpu/simd.h"
#include "kernels/prepare/embedding.h"

HD_PREPARE(prepare, "position", HD_F32, hd_prepare_position(c, p))
HD_PREPARE(prepare_dw, "position_dw", HD_F32, hd_prepare_position_dw(c, p))

HD_CLONES static void sum2(float *y, const float *a, const float *b, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = a[j] + b[j];
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t rows = p->n[0] * p->n[1], seq = p->n[1], cols = p->n[2];
	const float *x = in[0], *w = (const float *)in[1] + p->n[4] * cols;
	float *y = out[0];

	(void)r;
#pragma omp parallel for schedule(static) if (rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < rows; i++)
		sum2(y + i * cols, x + i * cols, w + i % seq * cols, cols);
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t outer = p->n[0], seq = p->n[1], cols = p->n[2];
	const float *dy = in[0];
	float *dw = out[0];

#pragma omp parallel for schedule(static) if (outer * seq * cols >= HD_SMALL)
	for (int64_t row = 0; row < p->n[3]; row++) {
		int64_t s = row - p->n[4];

		if (!r->acc)
			memset(dw + row * cols, 0, (size_t)cols * sizeof(*dw));
		for (int64_t b = 0; b < outer && s >= 0 && s < seq; b++)
			sum2(dw + row * cols, dw + row * cols, dy + (b * seq + s) * cols, cols);
	}
}

const struct hd_kernel hd_cpu_position = { .name = "position", .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_position_dw = { .name = "position_dw", .flags = HD_K_ACC, .prepare = prepare_dw, .run = run_dw };
