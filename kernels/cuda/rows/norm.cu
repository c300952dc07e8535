/* SPDX-License-Identifier: Apache-2.0
 * norm: layer norm and RMS norm; the equations are in kernels/ref/rows/norm.c.
 *
 * A row is read once, into registers (norm.h).  Rows that are too long for this, or whose addresses do not allow
 * vectors, have a block each, whose later passes find them in L1.  The variance is computed around the mean.
 */
#include "kernels/cuda/rows/norm_sums.h"

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

/* -- rows in registers: K vectors of each of ROW threads ----------------------------------------------------------- */
/* w and b do not overlap y, so their loads need not wait for earlier stores. */
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

	if (row >= a.rows) /* true for all threads of a row, or for none */
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

	template <int K, int ROW> void launch() const
	{
		HD_LAUNCH((norm_held<K, ROW, T, W>), row_blocks<ROW>(a.rows), row_threads<ROW>(), 0, r, a);
	}
};

/* -- rows of bf16, one after another in a block -------------------------------------------------------------------- */
#define AHEAD_THREADS 256 /* four blocks per multiprocessor: 64 registers per thread */
#define AHEAD_BLOCKS (4 * 132)

template <int K, int ROW> HD_DEV void fetch_units(vec<UNIT, bf16> *v, const bf16 *x, int first, int cols)
{
#pragma unroll
	for (int k = 0; k < K; k++)
		v[k] = has<K, ROW, UNIT>(k, first, cols) ? fetch<UNIT>(x + first + k * ROW * UNIT) : vec<UNIT, bf16>{};
}

template <int ROW> HD_DEV float place_sum(float x, float *scratch)
{
	int warp = (int)threadIdx.x / HD_WARP, first = warp / (ROW / HD_WARP) * (ROW / HD_WARP);

	x = warp_sum(x);
	if (ROW == HD_WARP)
		return x;
	if (threadIdx.x % HD_WARP == 0)
		scratch[warp] = x;
	__syncthreads();
	x = scratch[first];
	for (int i = 1; i < ROW / HD_WARP; i++)
		x += scratch[first + i];
	return x;
}

template <int K, int ROW>
HD_DEV void put_units(bf16 *y, const four (*w)[ROW], const four (*b)[ROW], const vec<UNIT, bf16> *v, float mu, float rs,
		      int first, int cols)
{
#pragma unroll
	for (int k = 0; k < K; k++)
		if (has<K, ROW, UNIT>(k, first, cols)) {
			vec<UNIT, bf16> out;
			float o[UNIT];

			for (int i = 0; i < UNIT; i++) {
				int at = (k * UNIT + i) / 4, mine = (int)threadIdx.x % ROW;

				o[i] = (v[k].at(i) - mu) * rs * w[at][mine].at(i % 4) + b[at][mine].at(i % 4);
			}
			out.set(o);
			put<UNIT>(y + first + k * ROW * UNIT, out);
		}
}

/* A row is requested before the previous one is added up; otherwise memory would idle during each sum. */
template <int K, int ROW, class W> __global__ void __launch_bounds__(AHEAD_THREADS, 4) norm_ahead(norm_args<bf16, W> a)
{
	const int PLACES = AHEAD_THREADS / ROW;
	HD_SHARED(float, scratch, [2][2][AHEAD_THREADS / HD_WARP]); /* rows alternate between the two */
	HD_SHARED(four, w, [K * UNIT / 4][ROW]);
	HD_SHARED(four, b, [K * UNIT / 4][ROW]);
	int first = (int)threadIdx.x % ROW * UNIT, cols = (int)a.cols, turn = 0;
	int64_t row = blockIdx.x * (int64_t)PLACES + threadIdx.x / ROW, step = (int64_t)gridDim.x * PLACES;
	vec<UNIT, bf16> v[K] = {}, next[K] = {};

	if (row < a.rows)
		fetch_units<K, ROW>(next, a.x + row * cols, first, cols);
	keep_weights<K, ROW, UNIT>(w, a.w, cols);
	keep_weights<K, ROW, UNIT>(b, a.b, cols);
	for (int64_t begin = (int64_t)blockIdx.x * PLACES; begin < a.rows; begin += step, row += step, turn ^= 1) {
		float sum = 0, square = 0, mu, rs;

#pragma unroll
		for (int k = 0; k < K; k++)
			v[k] = next[k];
		if (row + step < a.rows)
			fetch_units<K, ROW>(next, a.x + (row + step) * cols, first, cols);
#pragma unroll
		for (int k = 0; k < K; k++)
			for (int i = 0; i < UNIT; i++)
				sum += v[k].at(i);
		mu = a.rms ? 0 : place_sum<ROW>(sum, scratch[turn][0]) * a.each;
#pragma unroll
		for (int k = 0; k < K; k++)
			for (int i = 0; i < UNIT && has<K, ROW, UNIT>(k, first, cols); i++)
				square += (v[k].at(i) - mu) * (v[k].at(i) - mu);
		rs = hd_rsqrt(place_sum<ROW>(square, scratch[turn][1]) * a.each + a.eps);
		if (row >= a.rows)
			continue;
		put_units<K, ROW>(a.y + row * cols, w, b, v, mu, rs, first, cols);
		if (first == 0)
			a.rstd[row] = rs;
		if (first == 0 && a.mean)
			a.mean[row] = mu;
	}
}

template <int K, int ROW, class W> static void launch_ahead_rows(const norm_args<bf16, W> &a, const struct hd_run *r)
{
	const int PLACES = AHEAD_THREADS / ROW;

	HD_LAUNCH((norm_ahead<K, ROW, W>), hd_blocks(a.rows, PLACES, AHEAD_BLOCKS), AHEAD_THREADS, 0, r, a);
}
/* Returns 0 if the rows are not suitable. */
template <class W> static int launch_ahead(const norm_args<bf16, W> &a, const struct hd_run *r)
{
	if (a.cols % UNIT || a.cols <= 2 * HD_WARP * UNIT || a.cols > 2 * AHEAD_THREADS * UNIT)
		return 0;
	switch (row_of(a.cols, 1)) {
	case 32: launch_ahead_rows<3, 32>(a, r); break;
	case 64: launch_ahead_rows<2, 64>(a, r); break;
	case 128: launch_ahead_rows<2, 128>(a, r); break;
	default: launch_ahead_rows<2, 256>(a, r);
	}
	return 1;
}
template <class W> static int launch_ahead(const norm_args<float, W> &, const struct hd_run *)
{
	return 0;
}

/* -- rows of any kind, a block each -------------------------------------------------------------------------------- */
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
static void launch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
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
	else if (launch_ahead(a, r) || hold_row(a.cols, launch_norm<T, W>{ a, r }))
		return;
	else if (a.cols % V)
		HD_LAUNCH((norm<FOUR, T, W>), (unsigned)a.rows, THREADS, 0, r, a);
	else
		HD_LAUNCH((norm<V, T, W>), (unsigned)a.rows, THREADS, 0, r, a);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	if (p->n[14] == HD_DTYPE_F32)
		p->n[15] == HD_DTYPE_F32 ? launch<float, float>(p, out, in, r) : launch<float, bf16>(p, out, in, r);
	else
		p->n[15] == HD_DTYPE_F32 ? launch<bf16, float>(p, out, in, r) : launch<bf16, bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(norm, "norm", 0, prepare, run);
