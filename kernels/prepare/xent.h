/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/xent.h - checks of the cross entropy kernels; shared by all devices.
 *
 * p->n: 0 rows, 1 columns, 2 columns that are not padding, 3 global index of the first column. For xent_both, n[4]:
 * whether p->f[0], the gradient of each token's loss, is scaled.
 */
#ifndef HD_KERNELS_PREPARE_XENT_H
#define HD_KERNELS_PREPARE_XENT_H
#include "kernels/check.h"

static inline int hd_prepare_logits(const struct hd_check *c, struct hd_prep *p)
{
	const struct hd_view *z = &c->d->in[0];
	uint32_t v = z->ndim - 1;
	int64_t real;

	HD_TRY(hd_check_ndim(c, z, 1, HD_MAX_DIMS));
	for (uint32_t i = 1; i < c->d->nin; i++)
		HD_TRY(hd_check_part(c, &c->d->in[i], z, 0, v));
	real = z->dims[v]->n - z->off[v];
	p->n[0] = hd_check_count(z, 0, v);
	p->n[1] = z->n[v];
	p->n[2] = real < 0 ? 0 : real < z->n[v] ? real : z->n[v];
	p->n[3] = z->off[v];
	return 0;
}

static inline int hd_prepare_xent(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 2, 2, 3, 3));
	HD_TRY(hd_check_dtypes(c, "ri", "r"));
	HD_TRY(hd_prepare_logits(c, p));
	for (uint32_t i = 0; i < 3; i++)
		HD_TRY(hd_check_same(c, &c->d->out[i], &c->d->in[1]));
	return 0;
}

static inline int hd_prepare_xent_d(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 5, 5, 1, 1));
	HD_TRY(hd_check_dtypes(c, "rir", "r"));
	HD_TRY(hd_prepare_logits(c, p));
	return hd_check_same(c, &c->d->out[0], &c->d->in[0]);
}

static inline int hd_prepare_xent_both(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 2, 2, 4, 4));
	HD_TRY(hd_check_dtypes(c, "ri", "r"));
	HD_TRY(hd_prepare_logits(c, p));
	HD_TRY(hd_check_same(c, &c->d->out[0], &c->d->in[0]));
	for (uint32_t i = 1; i < 4; i++)
		HD_TRY(hd_check_same(c, &c->d->out[i], &c->d->in[1]));
	p->n[4] = hd_attr_num(c->d->attr, "loss_scale", 0) != 0;
	p->f[0] = hd_attr_num(c->d->attr, "value", 0);
	return 0;
}

#endif
