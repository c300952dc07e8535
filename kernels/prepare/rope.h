/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/rope.h - checks of rope and its tables of angles; shared by all devices.
 *
 * Cosines and sines are made in double when the kernel is prepared.  All layers turn by the same angles, so a device
 * keeps a list of tables, shared and counted.
 */
#ifndef HD_KERNELS_PREPARE_ROPE_H
#define HD_KERNELS_PREPARE_ROPE_H
#include <math.h>
#include <stdlib.h>
#include "kernels/check.h"

/* x (..., seq, heads, head_dim).  p->n: outer, seq, heads, head_dim, global index of seq index 0; from seq
 * index n[5] on it is n[6] more; p->f: theta, direction. */
static inline int hd_prepare_rope(const struct hd_check *c, struct hd_prep *p)
{
	const struct hd_view *x = &c->d->in[0];
	uint32_t n = x->ndim;

	HD_TRY(hd_check_counts(c, 1, 1, 1, 1));
	HD_TRY(hd_check_dtypes(c, "r", "r"));
	HD_TRY(hd_check_ndim(c, x, 3, HD_MAX_DIMS));
	HD_TRY(hd_check_all_same(c));
	HD_TRY(hd_check_whole(c, x, n - 1));
	if (x->n[n - 1] % 2)
		return hd_err_set(c->err, HD_EDIVIDE, "%s: dim %s has %lld elements, not divisible by 2", c->kernel,
				  x->dims[n - 1]->name, (long long)x->n[n - 1]);
	p->n[0] = hd_check_count(x, 0, n - 3);
	p->n[1] = x->n[n - 3];
	p->n[2] = x->n[n - 2];
	p->n[3] = x->n[n - 1];
	p->n[4] = x->off[n - 3];
	p->n[5] = x->skip[n - 3] ? x->fold[n - 3] : p->n[1];
	p->n[6] = x->skip[n - 3];
	p->f[0] = hd_attr_num(c->d->attr, "theta", 10000);
	p->f[1] = hd_attr_num(c->d->attr, "inverse", 0) != 0 ? -1 : 1;
	return hd_check_range(c, "theta", p->f[0], 1e-30, 1e30);
}

static inline int64_t hd_rope_position(const struct hd_prep *p, int64_t s)
{
	return p->n[4] + s + (s >= p->n[5] ? p->n[6] : 0);
}

struct hd_rope_table {
	struct hd_rope_table *next;
	int64_t users, first, seq, fold, skip, half;
	double theta;
	float *turn; /* (seq, 2, half), where the device reads it: cosines, then sines */
};

static inline size_t hd_rope_bytes(int64_t seq, int64_t half)
{
	return (size_t)(seq * half * 2) * sizeof(float);
}

/* malloc'ed, as the host reads it. */
static inline float *hd_rope_angles(const struct hd_prep *p)
{
	int64_t seq = p->n[1], half = p->n[3] / 2;
	float *turn = (float *)hd_alloc(hd_rope_bytes(seq, half));

	for (int64_t i = 0; i < half; i++) {
		double rate = pow(p->f[0], -(double)i / (double)half);

		for (int64_t s = 0; s < seq; s++) {
			double angle = (double)hd_rope_position(p, s) * rate;

			turn[s * 2 * half + i] = (float)cos(angle);
			turn[(s * 2 + 1) * half + i] = (float)sin(angle);
		}
	}
	return turn;
}

/* One user more of the table with these angles.  NULL: there is none yet. */
static inline struct hd_rope_table *hd_rope_find(struct hd_rope_table *tables, const struct hd_prep *p)
{
	struct hd_rope_table *t = tables;

	while (t && (t->first != p->n[4] || t->seq != p->n[1] || t->fold != p->n[5] || t->skip != p->n[6] ||
		     t->half != p->n[3] / 2 || t->theta != p->f[0]))
		t = t->next;
	if (t)
		t->users++;
	return t;
}

static inline struct hd_rope_table *hd_rope_add(struct hd_rope_table **tables, const struct hd_prep *p, float *turn)
{
	struct hd_rope_table *t = (struct hd_rope_table *)hd_alloc(sizeof(*t));

	t->next = *tables;
	t->users = 1;
	t->first = p->n[4];
	t->seq = p->n[1];
	t->fold = p->n[5];
	t->skip = p->n[6];
	t->half = p->n[3] / 2;
	t->theta = p->f[0];
	t->turn = turn;
	return *tables = t;
}

/* One user less.  -> the angles of a table that nobody uses any more, which the caller frees; else NULL */
static inline float *hd_rope_drop(struct hd_rope_table **tables, struct hd_rope_table *t)
{
	float *turn = t->turn;

	if (--t->users)
		return NULL;
	while (*tables != t)
		tables = &(*tables)->next;
	*tables = t->next;
	free(t);
	return turn;
}

#endif
