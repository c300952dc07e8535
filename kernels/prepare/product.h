/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/product.h - turns an einsum into a matrix product, with loops around it; shared by the devices.
 *
 * A dim has a class by the operands that have it: batch (a, b, c), m (a, c), n (b, c) or k (a, b). Adjacent dims of
 * one class merge into one dim where all operands step through them alike. So nearly every product of a model becomes
 * one matrix product, whose transposes are only strides. a and b swap roles if c's innermost dim is a's. Dims that do
 * not merge become loops around the matrix product.
 */
#ifndef HD_KERNELS_PREPARE_PRODUCT_H
#define HD_KERNELS_PREPARE_PRODUCT_H
#include <stdlib.h>
#include <string.h>
#include "engine/device/device.h"

enum { HD_MM_A, HD_MM_B, HD_MM_C, HD_MM_BIAS, HD_MM_OPERANDS };

enum { HD_MM_PLAIN, HD_MM_GELU, HD_MM_GELU_KEEP, HD_MM_GELU_D }; /* what follows a product (cuda) */

/* c(batch, m, n) = sum over k of a(batch, m, k) b(batch, k, n) + bias. */
struct hd_mm_shape {
	int ndim;                       /* 3 + batch dims */
	int then;                       /* HD_MM_PLAIN, ... */
	uint32_t dtype[HD_MM_OPERANDS]; /* HD_DTYPE_F32 or HD_DTYPE_BF16; for bias, 0: none */
	int64_t n[HD_MAX_DIMS + 3];     /* all > 0 */
	/* in elements; 0 where the operand lacks the dim */
	int64_t stride[HD_MM_OPERANDS][HD_MAX_DIMS + 3];
};

enum { OP_A, OP_B, OP_C, OP_BIAS, OP_ADD, OPERANDS };
enum { DIM_BATCH, DIM_M, DIM_N, DIM_K, DIM_ODD, CLASSES }; /* DIM_ODD: summed, in one input only */

struct einsum_loop {
	int64_t n, stride[OPERANDS]; /* stride 0: the operand lacks this dim */
};

struct einsum {
	uint32_t dtype[OPERANDS]; /* 0: no such operand */
	int64_t count;            /* elements of c */
	int empty;                /* a summed dim is empty: the product is zero */
	int nout, nred, nouter;
	struct einsum_loop out[HD_MAX_DIMS]; /* dims of c, in its order */
	struct einsum_loop red[2 * HD_MAX_DIMS];
	struct einsum_loop outer[3 * HD_MAX_DIMS]; /* around the matrix product; loops with stride[OP_C] 0 sum */
	int swapped;
};

/* ---- prepare: the dims ----------------------------------------------------------------------- */

static inline int find(const struct hd_view *v, const struct hd_dim *dim)
{
	for (uint32_t i = 0; v && i < v->ndim; i++)
		if (v->dims[i] == dim)
			return (int)i;
	return -1;
}

static inline int64_t stride_of(const struct hd_view *v, const struct hd_dim *dim)
{
	int64_t s = 1;
	int at = find(v, dim);

	if (at < 0)
		return 0;
	for (uint32_t i = (uint32_t)at + 1; i < v->ndim; i++)
		s *= v->n[i];
	return s;
}

static inline struct einsum_loop loop_of(const struct hd_view *const *v, const struct hd_dim *dim, int64_t n)
{
	struct einsum_loop l = { n, { 0 } };

	for (int o = 0; o < OPERANDS; o++)
		l.stride[o] = stride_of(v[o], dim);
	return l;
}

static inline int check_operands(const struct hd_view *const *v, struct hd_err *err)
{
	static const char *const names[] = { "a", "b", "c", "bias", "add" };

	for (int o = 0; o < OPERANDS; o++)
		for (uint32_t i = 0; v[o] && i < v[o]->ndim; i++) {
			const struct hd_dim *dim = v[o]->dims[i];

			if (find(v[o], dim) != (int)i)
				return hd_err_set(err, HD_ENOTSUP, "einsum: %s has dim %s twice", names[o], dim->name);
			if (o >= OP_C && find(v[o == OP_C ? OP_A : OP_C], dim) < 0 &&
			    (o > OP_C || find(v[OP_B], dim) < 0))
				return hd_err_set(err, HD_EINVAL, "einsum: %s has dim %s, which %s not", names[o],
						  dim->name, o == OP_C ? "the inputs have" : "c has");
			for (int p = 0; p < o; p++) {
				int at = find(v[p], dim);

				if (at >= 0 && v[p]->n[at] != v[o]->n[i])
					return hd_err_set(err, HD_EINVAL, "einsum: dim %s is %lld in %s and %lld in %s",
							  dim->name, (long long)v[p]->n[at], names[p],
							  (long long)v[o]->n[i], names[o]);
			}
		}
	if (v[OP_ADD] && v[OP_ADD]->ndim != v[OP_C]->ndim)
		return hd_err_set(err, HD_EINVAL, "einsum: add has %u dims, c has %u", v[OP_ADD]->ndim, v[OP_C]->ndim);
	return 0;
}

