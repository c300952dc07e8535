/* SPDX-License-Identifier: Apache-2.0
 * einsum: a product of two tensors with named dims.
 *
 * By where a dim occurs it is batch (a, b, c), m (a, c), n (b, c) or k (a, b).  Neighbours of one
 * class merge into one dim where all operands step through them alike, so nearly every product of
 * a model becomes one matrix product whose transposes are only strides; a and b swap roles if c's
 * innermost dim is a's.  What does not merge becomes loops around the matrix product, and what
 * oneDNN cannot do at all becomes plain loops: slow, but the same numbers.
 */
#include <config.h>
#include "kernels/cpu/matmul.h"
#include <stdlib.h>
#include <string.h>

enum { A, B, C, BIAS, ADD, OPERANDS };
enum { BATCH, M, N, K, ODD, CLASSES };	/* ODD: summed, in one input only */

struct loop {
	int64_t n, stride[OPERANDS];	/* 0: the operand has not this dim */
};

struct einsum {
	uint32_t dtype[OPERANDS];	/* 0: no such operand */
	int64_t count;			/* elements of c */
	int empty;			/* a summed dim is empty: the product is zero */
	int nout, nred, nouter;
	struct loop out[HD_MAX_DIMS];	/* dims of c, in its order */
	struct loop red[2 * HD_MAX_DIMS];
	struct loop
		outer[3 * HD_MAX_DIMS]; /* around the matrix product; those with stride[C] 0 sum */
	struct hd_mm *mm;
	int swapped, bias_inside;
};

/* ---- prepare: the dims ----------------------------------------------------------------------- */

static int find(const struct hd_view *v, const struct hd_dim *dim)
{
	for (uint32_t i = 0; v && i < v->ndim; i++)
		if (v->dims[i] == dim)
			return (int)i;
	return -1;
}

static int64_t stride_of(const struct hd_view *v, const struct hd_dim *dim)
{
	int64_t s = 1;
	int at = find(v, dim);

	if (at < 0)
		return 0;
	for (uint32_t i = (uint32_t)at + 1; i < v->ndim; i++)
		s *= v->n[i];
	return s;
}

static struct loop loop_of(const struct hd_view *const *v, const struct hd_dim *dim, int64_t n)
{
	struct loop l = { .n = n };

	for (int o = 0; o < OPERANDS; o++)
		l.stride[o] = stride_of(v[o], dim);
	return l;
}

static int check(const struct hd_view *const *v, struct hd_err *err)
{
	static const char *const names[] = { "a", "b", "c", "bias", "add" };

	for (int o = 0; o < OPERANDS; o++)
		for (uint32_t i = 0; v[o] && i < v[o]->ndim; i++) {
			const struct hd_dim *dim = v[o]->dims[i];

			if (find(v[o], dim) != (int)i)
				return hd_err_set(err, HD_ENOTSUP, "einsum: %s has dim %s twice",
						  names[o], dim->name);
			if (o >= C && find(v[o == C ? A : C], dim) < 0 &&
			    (o > C || find(v[B], dim) < 0))
				return hd_err_set(err, HD_EINVAL,
						  "einsum: %s has dim %s, which %s not", names[o],
						  dim->name, o == C ? "the inputs have" : "c has");
			for (int p = 0; p < o; p++) {
				int at = find(v[p], dim);

				if (at >= 0 && v[p]->n[at] != v[o]->n[i])
					return hd_err_set(
						err, HD_EINVAL,
						"einsum: dim %s is %lld in %s and %lld in %s",
						dim->name, (long long)v[p]->n[at], names[p],
						(long long)v[o]->n[i], names[o]);
			}
		}
	if (v[ADD] && v[ADD]->ndim != v[C]->ndim)
		return hd_err_set(err, HD_EINVAL, "einsum: add has %u dims, c has %u", v[ADD]->ndim,
				  v[C]->ndim);
	return 0;
}

static void collect(struct einsum *e, const struct hd_view *const *v)
{
	for (uint32_t i = 0; i < v[C]->ndim; i++)
		e->out[e->nout++] = loop_of(v, v[C]->dims[i], v[C]->n[i]);
	for (int o = A; o <= B; o++)
		for (uint32_t i = 0; i < v[o]->ndim; i++) {
			const struct hd_dim *dim = v[o]->dims[i];

			if (find(v[C], dim) >= 0 || (o == B && find(v[A], dim) >= 0))
				continue;
			e->red[e->nred++] = loop_of(v, dim, v[o]->n[i]);
			e->empty |= v[o]->n[i] == 0;
		}
}

/* ---- prepare: the matrix product ------------------------------------------------------------- */

struct group {			/* the dims of one class, outermost first */
	int count;
	struct loop l[2 * HD_MAX_DIMS];
};

static int class_of(const struct loop *l)
{
	if (l->stride[A] && l->stride[B])
		return l->stride[C] ? BATCH : K;
	if (!l->stride[C])
		return ODD;
	return l->stride[A] ? M : N;
}

static void sort_into(struct group *g, const struct loop *l, int by)
{
	int i = g->count++;

	for (; i > 0 && g->l[i - 1].stride[by] < l->stride[by]; i--)
		g->l[i] = g->l[i - 1];
	g->l[i] = *l;
}

