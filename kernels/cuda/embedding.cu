/* SPDX-License-Identifier: Apache-2.0
 * embedding and embedding_dw: rows of a table by id, of which this rank may hold a slice (see the reference).
 *
 * Equal ids meet in one row of dw.  So that no sum depends on the order of atomic operations, the tokens of an id become
 * a list in their own order (a token looks for the next and for an earlier one of its id, in shared memory), and the
 * block of the first token walks it.
 */
#include "kernels/cuda/cuda.h"
extern "C" {
#include "kernels/prepare/embedding.h"
}

#define THREADS 256
#define NONE (-1)

HD_CUDA_PREPARE_TYPES(prepare, "embedding", "*t", "u", hd_prepare_embedding(c, p))
HD_CUDA_PREPARE_TYPES(prepare_dw_shared, "embedding_dw", "*t", "f", hd_prepare_embedding_dw(c, p))

static int prepare_dw(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_dw_shared(d, p, err));
	hd_cuda_scratch_need((size_t)(2 * p->n[0]) * sizeof(int32_t));
	return HD_OK;
}

template<class T, class W> struct rows {
	T *x;
	const W *w;
	const int32_t *ids;
	int64_t cols, rows_here, first;

	template<int N> HD_DEV void at(int64_t i) const
	{
		int64_t row = ids[i / cols] - first;
		float v[N];

		for (int k = 0; k < N; k++)
			v[k] = 0;
		if (row >= 0 && row < rows_here)
			load<N>(v, w + row * cols + i % cols);
		store<N>(x + i, v);
	}
};

/* next[i]: the next token of i's id; first[i]: no earlier one has it. */
__global__ void __launch_bounds__(THREADS) link_ids(const int32_t *ids, int64_t n, int32_t *next, int32_t *first)
{
	HD_SHARED(int32_t, tile, [THREADS]);
	int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	int32_t mine = i < n ? ids[i] : 0, after = NONE, alone = 1;

	for (int64_t from = 0; from < n; from += THREADS) {
		int64_t have = n - from < THREADS ? n - from : THREADS;

		__syncthreads();
		if ((int64_t)threadIdx.x < have)
			tile[threadIdx.x] = ids[from + threadIdx.x];
		__syncthreads();
		for (int64_t k = 0; k < have; k++) {
			int64_t j = from + k;

			alone &= !(tile[k] == mine && j < i);
			after = after == NONE && tile[k] == mine && j > i ? (int32_t)j : after;
		}
	}
	if (i < n) {
		next[i] = after;
		first[i] = alone;
	}
}

template<int N, class T> __global__ void __launch_bounds__(128)
walk(float *dw, const int32_t *ids, const T *dx, const int32_t *next, const int32_t *first, int64_t cols, int64_t rows_here,
     int64_t first_row)
{
	int64_t token = blockIdx.x, row = ids[token] - first_row;

	if (!first[token] || row < 0 || row >= rows_here)
		return;
	for (int64_t j = (int64_t)threadIdx.x * N; j < cols; j += 128 * N) {
		float sum[N], v[N];

		load<N>(sum, dw + row * cols + j);
		for (int64_t t = token; t != NONE; t = next[t]) {
			load<N>(v, dx + t * cols + j);
			for (int k = 0; k < N; k++)
				sum[k] += v[k];
		}
		store<N>(dw + row * cols + j, sum);
	}
}

template<class T, class W> static void go(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	rows<T, W> f = { (T *)out[0], (const W *)in[1], (const int32_t *)in[0], p->n[1], p->n[2], p->n[3] };

	hd_each<4>(r, p->n[0] * f.cols, f.cols % 4 == 0 && hd_aligned(f.x) && hd_aligned(f.w), f);
}

template<class T> static void go_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = p->n[0], cols = p->n[1];
	const int32_t *ids = (const int32_t *)in[0];
	int32_t *next = (int32_t *)hd_cuda_scratch(), *first = next + n;
	float *dw = (float *)out[0];
	const T *dx = (const T *)in[1];

	if (!r->acc)
		hd_cuda_zero(r, dw, (size_t)(p->n[2] * cols) * sizeof(float));
	if (!n || !cols)
		return;
	HD_LAUNCH(link_ids, (unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, r, ids, n, next, first);
	if (cols % 4 == 0 && hd_aligned(dw) && hd_aligned(dx))
		HD_LAUNCH((walk<4, T>), (unsigned)n, 128, 0, r, dw, ids, dx, next, first, cols, p->n[2], p->n[3]);
	else
		HD_LAUNCH((walk<1, T>), (unsigned)n, 128, 0, r, dw, ids, dx, next, first, cols, p->n[2], p->n[3]);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	if (p->n[15] == HD_DTYPE_F32)
		p->n[14] == HD_DTYPE_F32 ? go<float, float>(p, out, in, r) : go<float, bf16>(p, out, in, r);
	else
		p->n[14] == HD_DTYPE_F32 ? go<bf16, float>(p, out, in, r) : go<bf16, bf16>(p, out, in, r);
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? go_dw<float>(p, out, in, r) : go_dw<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(embedding, "embedding", 0, prepare, run);
HD_CUDA_KERNEL(embedding_dw, "embedding_dw", HD_K_ACC, prepare_dw, run_dw);
