/* SPDX-License-Identifier: Apache-2.0
 * norm, norm_d and norm_dw: layer norm and RMS norm; the equations are in kernels/ref/rows/norm.c.
 *
 * One block per row, whose passes over the row after the first find it in L1.  The variance is taken around the mean.
 * norm_dw sums columns: blocks of rows leave partial sums, which a second launch adds in their order.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/norm.h"
}

#define THREADS 128
#define LANES 8 /* warps of a block of norm_dw: rows at a time */

HD_CUDA_PREPARE_TYPES(prepare, "norm", "tu", "tf", hd_prepare_norm(c, p))
HD_CUDA_PREPARE_TYPES(prepare_d, "norm_d", "tuf*", "t", hd_prepare_norm_d(c, p))
HD_CUDA_PREPARE_TYPES(prepare_dw_shared, "norm_dw", "tf*", "f", hd_prepare_norm_dw(c, p))

/* The last input, dy, has the dtype of x; the letters above cannot say it. */
static int same_dy(const char *kernel, const struct hd_kernel_desc *d, struct hd_err *err)
{
	if (d->in[d->nin - 1].dtype == d->in[0].dtype)
		return HD_OK;
	return hd_err_set(err, HD_ENOTSUP, "%s: dy is %s and x is %s", kernel, hd_dtype_name(d->in[d->nin - 1].dtype),
			  hd_dtype_name(d->in[0].dtype));
}

static int prepare_back(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_d(d, p, err));
	return same_dy("norm_d", d, err);
}

static int64_t slabs_of(int64_t rows)
{
	return rows < 64 ? 1 : rows < 64 * 64 ? rows / 64 : 64;
}

static int prepare_dw(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_dw_shared(d, p, err));
	hd_cuda_scratch_need((size_t)(slabs_of(p->n[0]) * p->n[1]) * 2 * sizeof(float));
	return same_dy("norm_dw", d, err);
}

template <int N, class T, class W>
__global__ void __launch_bounds__(THREADS)
	norm(T *y, float *rstd, float *mean, const T *x, const W *w, const W *b, int64_t cols, int rms, double eps)
{
	HD_SHARED(float, scratch, [THREADS / HD_WARP]);
	int64_t row = blockIdx.x;
	float sum = 0, square = 0, mu, rs;

	x += row * cols;
	y += row * cols;
	for (int64_t j = (int64_t)threadIdx.x * N; j < cols && !rms; j += THREADS * N) {
		float v[N];

		load<N>(v, x + j);
		for (int k = 0; k < N; k++)
			sum += v[k];
	}
	mu = rms ? 0 : block_sum<THREADS>(sum, scratch) / (float)cols;
	for (int64_t j = (int64_t)threadIdx.x * N; j < cols; j += THREADS * N) {
		float v[N];

		load<N>(v, x + j);
		for (int k = 0; k < N; k++)
			square += (v[k] - mu) * (v[k] - mu);
	}
	rs = (float)(1 / sqrt((double)block_sum<THREADS>(square, scratch) / (double)cols + eps));
	for (int64_t j = (int64_t)threadIdx.x * N; j < cols; j += THREADS * N) {
		float v[N], g[N], o[N];

		load<N>(v, x + j);
		load<N>(g, w + j);
		if (b)
			load<N>(o, b + j);
		for (int k = 0; k < N; k++)
			v[k] = (v[k] - mu) * rs * g[k] + (b ? o[k] : 0);
		store<N>(y + j, v);
	}
	if (threadIdx.x == 0) {
		rstd[row] = rs;
		if (mean)
			mean[row] = mu;
	}
}

