/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/attention/groups_keys.h - dk and dv by wgmma (attention_wgmma_d.cu): the tiles of queries that see a
 * block's keys, and a group's sums over them.
 */
#ifndef HD_KERNELS_CUDA_ATTENTION_GROUPS_KEYS_H
#define HD_KERNELS_CUDA_ATTENTION_GROUPS_KEYS_H
#include "kernels/cuda/attention/groups_d.h"

#ifdef HD_HOPPER
/* Iterates over the tiles of N queries that see keys j0 ... j0 + ROWS - 1 of kv head kv: queries from ... end - 1 of
 * each head that reads it. */
template <int N> struct walk {
	int from, end, i, h, last;

	HD_DEV walk(const hd_att &t, int64_t j0, int kv)
	{
		from = i = (int)t.first_query(j0) / N * N;
		end = (int)t.end_query(hd_least(j0 + ROWS, t.keys) - 1);
		last = (int)t.head_to(kv);
		h = from < end ? (int)t.head_from(kv) : last;
	}
	HD_DEV int more() const
	{
		return h < last;
	}
	HD_DEV void next()
	{
		i += N;
		if (i >= end) {
			i = from;
			h++;
		}
	}
};

/* Run by one warp.  All lanes copy lse and delta of a tile's queries, and lane 0 requests the rows. */
template <int N, int D>
HD_DEV void produce_queries(const hd_att &t, const hd_att_d &x, const jobs &w, const held<N, D> &m, const sides &y)
{
	int lane = (int)threadIdx.x, turn = 0;
	ring<STAGES(N, D)> at;
	job j;

	for (; j.find(w, turn); turn++) {
		if (lane == 0)
			m.fetch_own(turn, j, &y.k, &y.v, j.tile * ROWS);
		for (walk<N> v(t, j.tile * ROWS, j.head); v.more(); v.next(), at.n++) {
			unsigned row = (unsigned)((j.b * (int)t.heads + v.h) * (int)t.seq + v.i + lane);
			float lse[N / 32], delta[N / 32];

#pragma unroll
			for (int e = 0; e < N / 32; e++) {
				int there = v.i + lane + e * 32 < (int)t.seq;

				lse[e] = there ? x.lse[row + e * 32] * HD_LOG2E : 0;
				delta[e] = there ? x.delta[row + e * 32] : 0;
			}
			barrier_wait(&m.free[at.at()], at.parity() ^ 1);
#pragma unroll
			for (int e = 0; e < N / 32; e++) {
				m.lse(at.at())[lane + e * 32] = lse[e];
				m.lse(at.at())[N + lane + e * 32] = delta[e];
			}
			if (lane == 0)
				m.fetch_pair(at.at(), &y.q, &y.d_o, v.h, v.i, j.b);
			else
				barrier_arrive(&m.there[at.at()]);
		}
	}
	if (lane == 0)
		m.rows->announce(turn, j, 0);
}

/* Reads two adjacent floats at once. */
typedef pack<float, 2> pair;
HD_DEV pair pair_at(const float *x)
{
	HD_VECTOR(x, 8);
	return *(const pair *)(const void *)x;
}

/* For a group's 64 keys: turns scores into probabilities, and gradients of probabilities into gradients of scores. */
template <int N> struct key_rows {
	int key, first, last; /* first, last: queries first ... last - 1 see all of the warp's keys */
	float scale;

	HD_DEV key_rows(const hd_att &t, int64_t k) : key((int)k)
	{
		scale = exponent(t);
		first = (int)(k + 15 < t.keys ? t.first_query(k + 15) : t.seq);
		last = (int)t.end_query(k);
	}
	/* Sets the ranges from ... to - 1 of those queries in the tile from query i on that see the lane's two keys.
	 * No query sees a key past the end. */
	HD_DEV void seen(const hd_att &t, int i, int *from, int *to) const
	{
		for (int e = 0; e < 2; e++) {
			int64_t j = key + afresh((int)threadIdx.x) % 32 / 4 + 8 * e;

			from[e] = within<N>((j < t.keys ? t.first_query(j) : t.seq) - i);
			to[e] = within<N>(t.end_query(j) - i);
		}
	}
	/* Turns scores of queries i ... into probabilities, in s.  With the cap they go into p instead, and s gets
	 * them times the cap's slope. */
	HD_DEV void probabilities(const hd_att &t, float (*s)[4], uint32_t (*p)[4], const float *lse, int i) const
	{
		int c = (int)threadIdx.x % 4 * 2;
		int from[2], to[2];

		if (t.softcap > 0) {
			seen(t, i, from, to);
#pragma unroll
			for (int n = 0; n < N / 8; n++) {
				float slope[4];

#pragma unroll
				for (int e = 0; e < 4; e++) {
					float x = t.capped(t.scale * s[n][e]);
					int at = n * 8 + c + e % 2;

					slope[e] = t.slope(x);
					x = hd_exp2(x * scale - lse[at]);
					s[n][e] = at >= from[e / 2] && at < to[e / 2] ? x : 0;
				}
				p[n / 2][n % 2 * 2] = hd_bf16_pair(s[n][0], s[n][1]);
				p[n / 2][n % 2 * 2 + 1] = hd_bf16_pair(s[n][2], s[n][3]);
#pragma unroll
				for (int e = 0; e < 4; e++)
					s[n][e] *= slope[e];
			}
			return;
		}
#pragma unroll
		for (int n = 0; n < N / 8; n++) {
			pair x = pair_at(lse + n * 8 + c);

#pragma unroll
			for (int e = 0; e < 4; e++)
				s[n][e] = hd_exp2(s[n][e] * scale - x.v[e % 2]);
		}
		if (i < first || i + N > last) {
			seen(t, i, from, to);
			drop<N / 8>(s, from, to);
		}
	}
	HD_DEV void gradients(float (*s)[4], float (*d)[4], const float *delta) const
	{
		int c = (int)threadIdx.x % 4 * 2;

#pragma unroll
		for (int n = 0; n < N / 8; n++) {
			pair x = pair_at(delta + n * 8 + c);

#pragma unroll
			for (int e = 0; e < 4; e++)
				d[n][e] = s[n][e] * (d[n][e] - x.v[e % 2]);
		}
	}
};

