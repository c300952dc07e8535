/* SPDX-License-Identifier: Apache-2.0
 * attention backward for compute capability 9.0a: bf16, head_dim 64 or 128 (Shah et al., FlashAttention-3, 2024).
 *
 * As in attention_mma.cu there are two kernels, one for dq and one for dk and dv, and the scores are made in both: every sum is made
 * by one group of warps in one order.  A block has 128 rows, queries for dq and keys for dk and dv, whose two operands stay in shared
 * memory.  Pairs of tiles of the other side come by the copy engine, two ahead.  A group makes scores and their gradients of 64 rows
 * out of shared memory; they go on into the second products in registers.  While one group computes exponentials, the other's
 * products run.
 *
 * Compiled where CUDA_ARCH has 90a, and used on GPUs of that architecture unless HEDDLE_WGMMA=0 is set.
 */
#include "kernels/cuda/attention/groups.h"

#define STAGES 2
#define QUERIES(D) ((D) > 64 ? 64 : 128) /* of a tile, beside keys: the sums of wide heads take the registers */
#define ROWS_BYTES(N, D) ((N) * (D) * (int)sizeof(bf16))
/* Two operands of the block's rows, pairs of tiles of N rows, two floats of each of these, barriers. */
#define BYTES(N, D) \
	(HD_TILE_ALIGN + 2 * ROWS_BYTES(ROWS, D) + STAGES * (2 * ROWS_BYTES(N, D) + 2 * (N) * (int)sizeof(float)) + 64)

struct sides {
	hd_tensor_map q, d_o, k, v;
};

#ifdef HD_HOPPER
/* What is in the block's shared memory. */
template <int N, int D> struct held {
	unsigned char *own;
	float *sums;
	uint64_t *there, *free, *own_there;

	HD_DEV explicit held(unsigned char *shared)
	{
		own = hd_first_tile(shared);
		sums = (float *)(void *)pair(STAGES);
		there = (uint64_t *)(void *)(sums + STAGES * 2 * N);
		free = there + STAGES;
		own_there = free + STAGES;
	}
	HD_DEV unsigned char *second() const
	{
		return own + ROWS_BYTES(ROWS, D);
	}
	HD_DEV unsigned char *pair(int turn) const
	{
		return own + 2 * ROWS_BYTES(ROWS, D) + turn * 2 * ROWS_BYTES(N, D);
	}
	HD_DEV float *lse(int turn) const /* times log2(e); behind them delta */
	{
		return sums + turn * 2 * N;
	}
	HD_DEV void make(int arrivals) const
	{
		barrier_make(own_there, 1);
		for (int i = 0; i < STAGES; i++) {
			barrier_make(&there[i], arrivals);
			barrier_make(&free[i], 8); /* a lane of each warp that reads */
		}
		barriers_made();
	}
	/* By one thread. */
	HD_DEV void fetch_own(const hd_tensor_map *a, const hd_tensor_map *b, int head, int64_t row) const
	{
		barrier_expect(own_there, 2 * ROWS_BYTES(ROWS, D));
		fetch_rows<D, ROWS>(own, a, head, row, (int)blockIdx.z, own_there);
		fetch_rows<D, ROWS>(second(), b, head, row, (int)blockIdx.z, own_there);
	}
	HD_DEV void fetch_pair(int turn, const hd_tensor_map *a, const hd_tensor_map *b, int head, int64_t row) const
	{
		barrier_expect(&there[turn], 2 * ROWS_BYTES(N, D));
		fetch_rows<D, N>(pair(turn), a, head, row, (int)blockIdx.z, &there[turn]);
		fetch_rows<D, N>(pair(turn) + ROWS_BYTES(N, D), b, head, row, (int)blockIdx.z, &there[turn]);
	}
};

/* s and d (64 x N) = a group's rows of the block's two operands times a pair of tiles. */
template <int N, int D>
HD_DEV void both_scores(float (*s)[4], float (*d)[4], const held<N, D> &m, int group, const unsigned char *pair)
{
	hold<N>(s);
	hold<N>(d);
	group_fence();
	begin_scores<D, N>(s, m.own + group * 64 * HD_ROW_BYTES, pair);
	begin_scores<D, N>(d, m.second() + group * 64 * HD_ROW_BYTES, pair + ROWS_BYTES(N, D));
	group_wait<0>();
	hold<N>(s);
	hold<N>(d);
}

/* -- dq ---------------------------------------------------------------------------------------------------------------------- */
/* Of 64 queries' scores and what comes behind them: their gradients, in s. */
struct query_rows {
	int64_t seen[2], passed[2], least, most; /* least, most: all of the warp's see keys most ... least - 1 */
	float lse[2], delta[2], scale;

