/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/experts.h - checks of route, dispatch and combine, and the place of a token's slot; shared by all
 * devices.
 */
#ifndef HD_KERNELS_PREPARE_EXPERTS_H
#define HD_KERNELS_PREPARE_EXPERTS_H
#include <stdlib.h>
#include "kernels/check.h"

/* p->n of route and route_d:
 *	0 samples, 1 seq, 2 experts, 3 choices of a token, 4 group (tokens that share a capacity),
 *	5 capacity of an expert in a group, 6 aux_group (tokens over which the auxiliary loss is computed),
 *	7 only first choices count in it, 8 gates are normalized, 9 random second choice, 10 site,
 *	11 global index of sample 0 but for hd_run.sample0, 12 rows are counted,
 *	13 groups of experts where scores are sigmoids (0: a softmax); 14, 15 are the dtypes
 * p->f: weights of the auxiliary loss and of the z loss, factor of the gates, groups that a token may choose from. */
#define HD_ROUTE_MAX_GROUPS 64

static inline int hd_prepare_scores(const struct hd_check *c, struct hd_prep *p)
{
	const char *attr = c->d->attr;

	p->f[2] = hd_attr_num(attr, "scale", 1);
	if (hd_attr_num(attr, "sigmoid", 0) == 0)
		return 0;
	p->n[13] = hd_attr_int(attr, "groups", 1);
	p->f[3] = (double)hd_attr_int(attr, "best_groups", p->n[13]);
	HD_TRY(hd_check_range(c, "the number of groups of experts", (double)p->n[13], 1, HD_ROUTE_MAX_GROUPS));
	HD_TRY(hd_check_range(c, "the groups of a token", p->f[3], 1, (double)p->n[13]));
	if (p->n[2] % p->n[13] || (p->n[13] > 1 && p->n[2] < 2 * p->n[13]) ||
	    (double)p->n[3] > p->f[3] * (double)(p->n[2] / p->n[13]))
		return hd_err_set(c->err, HD_EDIVIDE,
				  "%s: %lld experts in %lld groups of two or more, and %lld choices from %g of them",
				  c->kernel, (long long)p->n[2], (long long)p->n[13], (long long)p->n[3], p->f[3]);
	return 0;
}

static inline int hd_prepare_routing(const struct hd_check *c, struct hd_prep *p, const struct hd_view *z,
				     const struct hd_view *gates, const struct hd_view *slots)
{
	const char *attr = c->d->attr;

	HD_TRY(hd_check_ndim(c, z, 3, 3));
	HD_TRY(hd_check_complete(c, z, 1));
	HD_TRY(hd_check_complete(c, z, 2));
	HD_TRY(hd_check_ndim(c, gates, 3, 3));
	HD_TRY(hd_check_same(c, slots, gates));
	p->n[0] = z->n[0], p->n[1] = z->n[1], p->n[2] = z->n[2], p->n[3] = gates->n[2];
	p->n[4] = hd_attr_int(attr, "group", 0);
	p->n[5] = hd_attr_int(attr, "capacity", 0);
	p->n[6] = hd_attr_int(attr, "aux_group", 0);
	p->n[7] = hd_attr_num(attr, "first_choice_aux", 0) != 0;
	p->n[8] = hd_attr_num(attr, "normalize", 0) != 0;
	p->n[9] = hd_attr_num(attr, "random", 0) != 0;
	p->n[10] = hd_attr_int(attr, "site", 0);
	p->n[11] = z->off[0];
	p->f[0] = hd_attr_num(attr, "aux", 0);
	p->f[1] = hd_attr_num(attr, "z", 0);
	HD_TRY(hd_check_range(c, "the number of choices", (double)p->n[3], 1, (double)p->n[2]));
	HD_TRY(hd_prepare_scores(c, p));
	HD_TRY(hd_check_range(c, "the capacity", (double)p->n[5], 1, (double)p->n[4]));
	for (int i = 4; i < 7; i += 2)
		if (p->n[i] < 1 || p->n[0] * p->n[1] % p->n[i] || p->n[11] * p->n[1] % p->n[i])
			return hd_err_set(c->err, HD_EDIVIDE,
					  "%s: %s of %lld tokens, and here are samples %lld to %lld of %lld", c->kernel,
					  i == 4 ? "capacity groups" : "auxiliary groups", (long long)p->n[i],
					  (long long)p->n[11], (long long)(p->n[11] + p->n[0]), (long long)p->n[1]);
	return 0;
}

