/* SPDX-License-Identifier: Apache-2.0
 * embedding and embedding_dw: rows of a table by id, of which this rank may have a slice (see the reference).
 *
 * Equal ids share a row of dw.  No sum may depend on the order of atomic operations, so tokens are sorted by id;
 * tokens of one id keep their order.  Each launch sorts by eight bits: the block of a digit looks at all tokens and
 * places its own.  Blocks then add up pieces of MANY sorted tokens.  In real text a few ids make up a twentieth of
 * all tokens, so an id can span several pieces.  The sums of such pieces go to rows of their own, and one block
 * adds these in order.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/embedding.h"
}

#define NONE (-1)
#define MANY 32 /* tokens of a piece */
#define AHEAD 8 /* rows that a thread reads at once */
#define WALK 64 /* threads of a block that adds up a piece */
#define DIGITS 256

HD_CUDA_PREPARE_TYPES(prepare, "embedding", "*t", "u", hd_prepare_embedding(c, p))
HD_CUDA_PREPARE_TYPES(prepare_dw_shared, "embedding_dw", "*t", "f", hd_prepare_embedding_dw(c, p))

/* Rows of this slice of the table and tokens, sorted by row.  Row rows_here means that the id is in another slice.
 * sums: two rows for each piece, one of an id that began before it, one of an id that continues after it. */
struct sorted {
	int32_t *row, *token;
	float *sums;
	int64_t n;
};

static int64_t pieces_of(int64_t n)
{
	return (n + MANY - 1) / MANY;
}

static sorted sorted_of(void *scratch, int64_t n, int other)
{
	int32_t *p = (int32_t *)scratch;
	int64_t step = (n + 3) / 4 * 4; /* sums begin at a multiple of 16 bytes */

	return sorted{ p + (other ? 2 : 0) * step, p + (other ? 3 : 1) * step, (float *)(p + 4 * step), n };
}

static int prepare_dw(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_dw_shared(d, p, err));
	hd_cuda_scratch_need((size_t)(4 * (p->n[0] + 4) + 2 * pieces_of(p->n[0]) * p->n[1]) * sizeof(int32_t));
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

/* The input of a sorting launch: ids at first, later the rows and tokens from the launch before. */
struct unsorted {
	const int32_t *ids, *row, *token;
	int64_t first_row, rows_here;
	int shift;

	HD_DEV int32_t row_of(int64_t i) const
	{
		int64_t at = ids ? ids[i] - first_row : row[i];

		return (int32_t)(at < 0 || at > rows_here ? rows_here : at);
	}
	HD_DEV int digit(int64_t i) const
	{
		return row_of(i) >> shift & (DIGITS - 1);
	}
};

/* Returns where this warp's tokens of the block's digit begin among the sorted ones.  The warp reads tokens from ...
 * to - 1. */
HD_DEV int64_t begin_of(const unsorted &u, int32_t *counts, int32_t *lesser, int64_t from, int64_t to)
{
	int lane = (int)threadIdx.x % HD_WARP, warp = (int)threadIdx.x / HD_WARP, warps = (int)blockDim.x / HD_WARP;
	int32_t mine = 0, less = 0;
	int64_t begin = 0;

#pragma unroll 8
	for (int64_t i = from + lane; i < to; i += HD_WARP) {
		int d = u.digit(i);

		mine += d == (int)blockIdx.x;
		less += d < (int)blockIdx.x;
	}
	mine = warp_sum(mine);
	less = warp_sum(less);
	if (lane == 0) {
		counts[warp] = mine;
		lesser[warp] = less;
	}
	__syncthreads();
	for (int k = 0; k < warps; k++)
		begin += lesser[k] + (k < warp ? counts[k] : 0);
	return begin;
}

