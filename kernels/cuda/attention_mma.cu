/* SPDX-License-Identifier: Apache-2.0
 * attention on tensor cores: bf16, head_dim 64 or 128 (Dao, FlashAttention-2, 2023).
 *
 * Four warps have 16 rows each: queries in forward and for dq, keys for dk and dv, so that probabilities go from the sums
 * of one product straight into the operand of the next, in registers.  Tiles of the other side come by asynchronous
 * copies, the next while one is computed with.  dq has a kernel of its own: the scores are made twice more than with
 * atomic additions, and every sum has one order.
 */
#include "kernels/cuda/attention.h"
#include "kernels/cuda/mma.h"

#define THREADS 128
#define ROWS 64				/* of a block: 16 a warp */

int hd_att_mma_has(const struct hd_att *t) { return t->dim == 64 || t->dim == 128; }

/* s(16 x 8 NT) = rows `row`... of a times the rows of b transposed */
template<int D, int NT> HD_DEV void scores(float (*s)[4], bf16 *a, int row, bf16 *b)
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

/* o(16 x D) += p(16 x 8 NT, from sums) times the rows of b */
template<int D, int NT> HD_DEV void add_product(float (*o)[4], float (*p)[4], bf16 *b)
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

/* Sums to two rows of global memory (g and g + 8 of the warp's 16), times a factor each. */
template<int D> HD_DEV void put_rows(bf16 *to, int64_t stride, int64_t have, float (*o)[4], float low, float high)
{
	int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;

#pragma unroll
	for (int n = 0; n < D / 8; n++) {
		if (g < have)
			*(uint32_t *)(void *)(to + g * stride + n * 8 + 2 * t) = hd_bf16_pair(o[n][0] * low, o[n][1] * low);
		if (g + 8 < have)
			*(uint32_t *)(void *)(to + (g + 8) * stride + n * 8 + 2 * t) = hd_bf16_pair(o[n][2] * high, o[n][3] * high);
	}
}

