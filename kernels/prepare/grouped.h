/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/grouped.h - checks of grouped; shared by all devices.
 *
 * p->n:	0 experts here, 1 samples (counts of one expert), 2 columns of a,
 *	3 columns of the other operand with rows (c, or b where c is the experts' weights), 4 c is weights,
 *	5 weights are (columns of 3, columns of 2) and not the other way round,
 *	6 index of the input that is added or 0, 7 index of the counts, 8 the most rows of all experts together
 */
#ifndef HD_KERNELS_PREPARE_GROUPED_H
#define HD_KERNELS_PREPARE_GROUPED_H
#include "kernels/check.h"

static inline int hd_prepare_grouped(const struct hd_check *c, struct hd_prep *p)
{
	uint32_t add = hd_attr_num(c->d->attr, "add", 0) != 0;
	const struct hd_view *a, *b, *y, *w, *x, *counts;

	HD_TRY(hd_check_counts(c, 3 + add, 3 + add, 1, 1));
	HD_TRY(hd_check_dtypes(c, add ? "rrri" : "rri", "r"));
	a = &c->d->in[0], b = &c->d->in[1], y = &c->d->out[0], counts = &c->d->in[2 + add];
	HD_TRY(hd_check_ndim(c, counts, 2, 2));
	HD_TRY(hd_check_ndim(c, a, 4, 4));
	p->n[4] = y->ndim == 3;
	w = p->n[4] ? y : b;
	x = p->n[4] ? b : y;
	HD_TRY(hd_check_ndim(c, w, 3, 3));
	HD_TRY(hd_check_ndim(c, x, 4, 4));
	p->n[0] = counts->n[0], p->n[1] = counts->n[1], p->n[2] = a->n[3], p->n[3] = x->n[3];
	p->n[5] = w->dims[1] == x->dims[3];
	p->n[6] = add ? 2 : 0;
	p->n[7] = 2 + add;
	p->n[8] = hd_check_count(a, 0, 3);
	if (w->dims[0] != counts->dims[0] || w->n[0] != counts->n[0] || a->n[2] != x->n[2] ||
	    w->n[p->n[5] ? 1 : 2] != x->n[3] || w->n[p->n[5] ? 2 : 1] != a->n[3])
		return hd_err_set(c->err, HD_EINVAL,
				  "%s: %lld experts of %lld x %lld, numbers of %lld, rows of %lld and %lld columns",
				  c->kernel, (long long)w->n[0], (long long)w->n[1], (long long)w->n[2],
				  (long long)counts->n[0], (long long)a->n[3], (long long)x->n[3]);
	if (add)
		HD_TRY(hd_check_same(c, &c->d->in[2], y));
	return 0;
}

static inline int64_t hd_grouped_rows(const struct hd_prep *p, const int32_t *counts, int64_t expert)
{
	int64_t rows = 0;

	for (int64_t i = 0; i < p->n[1]; i++)
		rows += counts[expert * p->n[1] + i];
	return rows;
}

#endif