static inline int hd_prepare_route(const struct hd_check *c, struct hd_prep *p)
{
	uint32_t counts = hd_attr_num(c->d->attr, "counts", 0) != 0;
	uint32_t bias = hd_attr_num(c->d->attr, "sigmoid", 0) != 0;

	HD_TRY(hd_check_counts(c, 1 + bias, 1 + bias, 3 + counts, 3 + counts));
	HD_TRY(hd_check_dtypes(c, "rr", "riri"));
	HD_TRY(hd_prepare_routing(c, p, &c->d->in[0], &c->d->out[0], &c->d->out[1]));
	if (c->d->out[2].ndim != 1 || c->d->out[2].n[0] != p->n[2] + 3)
		return hd_err_set(c->err, HD_EINVAL, "%s: output 2 has %lld sums, but %lld experts call for %lld",
				  c->kernel, (long long)hd_view_count(&c->d->out[2]), (long long)p->n[2],
				  (long long)p->n[2] + 3);
	if (bias)
		HD_TRY(hd_check_part(c, &c->d->in[1], &c->d->in[0], 2, 3));
	p->n[12] = counts;
	if (counts && (hd_view_count(&c->d->out[3]) != p->n[2] * p->n[0] || p->n[4] != p->n[1] || p->n[5] != p->n[1]))
		return hd_err_set(c->err, HD_EINVAL,
				  "%s: rows are counted only where an expert can take every token of a sample",
				  c->kernel);
	return 0;
}

/* Checks route_bias: inputs are bias and the sums of route, the output is the new bias. */
static inline int hd_prepare_route_bias(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 2, 2, 1, 1));
	HD_TRY(hd_check_dtypes(c, "rr", "r"));
	HD_TRY(hd_check_ndim(c, &c->d->in[0], 1, 1));
	HD_TRY(hd_check_same(c, &c->d->out[0], &c->d->in[0]));
	p->n[0] = c->d->in[0].n[0];
	p->f[0] = hd_attr_num(c->d->attr, "rate", 0);
	if (c->d->in[1].ndim != 1 || c->d->in[1].n[0] != p->n[0] + 3)
		return hd_err_set(c->err, HD_EINVAL, "%s: input 1 has %lld sums, but %lld experts call for %lld",
				  c->kernel, (long long)hd_view_count(&c->d->in[1]), (long long)p->n[0],
				  (long long)p->n[0] + 3);
	return 0;
}

static inline int hd_prepare_route_d(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 3, 3, 1, 1));
	HD_TRY(hd_check_dtypes(c, "rir", "r"));
	HD_TRY(hd_check_same(c, &c->d->out[0], &c->d->in[0]));
	return hd_prepare_routing(c, p, &c->d->in[0], &c->d->in[2], &c->d->in[1]);
}

/* Checks counted rows. d has room for the most rows possible. counts says how many rows each expert has of each
 * sample. */
static inline int hd_prepare_rows(const struct hd_check *c, struct hd_prep *p, const struct hd_view *x,
				  const struct hd_view *slots, const struct hd_view *counts, const struct hd_view *d)
{
	int64_t k = slots->n[2], E, most;

	HD_TRY(hd_check_ndim(c, counts, 2, 2));
	E = counts->n[0];
	most = x->n[0] * x->n[1] * (k < E ? k : E);
	HD_TRY(hd_check_complete(c, counts, 0));
	if (counts->dtype != HD_DTYPE_I32 || counts->dims[1] != x->dims[0] || counts->n[1] != x->n[0] ||
	    slots->n[0] != x->n[0] || slots->n[1] != x->n[1] || d->n[3] != x->n[2] || hd_check_count(d, 0, 3) < most)
		return hd_err_set(c->err, HD_EINVAL,
				  "%s: %lld samples of %lld tokens, numbers of %lld samples, %lld rows of the %lld "
				  "that there may be",
				  c->kernel, (long long)x->n[0], (long long)x->n[1], (long long)counts->n[1],
				  (long long)hd_check_count(d, 0, 3), (long long)most);
	p->n[0] = x->n[0], p->n[1] = x->n[1], p->n[2] = k, p->n[3] = x->n[2], p->n[4] = E,
	p->n[5] = p->n[6] = p->n[7] = x->n[1];
	p->state = hd_alloc((size_t)(E * x->n[0] + 1) * sizeof(int64_t));
	p->release = free;
	return 0;
}

/* p->n of dispatch and combine:
 *	0 samples, 1 seq, 2 choices, 3 columns, 4 experts, 5 slots of a sample, 6 group, 7 capacity, 8 there are gates,
 *	9 rows are counted: their counts (expert, sample) are the last input, 10 its index
 * A run fills the state. It contains, for every row of d, the choice (token * choices + choice) that the row belongs
 * to, or -1. With counted rows, it contains where those of each (expert, sample) begin. */