template <int N, class T, class W>
__global__ void __launch_bounds__(THREADS)
	norm_d(T *dx, const T *x, const W *w, const float *rstd, const float *mean, const T *dy, int64_t cols)
{
	HD_SHARED(float, scratch, [THREADS / HD_WARP]);
	int64_t row = blockIdx.x;
	float sum = 0, dot = 0, mu = mean ? mean[row] : 0, rs = rstd[row];

	x += row * cols;
	dx += row * cols;
	dy += row * cols;
	for (int64_t j = (int64_t)threadIdx.x * N; j < cols; j += THREADS * N) {
		float v[N], g[N], d[N];

		load<N>(v, x + j);
		load<N>(g, w + j);
		load<N>(d, dy + j);
		for (int k = 0; k < N; k++) {
			sum += g[k] * d[k];
			dot += g[k] * d[k] * ((v[k] - mu) * rs);
		}
	}
	sum = mean ? block_sum<THREADS>(sum, scratch) / (float)cols : 0;
	dot = block_sum<THREADS>(dot, scratch) / (float)cols;
	for (int64_t j = (int64_t)threadIdx.x * N; j < cols; j += THREADS * N) {
		float v[N], g[N], d[N];

		load<N>(v, x + j);
		load<N>(g, w + j);
		load<N>(d, dy + j);
		for (int k = 0; k < N; k++)
			d[k] = rs * (g[k] * d[k] - sum - (v[k] - mu) * rs * dot);
		store<N>(dx + j, d);
	}
}

/* Sums of the lanes of a block, in their order, to `to`. */
template <int N>
HD_DEV void join_lanes(float *to, float (*lanes)[HD_WARP * N], const float *mine, int lane, int c, int64_t have)
{
	for (int k = 0; k < N; k++)
		lanes[lane][c + k] = mine[k];
	__syncthreads();
	for (int i = (int)threadIdx.x; i < HD_WARP * N && i < have; i += HD_WARP * LANES) {
		float sum = lanes[0][i];

		for (int k = 1; k < LANES; k++)
			sum += lanes[k][i];
		to[i] = sum;
	}
	__syncthreads();
}

/* Rows from blockIdx.y on, every gridDim.y-th group of LANES; a warp has 32 times N columns of blockIdx.x. */
template <int N, class T>
__global__ void __launch_bounds__(HD_WARP *LANES) norm_dw(float *part_w, float *part_b, const T *x, const float *rstd,
							  const float *mean, const T *dy, int64_t rows, int64_t cols)
{
	HD_SHARED(float, lanes, [LANES][HD_WARP * N]);
	int lane = (int)threadIdx.x / HD_WARP, c = (int)threadIdx.x % HD_WARP * N;
	int64_t first = (int64_t)blockIdx.x * HD_WARP * N, col = first + c;
	float sum[N] = {}, bias[N] = {};

#pragma unroll 2
	for (int64_t i = (int64_t)blockIdx.y * LANES + lane; i < rows && col < cols; i += (int64_t)gridDim.y * LANES) {
		float d[N], v[N], mu = mean ? mean[i] : 0, rs = rstd[i];

		load<N>(v, x + i * cols + col);
		load<N>(d, dy + i * cols + col);
		for (int k = 0; k < N; k++) {
			sum[k] += d[k] * ((v[k] - mu) * rs);
			bias[k] += d[k];
		}
	}
	join_lanes<N>(part_w + blockIdx.y * cols + first, lanes, sum, lane, c, cols - first);
	join_lanes<N>(part_b + blockIdx.y * cols + first, lanes, bias, lane, c, cols - first);
}

__global__ void __launch_bounds__(128)
	add_parts(float *dw, float *db, const float *part_w, const float *part_b, int64_t slabs, int64_t cols, int acc)
{
	int64_t col = (int64_t)blockIdx.x * 128 + threadIdx.x;
	float w = 0, b = 0;

	if (col >= cols)
		return;
	for (int64_t s = 0; s < slabs; s++) {
		w += part_w[s * cols + col];
		b += part_b[s * cols + col];
	}
	dw[col] = acc ? dw[col] + w : w;
	if (db)
		db[col] = acc ? db[col] + b : b;
}