static inline void collect(struct einsum *e, const struct hd_view *const *v)
{
	for (uint32_t i = 0; i < v[OP_C]->ndim; i++)
		e->out[e->nout++] = loop_of(v, v[OP_C]->dims[i], v[OP_C]->n[i]);
	for (int o = OP_A; o <= OP_B; o++)
		for (uint32_t i = 0; i < v[o]->ndim; i++) {
			const struct hd_dim *dim = v[o]->dims[i];

			if (find(v[OP_C], dim) >= 0 || (o == OP_B && find(v[OP_A], dim) >= 0))
				continue;
			e->red[e->nred++] = loop_of(v, dim, v[o]->n[i]);
			e->empty |= v[o]->n[i] == 0;
		}
}

/* ---- prepare: the matrix product ------------------------------------------------------------- */

struct dim_group { /* the dims of one class, outermost first */
	int count;
	struct einsum_loop l[2 * HD_MAX_DIMS];
};

static inline int class_of(const struct einsum_loop *l)
{
	if (l->stride[OP_A] && l->stride[OP_B])
		return l->stride[OP_C] ? DIM_BATCH : DIM_K;
	if (!l->stride[OP_C])
		return DIM_ODD;
	return l->stride[OP_A] ? DIM_M : DIM_N;
}

static inline void sort_into(struct dim_group *g, const struct einsum_loop *l, int by)
{
	int i = g->count++;

	for (; i > 0 && g->l[i - 1].stride[by] < l->stride[by]; i--)
		g->l[i] = g->l[i - 1];
	g->l[i] = *l;
}

static inline int mergeable(const struct einsum_loop *outer, const struct einsum_loop *inner)
{
	for (int o = 0; o < OPERANDS; o++)
		if (outer->stride[o] != inner->stride[o] * inner->n)
			return 0;
	return 1;
}

static inline void merge(struct dim_group *g)
{
	int n = 0;

	for (int i = 0; i < g->count; i++) {
		if (n && mergeable(&g->l[n - 1], &g->l[i])) {
			g->l[i].n *= g->l[n - 1].n;
			n--;
		}
		g->l[n++] = g->l[i];
	}
	g->count = n;
}

/* Returns the dim that the matrix product takes: one that is contiguous in x or y, else the longest. The others become
 * outer loops. */
static inline struct einsum_loop choose(struct einsum *e, struct dim_group *g, int x, int y)
{
	struct einsum_loop one = { 1, { 0 } };
	int best = 0;

	if (!g->count)
		return one;
	for (int i = 1; i < g->count; i++) {
		int was = g->l[best].stride[x] == 1 ? 2 : g->l[best].stride[y] == 1;
		int is = g->l[i].stride[x] == 1 ? 2 : g->l[i].stride[y] == 1;

		if (is > was || (is == was && g->l[i].n > g->l[best].n))
			best = i;
	}
	for (int i = 0; i < g->count; i++)
		if (i != best)
			e->outer[e->nouter++] = g->l[i];
	return g->l[best];
}

static inline void swap_roles(struct dim_group *g)
{
	struct dim_group m = g[DIM_M];

	g[DIM_M] = g[DIM_N];
	g[DIM_N] = m;
	for (int c = 0; c < CLASSES; c++)
		for (int i = 0; i < g[c].count; i++) {
			int64_t s = g[c].l[i].stride[OP_A];

			g[c].l[i].stride[OP_A] = g[c].l[i].stride[OP_B];
			g[c].l[i].stride[OP_B] = s;
		}
}

static inline int row_in_m(const struct dim_group *g)
{
	for (int i = 0; i < g[DIM_M].count; i++)
		if (g[DIM_M].l[i].stride[OP_C] == 1)
			return 1;
	return !g[DIM_N].count && g[DIM_M].count; /* one column is treated as one row */
}

static inline void set_dim(struct hd_mm_shape *s, const struct einsum_loop *l)
{
	s->n[s->ndim] = l->n;
	for (int o = 0; o < HD_MM_OPERANDS; o++)
		s->stride[o][s->ndim] = l->n > 1 ? l->stride[o] : 0;
	s->ndim++;
}

static inline int sums_outside(const struct einsum *e)
{
	for (int i = 0; i < e->nouter; i++)
		if (!e->outer[i].stride[OP_C])
			return 1;
	return 0;
}

static inline void add_class(struct dim_group *g, const struct einsum_loop *l)
{
	int c = class_of(l);

	if (l->n > 1)
		sort_into(&g[c], l, c >= DIM_K ? OP_A : OP_C);
}

/* Computes e's outer loops, and the matrix product inside them (dims batch..., m, n, k), without bias. Returns 1 if
 * there is a bias and it is along n, so that the product can add it. */
