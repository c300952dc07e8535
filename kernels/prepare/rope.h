/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/rope.h - checks of rope and its tables of angles; shared by all devices.
 *
 * Cosines and sines are computed in double when the kernel is prepared. All layers rotate by the same angles. So a
 * device keeps a list of tables, which are shared and reference-counted.
 */
#ifndef HD_KERNELS_PREPARE_ROPE_H
#define HD_KERNELS_PREPARE_ROPE_H
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/check.h"

/* The angles: pair i of `turned` dims is rotated by position * theta^(-2i / turned). For texts longer than those that
 * a model was first trained on (`original`), angles are scaled:
 *
 *	linear	divided by factor (Chen et al. 2306.15595)
 *	dynamic	theta grows with the length of the text, where that is more than original
 *	llama3	divided by factor where a turn takes more than original / low positions, unchanged where it takes
 *		less than original / high, and interpolated between (Grattafiori et al. 2407.21783)
 *	yarn	unchanged for pairs that make beta_fast turns in original or more, divided by factor for those that
 *		make beta_slow or fewer, and interpolated between; the rotated vector is `attention` times as
 *		long (Peng et al. 2309.00071)
 *	longrope	each pair's angle divided by its own factor, `factors=` with colons between them;
 *		`attention` as in yarn (Ding et al. 2402.13753) */
enum { HD_ROPE_PLAIN, HD_ROPE_LINEAR, HD_ROPE_DYNAMIC, HD_ROPE_LLAMA3, HD_ROPE_YARN, HD_ROPE_LONGROPE };
#define HD_ROPE_MOST_PAIRS 256 /* for longrope */

struct hd_rope {
	int64_t first, seq, fold, skip; /* global index of seq index 0; from seq index fold on it is skip more */
	int64_t turned, scaling;
	double theta, factor, original, length, low, high, beta_fast, beta_slow, attention, truncate;
	double by[HD_ROPE_MOST_PAIRS]; /* longrope: the divisor of each pair's angle */
};

/* x (..., seq, heads, head_dim). p->n: 0 outer, 1 seq, 2 heads, 3 head_dim, 4 global index of seq index 0. From seq
 * index n[5] on it is n[6] more. n[7]: dims that are rotated, the first of head_dim. p->f[0]: direction. */
static inline int hd_prepare_rope(const struct hd_check *c, struct hd_prep *p)
{
	const struct hd_view *x = &c->d->in[0];
	uint32_t n = x->ndim;

	HD_TRY(hd_check_counts(c, 1, 1, 1, 1));
	HD_TRY(hd_check_dtypes(c, "r", "r"));
	HD_TRY(hd_check_ndim(c, x, 3, HD_MAX_DIMS));
	HD_TRY(hd_check_all_same(c));
	HD_TRY(hd_check_complete(c, x, n - 1));
	p->n[0] = hd_check_count(x, 0, n - 3);
	p->n[1] = x->n[n - 3];
	p->n[2] = x->n[n - 2];
	p->n[3] = x->n[n - 1];
	p->n[4] = x->off[n - 3];
	p->n[5] = x->skip[n - 3] ? x->fold[n - 3] : p->n[1];
	p->n[6] = x->skip[n - 3];
	p->n[7] = hd_attr_int(c->d->attr, "rotary", p->n[3]);
	p->f[0] = hd_attr_num(c->d->attr, "inverse", 0) != 0 ? -1 : 1;
	if (hd_attr_text(c->d->attr, "factors") && p->n[7] / 2 > HD_ROPE_MOST_PAIRS)
		return hd_err_set(c->err, HD_ENOTSUP, "%s: factors of %lld pairs, but at most %d are possible",
				  c->kernel, (long long)(p->n[7] / 2), HD_ROPE_MOST_PAIRS);
	if (p->n[7] == p->n[3] && p->n[3] % 2)
		return hd_err_set(c->err, HD_EDIVIDE, "%s: dim %s has %lld elements, not divisible by 2", c->kernel,
				  x->dims[n - 1]->name, (long long)x->n[n - 1]);
	if (p->n[7] < 0 || p->n[7] > p->n[3] || p->n[7] % 2)
		return hd_err_set(c->err, HD_EINVAL, "%s: rotary is %lld, it must be even and at most %s = %lld",
				  c->kernel, (long long)p->n[7], x->dims[n - 1]->name, (long long)x->n[n - 1]);
	return hd_check_range(c, "theta", hd_attr_num(c->d->attr, "theta", 10000), 1e-30, 1e30);
}