template <class T, class W>
static void go(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int V = 16 / sizeof(T);
	int rms = p->n[2] != 0, wide = p->n[1] % V == 0 && hd_aligned(in[0]) && hd_aligned(in[1]) && hd_aligned(out[0]);
	const W *b = p->n[3] ? (const W *)in[2] : NULL;
	float *mean = rms ? NULL : (float *)out[2];

	if (!p->n[0])
		return;
	if (wide && hd_aligned(b))
		HD_LAUNCH((norm<V, T, W>), (unsigned)p->n[0], THREADS, 0, r, (T *)out[0], (float *)out[1], mean,
			  (const T *)in[0], (const W *)in[1], b, p->n[1], rms, p->f[0]);
	else
		HD_LAUNCH((norm<1, T, W>), (unsigned)p->n[0], THREADS, 0, r, (T *)out[0], (float *)out[1], mean,
			  (const T *)in[0], (const W *)in[1], b, p->n[1], rms, p->f[0]);
}

template <class T, class W>
static void go_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int V = 16 / sizeof(T);
	int rms = p->n[2] != 0;
	const T *dy = (const T *)in[rms ? 3 : 4];
	const float *mean = rms ? NULL : (const float *)in[3];

	if (!p->n[0])
		return;
	if (p->n[1] % V == 0 && hd_aligned(in[0]) && hd_aligned(in[1]) && hd_aligned(out[0]) && hd_aligned(dy))
		HD_LAUNCH((norm_d<V, T, W>), (unsigned)p->n[0], THREADS, 0, r, (T *)out[0], (const T *)in[0],
			  (const W *)in[1], (const float *)in[2], mean, dy, p->n[1]);
	else
		HD_LAUNCH((norm_d<1, T, W>), (unsigned)p->n[0], THREADS, 0, r, (T *)out[0], (const T *)in[0],
			  (const W *)in[1], (const float *)in[2], mean, dy, p->n[1]);
}

template <int N, class T>
static void launch_dw(const struct hd_prep *p, float *part, void *const *in, const struct hd_run *r)
{
	int64_t rows = p->n[0], cols = p->n[1], slabs = slabs_of(rows);
	int rms = p->n[2] != 0;
	const float *mean = rms ? NULL : (const float *)in[2];
	dim3 grid((unsigned)((cols + HD_WARP * N - 1) / (HD_WARP * N)), (unsigned)slabs);

	HD_LAUNCH((norm_dw<N, T>), grid, HD_WARP * LANES, 0, r, part, part + slabs * cols, (const T *)in[0],
		  (const float *)in[1], mean, (const T *)in[rms ? 2 : 3], rows, cols);
}

template <class T> static void go_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int V = 16 / sizeof(T);
	int64_t cols = p->n[1], slabs = slabs_of(p->n[0]);
	float *part = (float *)hd_cuda_scratch();

	if (!cols)
		return;
	if (cols % V == 0 && hd_aligned(in[0]) && hd_aligned(in[p->n[2] ? 2 : 3]))
		launch_dw<V, T>(p, part, in, r);
	else
		launch_dw<1, T>(p, part, in, r);
	HD_LAUNCH(add_parts, hd_blocks(cols, 128), 128, 0, r, (float *)out[0], p->n[3] ? (float *)out[1] : NULL, part,
		  part + slabs * cols, slabs, cols, r->acc);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	if (p->n[14] == HD_DTYPE_F32)
		p->n[15] == HD_DTYPE_F32 ? go<float, float>(p, out, in, r) : go<float, bf16>(p, out, in, r);
	else
		p->n[15] == HD_DTYPE_F32 ? go<bf16, float>(p, out, in, r) : go<bf16, bf16>(p, out, in, r);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	if (p->n[14] == HD_DTYPE_F32)
		p->n[15] == HD_DTYPE_F32 ? go_d<float, float>(p, out, in, r) : go_d<float, bf16>(p, out, in, r);
	else
		p->n[15] == HD_DTYPE_F32 ? go_d<bf16, float>(p, out, in, r) : go_d<bf16, bf16>(p, out, in, r);
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? go_dw<float>(p, out, in, r) : go_dw<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(norm, "norm", 0, prepare, run);
HD_CUDA_KERNEL(norm_d, "norm_d", 0, prepare_back, run_d);
HD_CUDA_KERNEL(norm_dw, "norm_dw", HD_K_ACC, prepare_dw, run_dw);
