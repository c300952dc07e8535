/* SPDX-License-Identifier: Apache-2.0
 * sgd: w = w - lr (factor g + decay w).
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/optimizer.h"
}

HD_CUDA_PREPARE_TYPES(prepare, "sgd", "ftf", "f*", hd_prepare_sgd(c, p))

template <class G> struct sgd {
	float *w1;
	bf16 *low;
	const float *w, *factor;
	const G *g;
	float decay;
	const struct hd_cuda_step *s;

	template <int N> HD_DEV void at(int64_t i) const
	{
		float a[N], d[N], lr = (float)s->lr, f = *factor;

		load<N>(a, w + i);
		load<N>(d, g + i);
		for (int k = 0; k < N; k++)
			a[k] -= lr * (f * d[k] + decay * a[k]);
		store<N>(w1 + i, a);
		if (low)
			store<N>(low + i, a);
	}
};

template <class G>
static void launch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	sgd<G> f = { (float *)out[0],      p->n[1] ? (bf16 *)out[1] : NULL,
		     (const float *)in[0], (const float *)in[2],
		     (const G *)in[1],     (float)p->f[0],
		     hd_cuda_step_of(r) };

	hd_each<4>(r, p->n[0], hd_aligned(f.w) && hd_aligned(f.w1) && hd_aligned(f.g) && hd_aligned(f.low), f);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_BF16 ? launch<bf16>(p, out, in, r) : launch<float>(p, out, in, r);
}

HD_CUDA_KERNEL(sgd, "sgd", 0, prepare, run);
