/* SPDX-License-Identifier: Apache-2.0
 * norm_d, norm_d_add and norm_dw: gradients of layer norm and RMS norm; the equations are in
 * kernels/ref/rows/norm.c.
 *
 * Rows are read as in norm.  norm_dw sums columns (columns.h).  norm_d can compute these sums along with its own
 * result (norm_sums.h).
 */
#include "kernels/cuda/rows/norm_sums.h"

#define BLOCKS (3 * 132) /* blocks of norm_dw, all resident at once */
#define ROWS 4           /* rows that a thread of norm_dw reads at once */

HD_CUDA_PREPARE_TYPES(prepare_d, "norm_d", "tuf*", "tf", hd_prepare_norm_d(c, p))
HD_CUDA_PREPARE_TYPES(prepare_d_add, "norm_d_add", "ttuf*", "tf", hd_prepare_norm_d_add(c, p))
HD_CUDA_PREPARE_TYPES(prepare_dw_shared, "norm_dw", "tf*", "f", hd_prepare_norm_dw(c, p))

/* Checks that the last input, dy, has the dtype of x.  The letters above cannot express this. */
static int same_dy(const char *kernel, const struct hd_kernel_desc *d, struct hd_err *err)
{
	if (d->in[d->nin - 1].dtype == d->in[0].dtype)
		return HD_OK;
	return hd_err_set(err, HD_ENOTSUP, "%s: dy is %s and x is %s", kernel, hd_dtype_name(d->in[d->nin - 1].dtype),
			  hd_dtype_name(d->in[0].dtype));
}

static int64_t slabs_of(const struct hd_prep *p)
{
	return hd_slabs(p->n[0], p->n[1], p->n[14] == HD_DTYPE_F32 ? 4 : 8, BLOCKS, ROWS);
}

static int prepare_dw(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_dw_shared(d, p, err));
	hd_cuda_scratch_need((size_t)(slabs_of(p) * p->n[1]) * 2 * sizeof(float));
	return same_dy("norm_dw", d, err);
}

/* -- sums computed along with norm_d ------------------------------------------------------------------------------- */
static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

template <class T, class W> static int allow_summed(const struct hd_prep *p)
{
	norm_d_args<T, W> a = {};
	int rc = HD_OK;

	a.cols = p->n[1];
	launch_summed<T, W>{ a, NULL, 0, 0, NULL, &rc }.any();
	return rc;
}

/* Requests scratch memory for the sums.  n[5]: the sums need separate launches, because the GPU has too little
 * shared memory. */
static void need_sums(struct hd_prep *p)
{
	int low = p->n[14] == HD_DTYPE_BF16;
	int64_t n = p->n[3] + p->n[4], blocks = summed_blocks(p->n[0], p->n[1], low);

	if (!n)
		return;
	hd_cuda_scratch_need((size_t)(larger(blocks * n, 2 * slabs_of(p)) * p->n[1]) * sizeof(float));
	if (low) /* rows of fp32 do not go through shared memory */
		p->n[5] = (p->n[15] == HD_DTYPE_BF16 ? allow_summed<bf16, bf16>(p) : allow_summed<bf16, float>(p)) < 0;
}

static int prepare_back(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_d(d, p, err));
	need_sums(p);
	return same_dy("norm_d", d, err);
}

static int prepare_back_add(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_d_add(d, p, err));
	need_sums(p);
	return same_dy("norm_d_add", d, err);
}

