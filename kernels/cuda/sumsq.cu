/* SPDX-License-Identifier: Apache-2.0
 * sumsq: the sum of squares in double, for the norm of the gradient.
 *
 * Blocks sum pieces of a fixed size, one more block their sums: the order depends on the size alone.
 */
#include "kernels/cuda/cuda.h"
extern "C" {
#include "kernels/prepare/optimizer.h"
}

#define THREADS 256
#define PIECE (THREADS * 64)

HD_CUDA_PREPARE_TYPES(prepare_shared, "sumsq", "t", "*", hd_prepare_sumsq(c, p))

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_shared(d, p, err));
	hd_cuda_scratch_need((size_t)(p->n[0] / PIECE + 1) * sizeof(double));
	return HD_OK;
}

template<int N, class T> __global__ void __launch_bounds__(THREADS) squares(const T *x, int64_t n, double *part)
{
	__shared__ double scratch[THREADS / HD_WARP];
	int64_t from = (int64_t)blockIdx.x * PIECE, to = from + PIECE < n ? from + PIECE : n;
	double sum = 0;

	for (int64_t i = from + (int64_t)threadIdx.x * N; i < to; i += THREADS * N) {
		float v[N];
		int64_t left = to - i;

		if (left >= N)
			load<N>(v, x + i);
		for (int k = 0; k < N; k++) {
			float a = left >= N ? v[k] : k < left ? to_float(x[i + k]) : 0;

			sum += (double)a * (double)a;
		}
	}
	sum = block_sum<THREADS>(sum, scratch);
	if (threadIdx.x == 0)
		part[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS) total(const double *part, int64_t n, double *s, int acc)
{
	__shared__ double scratch[THREADS / HD_WARP];
	double sum = 0;

	for (int64_t i = threadIdx.x; i < n; i += THREADS)
		sum += part[i];
	sum = block_sum<THREADS>(sum, scratch);
	if (threadIdx.x == 0)
		*s = acc ? *s + sum : sum;
}

template<class T> static void go(const struct hd_prep *p, double *s, const T *x, const struct hd_run *r)
{
	int64_t n = p->n[0], pieces = (n + PIECE - 1) / PIECE;
	double *part = (double *)hd_cuda_scratch();

	if (pieces && hd_aligned(x))
		HD_LAUNCH((squares<16 / sizeof(T), T>), (unsigned)pieces, THREADS, 0, r, x, n, part);
	else if (pieces)
		HD_LAUNCH((squares<1, T>), (unsigned)pieces, THREADS, 0, r, x, n, part);
	HD_LAUNCH(total, 1, THREADS, 0, r, part, pieces, s, r->acc);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	if (p->n[14] == HD_F32)
		go(p, (double *)out[0], (const float *)in[0], r);
	else
		go(p, (double *)out[0], (const bf16 *)in[0], r);
}

HD_CUDA_KERNEL(sumsq, "sumsq", HD_K_ACC, prepare, run);
