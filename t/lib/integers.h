/* SPDX-License-Identifier: Apache-2.0
 * t/lib/integers.h - gives a run (t/lib/graph_test.h) parameters whose sums are exact in any order.
 */
#ifndef HD_T_LIB_INTEGERS_H
#define HD_T_LIB_INTEGERS_H
#include "t/lib/graph_test.h"
#include <string.h>

/* Sets parameters to small integers by name and global index: sums stay far below 2^53, so none is rounded. */
static void integers(struct gt_run *r)
{
	for (size_t i = 0; i < r->plan->ntensors; i++) {
		const struct tensor *t = r->plan->tensors[i];

		for (int k = 0; k < r->n && !t->v.node && t->v.what == HD_TENSOR_PARAM; k++) {
			double *w = gt_address(r, t, k);
			int64_t n = hd_local_count(t), at[HD_MAX_DIMS];

			for (int64_t j = 0; j < n; j++) {
				int64_t rest = j, global = 0, inside = 1;

				for (uint32_t d = t->v.ndim; d-- > 0; rest /= t->local[d])
					at[d] = rest % t->local[d] + hd_offset(r->plan, t, d, k);
				for (uint32_t d = 0; d < t->v.ndim; d++) {
					global = global * t->dims[d]->n + at[d];
					inside &= at[d] < t->dims[d]->n;
				}
				w[j] = inside ? (double)((global * 7 + (int64_t)strlen(t->v.name)) % 5 - 2) : 0;
			}
		}
	}
}

#endif
