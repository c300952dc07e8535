/* SPDX-License-Identifier: Apache-2.0
 * embedding and embedding_dw: rows of a table by id; this rank may hold a slice of the table (see the reference).
 *
 * Equal ids add to the same row of dw, so there the threads divide the columns. No two threads write the same element,
 * and the order of a sum is that of the ids.
 */
#include <config.h>
#include <omp.h>
#include "kernels/cpu/base/low.h"
#include "kernels/prepare/embedding.h"

HD_PREPARE_LOW(prepare, "embedding", "*t", "u", hd_prepare_embedding(c, p))
HD_PREPARE_LOW(prepare_dw, "embedding_dw", "*t", "f", hd_prepare_embedding_dw(c, p))

/* Copies n elements of the table from element `from` on to x from element `to` on, and converts them. */
static void copy_converted(void *x, int64_t xtype, int64_t to, const void *w, int64_t wtype, int64_t from, int64_t n)
{
	if (xtype == wtype)
		memcpy(hd_into(x, xtype, to), hd_at(w, wtype, from), (size_t)n * HD_BITS(xtype) / 8);
	else if (xtype == HD_DTYPE_BF16)
		hd_store_bf16((uint16_t *)x + to, (const float *)w + from, n);
	else
		hd_bf16_to_f32((float *)x + to, (const uint16_t *)w + from, n);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *ids = in[0];
	int64_t cols = p->n[1], xtype = p->n[15];

	(void)r;
#pragma omp parallel for schedule(static) if (p->n[0] * cols >= HD_SMALL)
	for (int64_t i = 0; i < p->n[0]; i++) {
		int64_t row = ids[i] - p->n[3];

		if (row >= 0 && row < p->n[2])
			copy_converted(out[0], xtype, i * cols, in[1], p->n[14], row * cols, cols);
		else
			memset(hd_into(out[0], xtype, i * cols), 0, (size_t)cols * HD_BITS(xtype) / 8);
	}
}

static inline __attribute__((always_inline)) void scatter_any(const struct hd_prep *p, float *dw, const int32_t *ids,
							      const void *dx, int64_t from, int64_t to, const int low)
{
	int64_t cols = p->n[1];

	for (int64_t i = 0; i < p->n[0]; i++) {
		int64_t row = ids[i] - p->n[3];
		float *y = dw + row * cols;

		if (row < 0 || row >= p->n[2])
			continue;
#pragma omp simd
		for (int64_t j = from; j < to; j++)
			y[j] += hd_get(dx, low, i * cols + j);
	}
}

HD_CLONES static void scatter(const struct hd_prep *p, float *dw, const int32_t *ids, const void *dx, int64_t from,
			      int64_t to)
{
	scatter_any(p, dw, ids, dx, from, to, 0);
}

HD_CLONES static void scatter_low(const struct hd_prep *p, float *dw, const int32_t *ids, const void *dx, int64_t from,
				  int64_t to)
{
	scatter_any(p, dw, ids, dx, from, to, 1);
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
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
		(p->n[14] == HD_DTYPE_BF16 ? scatter_low : scatter)(p, dw, in[0], in[1], from, to);
	}
}

const struct hd_kernel hd_cpu_embedding = { .name = "embedding", .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_embedding_dw = {
	.name = "embedding_dw", .flags = HD_K_ACC, .prepare = prepare_dw, .run = run_dw
};
