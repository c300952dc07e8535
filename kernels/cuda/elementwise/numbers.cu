/* SPDX-License-Identifier: Apache-2.0
 * scalar, iota and uniform, which have no inputs.
 */
#include "kernels/cuda/base/cuda.h"
#include "kernels/cuda/base/random.h"
extern "C" {
#include "kernels/prepare/numbers.h"
}

HD_CUDA_PREPARE(prepare_scalar, "scalar", hd_prepare_scalar(c, p))
HD_CUDA_PREPARE(prepare_iota, "iota", hd_prepare_iota(c, p))

__global__ void scalar(float *y, const struct hd_cuda_step *s, int number)
{
	*y = number ? (float)s->step : (float)s->lr;
}

static void run_scalar(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	(void)in;
	HD_LAUNCH(scalar, 1, 1, 0, r, (float *)out[0], hd_cuda_step_of(r), (int)p->n[0]);
}

struct iota_shape {
	int64_t len, inner, first, fold, skip;
};

__global__ void iota(float *y, int64_t n, iota_shape s)
{
	int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		int64_t j = i / s.inner % s.len;

		y[i] = (float)(s.first + j + (j >= s.fold ? s.skip : 0));
	}
}

static void run_iota(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = p->n[0] * p->n[1] * p->n[2];

	(void)in;
	if (n)
		HD_LAUNCH(iota, hd_blocks(n, 256), 256, 0, r, (float *)out[0], n,
			  iota_shape{ p->n[1], p->n[2], p->n[3], p->n[4], p->n[5] });
}

static int prepare_random(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	const struct hd_check c = { "uniform", HD_DTYPE_F32, d, err, 0 };
	struct hd_random_plan *r = (struct hd_random_plan *)hd_alloc(sizeof(*r));

	p->state = r;
	p->release = free;
	return hd_prepare_random(&c, r);
}

__global__ void draw(float *y, const struct hd_cuda_step *s, struct hd_random_plan p, int64_t sample0, uint64_t plugin)
{
	uint64_t number = (p.each_step ? hd_mix((uint64_t)s->step) : 0) ^ p.name;
	uint64_t key = hd_mix(hd_mix(hd_mix(s->seed + HD_GOLDEN) ^ plugin) + (number + 1) * HD_GOLDEN);
	int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.total; i += step) {
		int64_t index = p.first + sample0 * p.batch, rest = i;

		for (int d = p.ndim - 1; d >= 0; rest /= p.extent[d--]) {
			int64_t at = rest % p.extent[d];

			index += at * p.stride[d] + (at >= p.fold[d] ? p.skip[d] : 0);
		}
		y[i] = (float)((double)(hd_random53(key, (uint64_t)index) >> 29) * 0x1p-24);
	}
}

static void run_random(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_random_plan *s = (const struct hd_random_plan *)p->state;

	(void)in;
	if (s->total)
		HD_LAUNCH(draw, hd_blocks(s->total, 256), 256, 0, r, (float *)out[0], hd_cuda_step_of(r), *s,
			  r->sample0, hd_hash_text("plugin"));
}

HD_CUDA_KERNEL(scalar, "scalar", 0, prepare_scalar, run_scalar);
HD_CUDA_KERNEL(iota, "iota", 0, prepare_iota, run_iota);
HD_CUDA_KERNEL(uniform, "uniform", 0, prepare_random, run_random);