	HD_DEV query_rows(const hd_att &t, const hd_att_d &x, int64_t first)
	{
		scale = exponent(t);
		least = t.seen(first);
		most = t.passed(first + 15);
		for (int e = 0; e < 2; e++) {
			int64_t row = first + threadIdx.x % 32 / 4 + 8 * e, at = t.row(blockIdx.z, blockIdx.y, row);

			passed[e] = t.passed(row);
			seen[e] = row < t.seq && passed[e] < t.seen(row) ? t.seen(row) : 0;
			lse[e] = seen[e] ? x.lse[at] * HD_LOG2E : 0;
			delta[e] = seen[e] ? x.delta[at] : 0;
		}
	}
	HD_DEV void gradients(const hd_att &t, float (*s)[4], float (*d)[4], int64_t j) const
	{
#pragma unroll
		for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				d[n][e] -= delta[e / 2];
		if (t.softcap > 0)
			cap_both<KEYS / 8>(t, s, d);
		if (j + KEYS > least || j < most) {
			int left[2] = { within<KEYS>(seen[0] - j), within<KEYS>(seen[1] - j) };
			int gone[2] = { within<KEYS>(passed[0] - j), within<KEYS>(passed[1] - j) };

			hide<KEYS / 8>(s, gone, left);
		}
#pragma unroll
		for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[n][e] = hd_exp2(s[n][e] * scale - lse[e / 2]) * d[n][e];
	}
};

template <int D> HD_DEV void produce_keys(const hd_att &t, const held<KEYS, D> &m, span n, int64_t i0, const sides &x)
{
	m.fetch_own(&x.q, &x.d_o, (int)blockIdx.y, i0);
	for (int i = 0; i < n.n; i++) {
		barrier_wait(&m.free[i % STAGES], (i / STAGES & 1) ^ 1);
		m.fetch_pair(i % STAGES, &x.k, &x.v, (int)t.kv_of(blockIdx.y), n.from + (int64_t)i * KEYS);
	}
}

template <int D>
HD_DEV void consume_keys(const hd_att &t, const hd_att_d &x, const held<KEYS, D> &m, span n, int64_t i0)
{
	int group = (int)threadIdx.x / 128 - 1;
	int64_t first = i0 + group * 64 + (int)threadIdx.x / 32 % 4 * 16;
	float sum[D / 8][4], s[KEYS / 8][4], d[KEYS / 8][4];
	uint32_t p[KEYS / 16][4];
	query_rows r(t, x, first);

	clear<D / 8>(sum);
	clear<KEYS / 8>(s);
	clear<KEYS / 8>(d);
	barrier_wait(m.own_there, 0);
	for (int i = 0; i < n.n; i++) {
		const unsigned char *k = m.pair(i % STAGES);

		barrier_wait(&m.there[i % STAGES], i / STAGES & 1);
		both_scores<KEYS, D>(s, d, m, group, k);
		r.gradients(t, s, d, n.from + (int64_t)i * KEYS);
		pack_scores<KEYS>(p, s);
		hold<D>(sum);
		group_fence();
		begin_sum<D, KEYS>(sum, p, k);
		group_wait<0>();
		hold<D>(sum);
		let_go(&m.free[i % STAGES]);
	}
	put_rows<D>((bf16 *)x.dq + t.q_at(blockIdx.z, first, blockIdx.y), t.heads * t.dim, t.seq - first, sum, t.scale,
		    t.scale);
}

/* -- dk and dv ----------------------------------------------------------------------------------------------------------------- */
/* Tiles of N queries that keys j0 ... j0 + ROWS - 1 are seen by: from ... end of each of the heads. */
template <int N> struct walk {
	int64_t from, end, i, h, last;
	int turn;

	HD_DEV walk(const hd_att &t, int64_t j0)
	{
		from = i = t.first_query(j0) / N * N;
		end = t.last_query(hd_least(j0 + ROWS, t.keys) - 1);
		last = t.head_to(blockIdx.y);
		h = from < end ? t.head_from(blockIdx.y) : last;
		turn = 0;
	}
	HD_DEV int more() const
	{
		return h < last;
	}
	HD_DEV void next()
	{
		turn++;
		i += N;
		if (i >= end) {
			i = from;
			h++;
		}
	}
};

