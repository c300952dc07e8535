/* SPDX-License-Identifier: Apache-2.0
 * sum over named dims.
 *
 * Neighbouring dims merge to (p kept, r summed, q kept) where they can.  A block sums a row (q = 1), or 32 vectors of columns side
 * by side; long sums are cut into slabs whose sums are added in order by a second launch (columns.h).  Pieces are summed in fp32,
 * what they join in double.  Anything else is summed element by element.
 */
#include "kernels/cuda/base/columns.h"
extern "C" {
#include "kernels/prepare/sum.h"
}

#define PIECE 256        /* terms */
#define LONG 1024        /* terms of a slab of a row at least, which a block reads 2048 at a time */
#define SLABS 64         /* of a row */
#define BLOCKS (3 * 132) /* of columns, which are all there at once */
#define ROWS 8           /* terms of a column that a thread reads at once */
#define FEW 4            /* slabs that one thread adds up */
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

/* Row of blockIdx.x, slab of blockIdx.y. */
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

/* Terms of columns, ROWS of them at once, from row i on, each step-th; *i: the next.  No more than PIECE. */
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

/* 32 times N columns of one p; of its rows each gridDim.y-th group of HD_LANES from blockIdx.y on. */
template <int N, class A>
__global__ void __launch_bounds__(THREADS, 3) sum_columns(double *part, const A *a, int64_t r, int64_t q, int64_t count)
{
	HD_SHARED(double, lanes, [HD_LANES][HD_WARP * N]);
	int64_t tiles = (q + HD_WARP * N - 1) / (HD_WARP * N), p = blockIdx.x / tiles,
		first = blockIdx.x % tiles * HD_WARP * N, step = (int64_t)gridDim.y * HD_LANES;
	int lane = (int)threadIdx.x / HD_WARP, mine = (int)threadIdx.x % HD_WARP * N;
	double sum[N] = {};

	a += p * r * q + first + mine;
	for (int64_t i = (int64_t)blockIdx.y * HD_LANES + lane; i < r && first + mine < q;) {
		float x[N] = {};

		sum_piece<N>(x, a, &i, step, r, q);
		for (int n = 0; n < N; n++)
			sum[n] += (double)x[n];
	}
	hd_join_lanes<N>(part + blockIdx.y * count + p * q + first, lanes, sum, lane, mine, q - first);
}

template <class C> struct put_sum {
	C *c;
	int acc;

	HD_DEV void put(int64_t i, double x) const
	{
		::put(c, i, x, acc);
	}
};

template <class C> struct join_slabs {
	C *c;
	const double *part;
	int64_t slabs, count;
	int acc;

	template <int N> HD_DEV void at(int64_t i) const
	{
		double x = 0;

		for (int64_t s = 0; s < slabs; s++)
			x += part[s * count + i];
		put(c, i, x, acc);
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

template <class C, class A> static void go(const struct sum *s, C *c, const A *a, const struct hd_run *r)
{
	const int V = 16 / sizeof(A);
	double *part = (double *)hd_cuda_scratch();
	int wide = hd_aligned(a) && (s->q > 1 ? s->q : s->r) % V == 0;
	int64_t columns = wide ? HD_WARP * V : HD_WARP;
	dim3 rows((unsigned)s->p, (unsigned)s->slabs),
		tiles((unsigned)(s->p * ((s->q + columns - 1) / columns)), (unsigned)s->slabs);

	if (!s->simple) {
		hd_each<1>(r, s->count, 1, gather<C, A>{ c, a, *s, r->acc });
		return;
	}
	if (s->q > 1 && wide)
		HD_LAUNCH((sum_columns<V, A>), tiles, THREADS, 0, r, part, a, s->r, s->q, s->count);
	else if (s->q > 1)
		HD_LAUNCH((sum_columns<1, A>), tiles, THREADS, 0, r, part, a, s->r, s->q, s->count);
	else if (wide)
		HD_LAUNCH((sum_row<V, A>), rows, THREADS, 0, r, part, a, s->r, s->count);
	else
		HD_LAUNCH((sum_row<1, A>), rows, THREADS, 0, r, part, a, s->r, s->count);
	if (s->slabs > FEW)
		hd_join(r, part, s->slabs, s->count, s->count, put_sum<C>{ c, r->acc });
	else
		hd_each<1>(r, s->count, 1, join_slabs<C>{ c, part, s->slabs, s->count, r->acc });
}

static void run(const struct hd_prep *prep, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct sum *s = (const struct sum *)prep->state;

	if (s->empty) {
		if (!r->acc)
			hd_cuda_zero(r, out[0], (size_t)(s->count * (int64_t)HD_BITS(s->dtype_c) / 8));
	} else if (s->dtype_a == HD_DTYPE_F32) {
		s->dtype_c == HD_DTYPE_F32 ? go(s, (float *)out[0], (const float *)in[0], r)
					   : go(s, (bf16 *)out[0], (const float *)in[0], r);
	} else {
		s->dtype_c == HD_DTYPE_F32 ? go(s, (float *)out[0], (const bf16 *)in[0], r)
					   : go(s, (bf16 *)out[0], (const bf16 *)in[0], r);
	}
}

HD_CUDA_KERNEL(sum, "sum", HD_K_ACC, prepare, run);
