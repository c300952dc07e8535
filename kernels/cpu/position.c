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

/* Positions from..to-1 of the table, whose sums stay in L1 or L2 while the sequences pass. */
static void rows_dw(const struct hd_prep *p, float *dw, const float *dy, int acc, int64_t from,
		    int64_t to)
{
	int64_t seq = p->n[1], cols = p->n[2], shift = p->n[4];
	int64_t first = from > shift ? from : shift, end = hd_min(to, shift + seq);

	if (!acc)
		memset(dw + from * cols, 0, (size_t)((to - from) * cols) * sizeof(*dw));
	for (int64_t b = 0; b < p->n[0] && first < end; b++)
		sum2(dw + first * cols, dw + first * cols, dy + (b * seq + first - shift) * cols,
		     (end - first) * cols);
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in,
		   const struct hd_run *r)
{
	int64_t rows = p->n[3], cols = p->n[2], piece = cols ? 1 + HD_CHUNK / cols : 1;

#pragma omp parallel for schedule(static) if (p->n[0] * p->n[1] * cols >= HD_SMALL || \
					      rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < rows; i += piece)
		rows_dw(p, out[0], in[0], r->acc, i, hd_min(rows, i + piece));
}

const struct hd_kernel hd_cpu_position = { .name = "position", .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_position_dw = {
	.name = "position_dw", .flags = HD_K_ACC, .prepare = prepare_dw, .run = run_dw };
