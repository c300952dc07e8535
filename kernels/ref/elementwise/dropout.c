/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for dropout (Srivastava et al. 2014). Whether an element is kept is a pure function of seed, step,
 * site and global index.
 *
 * So nothing is stored for backward, which is the same kernel on the gradient.
 */
#include <config.h>
#include "kernels/dropout_key.h"
#include "kernels/prepare/embedding.h"

HD_PREPARE(prepare, "dropout", HD_DTYPE_F64, hd_prepare_dropout(c, p))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	uint64_t key = hd_dropout_key(r->seed, r->step, (uint64_t)p->n[3]);
	const double *x = in[0];
	double *y = out[0], drop = r->train ? p->f[0] : 0;

	for (int64_t i = 0; i < p->n[0]; i++) {
		uint64_t index = hd_dropout_index(p, i, r->sample0);

		for (int64_t j = 0; j < p->n[1]; j++, x++, y++)
			*y = hd_dropout_keeps(key, index + (uint64_t)j, drop) ? *x / (1 - drop) : 0;
	}
}

const struct hd_kernel hd_ref_dropout = { .name = "dropout", .prepare = prepare, .run = run };
