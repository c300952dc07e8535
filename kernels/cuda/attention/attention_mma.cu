/* SPDX-License-Identifier: Apache-2.0
 * attention on tensor cores: bf16, head_dim 64 or 128 (Dao, FlashAttention-2, 2023).
 *
 * Each of four warps has 16 rows: queries in forward and for dq, keys for dk and dv.  So the sums of one product
 * become the operand of the next within registers.  Tiles of the other side arrive by asynchronous copies, one tile
 * ahead of the computation.  dq has its own kernel.  That takes two products more than atomic additions would, but
 * gives every sum one order.
 *
 * In most tiles all rows of a warp see every column, and only the other tiles are masked element by element.  Scores
 * are scaled in the exponent's product, so this kernel does not take a negative scale.
 */
#include "kernels/cuda/attention/tiles.h"

#define THREADS 128
#define ROWS 64 /* rows of a block: 16 per warp */

int hd_att_mma_has(const struct hd_att *t)
{
	return (t->dim == 64 || t->dim == 128) && t->scale > 0;
}

/* s(16 x 8 NT) = 16 rows of a, from `row` on, times the transposed rows of b */
template <int D, int NT> HD_DEV void scores(float (*s)[4], bf16 *a, int row, bf16 *b)
{
#pragma unroll
	for (int n = 0; n < NT; n++)
		s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
	for (int k = 0; k < D; k += 16) {
		uint32_t fa[4];

		fragment_a<D>(fa, a, row, k);
#pragma unroll
		for (int n = 0; n < NT; n += 2) {
			uint32_t fb[4];

			fragment_b<D>(fb, b, n * 8, k);
			mma(s[n], fa, fb);
			mma(s[n + 1], fa, fb + 2);
		}
	}
}

/* o(16 x D) += p(16 x 8 NT, in sums) times the rows of b */
template <int D, int NT> HD_DEV void add_product(float (*o)[4], float (*p)[4], bf16 *b)
{
#pragma unroll
	for (int kk = 0; kk < NT / 2; kk++) {
		uint32_t fa[4];

		fragment_of_sums(fa, p, kk);
#pragma unroll
		for (int n = 0; n < D / 8; n += 2) {
			uint32_t fb[4];

			fragment_bt<D>(fb, b, kk * 16, n * 8);
			mma(o[n], fa, fb);
			mma(o[n + 1], fa, fb + 2);
		}
	}
}

/* -- forward ------------------------------------------------------------------------------------------------------- */
/* Turns a tile's scores into probabilities relative to the largest score so far (max, in the exponent's scale).
 * all: the sum of probabilities; sum: the result so far; both are rescaled.  e: which of the lane's two rows. */
template <int D> HD_DEV void soften(float (*s)[4], float (*sum)[4], float *max, float *all, float scale, int e)
{
	float high = -INFINITY, part = 0, less, old = *max;

#pragma unroll
	for (int n = 0; n < ROWS / 8; n++)
		high = fmaxf(high, fmaxf(s[n][2 * e], s[n][2 * e + 1]));
	*max = high = fmaxf(old, four_max(high) * scale);
	less = high == -INFINITY ? 0 : high; /* no key seen yet: all terms are 0 */
#pragma unroll
	for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
		for (int x = 2 * e; x < 2 * e + 2; x++) {
			s[n][x] = hd_exp2(s[n][x] * scale - less);
			part += s[n][x];
		}
	less = hd_exp2(old - less);
	*all = *all * less + part;
#pragma unroll
	for (int n = 0; n < D / 8; n++) {
		sum[n][2 * e] *= less;
		sum[n][2 * e + 1] *= less;
	}
}

