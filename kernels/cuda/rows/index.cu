/* SPDX-License-Identifier: Apache-2.0
 * largest, take, put (top-k, gather, scatter): entries along one dim, by index.
 *
 * largest: one block per row.  Each digit of the k-th largest key takes one pass over the row, with 256 counts in
 * shared memory.  The last pass goes through the row in order, 256 entries at a time.  It takes all larger entries
 * and the first of those that are equal.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/index.h"
}

HD_CUDA_PREPARE_TYPES(prepare_topk, "largest", "f", "f*", hd_prepare_topk(c, p))
HD_CUDA_PREPARE_TYPES(prepare_gather, "take", "f*", "f", hd_prepare_gather(c, p))
HD_CUDA_PREPARE_TYPES(prepare_scatter, "put", "f*", "f", hd_prepare_scatter(c, p))

#define THREADS 256

struct indexed {
	int64_t outer, n, inner, k;
	int flag;
};

static struct indexed shape_of(const struct hd_prep *p)
{
	return indexed{ p->n[HD_INDEX_OUTER], p->n[HD_INDEX_N], p->n[HD_INDEX_INNER], p->n[HD_INDEX_K],
			(int)p->n[HD_INDEX_FLAG] };
}

HD_DEV uint32_t key_of(float x, int magnitude)
{
	uint32_t bits = hd_float_bits(magnitude ? fabsf(x) : x + 0.0f);

	return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Returns the sum of `mine` over the threads before this one, and in *total the sum over all. */
HD_DEV int before(int mine, int *scan, int *total)
{
	int t = (int)threadIdx.x, sum;

	scan[t] = mine;
	__syncthreads();
	for (int d = 1; d < THREADS; d *= 2) {
		int add = t >= d ? scan[t - d] : 0;

		__syncthreads();
		scan[t] += add;
		__syncthreads();
	}
	sum = scan[t] - mine;
	*total = scan[THREADS - 1];
	__syncthreads();
	return sum;
}

__global__ void __launch_bounds__(THREADS) topk(float *values, int32_t *indices, const float *xs, indexed s)
{
	HD_SHARED(int, count, [256]);
	HD_SHARED(int, scan, [THREADS]);
	int t = (int)threadIdx.x;

	for (int64_t row = blockIdx.x; row < s.outer * s.inner; row += gridDim.x) {
		const float *x = xs + row / s.inner * s.n * s.inner + row % s.inner;
		int64_t to = row / s.inner * s.k * s.inner + row % s.inner, k = s.k, at = 0;
		uint32_t found = 0, mask = 0;

		for (int shift = 24; shift >= 0; shift -= 8) {
			int digit = 255;

			count[t] = 0;
			__syncthreads();
			for (int64_t i = t; i < s.n; i += THREADS) {
				uint32_t key = key_of(x[i * s.inner], s.flag);

				if ((key & mask) == found)
					atomicAdd(&count[key >> shift & 255], 1);
			}
			__syncthreads();
			for (; digit > 0 && count[digit] < k; digit--)
				k -= count[digit];
			found |= (uint32_t)digit << shift;
			mask |= 255u << shift;
			__syncthreads();
		}
		/* k: how many equal entries are still to be taken */
		for (int64_t from = 0; from < s.n; from += THREADS) {
			int64_t i = from + t;
			uint32_t key = i < s.n ? key_of(x[i * s.inner], s.flag) : 0;
			int equal = i < s.n && key == found, equals, takes, taken, mine = before(equal, scan, &equals);

			takes = i < s.n && (key > found || (equal && mine < k));
			mine = before(takes, scan, &taken);
			if (takes) {
				values[to + (at + mine) * s.inner] = x[i * s.inner];
				indices[to + (at + mine) * s.inner] = (int32_t)i;
			}
			k -= equals < k ? equals : k;
			at += taken;
		}
	}
}

static void run_topk(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	indexed s = shape_of(p);

	if (s.k * s.outer * s.inner > 0)
		HD_LAUNCH(topk, hd_blocks(s.outer * s.inner, 1), THREADS, 0, r, (float *)out[0], (int32_t *)out[1],
			  (const float *)in[0], s);
}

__global__ void __launch_bounds__(THREADS) gather(float *y, const float *x, const int32_t *index, indexed s)
{
	int64_t all = s.outer * s.k * s.inner, step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
		int64_t at = index[i];

		y[i] = at >= 0 && at < s.n ? x[(i / (s.k * s.inner) * s.n + at) * s.inner + i % s.inner] : 0;
	}
}

static void run_gather(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	indexed s = shape_of(p);

	if (s.outer * s.k * s.inner > 0)
		HD_LAUNCH(gather, hd_blocks(s.outer * s.k * s.inner, THREADS), THREADS, 0, r, (float *)out[0],
			  (const float *)in[0], (const int32_t *)in[1], s);
}

/* each: entries of a row that one thread adds in order; 1 if no index occurs twice. */
__global__ void __launch_bounds__(THREADS)
	scatter(float *y, const float *x, const int32_t *index, indexed s, int64_t each)
{
	int64_t rows = s.outer * s.inner, all = rows * (s.k / each), step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
		int64_t row = i % rows, first = i / rows * each, o = row / s.inner, k = row % s.inner;

		for (int64_t j = first; j < first + each; j++) {
			int64_t from = (o * s.k + j) * s.inner + k, at = index[from];

			if (at >= 0 && at < s.n)
				y[(o * s.n + at) * s.inner + k] += x[from];
		}
	}
}

static void run_scatter(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	indexed s = shape_of(p);
	int64_t rows = s.outer * s.inner, each = s.flag ? 1 : s.k;

	hd_cuda_zero(r, out[0], (size_t)(rows * s.n) * sizeof(float));
	if (rows * s.k > 0)
		HD_LAUNCH(scatter, hd_blocks(rows * (s.k / each), THREADS), THREADS, 0, r, (float *)out[0],
			  (const float *)in[0], (const int32_t *)in[1], s, each);
}

HD_CUDA_KERNEL(largest, "largest", 0, prepare_topk, run_topk);
HD_CUDA_KERNEL(take, "take", 0, prepare_gather, run_gather);
HD_CUDA_KERNEL(put, "put", 0, prepare_scatter, run_scatter);
