/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for copy: pieces of raw elements, whatever their dtype.
 */
#include <config.h>
#include "kernels/prepare/elementwise.h"

HD_PREPARE(prepare, "copy", HD_DTYPE_F64, hd_prepare_copy(c, p))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const char *x = (const char *)in[0] + p->n[HD_COPY_SRC];
	char *y = (char *)out[0] + p->n[HD_COPY_DST];

	(void)r;
	for (int64_t i = 0; i < p->n[HD_COPY_RUNS]; i++)
		for (int64_t j = 0; j < p->n[HD_COPY_RUN]; j++)
			y[i * p->n[HD_COPY_DST_STEP] + j] = x[i * p->n[HD_COPY_SRC_STEP] + j];
}

const struct hd_kernel hd_ref_copy = { .name = "copy", .prepare = prepare, .run = run };