template <int D>
__global__ void __launch_bounds__(THREADS, 2)
	mma_forward(hd_att t, bf16 *o, float *lse, const bf16 *q, const bf16 *k, const bf16 *v)
{
	HD_DYNAMIC_SHARED(bf16, tiles);
	bf16 *tq = tiles, *tk = tq + ROWS * D, *tv = tk + 2 * ROWS * D;
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, g = lane / 4, c = lane % 4;
	int64_t b = blockIdx.z, h = blockIdx.y, kv = t.kv_of(h);
	int64_t i0 = ((int64_t)gridDim.x - 1 - blockIdx.x) * ROWS; /* rows with most keys first */
	int64_t q_stride = t.heads * t.dim, k_stride = t.kv_heads * t.dim, end = t.seen(hd_least(i0 + ROWS, t.seq) - 1);
	int64_t row[2] = { i0 + warp * 16 + g, i0 + warp * 16 + g + 8 }, seen[2], least = t.seen(i0 + warp * 16);
	int64_t from = t.window_begin(i0) / ROWS * ROWS, window_begin[2], most = t.window_begin(i0 + warp * 16 + 15);
	float sum[D / 8][4], s[ROWS / 8][4], max[2] = { -INFINITY, -INFINITY }, all[2] = { 0, 0 }, scale = exponent(t);

	k += t.k_at(b, from, kv);
	v += t.k_at(b, from, kv);
	for (int e = 0; e < 2; e++) {
		window_begin[e] = t.window_begin(row[e]);
		seen[e] = row[e] < t.seq && window_begin[e] < t.seen(row[e]) ? t.seen(row[e]) : 0;
	}
	clear<D / 8>(sum);
	fill_tile<D, ROWS, THREADS>(tq, q + t.q_at(b, i0, h), q_stride, t.seq - i0);
	fill_tile<D, ROWS, THREADS>(tk, k, k_stride, t.keys - from);
	fill_tile<D, ROWS, THREADS>(tv, v, k_stride, t.keys - from);
	copies_commit();
	for (int64_t j = from, turn = 0; j < end; j += ROWS, turn ^= 1) {
		bf16 *kt = tk + turn * ROWS * D, *vt = tv + turn * ROWS * D;

		k += ROWS * k_stride;
		v += ROWS * k_stride;
		if (j + ROWS < end) {
			fill_tile<D, ROWS, THREADS>(tk + (turn ^ 1) * ROWS * D, k, k_stride, t.keys - j - ROWS);
			fill_tile<D, ROWS, THREADS>(tv + (turn ^ 1) * ROWS * D, v, k_stride, t.keys - j - ROWS);
		}
		copies_commit();
		copies_wait<1>();
		__syncthreads();
		scores<D, ROWS / 8>(s, tq, warp * 16, kt);
		if (t.softcap > 0)
			cap<ROWS / 8>(t, s);
		if (j + ROWS > least || j < most) {
			int left[2] = { within<ROWS>(seen[0] - j), within<ROWS>(seen[1] - j) };
			int gone[2] = { within<ROWS>(window_begin[0] - j), within<ROWS>(window_begin[1] - j) };

			hide<ROWS / 8>(s, gone, left);
		}
		soften<D>(s, sum, &max[0], &all[0], scale, 0);
		soften<D>(s, sum, &max[1], &all[1], scale, 1);
		add_product<D, ROWS / 8>(sum, s, vt);
		__syncthreads(); /* before the next copies overwrite these tiles */
	}
	copies_wait<0>();
	for (int e = 0; e < 2; e++) {
		all[e] = four_sum(all[e]);
		if (c == 0 && row[e] < t.seq)
			lse[t.row(b, h, row[e])] = seen[e] ? (max[e] + log2f(all[e])) * HD_LN2 : -INFINITY;
		all[e] = all[e] > 0 ? 1 / all[e] : all[e]; /* NaN stays NaN */
	}
	put_rows<D>(o + t.q_at(b, i0 + warp * 16, h), q_stride, t.seq - i0 - warp * 16, sum, all[0], all[1]);
}

