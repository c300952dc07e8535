/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels for position and position_dw: a learned vector per position, added to every sequence.
 */
#include <config.h>
#include "kernels/prepare/embedding.h"

HD_PREPARE(prepare, "position", HD_DTYPE_F64, hd_prepare_position(c, p))
HD_PREPARE(prepare_dw, "position_dw", HD_DTYPE_F64, hd_prepare_position_dw(c, p))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t outer = p->n[0], seq = p->n[1], cols = p->n[2];
	const double *x = in[0], *w = in[1];
	double *y = out[0];

	(void)r;
	for (int64_t b = 0; b < outer; b++)
		for (int64_t s = 0; s < seq; s++)
			for (int64_t j = 0; j < cols; j++)
				y[(b * seq + s) * cols + j] =
					x[(b * seq + s) * cols + j] + w[hd_position_row(p, s) * cols + j];
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t outer = p->n[0], seq = p->n[1], cols = p->n[2];
	const double *dy = in[0];
	double *dw = out[0];

	for (int64_t row = 0; row < p->n[3]; row++) {
		int64_t s = hd_position_of(p, row);

		for (int64_t j = 0; j < cols; j++) {
			double sum = 0;

			for (int64_t b = 0; b < outer && s >= 0; b++)
				sum += dy[(b * seq + s) * cols + j];
			dw[row * cols + j] = r->acc ? dw[row * cols + j] + sum : sum;
		}
	}
}

const struct hd_kernel hd_ref_position = { .name = "position", .prepare = prepare, .run = run };
const struct hd_kernel hd_ref_position_dw = {
	.name = "position_dw", .flags = HD_K_ACC, .prepare = prepare_dw, .run = run_dw
};
