/* SPDX-License-Identifier: Apache-2.0
 * embedding and embedding_dw: rows of a table by id, of which this rank may hold a slice (see the reference).
 *
 * Equal ids meet in one row of dw.  So that no sum depends on the order of atomic operations, the tokens of an id become
 * a list in their own order (a token looks for the next one of its id and counts those before it, in shared memory), and
 * blocks walk pieces of it: each MANY-th token of a list has one.  Of real text a few ids are a twentieth of all tokens, so
 * the sums of a list with several pieces go to rows of their own, which one block more adds in their order.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/embedding.h"
}

#define THREADS 256
#define NONE (-1)
#define MANY 32 /* tokens of a piece */

HD_CUDA_PREPARE_TYPES(prepare, "embedding", "*t", "u", hd_prepare_embedding(c, p))
HD_CUDA_PREPARE_TYPES(prepare_dw_shared, "embedding_dw", "*t", "f", hd_prepare_embedding_dw(c, p))

/* In scratch memory: of each token the next of its id, how many of them are before it, how many in all, the token that begins
 * the piece after the one it begins, and the row of that piece's sums. */
struct lists {
	int32_t *next, *before, *all, *far, *slot;
	float *sums;
	int64_t n;
};

static int64_t slots_of(int64_t n)
{
	return 2 * (n / MANY) + 1;
} /* lists of more than MANY have less than twice as many pieces */

static lists lists_of(void *scratch, int64_t n)
{
	int32_t *p = (int32_t *)scratch;
	int64_t step = (n + 3) / 4 * 4; /* sums begin at 16 bytes */

	return lists{ p, p + step, p + 2 * step, p + 3 * step, p + 4 * step, (float *)(p + 5 * step), n };
}

static int prepare_dw(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_dw_shared(d, p, err));
	hd_cuda_scratch_need((size_t)(5 * (p->n[0] + 4) + slots_of(p->n[0]) * p->n[1]) * sizeof(int32_t));
	return HD_OK;
}

