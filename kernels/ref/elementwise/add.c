/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for add: the sum of all inputs, broadcast by dim.
 *
 * Every element of y finds its summands by the strides of each input over y's dims (0 where the input does not have
 * the dim).
 */
#include <config.h>
#include "kernels/prepare/elementwise.h"

HD_PREPARE(prepare, "add", HD_DTYPE_F64, hd_prepare_add(c, p))

static int64_t offset(const struct hd_add *s, uint32_t k, int64_t i)
{
	int64_t at = 0;

	for (uint32_t j = s->ndim; j--; i /= s->n[j])
		at += i % s->n[j] * s->stride[k][j];
	return at;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_add *s = p->state;
	double *y = out[0];

	(void)r;
	for (int64_t i = 0; i < p->n[0]; i++) {
		double sum = 0;

		for (uint32_t k = 0; k < s->nin; k++)
			sum += ((const double *)in[k])[offset(s, k, i)];
		y[i] = sum;
	}
}

const struct hd_kernel hd_ref_add = { .name = "add", .flags = HD_K_ROWS, .prepare = prepare, .run = run };
