/* SPDX-License-Identifier: Apache-2.0
 * sum over named dims.
 *
 * Adjacent dims are merged to (p kept, r summed, q kept) where possible.  A block sums a row (q = 1), or 32 adjacent
 * vectors of columns.  Long sums are cut into slabs, whose sums a second launch adds in order (columns.h).  Pieces
 * are summed in fp32, and their sums are added in double.  Any other sum is computed element by element.  Sums of
 * columns that are alike and follow one another (for the biases of queries, keys and values) take one launch.
 */
#include "kernels/cuda/base/columns.h"
extern "C" {
#include "kernels/prepare/sum.h"
}

#define PIECE 256        /* terms */
#define LONG 1024        /* minimum terms of a slab of a row; a block reads 2048 at a time */
#define SLABS 64         /* maximum slabs of a row */
#define BLOCKS (3 * 132) /* blocks for columns, all resident at once */
#define ROWS 8           /* terms of a column that a thread reads at once */
#define FEW 4            /* slabs up to which one thread adds them */
#define MOST 4           /* sums of columns in one launch */
#define THREADS (HD_WARP * HD_LANES)

struct sum : hd_sum_prep {
	int64_t slabs, terms;
};

static void cut(struct sum *s)
{
	s->terms = 1;
	for (int k = 0; k < s->ndim; k++)
		s->terms *= s->dim[k].c ? 1 : s->dim[k].n;
	s->slabs = s->q > 1 ? hd_slabs(s->r, s->q, s->dtype_a == HD_DTYPE_F32 ? 4 : 8, BLOCKS / hd_least(s->p, BLOCKS),
				       ROWS)
			    : hd_least(s->r / LONG, SLABS);
	if (!s->simple || s->slabs < 1)
		s->slabs = 1;
	hd_cuda_scratch_need((size_t)(s->slabs * s->count) * sizeof(double));
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct sum *s = (struct sum *)hd_alloc(sizeof(*s));
	int rc = hd_prepare_sum(d, "cuda", s, err);

	if (rc < 0) {
		free(s);
		return rc;
	}
	if (!s->empty)
		cut(s);
	p->state = s;
	p->release = free;
	return 0;
}

template <class C> HD_DEV void put(C *c, int64_t i, double x, int acc)
{
	from_float(c + i, (float)(x + (acc ? (double)to_float(c[i]) : 0)));
}

/* Sums slab blockIdx.y of row blockIdx.x. */
template <int N, class A>
__global__ void __launch_bounds__(THREADS) sum_row(double *part, const A *a, int64_t r, int64_t count)
{
	HD_SHARED(double, scratch, [HD_LANES]);
	int64_t len = ((r + gridDim.y - 1) / gridDim.y + 7) / 8 * 8, from = len * blockIdx.y,
		to = hd_least(from + len, r);
	double sum = 0;

	a += blockIdx.x * r;
	for (int64_t i = from + (int64_t)threadIdx.x * N; i < to; i += THREADS * N) {
		float v[N], x = 0;

		if (i + N <= to)
			load<N>(v, a + i);
		else
			for (int k = 0; k < N; k++)
				v[k] = i + k < to ? to_float(a[i + k]) : 0;
		for (int k = 0; k < N; k++)
			x += v[k];
		sum += (double)x;
	}
	sum = block_sum<THREADS>(sum, scratch);
	if (threadIdx.x == 0)
		part[blockIdx.y * count + blockIdx.x] = sum;
}

/* Adds at most PIECE terms of each column to x: every step-th row from row *i on, ROWS rows at once.  Sets *i to the
 * next row. */
template <int N, class A> HD_DEV void sum_piece(float *x, const A *a, int64_t *i, int64_t step, int64_t r, int64_t q)
{
	for (int k = 0; k < PIECE && *i < r; k += ROWS, *i += ROWS * step) {
		vec<N, A> v[ROWS] = {};

#pragma unroll
		for (int j = 0; j < ROWS; j++)
			if (*i + j * step < r)
				v[j] = fetch<N>(a + (*i + j * step) * q);
#pragma unroll
		for (int j = 0; j < ROWS; j++)
			for (int n = 0; n < N; n++)
				x[n] += v[j].at(n);
	}
}

/* The tensors of one launch.  blockIdx.z selects one, or the number of an element counted over all of them. */
template <class T> struct tensors {
	T *at[MOST];
};

/* Sums 32 * N columns of one p, of tensor blockIdx.z: every gridDim.y-th group of HD_LANES rows, from group
 * blockIdx.y on. */
