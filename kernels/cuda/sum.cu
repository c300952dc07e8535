/* SPDX-License-Identifier: Apache-2.0
 * sum over named dims.
 *
 * Neighbouring dims merge to (p kept, r summed, q kept) where they can.  A warp sums a row (q = 1), or 32 columns side by
 * side; long sums are cut into slabs whose sums are added in order by a second launch.  Pieces are summed in fp32, what
 * they join in double.  Anything else is summed element by element.
 */
#include "kernels/cuda/cuda.h"
extern "C" {
#include "kernels/prepare/sum.h"
}

#define PIECE 256
#define LONG 1024			/* terms of a slab at least */
#define SLABS 64
#define LANES 8

struct sum : hd_sum {
	int64_t slabs, terms;
};

static void cut(struct sum *s)
{
	s->terms = 1;
	for (int k = 0; k < s->ndim; k++)
		s->terms *= s->dim[k].c ? 1 : s->dim[k].n;
	s->slabs = s->r / LONG < SLABS ? s->r / LONG : SLABS;
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

template<class C> HD_DEV void put(C *c, int64_t i, double x, int acc)
{
	from_float(c + i, (float)(x + (acc ? (double)to_float(c[i]) : 0)));
}

/* Row of blockIdx.x, slab of blockIdx.y. */
template<int N, class A> __global__ void __launch_bounds__(HD_WARP * LANES)
sum_row(double *part, const A *a, int64_t r, int64_t count)
{
	HD_SHARED(double, scratch, [LANES]);
	int64_t len = ((r + gridDim.y - 1) / gridDim.y + 7) / 8 * 8, from = len * blockIdx.y, to = hd_least(from + len, r);
	double sum = 0;

	a += blockIdx.x * r;
	for (int64_t i = from + (int64_t)threadIdx.x * N; i < to; i += HD_WARP * LANES * N) {
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
	sum = block_sum<HD_WARP * LANES>(sum, scratch);
	if (threadIdx.x == 0)
		part[blockIdx.y * count + blockIdx.x] = sum;
}

/* 32 columns of one p, slab of blockIdx.y; LANES rows at a time. */
template<class A> __global__ void __launch_bounds__(HD_WARP * LANES)
sum_columns(double *part, const A *a, int64_t r, int64_t q, int64_t count)
{
	HD_SHARED(double, lanes, [LANES][HD_WARP]);
	int64_t tiles = (q + HD_WARP - 1) / HD_WARP, p = blockIdx.x / tiles;
	int64_t col = blockIdx.x % tiles * HD_WARP + threadIdx.x % HD_WARP;
	int64_t len = (r + gridDim.y - 1) / gridDim.y, from = len * blockIdx.y, to = hd_least(from + len, r);
	int lane = (int)threadIdx.x / HD_WARP;
	double sum = 0;

	a += p * r * q + col;
	for (int64_t i = from + lane; i < to && col < q;) {
		float x = 0;

		for (int k = 0; k < PIECE && i < to; k++, i += LANES)
			x += to_float(a[i * q]);
		sum += (double)x;
	}
	lanes[lane][threadIdx.x % HD_WARP] = sum;
	__syncthreads();
	if (lane || col >= q)
		return;
	for (int k = 1; k < LANES; k++)
		sum += lanes[k][threadIdx.x];
	part[blockIdx.y * count + p * q + col] = sum;
}

template<class C> struct join {
	C *c;
	const double *part;
	int64_t slabs, count;
	int acc;

	template<int N> HD_DEV void at(int64_t i) const
	{
		double x = 0;

		for (int64_t s = 0; s < slabs; s++)
			x += part[s * count + i];
		put(c, i, x, acc);
	}
};

template<class C, class A> struct gather {
	C *c;
	const A *a;
	struct sum s;
	int acc;

	template<int N> HD_DEV void at(int64_t i) const
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

template<class C, class A> static void go(const struct sum *s, C *c, const A *a, const struct hd_run *r)
{
	const int V = 16 / sizeof(A);
	double *part = (double *)hd_cuda_scratch();
	dim3 rows((unsigned)s->p, (unsigned)s->slabs), tiles((unsigned)(s->p * ((s->q + 31) / 32)), (unsigned)s->slabs);

	if (!s->simple) {
		hd_each<1>(r, s->count, 1, gather<C, A>{ c, a, *s, r->acc });
		return;
	}
	if (s->q > 1)
		HD_LAUNCH((sum_columns<A>), tiles, HD_WARP * LANES, 0, r, part, a, s->r, s->q, s->count);
	else if (s->r % V == 0 && hd_aligned(a))
		HD_LAUNCH((sum_row<V, A>), rows, HD_WARP * LANES, 0, r, part, a, s->r, s->count);
	else
		HD_LAUNCH((sum_row<1, A>), rows, HD_WARP * LANES, 0, r, part, a, s->r, s->count);
	hd_each<1>(r, s->count, 1, join<C>{ c, part, s->slabs, s->count, r->acc });
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