/* By a warp: lanes bring the floats of a tile's queries, and one of them asks for its rows. */
template <int N, int D>
HD_DEV void produce_queries(const hd_att &t, const hd_att_d &x, const held<N, D> &m, int64_t j0, const sides &y)
{
	int lane = (int)threadIdx.x;

	if (lane == 0)
		m.fetch_own(&y.k, &y.v, (int)blockIdx.y, j0);
	for (walk<N> w(t, j0); w.more(); w.next()) {
		int turn = w.turn % STAGES;
		float lse[N / 32], delta[N / 32];

#pragma unroll
		for (int e = 0; e < N / 32; e++) {
			int64_t i = w.i + lane + e * 32, at = t.row(blockIdx.z, w.h, i);

			lse[e] = i < t.seq ? x.lse[at] * HD_LOG2E : 0;
			delta[e] = i < t.seq ? x.delta[at] : 0;
		}
		barrier_wait(&m.free[turn], (w.turn / STAGES & 1) ^ 1);
#pragma unroll
		for (int e = 0; e < N / 32; e++) {
			m.lse(turn)[lane + e * 32] = lse[e];
			m.lse(turn)[N + lane + e * 32] = delta[e];
		}
		if (lane == 0)
			m.fetch_pair(turn, &y.q, &y.d_o, (int)w.h, w.i);
		else
			barrier_arrive(&m.there[turn]);
	}
}

