/* SPDX-License-Identifier: Apache-2.0
 * norm: layer norm and RMS norm; the equations are in kernels/ref/rows/norm.c.
 *
 * A row is read once, into registers (norm.h).  Rows that are longer still, or that lie where vectors cannot, have a block each,
 * whose passes after the first find them in L1.  The variance is taken around the mean.
 */
#include "kernels/cuda/rows/norm.h"

HD_CUDA_PREPARE_TYPES(prepare, "norm", "tu", "tf", hd_prepare_norm(c, p))

template <class T, class W> struct norm_args {
	T *y;
	float *rstd, *mean;
	const T *x;
	const W *w, *b;
	int64_t rows, cols;
	float each, eps; /* each: 1 / cols */
	int rms;
};

/* -- rows in registers: K vectors of each of ROW threads -------------------------------------------------------------------- */
/* w and b are apart from y, so they need not wait for what was stored. */
template <int K, int ROW, bool BIAS, class T, class W>
HD_DEV void put_row(T *y, const W *__restrict__ w, const W *__restrict__ b, const float (*v)[FOUR], float rs, int first,
		    int cols)
{
#pragma unroll
	for (int k = 0; k < K; k++)
		if (in_row<K, ROW>(k, first, cols)) {
			int j = first + k * ROW * FOUR;
			float g[FOUR], o[FOUR] = {};

			load<FOUR>(g, w + j);
			if (BIAS)
				load<FOUR>(o, b + j);
			for (int i = 0; i < FOUR; i++)
				o[i] += v[k][i] * rs * g[i];
			store<FOUR>(y + j, o);
		}
}

template <int K, int ROW, class T, class W>
__global__ void __launch_bounds__(ROW < THREADS ? THREADS : ROW) norm_held(norm_args<T, W> a)
{
	HD_SHARED(float, scratch, [2][ROW / HD_WARP]);
	int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / ROW;
	int first = (int)threadIdx.x % ROW * FOUR, cols = (int)a.cols;
	vec<FOUR, T> x[K] = {};
	float v[K][FOUR], sum = 0, square = 0, mu, rs;

	if (row >= a.rows) /* all threads of a row */
		return;
	fetch_row<K, ROW>(x, a.x + row * cols, first, cols);
#pragma unroll
	for (int k = 0; k < K; k++) {
		floats(v[k], x[k]);
		for (int i = 0; i < FOUR; i++)
			sum += v[k][i];
	}
	mu = a.rms ? 0 : row_sum<ROW>(sum, scratch[0]) * a.each;
#pragma unroll
	for (int k = 0; k < K; k++)
		if (in_row<K, ROW>(k, first, cols))
			for (int i = 0; i < FOUR; i++) {
				v[k][i] -= mu;
				square += v[k][i] * v[k][i];
			}
	rs = hd_rsqrt(row_sum<ROW>(square, scratch[1]) * a.each + a.eps);
	if (a.b)
		put_row<K, ROW, true>(a.y + row * cols, a.w, a.b, v, rs, first, cols);
	else
		put_row<K, ROW, false>(a.y + row * cols, a.w, a.b, v, rs, first, cols);
	if (first == 0)
		a.rstd[row] = rs;
	if (first == 0 && a.mean)
		a.mean[row] = mu;
}

template <class T, class W> struct launch_norm {
	const norm_args<T, W> &a;
	const struct hd_run *r;

	template <int K, int ROW> void go() const
	{
		HD_LAUNCH((norm_held<K, ROW, T, W>), row_blocks<ROW>(a.rows), row_threads<ROW>(), 0, r, a);
	}
};
/* -- rows of any kind, a block each ----------------------------------------------------------------------------------------- */
template <int N, class T, class W> __global__ void __launch_bounds__(THREADS) norm(norm_args<T, W> a)
{
	HD_SHARED(float, scratch, [THREADS / HD_WARP]);
	int64_t row = blockIdx.x;
	const T *x = a.x + row * a.cols;
	float sum = 0, square = 0, mu, rs;

	for (int64_t j = (int64_t)threadIdx.x * N; j < a.cols && !a.rms; j += THREADS * N) {
		float v[N];

		load<N>(v, x + j);
		for (int k = 0; k < N; k++)
			sum += v[k];
	}
	mu = a.rms ? 0 : block_sum<THREADS>(sum, scratch) * a.each;
	for (int64_t j = (int64_t)threadIdx.x * N; j < a.cols; j += THREADS * N) {
		float v[N];

		load<N>(v, x + j);
		for (int k = 0; k < N; k++)
			square += (v[k] - mu) * (v[k] - mu);
	}
	rs = hd_rsqrt(block_sum<THREADS>(square, scratch) * a.each + a.eps);
	for (int64_t j = (int64_t)threadIdx.x * N; j < a.cols; j += THREADS * N) {
		float v[N], g[N], o[N] = {};

		load<N>(v, x + j);
		load<N>(g, a.w + j);
		if (a.b)
			load<N>(o, a.b + j);
		for (int k = 0; k < N; k++)
			o[k] += (v[k] - mu) * rs * g[k];
		store<N>(a.y + row * a.cols + j, o);
	}
	if (threadIdx.x == 0) {
		a.rstd[row] = rs;
		if (a.mean)
			a.mean[row] = mu;
	}
}

template <class T, class W>
static void go(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int V = 16 / sizeof(T);
	norm_args<T, W> a = { (T *)out[0], (float *)out[1], NULL,    (const T *)in[0],   (const W *)in[1],
			      NULL,        p->n[0],         p->n[1], 1 / (float)p->n[1], (float)p->f[0],
			      p->n[2] != 0 };

	a.mean = a.rms ? NULL : (float *)out[2];
	a.b = p->n[3] ? (const W *)in[2] : NULL;
	if (!a.rows)
		return;
	if (!hd_aligned(a.x) || !hd_aligned(a.w) || !hd_aligned(a.b) || !hd_aligned(a.y) || a.cols % FOUR)
		HD_LAUNCH((norm<1, T, W>), (unsigned)a.rows, THREADS, 0, r, a);
	else if (hold_row(a.cols, launch_norm<T, W>{ a, r }))
		return;
	else if (a.cols % V)
		HD_LAUNCH((norm<FOUR, T, W>), (unsigned)a.rows, THREADS, 0, r, a);
	else
		HD_LAUNCH((norm<V, T, W>), (unsigned)a.rows, THREADS, 0, r, a);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	if (p->n[14] == HD_DTYPE_F32)
		p->n[15] == HD_DTYPE_F32 ? go<float, float>(p, out, in, r) : go<float, bf16>(p, out, in, r);
	else
		p->n[15] == HD_DTYPE_F32 ? go<bf16, float>(p, out, in, r) : go<bf16, bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(norm, "norm", 0, prepare, run);
