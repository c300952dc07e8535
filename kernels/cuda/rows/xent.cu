/* SPDX-License-Identifier: Apache-2.0
 * xent, xent_combine and xent_d: cross entropy over a slice of the vocabulary; the equations are in the reference.
 *
 * One block per row.  xent reads the logits once: each thread keeps its own maximum and its sum of exponentials around
 * it, and they are joined at the end (Milakov and Gimelshein 2018).  Exponentials are 2^(x log2 e), one multiplication and one
 * instruction: with expf the arithmetic would take longer than memory.  The maximum is subtracted first, which is exact where the
 * result is large.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/elementwise.h"
#include "kernels/prepare/xent.h"
}

#define THREADS 256
#define MANY 4 /* vectors that a thread reads at once */
#define LOG2_E 1.4426950409f

HD_CUDA_PREPARE_TYPES(prepare, "xent", "t*", "f", hd_prepare_xent(c, p))
HD_CUDA_PREPARE_TYPES(prepare_combine, "xent_combine", "f", "f", hd_prepare_alike(c, p, 3, 1))
HD_CUDA_PREPARE_TYPES(prepare_d, "xent_d", "t*f", "t", hd_prepare_xent_d(c, p))

/* The vectors of this thread at j, j + THREADS * N and so on, MANY of them, as far as the row has them. */
template <int N, class T> HD_DEV void fetch_logits(vec<N, T> *v, const T *z, int j, int cols)
{
#pragma unroll
	for (int i = 0; i < MANY; i++)
		if (j + i * THREADS * N < cols)
			v[i] = fetch<N>(z + j + i * THREADS * N);
}

/* -inf beyond the columns that are no padding. */
template <int N> HD_DEV void no_padding(float *v, int j, int real)
{
	if (j + N > real)
		for (int k = 0; k < N; k++)
			v[k] = j + k < real ? v[k] : -INFINITY;
}

/* The maximum, and the sum of exponentials around it, of vectors as fetch_logits has them.  While all are -inf the sum is around 0:
 * so NaN shows, and nothing else counts. */
template <int N> HD_DEV void add_logits(float *top, float *part, const float (*v)[N], int j, int real)
{
	float high = *top, from, sum = 0;

	for (int i = 0; i < MANY; i++)
		for (int k = 0; k < N; k++)
			high = fmaxf(high, v[i][k]);
	if (high > *top)
		*part *= hd_exp2((*top - high) * LOG2_E);
	*top = high;
	from = high == -INFINITY ? 0 : high;
#pragma unroll
	for (int i = 0; i < MANY; i++)
		if (j + i * THREADS * N < real)
			for (int k = 0; k < N; k++)
				sum += hd_exp2((v[i][k] - from) * LOG2_E);
	*part += sum;
}

template <int N, class T>
__global__ void __launch_bounds__(THREADS) xent(const T *z, const int32_t *targets, float *max, float *sum,
						float *target, int64_t cols, int64_t real, int64_t first)
{
	HD_SHARED(float, scratch, [THREADS / HD_WARP]);
	int64_t row = blockIdx.x, t = targets[row] - first;
	float top = -INFINITY, whole, part = 0;

	z += row * cols;
	for (int j = (int)threadIdx.x * N; j < real; j += MANY * THREADS * N) {
		vec<N, T> raw[MANY] = {};
		float v[MANY][N];

		fetch_logits<N>(raw, z, j, (int)real);
#pragma unroll
		for (int i = 0; i < MANY; i++) {
			floats(v[i], raw[i]);
			no_padding<N>(v[i], j + i * THREADS * N, (int)real);
		}
		add_logits<N>(&top, &part, v, j, (int)real);
	}
	whole = block_max<THREADS>(top, scratch);
	part = top == -INFINITY ? part : part * hd_exp2((top - whole) * LOG2_E);
	part = block_sum<THREADS>(part, scratch);
	if (threadIdx.x == 0) {
		max[row] = whole;
		sum[row] = part;
		target[row] = t >= 0 && t < real ? to_float(z[t]) : 0;
	}
}

struct xent_combine {
	float *y;
	const float *max, *whole, *sum;