/* State of the block and of the group that both schemes below use. */
template <int N, int D> struct keys_at {
	const held<N, D> &m;
	own_rows<N, D> own;
	ring<STAGES(N, D)> now;
	open_job c;
	int group;

	HD_DEV keys_at(const held<N, D> &h, int g) : m(h), group(g)
	{
	}
	HD_DEV void begin_both(float (*s)[4], float (*d)[4])
	{
		own.begin(s, 0, m.pair(now.at()));
		own.begin(d, 1, m.pair(now.at()) + ROWS_BYTES(N, D));
	}
	/* Returns the previous pair of tiles.  If no job is open, returns the current one, for a product whose
	 * result is not used. */
	HD_DEV const unsigned char *before() const
	{
		return m.pair(c.open < 0 ? now.at() : now.before());
	}
	HD_DEV void wait() const
	{
		barrier_wait(&m.there[now.at()], now.parity());
		turn_wait(m.turn, group, now.n);
	}
};

template <int N, int D>
HD_DEV void put_keys(const hd_att &t, const hd_att_d &x, const held<N, D> &m, int turn, float (*dk)[4], float (*dv)[4])
{
	job j = m.rows->jobs[turn % JOBS];
	int key = j.tile * ROWS + warp_row();
	int64_t at = t.k_at(j.b, key, j.head);

	put_rows<D>((bf16 *)x.dk + at, t.kv_heads * t.dim, t.keys - key, dk, t.scale, t.scale);
	put_rows<D>((bf16 *)x.dv + at, t.kv_heads * t.dim, t.keys - key, dv, 1, 1);
}

/* Computes p, the probabilities of queries i ..., and ds, the gradients of their scores.  Meanwhile adds the
 * products of the previous tile to dv and dk. */
template <int N, int D>
HD_DEV void turn_narrow(const hd_att &t, const hd_att_d &x, keys_at<N, D> &k, const key_rows<N> &r, int first,
			float (*dk)[4], float (*dv)[4], float (*s)[4], float (*d)[4], uint32_t (*p)[4],
			uint32_t (*ds)[4], int i)
{
	const float *lse = k.m.lse(k.now.at());
	uint32_t early[N / 16][4];

	k.wait();
	hold<N>(s);
	hold<N>(d);
	hold<D>(dk);
	hold<D>(dv);
	group_fence();
	k.begin_both(s, d);
	begin_sum<D, N>(dv, p, k.before() + ROWS_BYTES(N, D), k.c.more);
	begin_sum<D, N>(dk, ds, k.before(), k.c.more);
	turn_pass(k.m.turn, k.group);
	group_wait<3>();
	hold<N>(s);
	r.probabilities(t, s, early, lse, i);
	group_wait<2>();
	hold<N>(d);
	r.gradients(s, d, lse + N);
	group_wait<0>();
	hold<D>(dk);
	hold<D>(dv);
	hold_operands<N>(p);
	hold_operands<N>(ds);
	__syncwarp(); /* all lanes have read lse and delta */
	if (k.c.open >= 0)
		warp_arrive(&k.m.free[k.now.before()]);
	if (t.softcap > 0)
		copy_scores<N>(p, early);
	else
		pack_scores<N>(p, s);
	pack_scores<N>(ds, d);
	if (first && k.c.open >= 0)
		put_keys(t, x, k.m, k.c.open, dk, dv);
}

/* The same with fewer registers.  dv gets this tile's product at once, so that the registers of the probabilities
 * can then hold the gradients. */