/* -- rows in registers: K vectors of each of ROW threads ----------------------------------------------------------- */
/* dx may be r or dy: each thread reads elements before it writes them. */
template <int K, int ROW, class T, class W>
__global__ void __launch_bounds__(ROW < THREADS ? THREADS : ROW) norm_d_held(norm_d_args<T, W> a)
{
	HD_SHARED(float, scratch, [2][ROW / HD_WARP]);
	int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / ROW;
	int first = (int)threadIdx.x % ROW * FOUR, cols = (int)a.cols;
	vec<FOUR, T> x[K] = {}, d[K] = {}, r[K] = {};
	float v[K][FOUR], g[K][FOUR], sum = 0, dot = 0, mu, rs;

	if (row >= a.rows)
		return;
	fetch_row<K, ROW>(x, a.x + row * cols, first, cols);
	fetch_row<K, ROW>(d, a.dy + row * cols, first, cols);
	if (a.r)
		fetch_row<K, ROW>(r, a.r + row * cols, first, cols);
	mu = a.mean ? a.mean[row] : 0;
	rs = a.rstd[row];
#pragma unroll
	for (int k = 0; k < K; k++) {
		float w[FOUR] = {};

		if (in_row<K, ROW>(k, first, cols))
			load<FOUR>(w, a.w + first + k * ROW * FOUR);
		floats(v[k], x[k]);
		floats(g[k], d[k]);
		for (int i = 0; i < FOUR; i++) {
			g[k][i] *= w[i]; /* 0 beyond the row */
			v[k][i] = (v[k][i] - mu) * rs;
			sum += g[k][i];
			dot += g[k][i] * v[k][i];
		}
	}
	sum = a.mean ? row_sum<ROW>(sum, scratch[0]) * a.each : 0;
	dot = row_sum<ROW>(dot, scratch[1]) * a.each;
#pragma unroll
	for (int k = 0; k < K; k++)
		if (in_row<K, ROW>(k, first, cols)) {
			float more[FOUR];

			floats(more, r[k]);
			for (int i = 0; i < FOUR; i++)
				more[i] += rs * (g[k][i] - sum - v[k][i] * dot);
			store<FOUR>(a.dx + row * cols + first + k * ROW * FOUR, more);
		}
}

template <class T, class W> struct launch_norm_d {
	const norm_d_args<T, W> &a;
	const struct hd_run *r;

	template <int K, int ROW> void launch() const
	{
		HD_LAUNCH((norm_d_held<K, ROW, T, W>), row_blocks<ROW>(a.rows), row_threads<ROW>(), 0, r, a);
	}
};

/* Distributes results that are contiguous in scratch memory to several outputs. */
struct put_each {
	float *to[3];
	int64_t cols;
	int acc;

	HD_DEV void put(int64_t i, float x) const
	{
		float *y = to[i / cols] + i % cols;

		*y = acc ? *y + x : x;
	}
};

/* -- rows of any kind, a block each -------------------------------------------------------------------------------- */
template <int N, class T, class W> __global__ void __launch_bounds__(THREADS) norm_d(norm_d_args<T, W> a)
{
	HD_SHARED(float, scratch, [THREADS / HD_WARP]);
	int64_t row = blockIdx.x, from = row * a.cols;
	float sum = 0, dot = 0, mu = a.mean ? a.mean[row] : 0, rs = a.rstd[row];

	for (int64_t j = (int64_t)threadIdx.x * N; j < a.cols; j += THREADS * N) {
		float v[N], g[N], d[N];

		load<N>(v, a.x + from + j);
		load<N>(g, a.w + j);
		load<N>(d, a.dy + from + j);
		for (int k = 0; k < N; k++) {
			sum += g[k] * d[k];
			dot += g[k] * d[k] * ((v[k] - mu) * rs);
		}
	}
	sum = a.mean ? block_sum<THREADS>(sum, scratch) * a.each : 0;
	dot = block_sum<THREADS>(dot, scratch) * a.each;
	for (int64_t j = (int64_t)threadIdx.x * N; j < a.cols; j += THREADS * N) {
		float v[N], g[N], d[N], more[N] = {};

		load<N>(v, a.x + from + j);
		load<N>(g, a.w + j);
		load<N>(d, a.dy + from + j);
		if (a.r)
			load<N>(more, a.r + from + j);
		for (int k = 0; k < N; k++)
			more[k] += rs * (g[k] * d[k] - sum - (v[k] - mu) * rs * dot);
		store<N>(a.dx + from + j, more);
	}
}

/* -- columns ------------------------------------------------------------------------------------------------------- */
/* Sums every gridDim.y-th group of HD_LANES rows, from group blockIdx.y on.  A warp has 32 * N columns of tile
 * blockIdx.x, and a thread reads ROWS rows at once.  part: for each slab the sums for dw, then those for db. */
