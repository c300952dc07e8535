/* SPDX-License-Identifier: Apache-2.0
 * gelu and gelu_d, tanh form; the equations are in kernels/cpu/elementwise/gelu.c.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/elementwise.h"
}

#define TWO_ROOT_2_PI 1.5957691216f
#define CUBIC 0.044715f

HD_CUDA_PREPARE_TYPES(prepare, "gelu", "t", "t", hd_prepare_same_dims(c, p, 1, 1))
HD_CUDA_PREPARE_TYPES(prepare_d, "gelu_d", "t", "t", hd_prepare_same_dims(c, p, 2, 1))

HD_DEV float sigmoid(float x)
{
	return 1 / (1 + expf(-x));
}

template <class T> struct gelu {
	T *y;
	const T *x;

	template <int N> HD_DEV void at(int64_t i) const
	{
		float v[N];

		load<N>(v, x + i);
		for (int k = 0; k < N; k++)
			v[k] *= sigmoid(TWO_ROOT_2_PI * v[k] * (1 + CUBIC * v[k] * v[k]));
		store<N>(y + i, v);
	}
};

template <class T> struct gelu_d {
	T *dx;
	const T *x, *dy;

	template <int N> HD_DEV void at(int64_t i) const
	{
		float v[N], d[N];

		load<N>(v, x + i);
		load<N>(d, dy + i);
		for (int k = 0; k < N; k++) {
			float a = v[k] > 16 ? 16 : v[k] < -16 ? -16 : v[k]; /* NaN stays NaN */
			float q = CUBIC * a * a, s = sigmoid(TWO_ROOT_2_PI * a * (1 + q));

			d[k] *= s + a * s * (1 - s) * (TWO_ROOT_2_PI * (1 + 3 * q));
		}
		store<N>(dx + i, d);
	}
};

template <class T>
static void launch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	gelu<T> f = { (T *)out[0], (const T *)in[0] };

	hd_each_used<16 / sizeof(T)>(r, p->n[0], hd_aligned(f.x) && hd_aligned(f.y), f);
}

template <class T>
static void launch_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	gelu_d<T> f = { (T *)out[0], (const T *)in[0], (const T *)in[1] };

	hd_each_used<16 / sizeof(T)>(r, p->n[0], hd_aligned(f.x) && hd_aligned(f.dy) && hd_aligned(f.dx), f);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? launch<float>(p, out, in, r) : launch<bf16>(p, out, in, r);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? launch_d<float>(p, out, in, r) : launch_d<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(gelu, "gelu", HD_K_ROWS, prepare, run);
HD_CUDA_KERNEL(gelu_d, "gelu_d", HD_K_ROWS, prepare_d, run_d);