	template <int N> HD_DEV void at(int64_t i) const
	{
		for (int k = 0; k < N; k++)
			y[i + k] = sum[i + k] * expf(max[i + k] - whole[i + k]);
	}
};

struct xent_row {
	float top, d, scale;
	int target, real; /* column of the target, or one that there is not */
};

/* Gradients of the logits v of columns j and so on, in their place. */
template <int N> HD_DEV void xent_slope(float *v, const xent_row &x, int j)
{
	for (int k = 0; k < N; k++)
		v[k] = hd_exp2((v[k] - x.top) * LOG2_E) * x.scale;
	if (x.target >= j && x.target < j + N)
		for (int k = 0; k < N; k++)
			v[k] -= j + k == x.target ? x.d : 0;
	if (j + N > x.real)
		for (int k = 0; k < N; k++)
			v[k] = j + k < x.real ? v[k] : 0;
}

/* dz may be z: a thread has read what it writes. */
template <int N, class T>
__global__ void __launch_bounds__(THREADS)
	xent_d(T *dz, const T *z, const int32_t *targets, const float *max, const float *sum, const float *dnll,
	       int64_t cols, int64_t real, int64_t first)
{
	int64_t row = blockIdx.x, t = targets[row] - first;
	xent_row x = { max[row], dnll[row], dnll[row] / sum[row], t >= 0 && t < real ? (int)t : -1, (int)real };

	z += row * cols;
	dz += row * cols;
	for (int j = (int)threadIdx.x * N; j < cols; j += MANY * THREADS * N) {
		vec<N, T> raw[MANY] = {};

		fetch_logits<N>(raw, z, j, (int)cols);
#pragma unroll
		for (int i = 0; i < MANY; i++) {
			int at = j + i * THREADS * N;
			float v[N];

			if (at >= cols)
				break;
			floats(v, raw[i]);
			xent_slope<N>(v, x, at);
			store<N>(dz + at, v);
		}
	}
}

template <class T> static void go(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int V = 16 / sizeof(T);
	const T *z = (const T *)in[0];

	if (!p->n[0])
		return;
	if (p->n[1] % V == 0 && hd_aligned(z))
		HD_LAUNCH((xent<V, T>), (unsigned)p->n[0], THREADS, 0, r, z, (const int32_t *)in[1], (float *)out[0],
			  (float *)out[1], (float *)out[2], p->n[1], p->n[2], p->n[3]);
	else
		HD_LAUNCH((xent<1, T>), (unsigned)p->n[0], THREADS, 0, r, z, (const int32_t *)in[1], (float *)out[0],
			  (float *)out[1], (float *)out[2], p->n[1], p->n[2], p->n[3]);
}

template <class T> static void go_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int V = 16 / sizeof(T);
	const T *z = (const T *)in[0];
	T *dz = (T *)out[0];

	if (!p->n[0] || !p->n[1])
		return;
	if (p->n[1] % V == 0 && hd_aligned(z) && hd_aligned(dz))
		HD_LAUNCH((xent_d<V, T>), (unsigned)p->n[0], THREADS, 0, r, dz, z, (const int32_t *)in[1],
			  (const float *)in[2], (const float *)in[3], (const float *)in[4], p->n[1], p->n[2], p->n[3]);
	else
		HD_LAUNCH((xent_d<1, T>), (unsigned)p->n[0], THREADS, 0, r, dz, z, (const int32_t *)in[1],
			  (const float *)in[2], (const float *)in[3], (const float *)in[4], p->n[1], p->n[2], p->n[3]);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? go<float>(p, out, in, r) : go<bf16>(p, out, in, r);
}

static void run_combine(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	xent_combine f = { (float *)out[0], (const float *)in[0], (const float *)in[1], (const float *)in[2] };

	hd_each<1>(r, p->n[0], 1, f);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? go_d<float>(p, out, in, r) : go_d<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(xent, "xent", 0, prepare, run);
HD_CUDA_KERNEL(xent_combine, "xent_combine", 0, prepare_combine, run_combine);
HD_CUDA_KERNEL(xent_d, "xent_d", 0, prepare_d, run_d);