static inline int64_t hd_rope_scaling(const char *attr)
{
	static const char *const names[] = { "linear", "dynamic", "llama3", "yarn", "longrope" };
	const char *is = hd_attr_text(attr, "scaling");

	for (int i = 0; is && i < 5; i++)
		if (!strncmp(is, names[i], strlen(names[i])))
			return i + 1;
	return HD_ROPE_PLAIN;
}

/* Returns the default factor of rotated queries and keys: the one that the authors found to suit the scaling factor. */
static inline double hd_rope_stretch(const struct hd_rope *a)
{
	if (a->factor > 1 && a->scaling == HD_ROPE_YARN)
		return 0.1 * log(a->factor) + 1;
	if (a->factor > 1 && a->scaling == HD_ROPE_LONGROPE)
		return sqrt(1 + log(a->factor) / log(a->original));
	return 1;
}

static inline void hd_rope_factors(struct hd_rope *a, const char *text)
{
	char *end = NULL;

	for (int64_t i = 0; i < a->turned / 2; i++, text = end && *end == ':' ? end + 1 : text) {
		a->by[i] = text ? strtod(text, &end) : 1;
		if (!(a->by[i] > 0))
			a->by[i] = 1;
	}
}

/* Sets the angles that the attributes describe, at the positions of this rank. */
static inline void hd_rope_set(struct hd_rope *a, const struct hd_prep *p, const char *attr)
{
	memset(a, 0, sizeof(*a));
	a->first = p->n[4];
	a->seq = p->n[1];
	a->fold = p->n[5];
	a->skip = p->n[6];
	a->turned = p->n[7];
	a->scaling = hd_rope_scaling(attr);
	a->theta = hd_attr_num(attr, "theta", 10000);
	a->factor = hd_attr_num(attr, "factor", 1);
	a->original = hd_attr_num(attr, "original", 0);
	a->length = hd_attr_num(attr, "length", 0);
	a->low = hd_attr_num(attr, "low", 1);
	a->high = hd_attr_num(attr, "high", 4);
	a->beta_fast = hd_attr_num(attr, "beta_fast", 32);
	a->beta_slow = hd_attr_num(attr, "beta_slow", 1);
	a->attention = hd_attr_num(attr, "attention", 0);
	if (a->attention == 0)
		a->attention = hd_rope_stretch(a);
	if (a->scaling == HD_ROPE_LONGROPE)
		hd_rope_factors(a, hd_attr_text(attr, "factors"));
	a->truncate = hd_attr_num(attr, "truncate", 1);
}

static inline int64_t hd_rope_position(const struct hd_rope *a, int64_t s)
{
	return a->first + s + (s >= a->fold ? a->skip : 0);
}

/* Returns the pair, as a fractional number, that makes `turns` turns in `original` positions. */
static inline double hd_rope_pair_of(const struct hd_rope *a, double turns)
{
	const double two_pi = 6.283185307179586477;

	return (double)a->turned * log(a->original / (turns * two_pi)) / (2 * log(a->theta));
}

/* Returns 0 if the pair is unchanged, 1 if its angle is divided by factor, or a number between the two. */
static inline double hd_rope_yarn(const struct hd_rope *a, double pair)
{
	double from = hd_rope_pair_of(a, a->beta_fast), to = hd_rope_pair_of(a, a->beta_slow), part;

	if (a->truncate != 0)
		from = floor(from), to = ceil(to);
	from = from > 0 ? from : 0;
	to = to < (double)a->turned - 1 ? to : (double)a->turned - 1;
	part = (pair - from) / (to - from + (to == from ? 0.001 : 0));
	return part < 0 ? 0 : part > 1 ? 1 : part;
}

static inline double hd_rope_llama3(const struct hd_rope *a, double rate)
{
	const double two_pi = 6.283185307179586477;
	double part = (a->original * rate / two_pi - a->low) / (a->high - a->low);

	part = part < 0 ? 0 : part > 1 ? 1 : part;
	return (1 - part) * rate / a->factor + part * rate;
}