template <int N, class T>
__global__ void __launch_bounds__(HD_WARP *HD_LANES, 3)
	norm_dw(float *part, const T *x, const float *rstd, const float *mean, const T *dy, int64_t rows, int64_t cols)
{
	HD_SHARED(float, lanes, [HD_LANES][HD_WARP * N]);
	int lane = (int)threadIdx.x / HD_WARP, c = (int)threadIdx.x % HD_WARP * N;
	int64_t first = (int64_t)blockIdx.x * HD_WARP * N, step = (int64_t)gridDim.y * HD_LANES;
	float sum[N] = {}, bias[N] = {};

	x += first + c;
	dy += first + c;
	for (int64_t i = (int64_t)blockIdx.y * HD_LANES + lane; i < rows && first + c < cols; i += ROWS * step) {
		vec<N, T> v[ROWS] = {}, d[ROWS] = {};
		float mu[ROWS] = {}, rs[ROWS] = {};

#pragma unroll
		for (int k = 0; k < ROWS; k++) {
			int64_t row = i + k * step;

			if (row < rows) {
				v[k] = fetch<N>(x + row * cols);
				d[k] = fetch<N>(dy + row * cols);
				rs[k] = rstd[row];
				mu[k] = mean ? mean[row] : 0;
			}
		}
#pragma unroll
		for (int k = 0; k < ROWS; k++) {
			float a[N], b[N];

			floats(a, v[k]);
			floats(b, d[k]);
			for (int n = 0; n < N; n++) {
				sum[n] += b[n] * ((a[n] - mu[k]) * rs[k]);
				bias[n] += b[n];
			}
		}
	}
	part += blockIdx.y * 2 * cols + first;
	hd_join_lanes<N>(part, lanes, sum, lane, c, cols - first);
	hd_join_lanes<N>(part + cols, lanes, bias, lane, c, cols - first);
}

/* -- launches ------------------------------------------------------------------------------------------------------ */
/* add: dx also gets in[-1]. */
template <class T, class W>
static norm_d_args<T, W> args_of(const struct hd_prep *p, void *const *out, void *const *in, int add)
{
	int rms = p->n[2] != 0;

	return { (T *)out[0],
		 add ? (const T *)in[-1] : NULL,
		 (const T *)in[0],
		 (const W *)in[1],
		 (const float *)in[2],
		 rms ? NULL : (const float *)in[3],
		 (const T *)in[rms ? 3 : 4],
		 p->n[0],
		 p->n[1],
		 1 / (float)p->n[1] };
}

template <class T, class W> static int in_vectors(const norm_d_args<T, W> &a)
{
	return hd_aligned(a.x) && hd_aligned(a.w) && hd_aligned(a.dx) && hd_aligned(a.dy) && hd_aligned(a.r) &&
	       a.cols % FOUR == 0;
}

/* Returns whether norm_d_summed takes such rows. */
template <class T, class W> static int in_units(const norm_d_args<T, W> &a)
{
	return a.cols % (16 / (int)sizeof(T)) == 0 && a.cols <= MOST_COLS;
}

template <class T, class W> static void launch_d(const norm_d_args<T, W> &a, const struct hd_run *r)
{
	const int V = 16 / sizeof(T);

	if (!in_vectors(a))
		HD_LAUNCH((norm_d<1, T, W>), (unsigned)a.rows, THREADS, 0, r, a);
	else if (hold_row(a.cols, launch_norm_d<T, W>{ a, r }))
		return;
	else if (a.cols % V)
		HD_LAUNCH((norm_d<FOUR, T, W>), (unsigned)a.rows, THREADS, 0, r, a);
	else
		HD_LAUNCH((norm_d<V, T, W>), (unsigned)a.rows, THREADS, 0, r, a);
}

