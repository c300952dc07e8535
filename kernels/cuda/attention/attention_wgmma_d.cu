/* SPDX-License-Identifier: Apache-2.0
 * attention backward for compute capability 9.0a: bf16, head_dim 64 or 128 (Shah et al., FlashAttention-3, 2024).
 *
 * As in attention_mma.cu there are two kernels, one for dq and one for dk and dv.  Both compute the scores, so that
 * one group of warps computes every sum in one order.  A block has 128 rows at a time: queries for dq, keys for dk
 * and dv.  Their two operands stay in shared memory, and those of the next 128 rows arrive meanwhile.  The copy
 * engine fetches pairs of tiles of the other side, some ahead.
 *
 * A group has 64 of the rows.  It issues the products of a tile's scores together with the previous tile's last
 * sums.  It does its arithmetic while products run that it does not need yet, or those of the other group.
 *
 * Compiled where CUDA_ARCH has 90a, and used on GPUs of that architecture unless HEDDLE_WGMMA=0 is set.
 */
#include "kernels/cuda/attention/groups_keys.h"

#ifdef HD_HOPPER
HD_DEV int first_query(const jobs &w, const job &j)
{
	return (w.tiles - 1 - j.tile) * ROWS;
}

/* For a group's 64 queries: turns scores into probabilities, and these into gradients of the scores, in s. */
template <int N> struct query_rows {
	int first, least, most; /* least, most: all of the warp's queries see keys most ... least - 1 */
	float lse[2], delta[2], scale;

	HD_DEV query_rows(const hd_att &t, const hd_att_d &x, const job &j, int64_t i) : first((int)i)
	{
		scale = exponent(t);
		least = (int)t.seen(i);
		most = (int)t.window_begin(i + 15);
		for (int e = 0; e < 2; e++) {
			int64_t row = lane_row(e), at = t.row(j.b, j.head, row);
			int some = row < t.seq && t.window_begin(row) < t.seen(row);

			lse[e] = some ? x.lse[at] * HD_LOG2E : 0;
			delta[e] = some ? x.delta[at] : 0;
		}
	}
	HD_DEV int64_t lane_row(int e) const
	{
		return first + afresh((int)threadIdx.x) % 32 / 4 + 8 * e;
	}
	/* Turns scores of keys from j on into probabilities, times the cap's slope. */
	HD_DEV void probabilities(const hd_att &t, float (*s)[4], int j) const
	{
		if (t.softcap > 0) {
#pragma unroll
			for (int n = 0; n < N / 8; n++)
#pragma unroll
				for (int e = 0; e < 4; e++) {
					float c = t.capped(t.scale * s[n][e]);

					s[n][e] = hd_exp2(c * scale - lse[e / 2]) * t.slope(c);
				}
		} else {
#pragma unroll
			for (int n = 0; n < N / 8; n++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					s[n][e] = hd_exp2(s[n][e] * scale - lse[e / 2]);
		}
		if (j + N > least || j < most) {
			int left[2], gone[2];

			for (int e = 0; e < 2; e++) { /* a query past the end sees no key */
				int64_t row = lane_row(e);

				gone[e] = t.window ? within<N>((int)t.window_begin(row) - j) : 0;
				left[e] = within<N>((row < t.seq ? (int)t.seen(row) : 0) - j);
			}
			drop<N / 8>(s, gone, left);
		}
	}
	HD_DEV void gradients(float (*s)[4], float (*d)[4]) const
	{
#pragma unroll
		for (int n = 0; n < N / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[n][e] *= d[n][e] - delta[e / 2];
	}
};

template <int N, int D> HD_DEV void produce_keys(const hd_att &t, const jobs &w, const held<N, D> &m, const sides &x)
{
	ring<STAGES(N, D)> at;
	int turn = 0;
	job j;

	for (; j.find(w, turn); turn++) {
		int i0 = first_query(w, j);
		span n = span_of<N>(t, i0);

		m.fetch_own(turn, j, &x.q, &x.d_o, i0);
		for (int i = 0; i < n.n; i++, at.n++) {
			barrier_wait(&m.free[at.at()], at.parity() ^ 1);
			m.fetch_pair(at.at(), &x.k, &x.v, t.kv_of_int(j.head), n.from + i * N, j.b);
		}
	}
	m.rows->announce(turn, j, 0);
}

/* Computes p, the gradients of the scores of keys j ..., from the pair of tiles `now`, while the previous tile's are
 * added to sum.  If no job is open, the sum's product reads rows that exist, and its result is not used. */
template <int N, int D>
HD_DEV void turn_of_keys(const hd_att &t, const held<N, D> &m, own_rows<N, D> &own, const query_rows<N> &r,
			 const open_job &c, const ring<STAGES(N, D)> &now, float (*sum)[4], float (*s)[4],
			 float (*d)[4], uint32_t (*p)[4], int j)
{
	int group = (int)threadIdx.x / 128 - 1;

	barrier_wait(&m.there[now.at()], now.parity());
	turn_wait(m.turn, group, now.n);
	hold<N>(s);
	hold<N>(d);
	hold<D>(sum);
	group_fence();
	own.begin(s, 0, m.pair(now.at()));
	own.begin(d, 1, m.pair(now.at()) + ROWS_BYTES(N, D));
	begin_sum<D, N>(sum, p, m.pair(c.open < 0 ? now.at() : now.before()), c.more);
	turn_pass(m.turn, group);
	group_wait<2>();
	hold<N>(s);
	r.probabilities(t, s, j);
	group_wait<1>();
	hold<N>(d);
	r.gradients(s, d);
	group_wait<0>();
	hold<D>(sum);
	hold_operands<N>(p);
	if (c.open >= 0)
		warp_arrive(&m.free[now.before()]);
	pack_scores<N>(p, s);
}

template <int N, int D>
HD_DEV void put_queries(const hd_att &t, const hd_att_d &x, const jobs &w, const held<N, D> &m, int turn,
			float (*sum)[4])
{
	job j = m.rows->jobs[turn % JOBS];
	int first = first_query(w, j) + warp_row();

	put_rows<D>((bf16 *)x.dq + t.q_at(j.b, first, j.head), t.heads * t.dim, t.seq - first, sum, t.scale, t.scale);
}

/* Adds the last tile of an open job if no other tile follows. */
template <int N, int D>
HD_DEV void end_queries(const hd_att &t, const hd_att_d &x, const jobs &w, const held<N, D> &m, open_job &c,
			const ring<STAGES(N, D)> &now, float (*sum)[4], uint32_t (*p)[4])
{
	if (c.open < 0)
		return;
	hold<D>(sum);
	group_fence();
	begin_sum<D, N>(sum, p, m.pair(now.before()), c.more);
	group_wait<0>();
	hold<D>(sum);
	warp_arrive(&m.free[now.before()]);
	put_queries(t, x, w, m, c.open, sum);
	c.open = -1;
}

template <int N, int D> HD_DEV void consume_keys(const hd_att &t, const hd_att_d &x, const jobs &w, const held<N, D> &m)
{
	float sum[D / 8][4], s[N / 8][4], d[N / 8][4];
	uint32_t p[N / 16][4];
	ring<STAGES(N, D)> now;
	own_rows<N, D> own;
	open_job c;

	clear<N / 8>(s);
	clear<N / 8>(d);
	clear<D / 8>(sum);
	pack_scores<N>(p, s);
	for (int turn = 0;; turn++) {
		job j = m.rows->receive(turn);
		int i0 = first_query(w, j);

		if (j.tile < 0)
			break;

		span n = span_of<N>(t, i0);
		query_rows<N> r(t, x, j, i0 + warp_row());

		own.load(m.own(turn % OWN), &m.rows->free[turn % OWN]);
		for (int i = 0; i < n.n; i++) {
			turn_of_keys<N, D>(t, m, own, r, c, now, sum, s, d, p, n.from + i * N);
			if (i == 0 && c.open >= 0)
				put_queries(t, x, w, m, c.open, sum);
			c.open = turn;
			c.more = i > 0;
			now.n++;
		}
		own.done(&m.rows->free[turn % OWN]);
		if (!n.n) {
			end_queries(t, x, w, m, c, now, sum, p);
			clear<D / 8>(sum);
			put_queries(t, x, w, m, turn, sum);
		}
	}
	end_queries(t, x, w, m, c, now, sum, p);
}

#endif

/* -- kernels ------------------------------------------------------------------------------------------------------- */
template <int D, int PLAIN>
__global__ void __launch_bounds__(THREADS, 1)
	wgmma_backward_q(hd_att t, hd_att_d x, jobs w, const __grid_constant__ sides y)
{
#ifdef HD_HOPPER
	HD_DYNAMIC_SHARED(unsigned char, shared);
	held<KEYS(D), D> m(shared);

	if (PLAIN)
		make_plain(&t);
	if (threadIdx.x == 0)
		m.make(1);
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<40>();
		if (threadIdx.x == 0)
			produce_keys(t, w, m, y);
	} else {
		more_registers<232>();
		consume_keys(t, x, w, m);
	}
#endif
}

template <int D, int PLAIN>
__global__ void __launch_bounds__(THREADS, 1)
	wgmma_backward_kv(hd_att t, hd_att_d x, jobs w, const __grid_constant__ sides y)
{
#ifdef HD_HOPPER
	HD_DYNAMIC_SHARED(unsigned char, shared);
	held<QUERIES, D> m(shared);

	if (PLAIN)
		make_plain(&t);
	if (threadIdx.x == 0)
		m.make(32); /* all lanes of the fetching warp */
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<24>();
		if (threadIdx.x < 32)
			produce_queries(t, x, w, m, y);
	} else {
		more_registers<240>();
		if (D == 64)
			consume_narrow(t, x, m);
		else
			consume_wide(t, x, m);
	}
#endif
}

