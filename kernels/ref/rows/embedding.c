/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels for embedding and embedding_dw: rows of a table by id; this rank may hold a slice of the table.
 *
 * An id outside the slice reads zero and adds nothing, so that the sum over all slices is the complete answer.
 */
#include <config.h>
#include "kernels/prepare/embedding.h"

HD_PREPARE(prepare, "embedding", HD_DTYPE_F64, hd_prepare_embedding(c, p))
HD_PREPARE(prepare_dw, "embedding_dw", HD_DTYPE_F64, hd_prepare_embedding_dw(c, p))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *ids = in[0];
	const double *w = in[1];
	double *x = out[0];

	(void)r;
	for (int64_t i = 0; i < p->n[0]; i++) {
		int64_t row = ids[i] - p->n[3];

		for (int64_t j = 0; j < p->n[1]; j++)
			x[i * p->n[1] + j] = row >= 0 && row < p->n[2] ? w[row * p->n[1] + j] : 0;
	}
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *ids = in[0];
	const double *dx = in[1];
	double *dw = out[0];

	for (int64_t i = 0; i < p->n[2] * p->n[1] && !r->acc; i++)
		dw[i] = 0;
	for (int64_t i = 0; i < p->n[0]; i++) {
		int64_t row = ids[i] - p->n[3];

		for (int64_t j = 0; j < p->n[1] && row >= 0 && row < p->n[2]; j++)
			dw[row * p->n[1] + j] += dx[i * p->n[1] + j];
	}
}

const struct hd_kernel hd_ref_embedding = { .name = "embedding", .prepare = prepare, .run = run };
const struct hd_kernel hd_ref_embedding_dw = {
	.name = "embedding_dw", .flags = HD_K_ACC, .prepare = prepare_dw, .run = run_dw
};
