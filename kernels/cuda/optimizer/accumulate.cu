/* SPDX-License-Identifier: Apache-2.0
 * accumulate: y = x, or y += x.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/elementwise.h"
}

HD_CUDA_PREPARE_TYPES(prepare, "accumulate", "t", "u", hd_prepare_same_dims(c, p, 1, 1))

template <class Y, class X> struct accumulate {
	Y *y;
	const X *x;
	int acc;

	template <int N> HD_DEV void at(int64_t i) const
	{
		float a[N], b[N];

		load<N>(a, x + i);
		if (acc) {
			load<N>(b, y + i);
			for (int k = 0; k < N; k++)
				a[k] += b[k];
		}
		store<N>(y + i, a);
	}
};

template <class Y, class X> static void launch(const struct hd_prep *p, void *y, const void *x, const struct hd_run *r)
{
	accumulate<Y, X> f = { (Y *)y, (const X *)x, r->acc };

	if (y != x || r->acc)
		hd_each<4>(r, p->n[0], hd_aligned(x) && hd_aligned(y), f);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	if (p->n[14] == HD_DTYPE_F32 && p->n[15] == HD_DTYPE_F32)
		launch<float, float>(p, out[0], in[0], r);
	else if (p->n[15] == HD_DTYPE_F32)
		launch<float, bf16>(p, out[0], in[0], r);
	else if (p->n[14] == HD_DTYPE_F32)
		launch<bf16, float>(p, out[0], in[0], r);
	else
		launch<bf16, bf16>(p, out[0], in[0], r);
}

HD_CUDA_KERNEL(accumulate, "accumulate", HD_K_ACC, prepare, run);
