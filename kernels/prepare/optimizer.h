/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/optimizer.h - checks of sumsq, clip, adamw and sgd; shared by all devices.
 */
#ifndef HD_KERNELS_PREPARE_OPTIMIZER_H
#define HD_KERNELS_PREPARE_OPTIMIZER_H
#include "kernels/check.h"

static inline int hd_prepare_sumsq(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 1, 1, 1, 1));
	HD_TRY(hd_check_dtypes(c, "r", "d"));
	HD_TRY(hd_check_scalar(c, &c->d->out[0]));
	p->n[0] = hd_view_count(&c->d->in[0]);
	return 0;
}

static inline int hd_prepare_clip(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 1, 1, 2, 2));
	HD_TRY(hd_check_dtypes(c, "d", "r"));
	HD_TRY(hd_check_scalar(c, &c->d->in[0]));
	HD_TRY(hd_check_scalar(c, &c->d->out[0]));
	HD_TRY(hd_check_scalar(c, &c->d->out[1]));
	p->f[0] = hd_attr_num(c->d->attr, "clip", 0);
	return 0;
}

/* Checks an update. Inputs: `tensors` tensors of the same dims, then factor. Outputs: `outs` like them, then perhaps
 * low. */
static inline int hd_prepare_update(const struct hd_check *c, struct hd_prep *p, uint32_t tensors, uint32_t outs)
{
	HD_TRY(hd_check_counts(c, tensors + 1, tensors + 1, outs, outs + 1));
	HD_TRY(hd_check_dtypes(c, "r", outs == 3 ? "rrrl" : "rl"));
	for (uint32_t i = 1; i < tensors; i++)
		HD_TRY(hd_check_same(c, &c->d->in[i], &c->d->in[0]));
	for (uint32_t i = 0; i < c->d->nout; i++)
		HD_TRY(hd_check_same(c, &c->d->out[i], &c->d->in[0]));
	HD_TRY(hd_check_scalar(c, &c->d->in[tensors]));
	p->n[0] = hd_view_count(&c->d->in[0]);
	p->n[1] = c->d->nout > outs;
	return 0;
}

enum { HD_ADAMW_BETA1, HD_ADAMW_BETA2, HD_ADAMW_EPS, HD_ADAMW_DECAY };

static inline int hd_prepare_adamw(const struct hd_check *c, struct hd_prep *p)
{
	const char *a = c->d->attr;

	HD_TRY(hd_prepare_update(c, p, 4, 3));
	p->f[HD_ADAMW_BETA1] = hd_attr_num(a, "beta1", 0.9);
	p->f[HD_ADAMW_BETA2] = hd_attr_num(a, "beta2", 0.999);
	p->f[HD_ADAMW_EPS] = hd_attr_num(a, "eps", 1e-8);
	p->f[HD_ADAMW_DECAY] = hd_attr_num(a, "decay", 0);
	HD_TRY(hd_check_range(c, "beta1", p->f[HD_ADAMW_BETA1], 0, 1 - 0x1p-20));
	return hd_check_range(c, "beta2", p->f[HD_ADAMW_BETA2], 0, 1 - 0x1p-20);
}

static inline int hd_prepare_sgd(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_prepare_update(c, p, 2, 1));
	p->f[0] = hd_attr_num(c->d->attr, "decay", 0);
	return 0;
}

#endif