/* dk and dv with 128 dims have one kernel.  Without the cap's branches ptxas finds too few registers and serializes
 * the products (C7512). */
#define KV_PLAIN(D, PLAIN) (PLAIN && D == 64)

/* -- host ---------------------------------------------------------------------------------------------------------- */
template <int D, int PLAIN> static int allow(struct hd_err *err)
{
	HD_TRY(hd_cuda_allow_shared("attention", (const void *)wgmma_backward_q<D, PLAIN>, BYTES(KEYS(D), D), err));
	return hd_cuda_allow_shared("attention", (const void *)wgmma_backward_kv<D, KV_PLAIN(D, PLAIN)>,
				    BYTES(QUERIES, D), err);
}

int hd_att_wgmma_d_prepare(const struct hd_att *t, struct hd_err *err)
{
	if (is_plain(t))
		return t->dim == 64 ? allow<64, 1>(err) : allow<128, 1>(err);
	return t->dim == 64 ? allow<64, 0>(err) : allow<128, 0>(err);
}

/* Describes queries in tiles of nq rows, and keys in tiles of nk. */
template <int D> static int map_all(sides *m, const struct hd_att *t, const struct hd_att_d *x, int nq, int nk)
{
	int64_t n[2][4] = { { D, t->heads, t->seq, t->batch }, { D, t->kv_heads, t->keys, t->batch } };
	int64_t step[2][3] = { { D, t->heads * D, t->seq * t->heads * D },
			       { D, t->kv_heads * D, t->keys * t->kv_heads * D } };
	struct hd_err none = {};

	HD_TRY(hd_tensor_map_make(&m->q, x->q, n[0], step[0], nq, &none));
	HD_TRY(hd_tensor_map_make(&m->d_o, x->d_o, n[0], step[0], nq, &none));
	HD_TRY(hd_tensor_map_make(&m->k, x->k, n[1], step[1], nk, &none));
	return hd_tensor_map_make(&m->v, x->v, n[1], step[1], nk, &none);
}

