/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/sum.h - checks of sum, and the dims over which it loops; shared by the devices.
 */
#ifndef HD_KERNELS_PREPARE_SUM_H
#define HD_KERNELS_PREPARE_SUM_H
#include "engine/device/device.h"

struct hd_sum_dim {
	int64_t n, a, c; /* elements; steps in a and in c; c 0: summed */
};

/* c is the sum of a. simple: a is (p, r, q) and c is (p, q). */
struct hd_sum_prep {
	uint32_t dtype_a, dtype_c;
	int64_t count; /* elements of c */
	int32_t empty; /* there is nothing to sum, or nothing to write; the fields below are not set */
	int32_t ndim, simple;
	struct hd_sum_dim dim[HD_MAX_DIMS]; /* innermost first */
	int64_t p, r, q;
};

/* Checks that every dim of c is one of a. */
static inline int hd_sum_check(const struct hd_kernel_desc *d, struct hd_err *err)
{
	const struct hd_view *a = d->in, *c = d->out;

	for (uint32_t i = 0; i < c->ndim; i++) {
		uint32_t j = 0;

		while (j < a->ndim && a->dims[j] != c->dims[i])
			j++;
		if (j == a->ndim || a->n[j] != c->n[i])
			return hd_err_set(err, HD_EINVAL, "sum: c has dim %s, which a does not have in that size",
					  c->dims[i]->name);
	}
	return 0;
}

/* Collects the dims. Adjacent ones merge where both are summed, or both are kept and are adjacent in c too. */
static inline void hd_sum_collect(struct hd_sum_prep *s, const struct hd_view *a, const struct hd_view *c)
{
	int64_t step = 1;

	for (int i = (int)a->ndim - 1; i >= 0; i--) {
		struct hd_sum_dim d = { a->n[i], step, 0 }, *last = &s->dim[s->ndim ? s->ndim - 1 : 0];
		int64_t in_c = 1;

		for (uint32_t j = c->ndim; j-- > 0; in_c *= c->n[j])
			if (c->dims[j] == a->dims[i])
				d.c = in_c;
		step *= d.n;
		if (d.n == 1)
			continue;
		if (s->ndim && d.c == last->c * last->n && !d.c == !last->c)
			last->n *= d.n;
		else
			s->dim[s->ndim++] = d;
	}
}

static inline void hd_sum_classify(struct hd_sum_prep *s)
{
	int i = 0;

	s->p = s->r = s->q = 1;
	if (i < s->ndim && s->dim[i].c == 1)
		s->q = s->dim[i++].n;
	if (i < s->ndim && !s->dim[i].c)
		s->r = s->dim[i++].n;
	if (i < s->ndim && s->dim[i].c == s->q)
		s->p = s->dim[i++].n;
	s->simple = i == s->ndim;
}

static inline int hd_sum_readable(uint32_t dtype)
{
	return dtype == HD_DTYPE_F32 || dtype == HD_DTYPE_BF16;
}

/* Checks a sum, and describes it in *s, which is zeroed. */
static inline int hd_prepare_sum(const struct hd_kernel_desc *d, const char *device, struct hd_sum_prep *s,
				 struct hd_err *err)
{
	if (d->nin != 1 || d->nout != 1)
		return hd_err_set(err, HD_EINVAL, "sum: %u inputs and %u outputs, not 1 and 1", d->nin, d->nout);
	if (!hd_sum_readable(d->in[0].dtype) || !hd_sum_readable(d->out[0].dtype))
		return hd_err_set(err, HD_ENOTSUP, "sum: no %s to %s on %s", hd_dtype_name(d->in[0].dtype),
				  hd_dtype_name(d->out[0].dtype), device);
	HD_TRY(hd_sum_check(d, err));
	s->dtype_a = d->in[0].dtype;
	s->dtype_c = d->out[0].dtype;
	s->count = hd_view_count(&d->out[0]);
	s->empty = !s->count || !hd_view_count(&d->in[0]);
	if (s->empty)
		return 0;
	hd_sum_collect(s, &d->in[0], &d->out[0]);
	hd_sum_classify(s);
	return 0;
}

#endif