template <int N, class A>
__global__ void __launch_bounds__(THREADS, 3)
	sum_columns(double *part, tensors<const A> all, int64_t r, int64_t q, int64_t count)
{
	HD_SHARED(double, lanes, [HD_LANES][HD_WARP * N]);
	int64_t tiles = (q + HD_WARP * N - 1) / (HD_WARP * N), p = blockIdx.x / tiles,
		first = blockIdx.x % tiles * HD_WARP * N, step = (int64_t)gridDim.y * HD_LANES;
	int lane = (int)threadIdx.x / HD_WARP, mine = (int)threadIdx.x % HD_WARP * N;
	const A *a = all.at[blockIdx.z] + p * r * q + first + mine;
	double sum[N] = {};

	part += (blockIdx.y * gridDim.z + blockIdx.z) * count; /* a slab's sums of all tensors form one row */
	for (int64_t i = (int64_t)blockIdx.y * HD_LANES + lane; i < r && first + mine < q;) {
		float x[N] = {};

		sum_piece<N>(x, a, &i, step, r, q);
		for (int n = 0; n < N; n++)
			sum[n] += (double)x[n];
	}
	hd_join_lanes<N>(part + p * q + first, lanes, sum, lane, mine, q - first);
}

template <class C> struct put_sum {
	tensors<C> c;
	int64_t count;
	int acc;

	HD_DEV void put(int64_t i, double x) const
	{
		int t = 0;

		for (; i >= count; i -= count) /* few iterations; a 64-bit division would be a function call */
			t++;
		::put(c.at[t], i, x, acc);
	}
};

template <class C> struct join_slabs {
	put_sum<C> to;
	const double *part;
	int64_t slabs, stride;

	template <int N> HD_DEV void at(int64_t i) const
	{
		double x = 0;

		for (int64_t s = 0; s < slabs; s++)
			x += part[s * stride + i];
		to.put(i, x);
	}
};

template <class C, class A> struct gather {
	C *c;
	const A *a;
	struct sum s;
	int acc;

	template <int N> HD_DEV void at(int64_t i) const
	{
		int64_t base = 0;
		double x = 0;

		for (int d = 0; d < s.ndim; d++)
			if (s.dim[d].c)
				base += i / s.dim[d].c % s.dim[d].n * s.dim[d].a;
		for (int64_t t = 0; t < s.terms; t++) {
			int64_t rest = t, at = base;

			for (int d = 0; d < s.ndim; d++)
				if (!s.dim[d].c) {
					at += rest % s.dim[d].n * s.dim[d].a;
					rest /= s.dim[d].n;
				}
			x += (double)to_float(a[at]);
		}
		put(c, i, x, acc);
	}
};

/* Adds up the slabs' sums of n tensors, and writes them to c. */
template <class C>
static void finish(const struct sum *s, const tensors<C> &c, int64_t n, const double *part, const struct hd_run *r)
{
	put_sum<C> to = { c, s->count, r->acc };

	if (s->slabs > FEW)
		hd_join(r, part, s->slabs, n * s->count, n * s->count, to);
	else
		hd_each<1>(r, n * s->count, 1, join_slabs<C>{ to, part, s->slabs, n * s->count });
}

template <class C, class A>
static void launch_columns(const struct sum *s, const tensors<C> &c, const tensors<const A> &a, int64_t n,
			   const struct hd_run *r)
{
	const int V = 16 / sizeof(A);
	double *part = (double *)hd_cuda_scratch();
	int wide = s->q % V == 0;
	int64_t columns;

	for (int64_t i = 0; i < n; i++)
		wide &= hd_aligned(a.at[i]);
	columns = wide ? HD_WARP * V : HD_WARP;
	dim3 tiles((unsigned)(s->p * ((s->q + columns - 1) / columns)), (unsigned)s->slabs, (unsigned)n);

	if (wide)
		HD_LAUNCH((sum_columns<V, A>), tiles, THREADS, 0, r, part, a, s->r, s->q, s->count);
	else
		HD_LAUNCH((sum_columns<1, A>), tiles, THREADS, 0, r, part, a, s->r, s->q, s->count);
	finish(s, c, n, part, r);
}

template <class C, class A> static void launch_row(const struct sum *s, C *c, const A *a, const struct hd_run *r)
{
	const int V = 16 / sizeof(A);
	double *part = (double *)hd_cuda_scratch();
	dim3 rows((unsigned)s->p, (unsigned)s->slabs);

	if (hd_aligned(a) && s->r % V == 0)
		HD_LAUNCH((sum_row<V, A>), rows, THREADS, 0, r, part, a, s->r, s->count);
	else
		HD_LAUNCH((sum_row<1, A>), rows, THREADS, 0, r, part, a, s->r, s->count);
	finish(s, tensors<C>{ { c } }, 1, part, r);
}