template <class T, class W> struct embedding_rows {
	T *x;
	const W *w;
	const int32_t *ids;
	int64_t cols, rows_here, first;

	template <int N> HD_DEV void at(int64_t i) const
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

__global__ void __launch_bounds__(THREADS) link_ids(const int32_t *ids, lists l)
{
	HD_SHARED(int32_t, tile, [THREADS]);
	int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	int32_t mine = i < l.n ? ids[i] : 0, after = NONE, before = 0, all = 0;

	for (int64_t from = 0; from < l.n; from += THREADS) {
		int have = (int)hd_least(l.n - from, THREADS),
		    me = (int)hd_least(i - from, THREADS); /* me: this token's place, or beyond */

		__syncthreads();
		if ((int)threadIdx.x < have)
			tile[threadIdx.x] = ids[from + threadIdx.x];
		__syncthreads();
#pragma unroll 8
		for (int k = 0; k < have; k++) {
			int same = tile[k] == mine;

			all += same;
			before += same && k < me;
			after = same && k > me && after == NONE ? (int32_t)from + k : after;
		}
	}
	if (i < l.n) {
		l.next[i] = after;
		l.before[i] = before;
		l.all[i] = all;
	}
}

HD_DEV int begins(const lists &l, int64_t i)
{
	return l.before[i] % MANY == 0;
}
HD_DEV int is_long(const lists &l, int64_t i)
{
	return l.all[i] > MANY;
}

/* Rows for the pieces of long lists, in the order of the tokens that begin them: by one block. */
__global__ void __launch_bounds__(THREADS) number_pieces(lists l)
{
	HD_SHARED(int32_t, counts, [THREADS]);
	int64_t each = (l.n + THREADS - 1) / THREADS, from = threadIdx.x * each, to = hd_least(from + each, l.n);
	int32_t mine = 0, at = 0;

	for (int64_t i = from; i < to; i++)
		mine += begins(l, i) && is_long(l, i);
	counts[threadIdx.x] = mine;
	__syncthreads();
	for (int k = 0; k < (int)threadIdx.x; k++)
		at += counts[k];
	for (int64_t i = from; i < to; i++)
		l.slot[i] = begins(l, i) && is_long(l, i) ? at++ : NONE;
}

/* The block of a token that begins a piece adds up its rows of dx: to dw, or to the piece's own row. */
template <int N, class T>
__global__ void __launch_bounds__(128)
	walk(float *dw, const int32_t *ids, const T *dx, lists l, int64_t cols, int64_t rows_here, int64_t first_row)
{
	HD_SHARED(int32_t, piece, [MANY]);
	int64_t token = blockIdx.x, row = ids[token] - first_row;
	int have = (int)hd_least(l.all[token] - l.before[token], MANY);
	int32_t t = (int32_t)token, slot = l.slot[token];

	if (!begins(l, token) || row < 0 || row >= rows_here)
		return;
	for (int k = 0; k < have && threadIdx.x == 0; k++, t = l.next[t])
		piece[k] = t;
	if (threadIdx.x == 0)
		l.far[token] = t;
	__syncthreads();
	dw += row * cols;
	for (int64_t j = (int64_t)threadIdx.x * N; j < cols; j += 128 * N) {
		float sum[N] = {}, v[N];

		if (slot == NONE)
			load<N>(sum, dw + j);
#pragma unroll 4
		for (int k = 0; k < have; k++) {
			load<N>(v, dx + piece[k] * cols + j);
			for (int i = 0; i < N; i++)
				sum[i] += v[i];
		}
		store<N>(slot == NONE ? dw + j : l.sums + slot * cols + j, sum);
	}
}

/* The block of the first token of a long list adds up the sums of its pieces. */
template <int N>
__global__ void __launch_bounds__(128)
	join_pieces(float *dw, const int32_t *ids, lists l, int64_t cols, int64_t rows_here, int64_t first_row)
{
	int64_t token = blockIdx.x, row = ids[token] - first_row;

	if (l.before[token] || !is_long(l, token) || row < 0 || row >= rows_here)
		return;
	dw += row * cols;
	for (int64_t j = (int64_t)threadIdx.x * N; j < cols; j += 128 * N) {
		float sum[N], v[N];

		load<N>(sum, dw + j);
		for (int32_t t = (int32_t)token; t != NONE; t = l.far[t]) {
			load<N>(v, l.sums + l.slot[t] * cols + j);
			for (int i = 0; i < N; i++)
				sum[i] += v[i];
		}
		store<N>(dw + j, sum);
	}
}

template <int N, class T>
static void add_rows(const struct hd_prep *p, float *dw, const int32_t *ids, const T *dx, const lists &l,
		     const struct hd_run *r)
{
	HD_LAUNCH((walk<N, T>), (unsigned)l.n, 128, 0, r, dw, ids, dx, l, p->n[1], p->n[2], p->n[3]);
	HD_LAUNCH((join_pieces<N>), (unsigned)l.n, 128, 0, r, dw, ids, l, p->n[1], p->n[2], p->n[3]);
}

template <class T, class W>
static void go(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	embedding_rows<T, W> f = { (T *)out[0], (const W *)in[1], (const int32_t *)in[0], p->n[1], p->n[2], p->n[3] };

	hd_each<4>(r, p->n[0] * f.cols, f.cols % 4 == 0 && hd_aligned(f.x) && hd_aligned(f.w), f);
}

template <class T> static void go_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = p->n[0], cols = p->n[1];
	const int32_t *ids = (const int32_t *)in[0];
	float *dw = (float *)out[0];
	const T *dx = (const T *)in[1];
	lists l = lists_of(hd_cuda_scratch(), n);

	if (!r->acc)
		hd_cuda_zero(r, dw, (size_t)(p->n[2] * cols) * sizeof(float));
	if (!n || !cols)
		return;
	HD_LAUNCH(link_ids, (unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, r, ids, l);
	HD_LAUNCH(number_pieces, 1, THREADS, 0, r, l);
	if (cols % 4 == 0 && hd_aligned(dw) && hd_aligned(dx))
		add_rows<4, T>(p, dw, ids, dx, l, r);
	else
		add_rows<1, T>(p, dw, ids, dx, l, r);
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
