/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/index.h - checks of largest, take and put (top-k, gather and scatter); shared by all devices.
 *
 * All operands are (outer, entries, inner). x of largest and take, and y of put, have n entries along that dim; the
 * other operands have k.
 */
#ifndef HD_KERNELS_PREPARE_INDEX_H
#define HD_KERNELS_PREPARE_INDEX_H
#include "kernels/check.h"

enum { HD_INDEX_OUTER, HD_INDEX_N, HD_INDEX_INNER, HD_INDEX_K, HD_INDEX_FLAG };

/* few: like many, except for dim `at`. p->n is indexed by HD_INDEX_OUTER, ... */
static inline int hd_prepare_index(const struct hd_check *c, struct hd_prep *p, const struct hd_view *many,
				   const struct hd_view *few)
{
	uint32_t at = (uint32_t)hd_attr_int(c->d->attr, "along", 0);
	char who[32], whose[32], got[256], want[256];
	int same = many->ndim == few->ndim;

	HD_TRY(hd_check_range(c, "along", at, 0, (double)many->ndim - 1));
	for (uint32_t i = 0; same && i < many->ndim; i++)
		same = i == at || (many->dims[i] == few->dims[i] && many->n[i] == few->n[i]);
	if (!same)
		return hd_err_set(c->err, HD_EINVAL, "%s: %s is %s, %s is %s: they differ in more than dim %u",
				  c->kernel, hd_check_operand(c, few, who), hd_check_shape(few, 0, few->ndim, got),
				  hd_check_operand(c, many, whose), hd_check_shape(many, 0, many->ndim, want), at);
	HD_TRY(hd_check_complete(c, many, at));
	HD_TRY(hd_check_complete(c, few, at));
	if (many->n[at] > INT32_MAX)
		return hd_err_set(c->err, HD_ENOTSUP, "%s: %lld entries of %s, but an index reaches only %d", c->kernel,
				  (long long)many->n[at], many->dims[at]->name, INT32_MAX);
	p->n[HD_INDEX_OUTER] = hd_check_count(many, 0, at);
	p->n[HD_INDEX_N] = many->n[at];
	p->n[HD_INDEX_INNER] = hd_check_count(many, at + 1, many->ndim);
	p->n[HD_INDEX_K] = few->n[at];
	return 0;
}

/* largest: input x; outputs values, index. */
static inline int hd_prepare_topk(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 1, 1, 2, 2));
	HD_TRY(hd_check_dtypes(c, "r", "ri"));
	HD_TRY(hd_check_same(c, &c->d->out[1], &c->d->out[0]));
	HD_TRY(hd_prepare_index(c, p, &c->d->in[0], &c->d->out[0]));
	p->n[HD_INDEX_FLAG] = hd_attr_int(c->d->attr, "magnitude", 0) != 0;
	if (p->n[HD_INDEX_K] > p->n[HD_INDEX_N])
		return hd_err_set(c->err, HD_EINVAL, "%s: the %lld largest of %lld", c->kernel,
				  (long long)p->n[HD_INDEX_K], (long long)p->n[HD_INDEX_N]);
	return 0;
}

/* take: inputs x, index; output y. */
static inline int hd_prepare_gather(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 2, 2, 1, 1));
	HD_TRY(hd_check_dtypes(c, "ri", "r"));
	HD_TRY(hd_check_same(c, &c->d->out[0], &c->d->in[1]));
	return hd_prepare_index(c, p, &c->d->in[0], &c->d->in[1]);
}

/* put: inputs x, index; output y. The flag says that no index occurs twice. */
static inline int hd_prepare_scatter(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 2, 2, 1, 1));
	HD_TRY(hd_check_dtypes(c, "ri", "r"));
	HD_TRY(hd_check_same(c, &c->d->in[1], &c->d->in[0]));
	HD_TRY(hd_prepare_index(c, p, &c->d->out[0], &c->d->in[0]));
	p->n[HD_INDEX_FLAG] = hd_attr_int(c->d->attr, "unique", 0) != 0;
	return 0;
}

#endif
