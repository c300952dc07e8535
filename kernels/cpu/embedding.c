/* SPDX-License-Identifier: Apache-2.0
 * embedding and embedding_dw: rows of a table by id, of which this rank may hold a slice (see
 * the reference).
 *
 * Equal ids meet in one row of dw, so there the threads share the columns: no two write one
 * element, and the order of a sum is that of the ids.
 */
#include <config.h>
#include <omp.h>
#include "kernels/cpu/simd.h"
#include "kernels/prepare/embedding.h"

HD_PREPARE(prepare, "embedding", HD_F32, hd_prepare_embedding(c, p))
HD_PREPARE(prepare_dw, "embedding_dw", HD_F32, hd_prepare_embedding_dw(c, p))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *ids = in[0];
	const float *w = in[1];
	float *x = out[0];
	int64_t cols = p->n[1];

	(void)r;
#pragma omp parallel for schedule(static) if (p->n[0] * cols >= HD_SMALL)
	for (int64_t i = 0; i < p->n[0]; i++) {
		int64_t row = ids[i] - p->n[3];

		if (row >= 0 && row < p->n[2])
			memcpy(x + i * cols, w + row * cols, (size_t)cols * sizeof(*x));
		else
			memset(x + i * cols, 0, (size_t)cols * sizeof(*x));
	}
}

HD_CLONES static void scatter(const struct hd_prep *p, float *dw, const int32_t *ids,
			      const float *dx, int64_t from, int64_t to)
{
	int64_t cols = p->n[1];

	for (int64_t i = 0; i < p->n[0]; i++) {
		int64_t row = ids[i] - p->n[3];
		float *y = dw + row * cols;
		const float *x = dx + i * cols;

		if (row < 0 || row >= p->n[2])
			continue;
#pragma omp simd
		for (int64_t j = from; j < to; j++)
			y[j] += x[j];
	}
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in,
		   const struct hd_run *r)
{
	int64_t cols = p->n[1], all = p->n[2] * cols;
	float *dw = out[0];

#pragma omp parallel if (p->n[0] * cols >= HD_SMALL || (!r->acc && all >= HD_SMALL))
	{
		int64_t from, to;

		if (!r->acc) {
#pragma omp for schedule(static)
			for (int64_t i = 0; i < all; i += HD_CHUNK)
				memset(dw + i, 0, (size_t)hd_min(HD_CHUNK, all - i) * sizeof(*dw));
		}
		hd_columns(cols, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
		scatter(p, dw, in[0], in[1], from, to);
	}
}

const struct hd_kernel hd_cpu_embedding = { .name = "embedding", .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_embedding_dw = {
	.name = "embedding_dw", .flags = HD_K_ACC, .prepare = prepare_dw, .run = run_dw };