/* The block of a digit places its tokens after those of smaller digits, and keeps their order. */
__global__ void __launch_bounds__(1024) place(unsorted u, sorted to)
{
	HD_SHARED(int32_t, counts, [HD_WARP]);
	HD_SHARED(int32_t, lesser, [HD_WARP]);
	int lane = (int)threadIdx.x % HD_WARP, warps = (int)blockDim.x / HD_WARP;
	int64_t each = ((to.n + warps - 1) / warps + HD_WARP - 1) / HD_WARP * HD_WARP,
		from = (int)threadIdx.x / HD_WARP * each, end = hd_least(from + each, to.n),
		at = begin_of(u, counts, lesser, from, end);

	for (int64_t i = from; i < end && counts[threadIdx.x / HD_WARP]; i += HD_WARP) {
		int mine = i + lane < end && u.digit(i + lane) == (int)blockIdx.x;
		unsigned all = __ballot_sync(~0u, mine);

		if (mine) {
			int64_t k = at + __popc(all & ((1u << lane) - 1));

			to.row[k] = u.row_of(i + lane);
			to.token[k] = u.ids ? (int32_t)(i + lane) : u.token[i + lane];
		}
		at += __popc(all);
	}
}

/* Where a sum goes after a token of a piece. */
/* GOES_ON: to the next token; OWN: to dw; HEAD: the id began before the piece; TAIL: the id continues after it. */
enum { GOES_ON, OWN, HEAD, TAIL };

struct tokens {
	int32_t row[MANY], token[MANY], end[MANY]; /* row NONE: nothing to add */
};

HD_DEV void get_piece(tokens *p, const sorted &s, int64_t from, int64_t rows_here)
{
	int k = (int)threadIdx.x;
	int64_t i = from + k;
	int32_t row, before, after;

	if (k >= MANY)
		return;
	row = i < s.n ? s.row[i] : NONE;
	before = from > 0 ? s.row[from - 1] : NONE;
	after = i + 1 < s.n ? s.row[i + 1] : NONE;
	row = row == rows_here ? NONE : row;
	p->row[k] = row;
	p->token[k] = i < s.n ? s.token[i] : 0;
	if (row == NONE || (row == after && k < MANY - 1))
		p->end[k] = GOES_ON;
	else
		p->end[k] = row == before ? HEAD : row == after ? TAIL : OWN;
}

/* A block adds up the rows of dx of a piece's tokens, for the columns of blockIdx.y. */
template <int N, class T>
__global__ void __launch_bounds__(WALK) walk(float *dw, const T *dx, sorted s, int64_t cols, int64_t rows_here, int acc)
{
	HD_SHARED(tokens, shared, [1]);
	const tokens &p = shared[0];
	int64_t col = ((int64_t)blockIdx.y * WALK + threadIdx.x) * N;
	float sum[N] = {};

	get_piece(shared, s, (int64_t)blockIdx.x * MANY, rows_here);
	__syncthreads();
	if (col >= cols)
		return;
	for (int k = 0; k < MANY; k += AHEAD) {
		vec<N, T> v[AHEAD] = {};
		vec<N, float> old[AHEAD] = {};

#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			if (p.row[k + j] != NONE)
				v[j] = fetch<N>(dx + p.token[k + j] * cols + col);
			if (acc && p.end[k + j] == OWN)
				old[j] = fetch<N>(dw + p.row[k + j] * cols + col);
		}
#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			int end = p.end[k + j];

			for (int i = 0; i < N; i++)
				sum[i] += v[j].at(i) + old[j].at(i);
			if (end == GOES_ON)
				continue;
			store<N>((end == OWN ? dw + p.row[k + j] * cols
					     : s.sums + (2 * (int64_t)blockIdx.x + (end == TAIL)) * cols) +
					 col,
				 sum);
			for (int i = 0; i < N; i++)
				sum[i] = 0;
		}
	}
}