static inline int hd_plan_product(struct einsum *e, struct hd_mm_shape *s)
{
	struct dim_group g[CLASSES];
	struct einsum_loop m, n, k;

	memset(s, 0, sizeof(*s));
	memset(g, 0, sizeof(g));
	for (int i = 0; i < e->nout; i++)
		add_class(g, &e->out[i]);
	for (int i = 0; i < e->nred; i++)
		add_class(g, &e->red[i]);
	e->swapped = row_in_m(g);
	if (e->swapped)
		swap_roles(g);
	for (int c = 0; c < CLASSES; c++)
		merge(&g[c]);
	m = choose(e, &g[DIM_M], OP_A, OP_A);
	n = choose(e, &g[DIM_N], OP_C, OP_B);
	k = choose(e, &g[DIM_K], OP_A, OP_B);
	for (int i = 0; i < g[DIM_ODD].count; i++)
		e->outer[e->nouter++] = g[DIM_ODD].l[i];
	for (int i = 0; i < g[DIM_BATCH].count; i++)
		set_dim(s, &g[DIM_BATCH].l[i]);
	set_dim(s, &m);
	set_dim(s, &n);
	set_dim(s, &k);
	s->dtype[HD_MM_A] = e->dtype[e->swapped ? OP_B : OP_A];
	s->dtype[HD_MM_B] = e->dtype[e->swapped ? OP_A : OP_B];
	s->dtype[HD_MM_C] = e->dtype[OP_C];
	return e->dtype[OP_BIAS] && !sums_outside(e) && !m.stride[OP_BIAS] && n.stride[OP_BIAS] == 1;
}

/* Checks the descriptor's operands, and describes them in e (zeroed). device: "cpu", for messages. */
static inline int hd_prepare_einsum(const struct hd_kernel_desc *d, struct einsum *e, const char *device,
				    struct hd_err *err)
{
	uint32_t bias = hd_attr_num(d->attr, "bias", 0) != 0, add = hd_attr_num(d->attr, "add", 0) != 0;
	const struct hd_view *v[OPERANDS] = { 0 };

	if (d->nin != 2 + bias + add || d->nout != 1)
		return hd_err_set(err, HD_EINVAL, "einsum: %u inputs and %u outputs, not %u and 1", d->nin, d->nout,
				  2 + bias + add);
	v[OP_A] = &d->in[0];
	v[OP_B] = &d->in[1];
	v[OP_C] = &d->out[0];
	v[OP_BIAS] = bias ? &d->in[2] : NULL;
	v[OP_ADD] = add ? &d->in[2 + bias] : NULL;
	for (int o = 0; o < OPERANDS; o++)
		if (v[o] && v[o]->dtype != HD_DTYPE_F32 && v[o]->dtype != HD_DTYPE_BF16)
			return hd_err_set(err, HD_ENOTSUP, "einsum: no %s on %s", hd_dtype_name(v[o]->dtype), device);
	HD_TRY(check_operands(v, err));
	for (int o = 0; o < OPERANDS; o++)
		e->dtype[o] = v[o] ? v[o]->dtype : 0;
	e->count = hd_view_count(v[OP_C]);
	collect(e, v);
	return 0;
}

/* -- what a matrix product reads and writes -------------------------------------------------------- */
/* c = from + a b + bias. from: NULL, c, or a tensor with c's layout; bias: or NULL. */
struct hd_mm_operands {
	void *c;
	const void *from, *b, *bias;
};

/* Returns whether an operand is contiguous along one of its two dims. A dim of extent 1 has stride 0, which tells
 * nothing about the other one. */
static inline int hd_mm_is_dense(const struct hd_mm_shape *s, int operand, int dim, int k)
{
	const int64_t *stride = s->stride[operand];

	return s->n[dim] == 1 || stride[dim] == 1 || (s->n[k] > 1 && stride[k] == 1);
}

/* Returns the distance in elements from the start of operand o to the start of batch i. */
static inline int64_t hd_mm_batch_at(const struct hd_mm_shape *s, int64_t i, int o)
{
	int64_t at = 0;

	for (int d = s->ndim - 4; d >= 0; d--) {
		at += i % s->n[d] * s->stride[o][d];
		i /= s->n[d];
	}
	return at;
}

/* -- the memory of operands ------------------------------------------------------------------------ */
/* Returns the memory range of operand o, which begins at p. */
static inline struct hd_range hd_range_of(const struct hd_mm_shape *s, int o, const void *p)
{
	struct hd_range r = { (const char *)p, (const char *)p };
	int64_t last = 0;

	for (int d = 0; d < s->ndim; d++)
		last += (s->n[d] - 1) * s->stride[o][d];
	r.to += (last + 1) * (HD_BITS(s->dtype[o]) / 8);
	return r;
}

#endif