/* Returns the angle by which a pair turns from one position to the next. */
static inline double hd_rope_rate(const struct hd_rope *a, int64_t pair)
{
	double d = (double)a->turned, theta = a->theta, rate, part;

	if (a->scaling == HD_ROPE_DYNAMIC && a->length > a->original)
		theta *= pow(a->factor * a->length / a->original - (a->factor - 1), d / (d - 2));
	rate = pow(theta, -2 * (double)pair / d);
	if (a->scaling == HD_ROPE_LINEAR)
		return rate / a->factor;
	if (a->scaling == HD_ROPE_LONGROPE)
		return rate / a->by[pair];
	if (a->scaling == HD_ROPE_LLAMA3)
		return hd_rope_llama3(a, rate);
	part = a->scaling == HD_ROPE_YARN ? hd_rope_yarn(a, (double)pair) : 0;
	return part != 0 ? rate / a->factor * part + rate * (1 - part) : rate;
}

struct hd_rope_table {
	struct hd_rope_table *next;
	int64_t users;
	struct hd_rope of;
	float *turn; /* (seq, 2, turned / 2), in the device's memory: cosines, then sines */
};

static inline size_t hd_rope_bytes(const struct hd_rope *a)
{
	return (size_t)(a->seq * a->turned) * sizeof(float);
}

/* Slot `kept` of a kernel with these angles: returns the bytes of the table, and in *same a hash of the angles. */
static inline int64_t hd_rope_kept(const struct hd_rope *a, uint64_t *same)
{
	const unsigned char *byte = (const unsigned char *)a;

	*same = 14695981039346656037u;
	for (size_t i = 0; i < sizeof(*a); i++)
		*same = (*same ^ byte[i]) * 1099511628211u;
	return (int64_t)hd_rope_bytes(a);
}

/* Returns the values of a table, in memory of the host that the caller frees. */
static inline float *hd_rope_angles(const struct hd_rope *a)
{
	int64_t half = a->turned / 2;
	float *turn = (float *)hd_alloc(hd_rope_bytes(a) + 1);

	for (int64_t i = 0; i < half; i++) {
		double rate = hd_rope_rate(a, i);

		for (int64_t s = 0; s < a->seq; s++) {
			double angle = (double)hd_rope_position(a, s) * rate;

			turn[s * 2 * half + i] = (float)(a->attention * cos(angle));
			turn[(s * 2 + 1) * half + i] = (float)(a->attention * sin(angle));
		}
	}
	return turn;
}

/* Returns the table with these angles, and counts one more user. Returns NULL if there is none yet. */
static inline struct hd_rope_table *hd_rope_find(struct hd_rope_table *tables, const struct hd_rope *a)
{
	struct hd_rope_table *t = tables;

	while (t && memcmp(&t->of, a, sizeof(*a)))
		t = t->next;
	if (t)
		t->users++;
	return t;
}

static inline struct hd_rope_table *hd_rope_add(struct hd_rope_table **tables, const struct hd_rope *a, float *turn)
{
	struct hd_rope_table *t = (struct hd_rope_table *)hd_alloc(sizeof(*t));

	t->next = *tables;
	t->users = 1;
	t->of = *a;
	t->turn = turn;
	return *tables = t;
}

/* Removes one user. Returns the angles of a table without users, which the caller frees; else NULL. */
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

/* rope_at: x (batch, seq, heads, head_dim) and positions (batch, seq). It is rope at these positions; a negative one
 * counts as 0. p is as in hd_prepare_rope. a: the angles of the first `most` positions. */
static inline int hd_prepare_rope_at(const struct hd_check *c, struct hd_prep *p, struct hd_rope *a)
{
	const struct hd_kernel_desc one = { c->d->attr, 1, 1, c->d->in, c->d->out, c->d->never };
	const struct hd_check alone = { c->kernel, c->real, &one, c->err, c->also };

	HD_TRY(hd_check_counts(c, 2, 2, 1, 1));
	HD_TRY(hd_prepare_rope(&alone, p));
	if (c->d->in[1].dtype != HD_DTYPE_I32 || hd_view_count(&c->d->in[1]) != p->n[0] * p->n[1])
		return hd_err_set(c->err, HD_EINVAL, "%s: one position of 32 bits for each token", c->kernel);
	hd_rope_set(a, p, c->d->attr);
	a->first = a->skip = 0;
	a->seq = a->fold = hd_attr_int(c->d->attr, "most", 1);
	return 0;
}

#endif
