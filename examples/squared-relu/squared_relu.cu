/* SPDX-License-Identifier: Apache-2.0
 * squared_relu on GPUs: only enqueued, on the stream that is given.
 */
#ifndef LAUNCH /* a test runs this file without a GPU */
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#define LAUNCH(kernel, blocks, threads, stream, ...) kernel<<<blocks, threads, 0, (cudaStream_t)(stream)>>>(__VA_ARGS__)
#define FLOAT_OF(x) __bfloat162float(x)
#define BF16_OF(x) __float2bfloat16(x)
typedef __nv_bfloat16 bf16;
#endif
#include "squared_relu.h"

static __device__ float as_float(float x)
{
	return x;
}
static __device__ float as_float(bf16 x)
{
	return FLOAT_OF(x);
}
static __device__ void put(float *y, float x)
{
	*y = x;
}
static __device__ void put(bf16 *y, float x)
{
	*y = BF16_OF(x);
}

/* y of x, or where there is dy dx. */
template <class T> __global__ void squared_relu(T *out, const T *x, const T *dy, int64_t n)
{
	int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		float v = as_float(x[i]), r = v > 0 ? v : 0;

		put(out + i, dy ? 2 * r * as_float(dy[i]) : r * r);
	}
}

template <class T> static void go(const struct hd_kernel_run *a, const struct sizes *s)
{
	unsigned blocks = (unsigned)(s->n / 256 < 4096 ? (s->n + 255) / 256 : 4096);
	const T *dy = s->backward ? (const T *)a->ins[1] : NULL;

	LAUNCH(squared_relu<T>, blocks, 256, a->stream, (T *)a->outs[0], (const T *)a->ins[0], dy, s->n);
}

int squared_relu_run_cuda(const struct hd_kernel_run *a)
{
	const struct sizes *s = (const struct sizes *)a->state;

	if (s->dtype == HD_DTYPE_F32)
		go<float>(a, s);
	else
		go<bf16>(a, s);
	return cudaGetLastError() == cudaSuccess ? HD_OK : HD_EIO;
}
