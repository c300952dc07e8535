/* SPDX-License-Identifier: Apache-2.0
 * clip: the norm of the gradient, and the factor that brings it down to the limit.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/optimizer.h"
}

HD_CUDA_PREPARE(prepare, "clip", hd_prepare_clip(c, p))

__global__ void clip(const double *s, double limit, float *factor, float *norm)
{
	double x = sqrt(*s);

	*factor = limit > 0 && x > limit ? (float)(limit / x) : 1;
	*norm = (float)x;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	HD_LAUNCH(clip, 1, 1, 0, r, (const double *)in[0], p->f[0], (float *)out[0], (float *)out[1]);
}

HD_CUDA_KERNEL(clip, "clip", 0, prepare, run);