template <int FIRST, int N, int D>
HD_DEV void turn_wide(const hd_att &t, keys_at<N, D> &k, const key_rows<N> &r, float (*dk)[4], float (*dv)[4],
		      float (*s)[4], float (*d)[4], uint32_t (*p)[4], int i)
{
	const float *lse = k.m.lse(k.now.at());

	k.wait();
	hold<N>(s);
	hold<N>(d);
	hold<D>(dk);
	group_fence();
	if (!FIRST)
		begin_sum<D, N>(dk, p, k.m.pair(k.now.before()));
	k.begin_both(s, d);
	turn_pass(k.m.turn, k.group);
	group_wait<1>();
	hold<N>(s);
	hold<D>(dk);
	if (!FIRST)
		warp_arrive(&k.m.free[k.now.before()]);
	r.probabilities(t, s, p, lse, i);
	if (!(t.softcap > 0))
		pack_scores<N>(p, s);
	hold<D>(dv);
	group_fence();
	begin_sum<D, N>(dv, p, k.m.pair(k.now.at()) + ROWS_BYTES(N, D));
	group_wait<1>();
	hold<N>(d);
	r.gradients(s, d, lse + N);
	group_wait<0>();
	hold<D>(dv);
	hold_operands<N>(p);
	pack_scores<N>(p, d);
	__syncwarp(); /* all lanes have read lse and delta */
}

/* Adds the last tile of an open job if no other tile follows. */
template <int N, int D>
HD_DEV void end_narrow(const hd_att &t, const hd_att_d &x, keys_at<N, D> &k, float (*dk)[4], float (*dv)[4],
		       uint32_t (*p)[4], uint32_t (*ds)[4])
{
	if (k.c.open < 0)
		return;
	hold<D>(dv);
	hold<D>(dk);
	group_fence();
	begin_sum<D, N>(dv, p, k.before() + ROWS_BYTES(N, D), k.c.more);
	begin_sum<D, N>(dk, ds, k.before(), k.c.more);
	group_wait<0>();
	hold<D>(dk);
	hold<D>(dv);
	warp_arrive(&k.m.free[k.now.before()]);
	put_keys(t, x, k.m, k.c.open, dk, dv);
	k.c.open = -1;
}

template <int N, int D> HD_DEV void end_wide(keys_at<N, D> &k, float (*dk)[4], uint32_t (*ds)[4])
{
	hold<D>(dk);
	group_fence();
	begin_sum<D, N>(dk, ds, k.m.pair(k.now.before()));
	group_wait<0>();
	hold<D>(dk);
	warp_arrive(&k.m.free[k.now.before()]);
}

/* Processes the tiles of one job after another.  A job's sums are written while the next job's first tile is
 * processed. */
template <int N, int D> HD_DEV void consume_narrow(const hd_att &t, const hd_att_d &x, const held<N, D> &m)
{
	float dk[D / 8][4], dv[D / 8][4], s[N / 8][4], d[N / 8][4];
	uint32_t p[N / 16][4], ds[N / 16][4];
	keys_at<N, D> k(m, (int)threadIdx.x / 128 - 1);

	clear<N / 8>(s);
	clear<N / 8>(d);
	clear<D / 8>(dk);
	clear<D / 8>(dv);
	pack_scores<N>(p, s);
	pack_scores<N>(ds, s);
	for (int turn = 0;; turn++) {
		job j = m.rows->receive(turn);
		int j0 = j.tile * ROWS, first = 1;

		if (j.tile < 0)
			break;

		key_rows<N> r(t, j0 + warp_row());

		k.own.load(m.own(turn % OWN), &m.rows->free[turn % OWN]);
		for (walk<N> v(t, j0, j.head); v.more(); v.next(), k.now.n++) {
			turn_narrow(t, x, k, r, first, dk, dv, s, d, p, ds, v.i);
			k.c.open = turn;
			k.c.more = !first;
			first = 0;
		}
		k.own.done(&m.rows->free[turn % OWN]);
		if (first) { /* no query sees these keys */
			end_narrow(t, x, k, dk, dv, p, ds);
			clear<D / 8>(dk);
			clear<D / 8>(dv);
			put_keys(t, x, m, turn, dk, dv);
		}
	}
	end_narrow(t, x, k, dk, dv, p, ds);
}

template <int N, int D> HD_DEV void consume_wide(const hd_att &t, const hd_att_d &x, const held<N, D> &m)
{
	float dk[D / 8][4], dv[D / 8][4], s[N / 8][4], d[N / 8][4];
	uint32_t p[N / 16][4];
	keys_at<N, D> k(m, (int)threadIdx.x / 128 - 1);

	clear<N / 8>(s);
	clear<N / 8>(d);
	for (int turn = 0;; turn++) {
		job j = m.rows->receive(turn);
		int j0 = j.tile * ROWS;

		if (j.tile < 0)
			break;

		walk<N> v(t, j0, j.head);
		key_rows<N> r(t, j0 + warp_row());
		int some = v.more();

		clear<D / 8>(dk);
		clear<D / 8>(dv);
		k.own.load(m.own(turn % OWN), &m.rows->free[turn % OWN]);
		if (some) {
			turn_wide<1>(t, k, r, dk, dv, s, d, p, v.i);
			v.next();
			k.now.n++;
		}
		for (; v.more(); v.next(), k.now.n++)
			turn_wide<0>(t, k, r, dk, dv, s, d, p, v.i);
		k.own.done(&m.rows->free[turn % OWN]);
		if (some)
			end_wide(k, dk, p);
		put_keys(t, x, m, turn, dk, dv);
	}
}
#endif

#endif