/* n: 1, or several sums of columns. */
template <class C, class A>
static void launch(const struct sum *s, const struct hd_joint *l, int64_t n, const struct hd_run *r)
{
	tensors<C> c = {};
	tensors<const A> a = {};

	for (int64_t i = 0; i < n; i++) {
		c.at[i] = (C *)l[i].out[0];
		a.at[i] = (const A *)l[i].in[0];
	}
	if (!s->simple)
		hd_each<1>(r, s->count, 1, gather<C, A>{ c.at[0], a.at[0], *s, r->acc });
	else if (s->q > 1)
		launch_columns(s, c, a, n, r);
	else
		launch_row(s, c.at[0], a.at[0], r);
}

static void run_sums(const struct hd_joint *l, int64_t n, const struct hd_run *r)
{
	const struct sum *s = (const struct sum *)l->prep->state;

	if (s->empty) {
		if (!r->acc)
			hd_cuda_zero(r, l->out[0], (size_t)(s->count * (int64_t)HD_BITS(s->dtype_c) / 8));
	} else if (s->dtype_a == HD_DTYPE_F32) {
		s->dtype_c == HD_DTYPE_F32 ? launch<float, float>(s, l, n, r) : launch<bf16, float>(s, l, n, r);
	} else {
		s->dtype_c == HD_DTYPE_F32 ? launch<float, bf16>(s, l, n, r) : launch<bf16, bf16>(s, l, n, r);
	}
}

static void run(const struct hd_prep *prep, void *const *out, void *const *in, const struct hd_run *r)
{
	struct hd_joint l = { prep, out, in, r->acc };

	run_sums(&l, 1, r);
}

/* -- several sums in one launch ------------------------------------------------------------------------------------ */
/* A launch with a single sum ends before it reaches the memory's full bandwidth.  The slabs of each sum are the same
 * as in a launch of its own, so the results are too. */
struct sums_joined {
	struct hd_joint *l;
	size_t *lots, n; /* lots: how many consecutive launches each lot has */
};

static int can_share_launch(const struct hd_joint *x, const struct hd_joint *y)
{
	const struct sum *a = (const struct sum *)x->prep->state, *b = (const struct sum *)y->prep->state;

	return !a->empty && !b->empty && a->simple && b->simple && a->q > 1 && a->p == b->p && a->r == b->r &&
	       a->q == b->q && a->dtype_a == b->dtype_a && a->dtype_c == b->dtype_c && x->acc == y->acc;
}

static int overlap(const void *a, int64_t abytes, const void *b, int64_t bbytes)
{
	const struct hd_range x = { (const char *)a, (const char *)a + abytes };
	const struct hd_range y = { (const char *)b, (const char *)b + bbytes };

	return hd_ranges_overlap(x, y);
}

/* Returns whether neither result overlaps the other's operand or result. */
static int no_overlap(const struct hd_joint *x, const struct hd_joint *y)
{
	const struct sum *s = (const struct sum *)x->prep->state;
	int64_t a = s->p * s->r * s->q * (HD_BITS(s->dtype_a) / 8), c = s->count * (HD_BITS(s->dtype_c) / 8);

	return !overlap(x->out[0], c, y->out[0], c) && !overlap(x->out[0], c, y->in[0], a) &&
	       !overlap(y->out[0], c, x->in[0], a);
}

static size_t lot_of(const struct hd_joint *l, size_t most)
{
	for (size_t n = 1; n < most; n++)
		for (size_t i = 0; i < n; i++)
			if (!can_share_launch(&l[i], &l[n]) || !no_overlap(&l[i], &l[n]))
				return n;
	return most;
}

static void unjoin(void *state)
{
	struct sums_joined *j = (struct sums_joined *)state;

	free(j->l);
	free(j->lots);
	free(j);
}

static void *join(const struct hd_joint *l, size_t n)
{
	struct sums_joined *j = (struct sums_joined *)hd_alloc(sizeof(*j));

	j->l = (struct hd_joint *)hd_alloc(n * sizeof(*l));
	j->lots = (size_t *)hd_alloc(n * sizeof(*j->lots));
	memcpy(j->l, l, n * sizeof(*l));
	for (size_t at = 0; at < n; at += j->lots[j->n++]) {
		const struct sum *s = (const struct sum *)l[at].prep->state;

		j->lots[j->n] = lot_of(l + at, n - at < MOST ? n - at : MOST);
		hd_cuda_scratch_need(j->lots[j->n] * (size_t)(s->slabs * s->count) * sizeof(double));
	}
	if (j->n < n)
		return j;
	unjoin(j);
	return NULL;
}

static void run_joined(void *state, const struct hd_run *r)
{
	const struct sums_joined *j = (const struct sums_joined *)state;
	const struct hd_joint *l = j->l;
	struct hd_run mine = *r;

	for (size_t i = 0; i < j->n; l += j->lots[i++]) {
		mine.acc = l->acc;
		run_sums(l, (int64_t)j->lots[i], &mine);
	}
}

HD_CUDA_KERNEL_JOINS(sum, "sum", HD_K_ACC, prepare, run, join, run_joined, unjoin);