template <int D, int PLAIN> static int launch(const struct hd_att *t, const struct hd_att_d *x, const struct hd_run *r)
{
	int64_t row = 2 * D * (int64_t)sizeof(bf16), group = t->heads / (t->kv_heads ? t->kv_heads : 1);
	jobs queries = jobs_of(t->seq, t->heads, t->batch, t->keys * row);
	jobs keys = jobs_of(t->keys, t->kv_heads, t->batch, t->seq * row * group);
	sides q, kv;

	HD_TRY(map_all<D>(&q, t, x, ROWS, KEYS(D)));
	HD_TRY(map_all<D>(&kv, t, x, QUERIES, ROWS));
	HD_LAUNCH((wgmma_backward_q<D, PLAIN>), blocks_of(queries), THREADS, BYTES(KEYS(D), D), r, *t, *x, queries, q);
	HD_LAUNCH((wgmma_backward_kv<D, KV_PLAIN(D, PLAIN)>), blocks_of(keys), THREADS, BYTES(QUERIES, D), r, *t, *x,
		  keys, kv);
	return HD_OK;
}

int hd_att_wgmma_d(const struct hd_att *t, const struct hd_att_d *x, const struct hd_run *r)
{
	if (is_plain(t))
		return t->dim == 64 ? launch<64, 1>(t, x, r) : launch<128, 1>(t, x, r);
	return t->dim == 64 ? launch<64, 0>(t, x, r) : launch<128, 0>(t, x, r);
}
