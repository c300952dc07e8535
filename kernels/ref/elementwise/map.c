/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for map: the expression evaluated in double for one output element after the other.
 */
#include <config.h>
#include "kernels/prepare/map.h"
#include <stdlib.h>

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct hd_map_prep *m = hd_alloc(sizeof(*m));
	int rc = hd_prepare_map(d, HD_DTYPE_F64, m, err);

	if (rc < 0) {
		free(m);
		return rc;
	}
	p->state = m;
	p->release = free;
	return 0;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_map_prep *m = p->state;

	(void)r;
	for (int64_t o = 0; o < m->total; o++) {
		double v[HD_MAP_INPUTS];

		for (int i = 0; i < m->nin; i++) {
			int64_t rest = o, at = 0;

			for (int k = m->ndim; k-- > 0; rest /= m->extent[k])
				at += rest % m->extent[k] * m->in[i].stride[k];
			v[i] = ((const double *)in[i])[at];
		}
		((double *)out[0])[o] = hd_expr_eval(&m->e, v);
	}
}

const struct hd_kernel hd_ref_map = { .name = "map", .prepare = prepare, .run = run };