/* Of 64 keys' scores and what comes behind them: probabilities, in s, and gradients, in d. */
template <int N> struct key_rows {
	int64_t begin[2], behind[2], first,
		last; /* first, last: all of the warp's are seen by queries first ... last - 1 */
	float scale;

	HD_DEV key_rows(const hd_att &t, int64_t key)
	{
		scale = exponent(t);
		first = key + 15 < t.keys ? t.first_query(key + 15) : t.seq;
		last = t.last_query(key);
		for (int e = 0; e < 2; e++) { /* a key that is not there is seen by none */
			int64_t j = key + threadIdx.x % 32 / 4 + 8 * e;

			begin[e] = j < t.keys ? t.first_query(j) : t.seq;
			behind[e] = t.last_query(j);
		}
	}
	HD_DEV void gradients(const hd_att &t, float (*s)[4], float (*d)[4], const float *lse, int64_t i) const
	{
		int c = (int)threadIdx.x % 4 * 2;

#pragma unroll
		for (int n = 0; n < N / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				d[n][e] -= lse[N + n * 8 + c + e % 2];
		if (t.softcap > 0)
			cap_both<N / 8>(t, s, d);
#pragma unroll
		for (int n = 0; n < N / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[n][e] = hd_exp2(s[n][e] * scale - lse[n * 8 + c + e % 2]);
		if (i < first || i + N > last) {
			int from[2] = { within<N>(begin[0] - i), within<N>(begin[1] - i) };
			int to[2] = { within<N>(behind[0] - i), within<N>(behind[1] - i) };

			drop<N / 8>(s, from, to);
		}
#pragma unroll
		for (int n = 0; n < N / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				d[n][e] *= s[n][e];
	}
};

template <int N, int D> HD_DEV void consume_queries(const hd_att &t, const hd_att_d &x, const held<N, D> &m, int64_t j0)
{
	int group = (int)threadIdx.x / 128 - 1;
	int64_t key = j0 + group * 64 + (int)threadIdx.x / 32 % 4 * 16, at = t.k_at(blockIdx.z, key, blockIdx.y);
	int64_t stride = t.kv_heads * t.dim;
	float dk[D / 8][4], dv[D / 8][4], s[N / 8][4], d[N / 8][4];
	uint32_t p[N / 16][4], ds[N / 16][4];
	key_rows<N> r(t, key);

	clear<D / 8>(dk);
	clear<D / 8>(dv);
	clear<N / 8>(s);
	clear<N / 8>(d);
	barrier_wait(m.own_there, 0);
	for (walk<N> w(t, j0); w.more(); w.next()) {
		int turn = w.turn % STAGES;

		barrier_wait(&m.there[turn], w.turn / STAGES & 1);
		both_scores<N, D>(s, d, m, group, m.pair(turn));
		r.gradients(t, s, d, m.lse(turn), w.i);
		pack_scores<N>(p, s);
		pack_scores<N>(ds, d);
		hold<D>(dv);
		hold<D>(dk);
		group_fence();
		begin_sum<D, N>(dv, p, m.pair(turn) + ROWS_BYTES(N, D));
		begin_sum<D, N>(dk, ds, m.pair(turn));
		group_wait<0>();
		hold<D>(dv);
		hold<D>(dk);
		__syncwarp(); /* the floats, which lanes have read */
		let_go(&m.free[turn]);
	}
	put_rows<D>((bf16 *)x.dk + at, stride, t.keys - key, dk, t.scale, t.scale);
	put_rows<D>((bf16 *)x.dv + at, stride, t.keys - key, dv, 1, 1);
}
#endif

/* -- kernels ------------------------------------------------------------------------------------------------------------------- */
template <int D>
__global__ void __launch_bounds__(THREADS, 1) wgmma_backward_q(hd_att t, hd_att_d x, const __grid_constant__ sides y)
{
#ifdef HD_HOPPER
	HD_DYNAMIC_SHARED(unsigned char, shared);
	held<KEYS, D> m(shared);
	int64_t i0 = ((int64_t)gridDim.x - 1 - blockIdx.x) * ROWS; /* long rows first */
	span n = span_of(t, i0);

	if (threadIdx.x == 0)
		m.make(1);
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<24>();
		if (threadIdx.x == 0)
			produce_keys<D>(t, m, n, i0, y);
	} else {
		more_registers<240>();
		consume_keys<D>(t, x, m, n, i0);
	}
#endif
}

template <int D>
__global__ void __launch_bounds__(THREADS, 1) wgmma_backward_kv(hd_att t, hd_att_d x, const __grid_constant__ sides y)
{
#ifdef HD_HOPPER
	HD_DYNAMIC_SHARED(unsigned char, shared);
	held<QUERIES(D), D> m(shared);
	int64_t j0 = (int64_t)blockIdx.x * ROWS;

	if (threadIdx.x == 0)
		m.make(32); /* the lanes of the warp that fetches */
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<24>();
		if (threadIdx.x < 32)
			produce_queries<QUERIES(D), D>(t, x, m, j0, y);
	} else {
		more_registers<240>();
		consume_queries<QUERIES(D), D>(t, x, m, j0);
	}
#endif
}

/* -- host ------------------------------------------------------------------------------------------------------------------------ */
template <int D> static int allow(struct hd_err *err)
{
	HD_TRY(hd_cuda_allow_shared("attention", (const void *)wgmma_backward_q<D>, BYTES(KEYS, D), err));
	return hd_cuda_allow_shared("attention", (const void *)wgmma_backward_kv<D>, BYTES(QUERIES(D), D), err);
}

int hd_att_wgmma_d_prepare(const struct hd_att *t, struct hd_err *err)
{
	return t->dim == 64 ? allow<64>(err) : allow<128>(err);
}

/* Queries in tiles of nq rows, keys of nk. */
template <int D> static int map_all(sides *m, const struct hd_att *t, const struct hd_att_d *x, int nq, int nk)
{
	int64_t n[2][4] = { { D, t->heads, t->seq, t->batch }, { D, t->kv_heads, t->keys, t->batch } };
	int64_t step[2][3] = { { D, t->heads * D, t->seq * t->heads * D },
			       { D, t->kv_heads * D, t->keys * t->kv_heads * D } };
	struct hd_err none = { 0, 0, "" };

	HD_TRY(hd_tensor_map_make(&m->q, x->q, n[0], step[0], nq, &none));
	HD_TRY(hd_tensor_map_make(&m->d_o, x->d_o, n[0], step[0], nq, &none));
	HD_TRY(hd_tensor_map_make(&m->k, x->k, n[1], step[1], nk, &none));
	return hd_tensor_map_make(&m->v, x->v, n[1], step[1], nk, &none);
}

static unsigned blocks(int64_t n)
{
	return (unsigned)((n + ROWS - 1) / ROWS);
}

template <int D> static int go(const struct hd_att *t, const struct hd_att_d *x, const struct hd_run *r)
{
	dim3 queries(blocks(t->seq), (unsigned)t->heads, (unsigned)t->batch);
	dim3 keys(blocks(t->keys), (unsigned)t->kv_heads, (unsigned)t->batch);
	sides q, kv;

	HD_TRY(map_all<D>(&q, t, x, ROWS, KEYS));
	HD_TRY(map_all<D>(&kv, t, x, QUERIES(D), ROWS));
	HD_LAUNCH((wgmma_backward_q<D>), queries, THREADS, BYTES(KEYS, D), r, *t, *x, q);
	HD_LAUNCH((wgmma_backward_kv<D>), keys, THREADS, BYTES(QUERIES(D), D), r, *t, *x, kv);
	return HD_OK;
}

int hd_att_wgmma_d(const struct hd_att *t, const struct hd_att_d *x, const struct hd_run *r)
{
	return t->dim == 64 ? go<64>(t, x, r) : go<128>(t, x, r);
}
