/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/embedding.h - checks of embedding, position, rope and dropout; shared by all devices.
 */
#ifndef HD_KERNELS_PREPARE_EMBEDDING_H
#define HD_KERNELS_PREPARE_EMBEDDING_H
#include <stdlib.h>
#include "kernels/check.h"

/* p->n: 0 ids, 1 columns, 2 rows of the table on this rank, 3 global index of its first row. */
static inline int hd_prepare_table(const struct hd_check *c, struct hd_prep *p, const struct hd_view *ids,
				   const struct hd_view *w, const struct hd_view *x)
{
	HD_TRY(hd_check_ndim(c, w, 2, 2));
	HD_TRY(hd_check_ndim(c, x, 1, HD_MAX_DIMS));
	HD_TRY(hd_check_part(c, ids, x, 0, x->ndim - 1));
	if (w->dims[1] != x->dims[x->ndim - 1] || w->n[1] != x->n[x->ndim - 1])
		return hd_err_set(c->err, HD_EINVAL,
				  "%s: rows of the table have %lld of dim %s, those of x %lld of dim %s", c->kernel,
				  (long long)w->n[1], w->dims[1]->name, (long long)x->n[x->ndim - 1],
				  x->dims[x->ndim - 1]->name);
	p->n[0] = hd_view_count(ids);
	p->n[1] = w->n[1];
	p->n[2] = w->n[0];
	p->n[3] = w->off[0];
	return 0;
}

static inline int hd_prepare_embedding(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 2, 2, 1, 1));
	HD_TRY(hd_check_dtypes(c, "ir", "r"));
	return hd_prepare_table(c, p, &c->d->in[0], &c->d->in[1], &c->d->out[0]);
}

static inline int hd_prepare_embedding_dw(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 2, 2, 1, 1));
	HD_TRY(hd_check_dtypes(c, "ir", "r"));
	return hd_prepare_table(c, p, &c->d->in[0], &c->d->out[0], &c->d->in[1]);
}

/* x (..., seq, embed) and w (position, embed). p->n: 0 outer, 1 seq, 2 columns, 3 rows of w on this rank, 4 row of w
 * for seq index 0. From seq index n[5] on, rows are n[6] further. */
static inline int hd_prepare_positions(const struct hd_check *c, struct hd_prep *p, const struct hd_view *x,
				       const struct hd_view *w)
{
	uint32_t n = x->ndim;

	HD_TRY(hd_check_ndim(c, x, 2, HD_MAX_DIMS));
	HD_TRY(hd_check_ndim(c, w, 2, 2));
	if (w->dims[1] != x->dims[n - 1] || w->n[1] != x->n[n - 1])
		return hd_err_set(c->err, HD_EINVAL,
				  "%s: rows of the table have %lld of dim %s, those of x %lld of dim %s", c->kernel,
				  (long long)w->n[1], w->dims[1]->name, (long long)x->n[n - 1], x->dims[n - 1]->name);
	p->n[0] = hd_check_count(x, 0, n - 2);
	p->n[1] = x->n[n - 2];
	p->n[2] = x->n[n - 1];
	p->n[3] = w->n[0];
	p->n[4] = x->off[n - 2] - w->off[0];
	p->n[5] = x->skip[n - 2] ? x->fold[n - 2] : p->n[1];
	p->n[6] = x->skip[n - 2];
	return 0;
}

/* Returns the row of w for a seq index. */
static inline int64_t hd_position_row(const struct hd_prep *p, int64_t s)
{
	return p->n[4] + s + (s >= p->n[5] ? p->n[6] : 0);
}

/* Returns the seq index for a row of w, or -1. */
static inline int64_t hd_position_of(const struct hd_prep *p, int64_t row)
{
	int64_t s = row - p->n[4];

	if (s >= p->n[5] && s < p->n[5] + p->n[6])
		return -1;
	s -= s >= p->n[5] ? p->n[6] : 0;
	return s < p->n[1] ? s : -1;
}