static inline int hd_prepare_slots(const struct hd_check *c, struct hd_prep *p, const struct hd_view *x,
				   const struct hd_view *slots, const struct hd_view *d)
{
	HD_TRY(hd_check_ndim(c, x, 3, 3));
	HD_TRY(hd_check_ndim(c, d, 4, 4));
	HD_TRY(hd_check_ndim(c, slots, 3, 3));
	HD_TRY(hd_check_complete(c, x, 1));
	p->n[9] = hd_attr_num(c->d->attr, "rows", 0) != 0;
	p->n[10] = c->d->nin - 1;
	p->n[8] = hd_attr_num(c->d->attr, "gates", 0) != 0;
	if (p->n[9])
		return hd_prepare_rows(c, p, x, slots, &c->d->in[c->d->nin - 1], d);
	HD_TRY(hd_check_complete(c, d, 0));
	HD_TRY(hd_check_complete(c, d, 2));
	if (x->dims[0] != d->dims[1] || x->n[0] != d->n[1] || x->off[0] != d->off[1] || x->n[2] != d->n[3] ||
	    slots->n[0] != x->n[0] || slots->n[1] != x->n[1])
		return hd_err_set(c->err, HD_EINVAL,
				  "%s: samples %lld from %lld of %lld columns, slots of %lld from %lld of %lld",
				  c->kernel, (long long)x->n[0], (long long)x->off[0], (long long)x->n[2],
				  (long long)d->n[1], (long long)d->off[1], (long long)d->n[3]);
	p->n[0] = x->n[0], p->n[1] = x->n[1], p->n[2] = slots->n[2], p->n[3] = x->n[2], p->n[4] = d->n[0],
	p->n[5] = d->n[2];
	p->n[6] = hd_attr_int(c->d->attr, "group", 0);
	p->n[7] = hd_attr_int(c->d->attr, "capacity", 0);
	if (p->n[6] < 1 || p->n[7] < 1 || p->n[0] * p->n[1] % p->n[6] || x->off[0] * p->n[1] % p->n[6])
		return hd_err_set(c->err, HD_EDIVIDE,
				  "%s: capacity groups of %lld tokens, and here are samples %lld to %lld of %lld",
				  c->kernel, (long long)p->n[6], (long long)x->off[0], (long long)(x->off[0] + p->n[0]),
				  (long long)p->n[1]);
	p->state = hd_alloc((size_t)(hd_view_count(d) / (d->n[3] ? d->n[3] : 1) + 1) * sizeof(int32_t));
	p->release = free;
	return 0;
}

static inline int hd_prepare_dispatch(const struct hd_check *c, struct hd_prep *p)
{
	uint32_t gates = hd_attr_num(c->d->attr, "gates", 0) != 0, rows = hd_attr_num(c->d->attr, "rows", 0) != 0;

	HD_TRY(hd_check_counts(c, 2 + gates + rows, 2 + gates + rows, 1, 1));
	HD_TRY(hd_check_dtypes(c, gates ? "riri" : "rii", "r"));
	if (gates)
		HD_TRY(hd_check_same(c, &c->d->in[2], &c->d->in[1]));
	return hd_prepare_slots(c, p, &c->d->in[0], &c->d->in[1], &c->d->out[0]);
}

static inline int hd_prepare_combine(const struct hd_check *c, struct hd_prep *p)
{
	uint32_t gates = hd_attr_num(c->d->attr, "gates", 0) != 0, rows = hd_attr_num(c->d->attr, "rows", 0) != 0;

	HD_TRY(hd_check_counts(c, 2 + gates + rows, 2 + gates + rows, 1, 1));
	HD_TRY(hd_check_dtypes(c, gates ? "riri" : "rii", "r"));
	if (gates)
		HD_TRY(hd_check_same(c, &c->d->in[2], &c->d->in[1]));
	return hd_prepare_slots(c, p, &c->d->out[0], &c->d->in[1], &c->d->in[0]);
}

static inline int hd_prepare_combine_dg(const struct hd_check *c, struct hd_prep *p)
{
	uint32_t rows = hd_attr_num(c->d->attr, "rows", 0) != 0;

	HD_TRY(hd_check_counts(c, 3 + rows, 3 + rows, 1, 1));
	HD_TRY(hd_check_dtypes(c, "rri", "r"));
	HD_TRY(hd_check_same(c, &c->d->out[0], &c->d->in[2]));
	return hd_prepare_slots(c, p, &c->d->in[0], &c->d->in[2], &c->d->in[1]);
}

/* Computes where the rows of each (expert, sample) begin, if rows are counted. */
static inline void hd_slot_rows(const struct hd_prep *p, void *const *in)
{
	const int32_t *counts = p->n[9] ? (const int32_t *)in[p->n[10]] : NULL;
	int64_t *begin = (int64_t *)p->state, at = 0;

	for (int64_t i = 0; counts && i < p->n[4] * p->n[0]; i++) {
		begin[i] = at;
		at += counts[i];
	}
}

/* Returns the row of d for token t of sample b, whose slot is not negative. */
static inline int64_t hd_slot_row(const struct hd_prep *p, int64_t b, int64_t t, int32_t slot)
{
	int64_t e = slot / p->n[7], at = slot % p->n[7], many = p->n[6] / p->n[1];

	if (p->n[9])
		return ((const int64_t *)p->state)[e * p->n[0] + b] + at;

	if (p->n[6] <= p->n[1])
		return (e * p->n[0] + b) * p->n[5] + t / p->n[6] * p->n[7] + at;
	return (e * p->n[0] + b / many * many + at / p->n[5]) * p->n[5] + at % p->n[5];
}

#endif
