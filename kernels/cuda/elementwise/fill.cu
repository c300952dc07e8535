/* SPDX-License-Identifier: Apache-2.0
 * fill: one value everywhere, times the loss scale if it is the seed of backward.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/elementwise.h"
}

HD_CUDA_PREPARE(prepare_shared, "fill", hd_prepare_fill(c, p))

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_shared(d, p, err));
	p->n[14] = d->out[0].dtype;
	return HD_OK;
}

template <class T> struct fill {
	T *y;
	double value;
	const struct hd_cuda_step *scaled;

	template <int N> HD_DEV void at(int64_t i) const
	{
		double x = scaled ? value * scaled->loss_scale : value;

		for (int k = 0; k < N; k++) {
			if (sizeof(T) == 8)
				*(double *)(void *)(y + i + k) = x;
			else
				from_float(y + i + k, (float)x);
		}
	}
};

template <class T> static void launch(const struct hd_prep *p, void *y, const struct hd_run *r)
{
	fill<T> f = { (T *)y, p->f[0], p->n[1] ? hd_cuda_step_of(r) : NULL };

	hd_each<4>(r, p->n[0], 1, f);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	(void)in;
	if (p->n[14] == HD_DTYPE_F64)
		launch<double>(p, out[0], r);
	else if (p->n[14] == HD_DTYPE_F32)
		launch<float>(p, out[0], r);
	else
		launch<bf16>(p, out[0], r);
}

HD_CUDA_KERNEL(fill, "fill", 0, prepare, run);