/* If an id spans several pieces, the block of the first one adds their sums to the id's row. */
template <int N>
__global__ void __launch_bounds__(WALK) join_pieces(float *dw, sorted s, int64_t cols, int64_t rows_here)
{
	HD_SHARED(int32_t, scratch, [WALK / HD_WARP]);
	int64_t from = (int64_t)blockIdx.x * MANY, last = from + MANY - 1,
		col = ((int64_t)blockIdx.y * WALK + threadIdx.x) * N;
	int32_t row = last + 1 < s.n ? s.row[last] : NONE, pieces = 0;
	float sum[N], v[N];

	if (row == NONE || row == rows_here || s.row[last + 1] != row || (from > 0 && s.row[from - 1] == row))
		return;
	for (int64_t i = last + 1 + (int64_t)threadIdx.x * MANY; i < s.n && s.row[i] == row; i += WALK * MANY)
		pieces++;
	pieces = block_sum<WALK>(pieces, scratch);
	if (col >= cols)
		return;
	s.sums += 2 * (int64_t)blockIdx.x * cols + col;
	load<N>(sum, dw + row * cols + col);
	load<N>(v, s.sums + cols);
	for (int i = 0; i < N; i++)
		sum[i] += v[i];
#pragma unroll 8
	for (int k = 1; k <= pieces; k++) {
		load<N>(v, s.sums + 2 * k * cols);
		for (int i = 0; i < N; i++)
			sum[i] += v[i];
	}
	store<N>(dw + row * cols + col, sum);
}

template <int N, class T>
static void add_rows(const struct hd_prep *p, float *dw, const T *dx, const sorted &s, const struct hd_run *r)
{
	dim3 grid((unsigned)pieces_of(s.n), (unsigned)((p->n[1] + WALK * N - 1) / (WALK * N)));

	HD_LAUNCH((walk<N, T>), grid, WALK, 0, r, dw, dx, s, p->n[1], p->n[2], r->acc);
	HD_LAUNCH((join_pieces<N>), grid, WALK, 0, r, dw, s, p->n[1], p->n[2]);
}

static sorted sort_ids(const struct hd_prep *p, const int32_t *ids, const struct hd_run *r)
{
	int64_t n = p->n[0], rows = p->n[2];
	unsorted u = { ids, NULL, NULL, p->n[3], rows, 0 };
	sorted to;

	do {
		to = sorted_of(hd_cuda_scratch(), n, u.shift / 8 % 2);
		HD_LAUNCH(place, (unsigned)hd_least((rows >> u.shift) + 1, DIGITS), n < 4096 ? 128 : 1024, 0, r, u, to);
		u = unsorted{ NULL, to.row, to.token, p->n[3], rows, u.shift + 8 };
	} while (rows >> u.shift);
	return to;
}

template <class T, class W>
static void launch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	embedding_rows<T, W> f = { (T *)out[0], (const W *)in[1], (const int32_t *)in[0], p->n[1], p->n[2], p->n[3] };

	hd_each<4>(r, p->n[0] * f.cols, f.cols % 4 == 0 && hd_aligned(f.x) && hd_aligned(f.w), f);
}

template <class T>
static void launch_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = p->n[0], cols = p->n[1];
	const int32_t *ids = (const int32_t *)in[0];
	float *dw = (float *)out[0];
	const T *dx = (const T *)in[1];
	sorted s;

	if (!r->acc)
		hd_cuda_zero(r, dw, (size_t)(p->n[2] * cols) * sizeof(float));
	if (!n || !cols)
		return;
	s = sort_ids(p, ids, r);
	if (cols % 4 == 0 && hd_aligned(dw) && hd_aligned(dx))
		add_rows<4, T>(p, dw, dx, s, r);
	else
		add_rows<1, T>(p, dw, dx, s, r);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	if (p->n[15] == HD_DTYPE_F32)
		p->n[14] == HD_DTYPE_F32 ? launch<float, float>(p, out, in, r) : launch<float, bf16>(p, out, in, r);
	else
		p->n[14] == HD_DTYPE_F32 ? launch<bf16, float>(p, out, in, r) : launch<bf16, bf16>(p, out, in, r);
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? launch_dw<float>(p, out, in, r) : launch_dw<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(embedding, "embedding", 0, prepare, run);
HD_CUDA_KERNEL(embedding_dw, "embedding_dw", HD_K_ACC, prepare_dw, run_dw);