static inline int hd_prepare_position(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 2, 2, 1, 1));
	HD_TRY(hd_check_dtypes(c, "r", "r"));
	HD_TRY(hd_check_same(c, &c->d->out[0], &c->d->in[0]));
	HD_TRY(hd_prepare_positions(c, p, &c->d->in[0], &c->d->in[1]));
	if (p->n[4] >= 0 && p->n[4] + p->n[1] + p->n[6] <= p->n[3])
		return 0;
	return hd_err_set(c->err, HD_EINVAL, "%s: the sequence needs rows %lld to %lld of the %lld in input 1",
			  c->kernel, (long long)p->n[4], (long long)(p->n[4] + p->n[1] + p->n[6]), (long long)p->n[3]);
}

static inline int hd_prepare_position_dw(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 1, 1, 1, 1));
	HD_TRY(hd_check_dtypes(c, "r", "r"));
	return hd_prepare_positions(c, p, &c->d->in[0], &c->d->out[0]);
}

/* p->n: 0 rows, 1 columns, 2 stride of batch in the whole tensor, 3 site, 4 number of the rows' dims, 5.. their
 * extents (7 at most), 12 index of row 0 but for sample0. The state is HD_MAX_DIMS strides in the whole tensor, and
 * three numbers after them. These are the dim that has two pieces (-1: none), the index where the second piece begins,
 * and the elements between the two. */
static inline int hd_prepare_dropout(const struct hd_check *c, struct hd_prep *p)
{
	const struct hd_view *x = &c->d->in[0];
	uint32_t n = x->ndim;
	int64_t *strides, *two;

	HD_TRY(hd_check_counts(c, 1, 1, 1, 1));
	HD_TRY(hd_check_dtypes(c, "r", "r"));
	HD_TRY(hd_check_ndim(c, x, 1, HD_MAX_DIMS));
	HD_TRY(hd_check_all_same(c));
	p->f[0] = hd_attr_num(c->d->attr, "p", 0);
	HD_TRY(hd_check_range(c, "p", p->f[0], 0, 1 - 0x1p-20));
	p->n[0] = hd_check_count(x, 0, n - 1);
	p->n[1] = x->n[n - 1];
	p->n[3] = hd_attr_int(c->d->attr, "site", 0);
	p->n[4] = n - 1;
	if (x->skip[n - 1])
		return hd_err_set(c->err, HD_ENOTSUP, "%s: a row along %s is of two pieces", c->kernel,
				  x->dims[n - 1]->name);
	if (n > 1 && !strcmp(x->dims[n - 1]->name, "batch"))
		return hd_err_set(c->err, HD_ENOTSUP, "%s: the last dim is batch", c->kernel);
	strides = (int64_t *)hd_alloc((HD_MAX_DIMS + 3) * sizeof(*strides));
	two = strides + HD_MAX_DIMS;
	two[0] = -1;
	hd_global_strides(x, strides);
	for (uint32_t i = n; i--;) {
		if (!strcmp(x->dims[i]->name, "batch"))
			p->n[2] = strides[i];
		p->n[12] += x->off[i] * strides[i];
		if (i < n - 1)
			p->n[5 + i] = x->n[i];
		if (i < n - 1 && x->skip[i])
			two[0] = i, two[1] = x->fold[i], two[2] = x->skip[i] * strides[i];
	}
	p->state = strides;
	p->release = free;
	return 0;
}

/* Returns the global index of the first element of a row. The elements of a row are contiguous. */
static inline uint64_t hd_dropout_index(const struct hd_prep *p, int64_t row, int64_t sample0)
{
	const int64_t *strides = (const int64_t *)p->state, *two = strides + HD_MAX_DIMS;
	int64_t index = p->n[12] + sample0 * p->n[2];

	for (int64_t i = p->n[4]; i--; row /= p->n[5 + i]) {
		int64_t at = row % p->n[5 + i];

		index += at * strides[i] + (i == two[0] && at >= two[1] ? two[2] : 0);
	}
	return (uint64_t)index;
}

#endif