/* Computes partial sums of dy (x - mean) rstd and of dy for each slab. */
template <class T>
static void sum_columns(const struct hd_prep *p, const T *x, const float *rstd, const float *mean, const T *dy,
			const struct hd_run *r)
{
	const int V = 16 / sizeof(T);
	int64_t rows = p->n[0], cols = p->n[1];
	int wide = cols % V == 0 && hd_aligned(x) && hd_aligned(dy), tile = HD_WARP * (wide ? V : 1);
	float *part = (float *)hd_cuda_scratch();
	dim3 grid((unsigned)((cols + tile - 1) / tile), (unsigned)slabs_of(p));

	if (wide)
		HD_LAUNCH((norm_dw<V, T>), grid, HD_WARP * HD_LANES, 0, r, part, x, rstd, mean, dy, rows, cols);
	else
		HD_LAUNCH((norm_dw<1, T>), grid, HD_WARP * HD_LANES, 0, r, part, x, rstd, mean, dy, rows, cols);
}

template <class T>
static void launch_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int rms = p->n[2] != 0;
	int64_t cols = p->n[1];
	put_each to = { { (float *)out[0], p->n[3] ? (float *)out[1] : NULL, NULL }, cols, r->acc };

	if (!cols)
		return;
	sum_columns(p, (const T *)in[0], (const float *)in[1], rms ? NULL : (const float *)in[2],
		    (const T *)in[rms ? 2 : 3], r);
	hd_join(r, (const float *)hd_cuda_scratch(), slabs_of(p), 2 * cols, p->n[3] ? 2 * cols : cols, to);
}

/* Computes the sums in separate launches, for rows that norm_d_summed does not take. */
template <class T, class W>
static void sums_in_own_launches(const struct hd_prep *p, const norm_d_args<T, W> &a, float *const *to,
				 const struct hd_run *r)
{
	const float *part = (const float *)hd_cuda_scratch();
	int64_t cols = p->n[1], weights = p->n[3];

	if (weights) {
		sum_columns(p, a.x, a.rstd, a.mean, a.dy, r);
		hd_join(r, part, slabs_of(p), 2 * cols, weights * cols,
			put_each{ { to[0], to[1], NULL }, cols, r->acc });
	}
	if (p->n[4]) { /* only its second sums are used */
		sum_columns(p, a.dx, a.rstd, a.mean, a.dx, r);
		hd_join(r, part + cols, slabs_of(p), 2 * cols, cols,
			put_each{ { to[weights], NULL, NULL }, cols, r->acc });
	}
}

template <class T, class W>
static void launch_back(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r, int add)
{
	const norm_d_args<T, W> a = args_of<T, W>(p, out, in, add);
	int64_t n = p->n[3] + p->n[4], cols = p->n[1];
	float *to[3] = { NULL }, *part = (float *)hd_cuda_scratch();

	for (int64_t i = 0; i < n; i++)
		to[i] = (float *)out[1 + i];
	if (n && a.rows && in_vectors(a) && in_units(a) && !p->n[5]) {
		launch_summed<T, W>{ a, part, (int)p->n[3], (int)p->n[4], r, NULL }.any();
		hd_join(r, part, summed_blocks(a.rows, cols, sizeof(T) == 2), n * cols, n * cols,
			put_each{ { to[0], to[1], to[2] }, cols, r->acc });
		return;
	}
	if (a.rows)
		launch_d(a, r);
	if (n)
		sums_in_own_launches(p, a, to, r);
}

static void any_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r, int add)
{
	if (p->n[14] == HD_DTYPE_F32)
		p->n[15] == HD_DTYPE_F32 ? launch_back<float, float>(p, out, in, r, add)
					 : launch_back<float, bf16>(p, out, in, r, add);
	else
		p->n[15] == HD_DTYPE_F32 ? launch_back<bf16, float>(p, out, in, r, add)
					 : launch_back<bf16, bf16>(p, out, in, r, add);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	any_d(p, out, in, r, 0);
}

static void run_d_add(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	any_d(p, out, in + 1, r, 1);
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? launch_dw<float>(p, out, in, r) : launch_dw<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(norm_d, "norm_d", HD_K_ACC_REST, prepare_back, run_d);
HD_CUDA_KERNEL(norm_d_add, "norm_d_add", HD_K_ACC_REST, prepare_back_add, run_d_add);
HD_CUDA_KERNEL(norm_dw, "norm_dw", HD_K_ACC, prepare_dw, run_dw);
