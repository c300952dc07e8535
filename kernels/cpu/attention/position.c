/* SPDX-License-Identifier: Apache-2.0
 * position and position_dw: a learned vector per position, added to every sequence.
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/prepare/embedding.h"

HD_PREPARE_LOW(prepare, "position", "tu", "t", hd_prepare_position(c, p))
HD_PREPARE_LOW(prepare_dw, "position_dw", "t", "f", hd_prepare_position_dw(c, p))

HD_CLONES static void sum2(float *y, const float *a, const float *b, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = a[j] + b[j];
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t rows = p->n[0] * p->n[1], seq = p->n[1], cols = p->n[2], t = p->n[14], u = p->n[15];
	int64_t step = hd_min(hd_vector_step(t), hd_vector_step(u));

	(void)r;
#pragma omp parallel for schedule(static) if (rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < cols; j += step) {
			float x[HD_PIECE], w[HD_PIECE], y[HD_PIECE];
			int64_t n = hd_min(step, cols - j), at = i * cols + j;

			sum2(hd_write_to(out[0], t, at, y), hd_read(in[0], t, at, n, x),
			     hd_read(in[1], u, hd_position_row(p, i % seq) * cols + j, n, w), n);
			hd_write(out[0], t, at, n, y);
		}
}

/* Adds the gradients of seq indices s0..s1-1 to rows from..to-1 of the table. Their rows are `shift` further on. */
static void piece_dw(const struct hd_prep *p, float *dw, const void *dy, int64_t from, int64_t to, int64_t s0,
		     int64_t s1, int64_t shift)
{
	int64_t seq = p->n[1], cols = p->n[2];
	int64_t first = from > shift + s0 ? from : shift + s0, end = hd_min(to, shift + s1);

	for (int64_t b = 0; b < p->n[0] && first < end; b++)
		for (int64_t j = 0, all = (end - first) * cols, step = hd_vector_step(p->n[14]); j < all; j += step) {
			float wide[HD_PIECE], *y = dw + first * cols + j;
			int64_t n = hd_min(step, all - j);

			sum2(y, y, hd_read(dy, p->n[14], (b * seq + first - shift) * cols + j, n, wide), n);
		}
}

/* Computes rows from..to-1 of the table's gradient, whose sums stay in L1 or L2 while the sequences pass. */
static void rows_dw(const struct hd_prep *p, float *dw, const void *dy, int acc, int64_t from, int64_t to)
{
	int64_t cols = p->n[2];

	if (!acc)
		memset(dw + from * cols, 0, (size_t)((to - from) * cols) * sizeof(*dw));
	piece_dw(p, dw, dy, from, to, 0, p->n[5], p->n[4]);
	piece_dw(p, dw, dy, from, to, p->n[5], p->n[1], p->n[4] + p->n[6]);
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t rows = p->n[3], cols = p->n[2], piece = cols ? 1 + HD_CHUNK / cols : 1;

#pragma omp parallel for schedule(static) if (p->n[0] * p->n[1] * cols >= HD_SMALL || rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < rows; i += piece)
		rows_dw(p, out[0], in[0], r->acc, i, hd_min(rows, i + piece));
}

const struct hd_kernel hd_cpu_position = { .name = "position", .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_position_dw = {
	.name = "position_dw", .flags = HD_K_ACC, .prepare = prepare_dw, .run = run_dw
};
