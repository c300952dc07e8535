/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for sum, in plain loops: every element of a is added to the element of c with the same indices
 * along c's dims.
 */
#include <config.h>
#include "kernels/prepare/sum.h"
#include "engine/device/device.h"
#include <stdlib.h>
#include <string.h>

struct ref_sum {
	int64_t count_a, count_c;
	int ndim;
	int64_t n[HD_MAX_DIMS], stride[HD_MAX_DIMS]; /* extents of a; steps in c */
};

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct ref_sum *s;

	if (d->nin != 1 || d->nout != 1 || d->in[0].dtype != HD_DTYPE_F64 || d->out[0].dtype != HD_DTYPE_F64)
		return hd_err_set(err, HD_EINVAL, "sum: takes one f64 input, one f64 output");
	HD_TRY(hd_sum_check(d, err));
	s = hd_alloc(sizeof(*s));
	s->count_a = hd_view_count(&d->in[0]);
	s->count_c = hd_view_count(&d->out[0]);
	s->ndim = (int)d->in[0].ndim;
	for (int i = 0; i < s->ndim; i++) {
		int64_t step = 1;

		s->n[i] = d->in[0].n[i];
		for (uint32_t j = d->out[0].ndim; j-- > 0; step *= d->out[0].n[j])
			if (d->out[0].dims[j] == d->in[0].dims[i])
				s->stride[i] = step;
	}
	p->state = s;
	p->release = free;
	return 0;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct ref_sum *s = p->state;
	const double *a = in[0];
	double *c = out[0];

	if (!r->acc)
		memset(c, 0, (size_t)s->count_c * sizeof(*c));
	for (int64_t i = 0; i < s->count_a; i++) {
		int64_t left = i, at = 0;

		for (int j = s->ndim - 1; j >= 0; j--) {
			at += left % s->n[j] * s->stride[j];
			left /= s->n[j];
		}
		c[at] += a[i];
	}
}

const struct hd_kernel hd_ref_sum = { .name = "sum", .flags = HD_K_ACC, .prepare = prepare, .run = run };
