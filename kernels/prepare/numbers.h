/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/numbers.h - checks of scalar, iota and uniform, which have no inputs; shared by all devices.
 */
#ifndef HD_KERNELS_PREPARE_NUMBERS_H
#define HD_KERNELS_PREPARE_NUMBERS_H
#include "engine/base/rng.h"
#include "kernels/check.h"

/* n[0]: 0 for the learning rate, 1 for the step. */
static inline int hd_prepare_scalar(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 0, 0, 1, 1));
	HD_TRY(hd_check_dtypes(c, "*", "r"));
	HD_TRY(hd_check_scalar(c, &c->d->out[0]));
	p->n[0] = hd_attr_int(c->d->attr, "number", 0);
	return hd_check_range(c, "number", (double)p->n[0], 0, 1);
}

static inline double hd_scalar_value(const struct hd_prep *p, const struct hd_run *r)
{
	return p->n[0] ? (double)r->step : r->lr;
}

/* Element (i, j, k) of (outer, len, inner) is first + j, plus skip from j = fold on. n[0..2]: these three extents;
 * n[3..5]: first, fold, skip. */
static inline int hd_prepare_iota(const struct hd_check *c, struct hd_prep *p)
{
	const struct hd_view *y = &c->d->out[0];
	uint32_t at = (uint32_t)hd_attr_int(c->d->attr, "along", 0);

	HD_TRY(hd_check_counts(c, 0, 0, 1, 1));
	HD_TRY(hd_check_dtypes(c, "*", "r"));
	HD_TRY(hd_check_range(c, "along", at, 0, (double)y->ndim - 1));
	p->n[0] = hd_check_count(y, 0, at);
	p->n[1] = y->n[at];
	p->n[2] = hd_check_count(y, at + 1, y->ndim);
	p->n[3] = y->off[at];
	p->n[4] = y->fold[at];
	p->n[5] = y->skip[at];
	return 0;
}

/* Returns the value of element i. */
static inline int64_t hd_iota_value(const struct hd_prep *p, int64_t i)
{
	int64_t j = i / p->n[2] % p->n[1];

	return p->n[3] + j + (j >= p->n[4] ? p->n[5] : 0);
}

struct hd_random_plan {
	uint64_t name; /* part of the key; each_step: the step is mixed into the key */
	int32_t each_step, ndim;
	/* first: global index of element 0 if hd_run.sample0 is 0. */
	int64_t total, extent[HD_MAX_DIMS], stride[HD_MAX_DIMS], first;
	int64_t batch;                                /* stride of dim batch in the whole tensor; 0: none */
	int64_t fold[HD_MAX_DIMS], skip[HD_MAX_DIMS]; /* as hd_view's; skip in elements of the whole tensor */
};

/* Plans uniform numbers in [0, 1). They depend on the key (seed, name[, step]) and on the global index. It is row-major
 * over the whole dims, with batch first wherever it stands: its extent is that of a micro-batch. */
static inline int hd_prepare_random(const struct hd_check *c, struct hd_random_plan *r)
{
	const struct hd_view *y = &c->d->out[0];

	HD_TRY(hd_check_counts(c, 0, 0, 1, 1));
	HD_TRY(hd_check_dtypes(c, "*", "r"));
	r->name = (uint64_t)hd_attr_int(c->d->attr, "key", 0);
	r->each_step = hd_attr_int(c->d->attr, "each_step", 0) != 0;
	r->ndim = (int32_t)y->ndim;
	r->total = hd_view_count(y);
	hd_global_strides(y, r->stride);
	for (uint32_t d = 0; d < y->ndim; d++) {
		r->extent[d] = y->n[d];
		r->first += y->off[d] * r->stride[d];
		r->fold[d] = y->fold[d];
		r->skip[d] = y->skip[d] * r->stride[d];
		if (!strcmp(y->dims[d]->name, "batch"))
			r->batch = r->stride[d];
	}
	return 0;
}

static inline uint64_t hd_random_key(const struct hd_random_plan *p, uint64_t seed, int64_t step)
{
	return hd_key(seed, "plugin", (p->each_step ? hd_hash64((uint64_t)step) : 0) ^ p->name);
}

/* Returns the global index of local element i. sample0: as in hd_run. */
static inline uint64_t hd_random_index(const struct hd_random_plan *p, int64_t sample0, int64_t i)
{
	int64_t index = p->first + sample0 * p->batch;

	for (int d = p->ndim - 1; d >= 0; i /= p->extent[d--]) {
		int64_t at = i % p->extent[d];

		index += at * p->stride[d] + (at >= p->fold[d] ? p->skip[d] : 0);
	}
	return (uint64_t)index;
}

#endif
