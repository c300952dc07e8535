/* SPDX-License-Identifier: Apache-2.0
 * swiglu and swiglu_d; the equations are in kernels/cpu/elementwise/swiglu.c.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/elementwise.h"
}

HD_CUDA_PREPARE_TYPES(prepare, "swiglu", "t", "t", hd_prepare_gate(c, p, 2, 1))
HD_CUDA_PREPARE_TYPES(prepare_d, "swiglu_d", "t", "t", hd_prepare_gate(c, p, 3, 2))

HD_DEV float sigmoid(float x)
{
	return 1 / (1 + expf(-x));
}

#define TWO_ROOT_2_PI 1.5957691216f
#define CUBIC 0.044715f

/* Returns s, the open part of the gate at a, and stores its derivative in *slope.  The gate passes a s. */
HD_DEV float open_part(int gate, float a, float *slope)
{
	float in = a > 16 ? 16 : a < -16 ? -16 : a, q = CUBIC * in * in, s; /* NaN stays NaN */

	if (gate == HD_GATE_GELU_ERF) {
		*slope = 0.39894228f * expf(-0.5f * a * a);
		return 0.5f + 0.5f * erff(0.70710678f * a);
	}
	s = sigmoid(gate == HD_GATE_SILU ? a : TWO_ROOT_2_PI * in * (1 + q));
	*slope = s * (1 - s) * (gate == HD_GATE_SILU ? 1 : TWO_ROOT_2_PI * (1 + 3 * q));
	return s;
}

template <class T> struct swiglu {
	T *y;
	const T *a, *b;
	int gate;

	template <int N> HD_DEV void at(int64_t i) const
	{
		float u[N], v[N], slope;

		load<N>(u, a + i);
		load<N>(v, b + i);
		for (int k = 0; k < N; k++)
			u[k] *= open_part(gate, u[k], &slope) * v[k];
		store<N>(y + i, u);
	}
};

template <class T> struct swiglu_d {
	T *da, *db;
	const T *a, *b, *dy;
	int gate;

	template <int N> HD_DEV void at(int64_t i) const
	{
		float u[N], v[N], d[N];

		load<N>(u, a + i);
		load<N>(v, b + i);
		load<N>(d, dy + i);
		for (int k = 0; k < N; k++) {
			float slope, x = u[k], s = open_part(gate, x, &slope);

			u[k] = d[k] * v[k] * (s + x * slope);
			v[k] = d[k] * (x * s);
		}
		store<N>(da + i, u);
		store<N>(db + i, v);
	}
};

template <class T>
static void launch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	swiglu<T> f = { (T *)out[0], (const T *)in[0], (const T *)in[1], (int)p->n[1] };

	hd_each_used<16 / sizeof(T)>(r, p->n[0], hd_aligned(f.a) && hd_aligned(f.b) && hd_aligned(f.y), f);
}

template <class T>
static void launch_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	swiglu_d<T> f = {
		(T *)out[0], (T *)out[1], (const T *)in[0], (const T *)in[1], (const T *)in[2], (int)p->n[1]
	};

	hd_each_used<16 / sizeof(T)>(r, p->n[0],
				     hd_aligned(f.a) && hd_aligned(f.b) && hd_aligned(f.dy) && hd_aligned(f.da) &&
					     hd_aligned(f.db),
				     f);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? launch<float>(p, out, in, r) : launch<bf16>(p, out, in, r);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? launch_d<float>(p, out, in, r) : launch_d<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(swiglu, "swiglu", HD_K_ROWS, prepare, run);
HD_CUDA_KERNEL(swiglu_d, "swiglu_d", HD_K_ROWS, prepare_d, run_d);
