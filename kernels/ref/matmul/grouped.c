/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for grouped. The rows of expert e follow those of the experts before it. With a (rows, k):
 *
 *	y (rows, n) = a w_e [+ add]	w_e (k, n) = sum over the rows of e of a x, where x (rows, n) is b
 *
 * w_e is stored as (k, n) or as (n, k).
 */
#include <config.h>
#include "kernels/prepare/grouped.h"

HD_PREPARE(prepare, "grouped", HD_DTYPE_F64, hd_prepare_grouped(c, p))

static int64_t weight(const struct hd_prep *p, int64_t e, int64_t i, int64_t j)
{
	return e * p->n[2] * p->n[3] + (p->n[5] ? j * p->n[2] + i : i * p->n[3] + j);
}

static void rows_product(const struct hd_prep *p, double *y, const double *a, const double *w, const double *add,
			 int64_t e, int acc)
{
	for (int64_t j = 0; j < p->n[3]; j++) {
		double sum = (add ? add[j] : 0) + (acc ? y[j] : 0);

		for (int64_t i = 0; i < p->n[2]; i++)
			sum += a[i] * w[weight(p, e, i, j)];
		y[j] = sum;
	}
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *a = in[0], *b = in[1], *add = p->n[6] ? in[p->n[6]] : NULL;
	int64_t k = p->n[2], n = p->n[3], at = 0;
	double *y = out[0];

	for (int64_t e = 0; e < p->n[0]; e++) {
		int64_t rows = hd_grouped_rows(p, in[p->n[7]], e);

		for (int64_t i = 0; p->n[4] && i < k; i++)
			for (int64_t j = 0; j < n; j++) {
				double *w = &y[weight(p, e, i, j)];

				*w = r->acc ? *w : 0;
				for (int64_t s = at; s < at + rows; s++)
					*w += a[s * k + i] * b[s * n + j];
			}
		for (int64_t s = at; !p->n[4] && s < at + rows; s++)
			rows_product(p, y + s * n, a + s * k, b, add ? add + s * n : NULL, e, r->acc);
		at += rows;
	}
}

const struct hd_kernel hd_ref_grouped = { .name = "grouped", .flags = HD_K_ACC, .prepare = prepare, .run = run };
