/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/norm.h - checks of norm, norm_d and norm_dw; shared by all devices.
 *
 * p->n: 0 rows, 1 columns, 2 rms, 3 whether the optional operand is there; p->f[0]: eps. For norm_d and norm_d_add,
 * n[3] is the number of weight gradients after the first result, and n[4] that of sums.
 */
#ifndef HD_KERNELS_PREPARE_NORM_H
#define HD_KERNELS_PREPARE_NORM_H
#include "kernels/check.h"

static inline int hd_prepare_norm_rows(const struct hd_check *c, struct hd_prep *p, const struct hd_view *x)
{
	HD_TRY(hd_check_ndim(c, x, 1, HD_MAX_DIMS));
	p->n[1] = x->n[x->ndim - 1];
	p->n[0] = hd_check_count(x, 0, x->ndim - 1);
	p->n[2] = hd_attr_num(c->d->attr, "rms", 0) != 0;
	return 0;
}

static inline int hd_prepare_norm(const struct hd_check *c, struct hd_prep *p)
{
	uint32_t rms = hd_attr_num(c->d->attr, "rms", 0) != 0, n;
	const struct hd_view *x = &c->d->in[0];

	HD_TRY(hd_check_counts(c, 2, 3, 3 - rms, 3 - rms));
	HD_TRY(hd_check_dtypes(c, "r", "r"));
	HD_TRY(hd_prepare_norm_rows(c, p, x));
	n = x->ndim;
	HD_TRY(hd_check_complete(c, x, n - 1));
	HD_TRY(hd_check_part(c, &c->d->in[1], x, n - 1, n));
	if (c->d->nin == 3)
		HD_TRY(hd_check_part(c, &c->d->in[2], x, n - 1, n));
	HD_TRY(hd_check_same(c, &c->d->out[0], x));
	for (uint32_t i = 1; i < c->d->nout; i++)
		HD_TRY(hd_check_part(c, &c->d->out[i], x, 0, n - 1));
	p->n[3] = c->d->nin == 3;
	p->f[0] = hd_attr_num(c->d->attr, "eps", 1e-5);
	return 0;
}

static inline int hd_prepare_norm_sums(const struct hd_check *c, struct hd_prep *p, const struct hd_view *x)
{
	const struct hd_view *out = c->d->out;
	uint32_t weights = 0, sums = hd_attr_text(c->d->attr, "out") != NULL;

	if (hd_attr_num(c->d->attr, "dw", 0) != 0)
		weights = hd_attr_num(c->d->attr, "bias", 0) != 0 ? 2 : 1;
	HD_TRY(hd_check_counts(c, c->d->nin, c->d->nin, 1 + weights + sums, 1 + weights + sums));
	for (uint32_t i = 1; i <= weights; i++)
		HD_TRY(hd_check_part(c, &out[i], x, x->ndim - 1, x->ndim));
	if (sums)
		HD_TRY(hd_check_part(c, &out[1 + weights], x, x->ndim - 1, x->ndim));
	p->n[3] = weights;
	p->n[4] = sums;
	return 0;
}

static inline int hd_prepare_norm_d(const struct hd_check *c, struct hd_prep *p)
{
	uint32_t rms = hd_attr_num(c->d->attr, "rms", 0) != 0, n;
	const struct hd_view *x = &c->d->in[0];

	HD_TRY(hd_check_counts(c, 5 - rms, 5 - rms, 1, 4));
	HD_TRY(hd_check_dtypes(c, "r", "r"));
	HD_TRY(hd_prepare_norm_rows(c, p, x));
	n = x->ndim;
	HD_TRY(hd_check_complete(c, x, n - 1));
	HD_TRY(hd_check_part(c, &c->d->in[1], x, n - 1, n));
	for (uint32_t i = 2; i < c->d->nin - 1; i++)
		HD_TRY(hd_check_part(c, &c->d->in[i], x, 0, n - 1));
	HD_TRY(hd_check_same(c, &c->d->in[c->d->nin - 1], x));
	HD_TRY(hd_prepare_norm_sums(c, p, x));
	return hd_check_same(c, &c->d->out[0], x);
}

/* Checks norm_d of all operands but the first, which is added. */
static inline int hd_prepare_norm_d_add(const struct hd_check *c, struct hd_prep *p)
{
	uint32_t rms = hd_attr_num(c->d->attr, "rms", 0) != 0;
	const struct hd_kernel_desc rest = {
		c->d->attr, c->d->nin - 1, c->d->nout, c->d->in + 1, c->d->out, c->d->never
	};
	const struct hd_check of_rest = { c->kernel, c->real, &rest, c->err, c->also };

	HD_TRY(hd_check_counts(c, 6 - rms, 6 - rms, 1, 4));
	HD_TRY(hd_prepare_norm_d(&of_rest, p));
	return hd_check_same(c, &c->d->in[0], &c->d->out[0]);
}

/* Each column is computed alone, so a slice of them suffices. */
static inline int hd_prepare_norm_dw(const struct hd_check *c, struct hd_prep *p)
{
	uint32_t rms = hd_attr_num(c->d->attr, "rms", 0) != 0, n;
	const struct hd_view *x = &c->d->in[0];

	HD_TRY(hd_check_counts(c, 4 - rms, 4 - rms, 1, 2));
	HD_TRY(hd_check_dtypes(c, "r", "r"));
	HD_TRY(hd_prepare_norm_rows(c, p, x));
	n = x->ndim;
	for (uint32_t i = 1; i < c->d->nin - 1; i++)
		HD_TRY(hd_check_part(c, &c->d->in[i], x, 0, n - 1));
	HD_TRY(hd_check_same(c, &c->d->in[c->d->nin - 1], x));
	for (uint32_t i = 0; i < c->d->nout; i++)
		HD_TRY(hd_check_part(c, &c->d->out[i], x, n - 1, n));
	p->n[3] = c->d->nout == 2;
	return 0;
}

#endif