static int mergeable(const struct loop *outer, const struct loop *inner)
{
	for (int o = 0; o < OPERANDS; o++)
		if (outer->stride[o] != inner->stride[o] * inner->n)
			return 0;
	return 1;
}

static void merge(struct group *g)
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

/* The dim that the matrix product takes: one that is contiguous in x or y, else the longest.
 * The others go outside. */
static struct loop choose(struct einsum *e, struct group *g, int x, int y)
{
	struct loop one = { .n = 1 };
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

static void swap_roles(struct group *g)
{
	struct group m = g[M];

	g[M] = g[N];
	g[N] = m;
	for (int c = 0; c < CLASSES; c++)
		for (int i = 0; i < g[c].count; i++) {
			int64_t s = g[c].l[i].stride[A];

			g[c].l[i].stride[A] = g[c].l[i].stride[B];
			g[c].l[i].stride[B] = s;
		}
}

static int row_in_m(const struct group *g)
{
	for (int i = 0; i < g[M].count; i++)
		if (g[M].l[i].stride[C] == 1)
			return 1;
	return !g[N].count && g[M].count;	/* one column: as one row */
}

static void set_dim(struct hd_mm_shape *s, const struct loop *l)
{
	s->n[s->ndim] = l->n;
	for (int o = 0; o < HD_MM_OPERANDS; o++)
		s->stride[o][s->ndim] = l->n > 1 ? l->stride[o] : 0;
	s->ndim++;
}

static int sums_outside(const struct einsum *e)
{
	for (int i = 0; i < e->nouter; i++)
		if (!e->outer[i].stride[C])
			return 1;
	return 0;
}

static void add_class(struct group *g, const struct loop *l)
{
	int c = class_of(l);

	if (l->n > 1)
		sort_into(&g[c], l, c >= K ? A : C);
}

static void plan_product(struct einsum *e)
{
	struct hd_mm_shape s;
	struct group g[CLASSES];
	struct loop m, n, k;

	memset(&s, 0, sizeof(s));
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
	m = choose(e, &g[M], A, A);
	n = choose(e, &g[N], C, B);
	k = choose(e, &g[K], A, B);
	for (int i = 0; i < g[ODD].count; i++)
		e->outer[e->nouter++] = g[ODD].l[i];
	for (int i = 0; i < g[BATCH].count; i++)
		set_dim(&s, &g[BATCH].l[i]);
	set_dim(&s, &m);
	set_dim(&s, &n);
	set_dim(&s, &k);
	s.dtype[HD_MM_A] = e->dtype[e->swapped ? B : A];
	s.dtype[HD_MM_B] = e->dtype[e->swapped ? A : B];
	s.dtype[HD_MM_C] = e->dtype[C];
	if (e->dtype[BIAS] && !sums_outside(e) && !m.stride[BIAS] && n.stride[BIAS] == 1) {
		s.dtype[HD_MM_BIAS] = e->dtype[BIAS];
		e->mm = hd_mm_get(&s, e->dtype[ADD] ? 2 : 3);
		e->bias_inside = e->mm != NULL;
	}
	if (e->mm)
		return;
	s.dtype[HD_MM_BIAS] = 0;
	memset(s.stride[HD_MM_BIAS], 0, sizeof(s.stride[HD_MM_BIAS]));
	e->mm = hd_mm_get(&s, e->dtype[BIAS] || e->dtype[ADD] ? 2 : 3);
}

static void release(void *state)
{
	struct einsum *e = state;

	hd_mm_put(e->mm);
	free(e);
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	uint32_t bias = hd_attr(d->attr, "bias", 0) != 0, add = hd_attr(d->attr, "add", 0) != 0;
	const struct hd_view *v[OPERANDS] = { 0 };
	struct einsum *e;

	if (d->nin != 2 + bias + add || d->nout != 1)
		return hd_err_set(err, HD_EINVAL, "einsum: %u inputs and %u outputs, not %u and 1",
				  d->nin, d->nout, 2 + bias + add);
	v[A] = &d->in[0];
	v[B] = &d->in[1];
	v[C] = &d->out[0];
	v[BIAS] = bias ? &d->in[2] : NULL;
	v[ADD] = add ? &d->in[2 + bias] : NULL;
	for (int o = 0; o < OPERANDS; o++)
		if (v[o] && v[o]->dtype != HD_F32 && v[o]->dtype != HD_BF16)
			return hd_err_set(err, HD_ENOTSUP, "einsum: no %s on cpu",
					  hd_dtype_name(v[o]->dtype));
	HD_TRY(check(v, err));
	e = hd_alloc(sizeof(*e));
	for (int o = 0; o < OPERANDS; o++)
		e->dtype[o] = v[o] ? v[o]->dtype : 0;
	e->count = hd_view_count(v[C]);
	collect(e, v);
	if (e->count && !e->empty)
		plan_product(e);
	p->state = e;
	p->release = release;
	return 0;
}

/* ---- run ------------------------------------------------------------------------------------- */

static float load(const void *p, uint32_t dtype, int64_t i)
{
	uint32_t u;
	float f;

	if (dtype == HD_F32)
		return ((const float *)p)[i];
	u = (uint32_t)((const uint16_t *)p)[i] << 16;
	memcpy(&f, &u, 4);
	return f;
}

static void store(void *p, uint32_t dtype, int64_t i, float f)
{
	uint32_t u;

	if (dtype == HD_F32) {
		((float *)p)[i] = f;
		return;
	}
	memcpy(&u, &f, 4);
	u = f == f ? u + 0x7fff + (u >> 16 & 1) : u | 0x400000;
	((uint16_t *)p)[i] = (uint16_t)(u >> 16);
}

static double dot(const struct einsum *e, void *const *mem, int64_t a, int64_t b)
{
	int64_t at[2 * HD_MAX_DIMS] = { 0 };
	double sum = 0;

	for (;;) {
		int i = e->nred - 1;

		sum += (double)load(mem[A], e->dtype[A], a) * load(mem[B], e->dtype[B], b);
		for (; i >= 0; i--) {
			const struct loop *l = &e->red[i];

			a += l->stride[A];
			b += l->stride[B];
			if (++at[i] < l->n)
				break;
			a -= l->stride[A] * l->n;
			b -= l->stride[B] * l->n;
			at[i] = 0;
		}
		if (i < 0)
			return sum;
	}
}

/* c = (keep ? c : 0) + bias + add, and the product too where `product` is set */
static void plain(const struct einsum *e, void *const *mem, int keep, int product)
{
	#pragma omp parallel for
	for (int64_t i = 0; i < e->count; i++) {
		int64_t left = i, at[OPERANDS] = { 0 };
		double x = keep ? load(mem[C], e->dtype[C], i) : 0;

		for (int d = e->nout - 1; d >= 0; d--) {
			int64_t j = left % e->out[d].n;

			left /= e->out[d].n;
			for (int o = 0; o < OPERANDS; o++)
				at[o] += j * e->out[d].stride[o];
		}
		if (mem[BIAS])
			x += load(mem[BIAS], e->dtype[BIAS], at[BIAS]);
		if (mem[ADD])
			x += load(mem[ADD], e->dtype[ADD], at[ADD]);
		if (product)
			x += dot(e, mem, at[A], at[B]);
		store(mem[C], e->dtype[C], i, (float)x);
	}
}

static void *shift(const struct einsum *e, void *const *mem, int o, int64_t by)
{
	return mem[o] ? (char *)mem[o] + by * (HD_BITS(e->dtype[o]) / 8) : NULL;
}

/* The matrix product for every index of the loops around it, whose strides are in swapped
 * roles too. */
static int products(const struct einsum *e, void *const *mem, int sum)
{
	int64_t at[3 * HD_MAX_DIMS] = { 0 }, off[OPERANDS] = { 0 };
	int a = e->swapped ? B : A, b = e->swapped ? A : B;

	for (;;) {
		int i = e->nouter - 1, again = 0;

		for (int j = 0; j < e->nouter; j++)
			again |= at[j] && !e->outer[j].stride[C];
		HD_TRY(hd_mm_run(e->mm, sum || again, shift(e, mem, C, off[C]),
				 shift(e, mem, a, off[A]), shift(e, mem, b, off[B]),
				 shift(e, mem, BIAS, off[BIAS])));
		for (; i >= 0; i--) {
			for (int o = 0; o < OPERANDS; o++)
				off[o] += e->outer[i].stride[o];
			if (++at[i] < e->outer[i].n)
				break;
			for (int o = 0; o < OPERANDS; o++)
				off[o] -= e->outer[i].stride[o] * e->outer[i].n;
			at[i] = 0;
		}
		if (i < 0)
			return 0;
	}
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct einsum *e = p->state;
	void *mem[OPERANDS] = { in[0], in[1], out[0], NULL, NULL };
	void *first[OPERANDS] = { NULL, NULL, out[0], NULL, NULL };
	int keep = r->acc;

	if (e->dtype[BIAS])
		mem[BIAS] = in[2];
	if (e->dtype[ADD])
		mem[ADD] = in[e->dtype[BIAS] ? 3 : 2];
	if (mem[ADD] == out[0] && mem[ADD]) {	/* in place: what c holds is the addend */
		mem[ADD] = NULL;
		keep = 1;
	}
	if (!e->mm) {
		if (!e->empty || !keep || mem[BIAS] || mem[ADD])
			plain(e, mem, keep, !e->empty);
		return;
	}
	first[ADD] = mem[ADD];
	first[BIAS] = e->bias_inside ? NULL : mem[BIAS];
	if (first[ADD] || first[BIAS]) {
		plain(e, first, keep, 0);
		keep = 1;
	}
	/* A refusal comes before anything is written, so plain loops can still take over. */
	if (products(e, mem, keep) < 0) {
		if (!e->bias_inside)
			mem[BIAS] = NULL;
		mem[ADD] = NULL;
		plain(e, mem, keep, 1);
	}
}

const struct hd_kernel hd_cpu_einsum = {
	.name = "einsum", .flags = HD_K_ACC, .prepare = prepare, .run = run};