/* -- backward ------------------------------------------------------------------------------------------------------ */
/* Keys arrive in tiles of K, one tile ahead.  K is smaller for wide heads, whose sums need the registers. */
template <int D, int K> __global__ void __launch_bounds__(THREADS, D > 64 ? 1 : 2) mma_backward_q(hd_att t, hd_att_d x)
{
	HD_DYNAMIC_SHARED(bf16, tiles);
	bf16 *tq = tiles, *td = tq + ROWS * D, *tk = td + ROWS * D, *tv = tk + 2 * K * D;
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, g = lane / 4;
	int64_t b = blockIdx.z, h = blockIdx.y, kv = t.kv_of(h), i0 = ((int64_t)gridDim.x - 1 - blockIdx.x) * ROWS;
	int64_t q_stride = t.heads * t.dim, k_stride = t.kv_heads * t.dim, end = t.seen(hd_least(i0 + ROWS, t.seq) - 1);
	int64_t from = t.window_begin(i0) / K * K, window_begin[2], most = t.window_begin(i0 + warp * 16 + 15);
	const bf16 *k = (const bf16 *)x.k + t.k_at(b, from, kv), *v = (const bf16 *)x.v + t.k_at(b, from, kv);
	int64_t seen[2], least = t.seen(i0 + warp * 16);
	float sum[D / 8][4], s[K / 8][4], d_p[K / 8][4], lse[2], delta[2], scale = exponent(t);

	for (int e = 0; e < 2; e++) {
		int64_t row = i0 + warp * 16 + g + 8 * e;

		window_begin[e] = t.window_begin(row);
		seen[e] = row < t.seq && window_begin[e] < t.seen(row) ? t.seen(row) : 0;
		lse[e] = seen[e] ? x.lse[t.row(b, h, row)] * HD_LOG2E : 0;
		delta[e] = seen[e] ? x.delta[t.row(b, h, row)] : 0;
	}
	clear<D / 8>(sum);
	fill_tile<D, ROWS, THREADS>(tq, (const bf16 *)x.q + t.q_at(b, i0, h), q_stride, t.seq - i0);
	fill_tile<D, ROWS, THREADS>(td, (const bf16 *)x.d_o + t.q_at(b, i0, h), q_stride, t.seq - i0);
	fill_tile<D, K, THREADS>(tk, k, k_stride, t.keys - from);
	fill_tile<D, K, THREADS>(tv, v, k_stride, t.keys - from);
	copies_commit();
	for (int64_t j = from, turn = 0; j < end; j += K, turn ^= 1) {
		bf16 *kt = tk + turn * K * D, *vt = tv + turn * K * D;

		k += K * k_stride;
		v += K * k_stride;
		if (j + K < end) {
			fill_tile<D, K, THREADS>(tk + (turn ^ 1) * K * D, k, k_stride, t.keys - j - K);
			fill_tile<D, K, THREADS>(tv + (turn ^ 1) * K * D, v, k_stride, t.keys - j - K);
		}
		copies_commit();
		copies_wait<1>();
		__syncthreads();
		scores<D, K / 8>(s, tq, warp * 16, kt);
		scores<D, K / 8>(d_p, td, warp * 16, vt);
#pragma unroll
		for (int n = 0; n < K / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				d_p[n][e] -= delta[e / 2];
		if (t.softcap > 0)
			cap_both<K / 8>(t, s, d_p);
		if (j + K > least || j < most) {
			int left[2] = { within<K>(seen[0] - j), within<K>(seen[1] - j) };
			int gone[2] = { within<K>(window_begin[0] - j), within<K>(window_begin[1] - j) };

			hide<K / 8>(s, gone, left);
		}
#pragma unroll
		for (int n = 0; n < K / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[n][e] = hd_exp2(s[n][e] * scale - lse[e / 2]) * d_p[n][e];
		add_product<D, K / 8>(sum, s, kt);
		__syncthreads();
	}
	copies_wait<0>();
	put_rows<D>((bf16 *)x.dq + t.q_at(b, i0 + warp * 16, h), q_stride, t.seq - i0 - warp * 16, sum, t.scale,
		    t.scale);
}

/* What mma_backward_kv reads of Q queries: their rows of q and do, lse and delta. */
template <int D, int Q> struct query_tile {
	bf16 *q, *d;
	float *lse, *delta;
	int64_t b, stride;

	HD_DEV void place(unsigned char *shared, int turn)
	{
		q = (bf16 *)(void *)(shared + turn * BYTES);
		d = q + Q * D;
		lse = (float *)(void *)(d + Q * D);
		delta = lse + Q;
	}
	HD_DEV void fetch(const hd_att &t, const hd_att_d &x, int64_t h, int64_t i) const
	{
		int64_t at = t.q_at(b, i, h), row = t.row(b, h, i);

		fill_tile<D, Q, THREADS>(q, (const bf16 *)x.q + at, stride, t.seq - i);
		fill_tile<D, Q, THREADS>(d, (const bf16 *)x.d_o + at, stride, t.seq - i);
		if ((int)threadIdx.x < Q) {
			int there = i + threadIdx.x < t.seq;

			copy_float(lse + threadIdx.x, x.lse + row + (there ? threadIdx.x : 0), there);
			copy_float(delta + threadIdx.x, x.delta + row + (there ? threadIdx.x : 0), there);
		}
		copies_commit();
	}
	static const int BYTES = 2 * Q * D * (int)sizeof(bf16) + 2 * Q * (int)sizeof(float);
};

/* Queries arrive in tiles of Q, likewise, one head after another. */
template <int D, int Q> __global__ void __launch_bounds__(THREADS, D > 64 ? 1 : 2) mma_backward_kv(hd_att t, hd_att_d x)
{
	HD_DYNAMIC_SHARED(unsigned char, shared);
	bf16 *tk = (bf16 *)(void *)shared, *tv = tk + ROWS * D;
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, g = lane / 4, c = lane % 4, turn = 0;
	int64_t b = blockIdx.z, kv = blockIdx.y, j0 = (int64_t)blockIdx.x * ROWS, from = t.first_query(j0) / Q * Q;
	int64_t k_stride = t.kv_heads * t.dim, key = j0 + warp * 16 + g, last = j0 + warp * 16 + 15;
	int64_t ends[2], end = t.end_query(hd_least(j0 + ROWS, t.keys) - 1);
	int64_t first[2], h = from < end ? t.head_from(kv) : t.head_to(kv), i = from;
	float dk[D / 8][4], dv[D / 8][4], s[Q / 8][4], d_p[Q / 8][4], scale = exponent(t);
	query_tile<D, Q> now;

	now.b = b;
	now.stride = t.heads * t.dim;
	shared += 2 * ROWS * D * sizeof(bf16);
	for (int e = 0; e < 2; e++) { /* no query sees a key past the end */
		first[e] = key + 8 * e < t.keys ? t.first_query(key + 8 * e) : t.seq;
		ends[e] = t.end_query(key + 8 * e);
	}
	clear<D / 8>(dk);
	clear<D / 8>(dv);
	fill_tile<D, ROWS, THREADS>(tk, (const bf16 *)x.k + t.k_at(b, j0, kv), k_stride, t.keys - j0);
	fill_tile<D, ROWS, THREADS>(tv, (const bf16 *)x.v + t.k_at(b, j0, kv), k_stride, t.keys - j0);
	now.place(shared, 0);
	if (h < t.head_to(kv))
		now.fetch(t, x, h, i);
	while (h < t.head_to(kv)) {
		int64_t next_i = i + Q < end ? i + Q : from, next_h = i + Q < end ? h : h + 1;
		query_tile<D, Q> next = now;

		next.place(shared, turn ^ 1);
		if (next_h < t.head_to(kv))
			next.fetch(t, x, next_h, next_i);
		else
			copies_commit();
		copies_wait<1>();
		__syncthreads();
		scores<D, Q / 8>(s, tk, warp * 16, now.q);
		scores<D, Q / 8>(d_p, tv, warp * 16, now.d);
#pragma unroll
		for (int n = 0; n < Q / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				d_p[n][e] -= now.delta[n * 8 + 2 * c + e % 2];
		if (t.softcap > 0)
			cap_both<Q / 8>(t, s, d_p);
#pragma unroll
		for (int n = 0; n < Q / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[n][e] = hd_exp2(s[n][e] * scale - now.lse[n * 8 + 2 * c + e % 2] * HD_LOG2E);
		if (i < t.first_query(last) || i + Q > t.end_query(j0 + warp * 16) || last >= t.keys) {
			int begin[2] = { within<Q>(first[0] - i), within<Q>(first[1] - i) };
			int stop[2] = { within<Q>(ends[0] - i), within<Q>(ends[1] - i) };

			drop<Q / 8>(s, begin, stop);
		}
#pragma unroll
		for (int n = 0; n < Q / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				d_p[n][e] *= s[n][e];
		add_product<D, Q / 8>(dv, s, now.d);
		add_product<D, Q / 8>(dk, d_p, now.q);
		__syncthreads();
		now = next;
		turn ^= 1;
		i = next_i;
		h = next_h;
	}
	copies_wait<0>();
	put_rows<D>((bf16 *)x.dk + t.k_at(b, j0 + warp * 16, kv), k_stride, t.keys - j0 - warp * 16, dk, t.scale,
		    t.scale);
	put_rows<D>((bf16 *)x.dv + t.k_at(b, j0 + warp * 16, kv), k_stride, t.keys - j0 - warp * 16, dv, 1, 1);
}

/* -- host ---------------------------------------------------------------------------------------------------------- */
#define FORWARD_BYTES(D) (5 * ROWS * (D) * sizeof(bf16))
#define OTHERS(D) ((D) > 64 ? 32 : 64) /* rows of the other side in a tile, in backward */
#define BACKWARD_Q_BYTES(D) ((2 * ROWS + 4 * OTHERS(D)) * (D) * sizeof(bf16))
#define BACKWARD_KV_BYTES(D) (2 * ROWS * (D) * sizeof(bf16) + (size_t)2 * query_tile<D, OTHERS(D)>::BYTES)

template <int D> static int allow(struct hd_err *err)
{
	HD_TRY(hd_cuda_allow_shared("attention", (const void *)mma_forward<D>, FORWARD_BYTES(D), err));
	HD_TRY(hd_cuda_allow_shared("attention", (const void *)mma_backward_q<D, OTHERS(D)>, BACKWARD_Q_BYTES(D), err));
	return hd_cuda_allow_shared("attention", (const void *)mma_backward_kv<D, OTHERS(D)>, BACKWARD_KV_BYTES(D),
				    err);
}

int hd_att_mma_prepare(const struct hd_att *t, struct hd_err *err)
{
	return t->dim == 64 ? allow<64>(err) : allow<128>(err);
}

static unsigned blocks(int64_t n)
{
	return (unsigned)((n + ROWS - 1) / ROWS);
}

template <int D>
static void launch(const struct hd_att *t, bf16 *o, float *lse, const bf16 *q, const bf16 *k, const bf16 *v,
		   const struct hd_run *r)
{
	dim3 grid(blocks(t->seq), (unsigned)t->heads, (unsigned)t->batch);

	HD_LAUNCH((mma_forward<D>), grid, THREADS, FORWARD_BYTES(D), r, *t, o, lse, q, k, v);
}

void hd_att_mma(const struct hd_att *t, void *o, float *lse, const void *q, const void *k, const void *v,
		const struct hd_run *r)
{
	if (t->dim == 64)
		launch<64>(t, (bf16 *)o, lse, (const bf16 *)q, (const bf16 *)k, (const bf16 *)v, r);
	else
		launch<128>(t, (bf16 *)o, lse, (const bf16 *)q, (const bf16 *)k, (const bf16 *)v, r);
}

template <int D> static void launch_d(const struct hd_att *t, const struct hd_att_d *x, const struct hd_run *r)
{
	dim3 queries(blocks(t->seq), (unsigned)t->heads, (unsigned)t->batch);
	dim3 keys(blocks(t->keys), (unsigned)t->kv_heads, (unsigned)t->batch);

	HD_LAUNCH((mma_backward_q<D, OTHERS(D)>), queries, THREADS, BACKWARD_Q_BYTES(D), r, *t, *x);
	HD_LAUNCH((mma_backward_kv<D, OTHERS(D)>), keys, THREADS, BACKWARD_KV_BYTES(D), r, *t, *x);
}

void hd_att_mma_d(const struct hd_att *t, const struct hd_att_d *x, const struct hd_run *r)
{
	t->dim == 64 ? launch_d<64>(t, x, r) : launch_d<128>(t, x, r);
}
