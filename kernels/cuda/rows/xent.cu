/* SPDX-License-Identifier: Apache-2.0
 * xent, xent_combine and xent_d: cross entropy over a slice of the vocabulary; the equations are in the reference.
 *
 * One block per row.  xent reads the logits once: each thread keeps its own maximum and its sum of exponentials around
 * it, and they are joined at the end (Milakov and Gimelshein 2018).
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/elementwise.h"
#include "kernels/prepare/xent.h"
}

#define THREADS 256

HD_CUDA_PREPARE_TYPES(prepare, "xent", "t*", "f", hd_prepare_xent(c, p))
HD_CUDA_PREPARE_TYPES(prepare_combine, "xent_combine", "f", "f", hd_prepare_alike(c, p, 3, 1))
HD_CUDA_PREPARE_TYPES(prepare_d, "xent_d", "t*f", "t", hd_prepare_xent_d(c, p))

template <int N, class T>
__global__ void __launch_bounds__(THREADS) xent(const T *z, const int32_t *targets, float *max, float *sum,
						float *target, int64_t cols, int64_t real, int64_t first)
{
	HD_SHARED(float, scratch, [THREADS / HD_WARP]);
	int64_t row = blockIdx.x, t = targets[row] - first;
	float top = -INFINITY, whole, part = 0;

	z += row * cols;
	for (int64_t j = (int64_t)threadIdx.x * N; j < real; j += THREADS * N) {
		float v[N], high = top;

		if (j + N <= real)
			load<N>(v, z + j);
		else
			for (int k = 0; k < N; k++)
				v[k] = j + k < real ? to_float(z[j + k]) : -INFINITY;
		for (int k = 0; k < N; k++)
			high = v[k] > high ? v[k] : high;
		if (high > top)
			part *= expf(top - high);
		top = high;
		for (int k = 0; k < N; k++)
			part += top == -INFINITY ? (v[k] == v[k] ? 0 : v[k]) : expf(v[k] - top);
	}
	whole = block_max<THREADS>(top, scratch);
	part = top == -INFINITY ? part : part * expf(top - whole);
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

template <int N, class T>
__global__ void __launch_bounds__(THREADS)
	xent_d(T *dz, const T *z, const int32_t *targets, const float *max, const float *sum, const float *dnll,
	       int64_t cols, int64_t real, int64_t first)
{
	int64_t row = blockIdx.x, t = targets[row] - first;
	float top = max[row], d = dnll[row], scale = d / sum[row];

	z += row * cols;
	dz += row * cols;
	for (int64_t j = (int64_t)threadIdx.x * N; j < cols; j += THREADS * N) {
		float v[N];

		load<N>(v, z + j);
		for (int k = 0; k < N; k++)
			v[k] = j + k >= real ? 0 : expf(v[k] - top) * scale - (j + k == t ? d : 0);
		store<N>(dz + j, v);
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
