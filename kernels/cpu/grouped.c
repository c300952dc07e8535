/* SPDX-License-Identifier: Apache-2.0
 * grouped: the experts' products, one call for each expert that has rows.
 *
 * How many rows these are is known at run time alone, so they go through dnnl_sgemm, which needs no primitive made before:
 * measured as fast as the primitives of fixed shapes from 100 rows on.
 */
#include <config.h>
#include <oneapi/dnnl/dnnl.h>
#include "kernels/cpu/simd.h"
#include "kernels/prepare/grouped.h"

HD_PREPARE(prepare, "grouped", HD_F32, hd_prepare_grouped(c, p))

/* y (rows, n) = a (rows, k) w (k, n), or w (n, k) transposed; keep: added to what y has */
static void rows_product(const struct hd_prep *p, float *y, const float *a, const float *w, int64_t rows, int keep)
{
	int64_t k = p->n[2], n = p->n[3];

	dnnl_sgemm('N', p->n[5] ? 'T' : 'N', rows, n, k, 1, a, k, w, p->n[5] ? k : n, keep ? 1 : 0, y, n);
}

/* w (k, n) = a (rows, k) transposed times x (rows, n), or w (n, k) */
static void weights_product(const struct hd_prep *p, float *w, const float *a, const float *x, int64_t rows, int keep)
{
	int64_t k = p->n[2], n = p->n[3];

	if (!rows && !keep)
		memset(w, 0, (size_t)(k * n) * sizeof(*w));
	else if (p->n[5] && rows)
		dnnl_sgemm('T', 'N', n, k, rows, 1, x, n, a, k, keep ? 1 : 0, w, k);
	else if (rows)
		dnnl_sgemm('T', 'N', k, n, rows, 1, a, k, x, n, keep ? 1 : 0, w, n);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *counts = in[p->n[7]];
	const float *a = in[0], *b = in[1], *add = p->n[6] ? in[p->n[6]] : NULL;
	int64_t k = p->n[2], n = p->n[3], at = 0;
	float *y = out[0];

	for (int64_t e = 0; e < p->n[0]; e++) {
		int64_t rows = hd_grouped_rows(p, counts, e);

		if (p->n[4])
			weights_product(p, y + e * k * n, a + at * k, b + at * n, rows, r->acc);
		else if (rows) {
			if (add && add != y)
				memcpy(y + at * n, add + at * n, (size_t)(rows * n) * sizeof(*y));
			rows_product(p, y + at * n, a + at * k, b + e * k * n, rows, add || r->acc);
		}
		at += rows;
	}
}

const struct hd_kernel hd_cpu_grouped = { .name = "grouped", .flags = HD_K_ACC, .prepare = prepare, .run = run };
