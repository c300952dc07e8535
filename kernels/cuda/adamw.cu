/* SPDX-License-Identifier: Apache-2.0
 * adamw: Adam with decoupled weight decay in one pass over w, g, m and v, which leaves the bf16 copy of the weights too;
 * the equations are in kernels/ref/adamw.c.
 *
 * The bias corrections depend on the step, so each block makes them (in double) from the step's number on the device.
 */
#include "kernels/cuda/cuda.h"
extern "C" {
#include "kernels/prepare/optimizer.h"
}

#define THREADS 256

HD_CUDA_PREPARE_TYPES(prepare, "adamw", "ftfff", "fff*", hd_prepare_adamw(c, p))

template<class G> struct adamw {
	float *w1, *m1, *v1;
	bf16 *low;
	const float *w, *m, *v, *factor;
	const G *g;
	double beta1, beta2;
	float eps, decay;
	const struct hd_cuda_step *s;
};

struct rates { float beta1, rest1, beta2, rest2, lr, unbias1, root2; };

template<int N, class G> HD_DEV void update(const adamw<G> &a, const rates &c, int64_t i)
{
	float w[N], g[N], m[N], v[N], factor = *a.factor;

	load<N>(w, a.w + i);
	load<N>(g, a.g + i);
	load<N>(m, a.m + i);
	load<N>(v, a.v + i);
	for (int k = 0; k < N; k++) {
		float d = g[k] * factor;

		m[k] = c.beta1 * m[k] + c.rest1 * d;
		v[k] = c.beta2 * v[k] + c.rest2 * (d * d);
		w[k] -= c.lr * (m[k] * c.unbias1 / (sqrtf(v[k]) * c.root2 + a.eps) + a.decay * w[k]);
	}
	store<N>(a.w1 + i, w);
	store<N>(a.m1 + i, m);
	store<N>(a.v1 + i, v);
	if (a.low)
		store<N>(a.low + i, w);
}

template<int N, class G> __global__ void __launch_bounds__(THREADS) adamw_step(int64_t n, adamw<G> a)
{
	__shared__ rates c;
	int64_t step = (int64_t)gridDim.x * THREADS, t = (int64_t)blockIdx.x * THREADS + threadIdx.x;

	if (threadIdx.x == 0) {
		double now = (double)a.s->step;

		c.beta1 = (float)a.beta1;
		c.rest1 = (float)(1 - a.beta1);
		c.beta2 = (float)a.beta2;
		c.rest2 = (float)(1 - a.beta2);
		c.lr = (float)a.s->lr;
		c.unbias1 = (float)(1 / (1 - pow(a.beta1, now)));
		c.root2 = (float)(1 / sqrt(1 - pow(a.beta2, now)));
	}
	__syncthreads();
	for (int64_t i = t * N; i + N <= n; i += step * N)
		update<N>(a, c, i);
	if (N > 1 && t < n % N)
		update<1>(a, c, n - n % N + t);
}

template<class G> static void go(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	adamw<G> a = { (float *)out[0], (float *)out[1], (float *)out[2], p->n[1] ? (bf16 *)out[3] : NULL,
		       (const float *)in[0], (const float *)in[2], (const float *)in[3], (const float *)in[4],
		       (const G *)in[1], p->f[HD_ADAMW_BETA1], p->f[HD_ADAMW_BETA2], (float)p->f[HD_ADAMW_EPS],
		       (float)p->f[HD_ADAMW_DECAY], hd_cuda_step(r) };
	int wide = hd_aligned(a.w) && hd_aligned(a.w1) && hd_aligned(a.m) && hd_aligned(a.m1) && hd_aligned(a.v) &&
		hd_aligned(a.v1) && hd_aligned(a.g) && hd_aligned(a.low);

	if (!p->n[0])
		return;
	if (wide)
		HD_LAUNCH((adamw_step<4, G>), hd_blocks(p->n[0], THREADS * 4), THREADS, 0, r, p->n[0], a);
	else
		HD_LAUNCH((adamw_step<1, G>), hd_blocks(p->n[0], THREADS), THREADS, 0, r, p->n[0], a);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_BF16 ? go<bf16>(p, out, in, r) : go<float>(p, out, in, r);
}

HD_CUDA_KERNEL(adamw, "adamw", 0, prepare, run);
