/* SPDX-License-Identifier: Apache-2.0
 * sumsq: the sum of squares in double, for the norm of the gradient.
 *
 * Blocks sum pieces of a fixed size, and one more block adds up their sums, so the order depends on the sizes alone.
 * All gradients of a rank take two launches: one for all pieces, and one for their sum.
 */
#include "kernels/cuda/base/cuda.h"
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

template <int N, class T> HD_DEV void sum_piece(const T *x, int64_t n, int64_t piece, double *part)
{
	HD_SHARED(double, scratch, [THREADS / HD_WARP]);
	int64_t from = piece * PIECE, to = from + PIECE < n ? from + PIECE : n;
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
		*part = sum;
}

template <int N, class T> __global__ void __launch_bounds__(THREADS) squares(const T *x, int64_t n, double *part)
{
	sum_piece<N>(x, n, blockIdx.x, part + blockIdx.x);
}

__global__ void __launch_bounds__(THREADS) total(const double *part, int64_t n, double *s, int acc)
{
	HD_SHARED(double, scratch, [THREADS / HD_WARP]);
	double sum = 0;

	for (int64_t i = threadIdx.x; i < n; i += THREADS)
		sum += part[i];
	sum = block_sum<THREADS>(sum, scratch);
	if (threadIdx.x == 0)
		*s = acc ? *s + sum : sum;
}

template <class T> static void launch(const struct hd_prep *p, double *s, const T *x, const struct hd_run *r)
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
	if (p->n[14] == HD_DTYPE_F32)
		launch(p, (double *)out[0], (const float *)in[0], r);
	else
		launch(p, (double *)out[0], (const bf16 *)in[0], r);
}

/* -- all gradients in two launches --------------------------------------------------------------------------------- */
struct sumsq_part {
	const void *x;
	int64_t n, first;
	int32_t narrow, wide;
}; /* first: its first block */
struct sumsq_joined {
	struct sumsq_part *parts;
	int64_t n, blocks;
	double *s;
};

__global__ void __launch_bounds__(THREADS) squares_of_all(const sumsq_part *parts, int64_t n, double *sums)
{
	int64_t low = 0, high = n, piece;

	while (high - low > 1) {
		int64_t mid = (low + high) / 2;

		if (parts[mid].first <= blockIdx.x)
			low = mid;
		else
			high = mid;
	}
	parts += low;
	piece = blockIdx.x - parts->first;
	sums += blockIdx.x;
	if (parts->narrow)
		parts->wide ? sum_piece<8>((const bf16 *)parts->x, parts->n, piece, sums)
			    : sum_piece<1>((const bf16 *)parts->x, parts->n, piece, sums);
	else
		parts->wide ? sum_piece<4>((const float *)parts->x, parts->n, piece, sums)
			    : sum_piece<1>((const float *)parts->x, parts->n, piece, sums);
}

/* Joins launches that all add to the same sum; returns NULL for others. */
static void *join(const struct hd_joint *l, size_t n)
{
	struct sumsq_part *parts = (struct sumsq_part *)hd_alloc(n * sizeof(*parts));
	struct sumsq_joined j = { NULL, 0, 0, (double *)l[0].out[0] }, *kept;
	struct hd_err none = {};

	for (size_t i = 0; i < n; i++) {
		const struct hd_prep *p = l[i].prep;

		if (l[i].out[0] != l[0].out[0] || l[i].acc != 1) {
			free(parts);
			return NULL;
		}
		if (!p->n[0])
			continue;
		parts[j.n] =
			sumsq_part{ l[i].in[0], p->n[0], j.blocks, p->n[14] == HD_DTYPE_BF16, hd_aligned(l[i].in[0]) };
		j.blocks += (p->n[0] + PIECE - 1) / PIECE;
		j.n++;
	}
	if (j.n)
		j.parts = (struct sumsq_part *)hd_cuda_constant(parts, (size_t)j.n * sizeof(*parts), &none);
	free(parts);
	if (j.n && !j.parts)
		return NULL;
	hd_cuda_scratch_need((size_t)j.blocks * sizeof(double));
	kept = (struct sumsq_joined *)hd_alloc(sizeof(*kept));
	*kept = j;
	return kept;
}

static void run_joined(void *joined, const struct hd_run *r)
{
	const struct sumsq_joined *j = (const struct sumsq_joined *)joined;
	double *sums = (double *)hd_cuda_scratch();

	if (!j->n)
		return;
	HD_LAUNCH(squares_of_all, (unsigned)j->blocks, THREADS, 0, r, j->parts, j->n, sums);
	HD_LAUNCH(total, 1, THREADS, 0, r, sums, j->blocks, j->s, 1);
}

static void unjoin(void *joined)
{
	hd_cuda_constant_free(((struct sumsq_joined *)joined)->parts);
	free(joined);
}

HD_CUDA_KERNEL_JOINS(sumsq, "sumsq", HD_K_ACC, prepare, run, join, run_joined, unjoin);