HD_DEV float four_max(float x)		/* of the lanes that share a row of sums */
{
	x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
	return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
HD_DEV float four_sum(float x)
{
	x += __shfl_xor_sync(~0u, x, 1);
	return x + __shfl_xor_sync(~0u, x, 2);
}

/* -- forward -------------------------------------------------------------------------------------------------------------- */
template<int D> __global__ void __launch_bounds__(THREADS, 2)
mma_forward(hd_att t, bf16 *o, float *lse, const bf16 *q, const bf16 *k, const bf16 *v)
{
	HD_DYNAMIC_SHARED(bf16, tiles);
	bf16 *tq = tiles, *tk = tq + ROWS * D, *tv = tk + 2 * ROWS * D;
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, g = lane / 4, c = lane % 4;
	int64_t b = blockIdx.z, h = blockIdx.y, kv = t.kv_of(h);
	int64_t i0 = ((int64_t)gridDim.x - 1 - blockIdx.x) * ROWS;	/* long rows first */
	int64_t q_stride = t.heads * t.dim, k_stride = t.kv_heads * t.dim, end = t.seen(hd_least(i0 + ROWS, t.seq) - 1);
	int64_t row[2] = { i0 + warp * 16 + g, i0 + warp * 16 + g + 8 }, seen[2];
	float sum[D / 8][4], s[ROWS / 8][4], max[2] = { -INFINITY, -INFINITY }, all[2] = { 0, 0 }, scale = t.scale * HD_LOG2E;

	k += t.k_at(b, 0, kv);
	v += t.k_at(b, 0, kv);
	for (int e = 0; e < 2; e++)
		seen[e] = row[e] < t.seq ? t.seen(row[e]) : 0;
#pragma unroll
	for (int n = 0; n < D / 8; n++)
		sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
	fill_tile<D, ROWS, THREADS>(tq, q + t.q_at(b, i0, h), q_stride, t.seq - i0);
	fill_tile<D, ROWS, THREADS>(tk, k, k_stride, t.keys);
	fill_tile<D, ROWS, THREADS>(tv, v, k_stride, t.keys);
	copies_commit();
	for (int64_t j = 0, turn = 0; j < end; j += ROWS, turn ^= 1) {
		bf16 *kt = tk + turn * ROWS * D, *vt = tv + turn * ROWS * D;

		if (j + ROWS < end) {
			fill_tile<D, ROWS, THREADS>(tk + (turn ^ 1) * ROWS * D, k + (j + ROWS) * k_stride, k_stride, t.keys - j - ROWS);
			fill_tile<D, ROWS, THREADS>(tv + (turn ^ 1) * ROWS * D, v + (j + ROWS) * k_stride, k_stride, t.keys - j - ROWS);
		}
		copies_commit();
		copies_wait<1>();
		__syncthreads();
		scores<D, ROWS / 8>(s, tq, warp * 16, kt);
#pragma unroll
		for (int e = 0; e < 2; e++) {
			float high = max[e], part = 0, less;

#pragma unroll
			for (int n = 0; n < ROWS / 8; n++)
				for (int x = 2 * e; x < 2 * e + 2; x++) {
					s[n][x] = j + n * 8 + 2 * c + x % 2 < seen[e] ? s[n][x] * scale : -INFINITY;
					high = fmaxf(high, s[n][x]);
				}
			high = four_max(high);
			less = high == -INFINITY ? 0 : high;		/* nothing seen yet: all terms are 0 */
#pragma unroll
			for (int n = 0; n < ROWS / 8; n++)
				for (int x = 2 * e; x < 2 * e + 2; x++) {
					s[n][x] = exp2f(s[n][x] - less);
					part += s[n][x];
				}
			less = exp2f(max[e] - less);
			max[e] = high;
			all[e] = all[e] * less + part;
#pragma unroll
			for (int n = 0; n < D / 8; n++) {
				sum[n][2 * e] *= less;
				sum[n][2 * e + 1] *= less;
			}
		}
		add_product<D, ROWS / 8>(sum, s, vt);
		__syncthreads();		/* before the next copies into these tiles */
	}
	copies_wait<0>();
	for (int e = 0; e < 2; e++) {
		all[e] = four_sum(all[e]);
		if (c == 0 && row[e] < t.seq)
			lse[t.row(b, h, row[e])] = seen[e] ? (max[e] + log2f(all[e])) * HD_LN2 : -INFINITY;
		all[e] = all[e] > 0 ? 1 / all[e] : all[e];		/* NaN stays */
	}
	put_rows<D>(o + t.q_at(b, i0 + warp * 16, h), q_stride, t.seq - i0 - warp * 16, sum, all[0], all[1]);
}

/* -- backward ------------------------------------------------------------------------------------------------------------- */
/* Keys come in tiles of K: fewer for wide heads, whose sums take the registers. */
template<int D, int K> __global__ void __launch_bounds__(THREADS, D > 64 ? 1 : 2) mma_backward_q(hd_att t, hd_att_d x)
{
	HD_DYNAMIC_SHARED(bf16, tiles);
	bf16 *tq = tiles, *td = tq + ROWS * D, *tk = td + ROWS * D, *tv = tk + K * D;
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, g = lane / 4, c = lane % 4;
	int64_t b = blockIdx.z, h = blockIdx.y, kv = t.kv_of(h), i0 = ((int64_t)gridDim.x - 1 - blockIdx.x) * ROWS;
	int64_t q_stride = t.heads * t.dim, k_stride = t.kv_heads * t.dim, end = t.seen(hd_least(i0 + ROWS, t.seq) - 1);
	const bf16 *k = (const bf16 *)x.k + t.k_at(b, 0, kv), *v = (const bf16 *)x.v + t.k_at(b, 0, kv);
	int64_t seen[2];
	float sum[D / 8][4], s[K / 8][4], d_p[K / 8][4], lse[2], delta[2], scale = t.scale * HD_LOG2E;

	for (int e = 0; e < 2; e++) {
		int64_t row = i0 + warp * 16 + g + 8 * e;

		seen[e] = row < t.seq ? t.seen(row) : 0;
		lse[e] = row < t.seq ? x.lse[t.row(b, h, row)] * HD_LOG2E : 0;
		delta[e] = row < t.seq ? x.delta[t.row(b, h, row)] : 0;
	}
#pragma unroll
	for (int n = 0; n < D / 8; n++)
		sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
	fill_tile<D, ROWS, THREADS>(tq, (const bf16 *)x.q + t.q_at(b, i0, h), q_stride, t.seq - i0);
	fill_tile<D, ROWS, THREADS>(td, (const bf16 *)x.d_o + t.q_at(b, i0, h), q_stride, t.seq - i0);
	for (int64_t j = 0; j < end; j += K) {
		fill_tile<D, K, THREADS>(tk, k + j * k_stride, k_stride, t.keys - j);
		copies_commit();
		fill_tile<D, K, THREADS>(tv, v + j * k_stride, k_stride, t.keys - j);
		copies_commit();
		copies_wait<1>();
		__syncthreads();
		scores<D, K / 8>(s, tq, warp * 16, tk);
		copies_wait<0>();
		__syncthreads();
		scores<D, K / 8>(d_p, td, warp * 16, tv);
#pragma unroll
		for (int n = 0; n < K / 8; n++)
			for (int e = 0; e < 4; e++) {
				float p = j + n * 8 + 2 * c + e % 2 < seen[e / 2] ? exp2f(s[n][e] * scale - lse[e / 2]) : 0;

				s[n][e] = p == 0 ? 0 : p * (d_p[n][e] - delta[e / 2]);
			}
		add_product<D, K / 8>(sum, s, tk);
		__syncthreads();
	}
	copies_wait<0>();
	put_rows<D>((bf16 *)x.dq + t.q_at(b, i0 + warp * 16, h), q_stride, t.seq - i0 - warp * 16, sum, t.scale, t.scale);
}

/* Queries come in tiles of Q, likewise. */
template<int D, int Q> __global__ void __launch_bounds__(THREADS, D > 64 ? 1 : 2) mma_backward_kv(hd_att t, hd_att_d x)
{
	HD_DYNAMIC_SHARED(bf16, tiles);
	bf16 *tk = tiles, *tv = tk + ROWS * D, *tq = tv + ROWS * D, *td = tq + Q * D;
	float *lse = (float *)(void *)(td + Q * D), *delta = lse + Q;
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, g = lane / 4, c = lane % 4;
	int64_t b = blockIdx.z, kv = blockIdx.y, j0 = (int64_t)blockIdx.x * ROWS, from = t.first_query(j0) / Q * Q;
	int64_t q_stride = t.heads * t.dim, k_stride = t.kv_heads * t.dim, key = j0 + warp * 16 + g;
	float dk[D / 8][4], dv[D / 8][4], s[Q / 8][4], d_p[Q / 8][4], scale = t.scale * HD_LOG2E;

#pragma unroll
	for (int n = 0; n < D / 8; n++)
		for (int e = 0; e < 4; e++)
			dk[n][e] = dv[n][e] = 0;
	fill_tile<D, ROWS, THREADS>(tk, (const bf16 *)x.k + t.k_at(b, j0, kv), k_stride, t.keys - j0);
	fill_tile<D, ROWS, THREADS>(tv, (const bf16 *)x.v + t.k_at(b, j0, kv), k_stride, t.keys - j0);
	for (int64_t h = t.head_from(kv); h < t.head_to(kv); h++)
		for (int64_t i = from; i < t.seq; i += Q) {
			fill_tile<D, Q, THREADS>(tq, (const bf16 *)x.q + t.q_at(b, i, h), q_stride, t.seq - i);
			copies_commit();
			fill_tile<D, Q, THREADS>(td, (const bf16 *)x.d_o + t.q_at(b, i, h), q_stride, t.seq - i);
			copies_commit();
			for (int n = (int)threadIdx.x; n < Q; n += THREADS) {
				lse[n] = i + n < t.seq ? x.lse[t.row(b, h, i + n)] * HD_LOG2E : 0;
				delta[n] = i + n < t.seq ? x.delta[t.row(b, h, i + n)] : 0;
			}
			copies_wait<1>();
			__syncthreads();
			scores<D, Q / 8>(s, tk, warp * 16, tq);
			copies_wait<0>();
			__syncthreads();
			scores<D, Q / 8>(d_p, tv, warp * 16, td);
#pragma unroll
			for (int n = 0; n < Q / 8; n++)
				for (int e = 0; e < 4; e++) {
					int at = n * 8 + 2 * c + e % 2;
					int64_t j = key + e / 2 * 8;

					s[n][e] = i + at < t.seq && j < t.seen(i + at) ? exp2f(s[n][e] * scale - lse[at]) : 0;
					d_p[n][e] = s[n][e] == 0 ? 0 : s[n][e] * (d_p[n][e] - delta[at]);
				}
			add_product<D, Q / 8>(dv, s, td);
			add_product<D, Q / 8>(dk, d_p, tq);
			__syncthreads();
		}
	copies_wait<0>();
	put_rows<D>((bf16 *)x.dk + t.k_at(b, j0 + warp * 16, kv), k_stride, t.keys - j0 - warp * 16, dk, t.scale, t.scale);
	put_rows<D>((bf16 *)x.dv + t.k_at(b, j0 + warp * 16, kv), k_stride, t.keys - j0 - warp * 16, dv, 1, 1);
}

/* -- host ----------------------------------------------------------------------------------------------------------------- */
#define FORWARD_BYTES(D) (5 * ROWS * (D) * sizeof(bf16))
#define OTHERS(D) ((D) > 64 ? 32 : 64)	/* of the other side in a tile, in backward */
#define BACKWARD_Q_BYTES(D) ((2 * ROWS + 2 * OTHERS(D)) * (D) * sizeof(bf16))
#define BACKWARD_KV_BYTES(D) ((2 * ROWS + 2 * OTHERS(D)) * (D) * sizeof(bf16) + 2 * OTHERS(D) * sizeof(float))

template<int D> static int allow(struct hd_err *err)
{
	HD_TRY(hd_cuda_allow_shared("attention", (const void *)mma_forward<D>, FORWARD_BYTES(D), err));
	HD_TRY(hd_cuda_allow_shared("attention", (const void *)mma_backward_q<D, OTHERS(D)>, BACKWARD_Q_BYTES(D), err));
	return hd_cuda_allow_shared("attention", (const void *)mma_backward_kv<D, OTHERS(D)>, BACKWARD_KV_BYTES(D), err);
}

int hd_att_mma_prepare(const struct hd_att *t, struct hd_err *err)
{
	return t->dim == 64 ? allow<64>(err) : allow<128>(err);
}

static unsigned blocks(int64_t n) { return (unsigned)((n + ROWS - 1) / ROWS); }

template<int D> static void go(const struct hd_att *t, bf16 *o, float *lse, const bf16 *q, const bf16 *k, const bf16 *v,
			       const struct hd_run *r)
{
	dim3 grid(blocks(t->seq), (unsigned)t->heads, (unsigned)t->batch);

	HD_LAUNCH((mma_forward<D>), grid, THREADS, FORWARD_BYTES(D), r, *t, o, lse, q, k, v);
}

void hd_att_mma(const struct hd_att *t, void *o, float *lse, const void *q, const void *k, const void *v, const struct hd_run *r)
{
	if (t->dim == 64)
		go<64>(t, (bf16 *)o, lse, (const bf16 *)q, (const bf16 *)k, (const bf16 *)v, r);
	else
		go<128>(t, (bf16 *)o, lse, (const bf16 *)q, (const bf16 *)k, (const bf16 *)v, r);
}

template<int D> static void go_d(const struct hd_att *t, const struct hd_att_d *x, const struct hd_run *r)
{
	dim3 queries(blocks(t->seq), (unsigned)t->heads, (unsigned)t->batch);
	dim3 keys(blocks(t->keys), (unsigned)t->kv_heads, (unsigned)t->batch);

	HD_LAUNCH((mma_backward_q<D, OTHERS(D)>), queries, THREADS, BACKWARD_Q_BYTES(D), r, *t, *x);
	HD_LAUNCH((mma_backward_kv<D, OTHERS(D)>), keys, THREADS, BACKWARD_KV_BYTES(D), r, *t, *x);
}

void hd_att_mma_d(const struct hd_att *t, const struct hd_att_d *x, const struct hd_run *r)
{
	t->dim == 64 ? go_d<64>(t, x, r) : go_d<128>(t, x, r);
}
