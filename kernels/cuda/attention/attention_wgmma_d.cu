/* SPDX-License-Identifier: Apache-2.0
 * attention backward for compute capability 9.0a: bf16, head_dim 64 or 128 (Shah et al., FlashAttention-3, 2024).
 *
 * As in attention_mma.cu there are two kernels, one for dq and one for dk and dv, and the scores are made in both: every sum is made
 * by one group of warps in one order.  A block has 128 rows at a time, queries for dq and keys for dk and dv; their two operands stay
 * in shared memory, and the next 128 rows' come meanwhile.  Pairs of tiles of the other side come by the copy engine, some ahead.
 *
 * A group has 64 of the rows.  It asks for the products of a tile's scores together with the last sums of the tile before, and does
 * its arithmetic while those of them that it does not need yet, and the other group's, run.
 *
 * Compiled where CUDA_ARCH has 90a, and used on GPUs of that architecture unless HEDDLE_WGMMA=0 is set.
 */
#include "kernels/cuda/attention/groups_d.h"

#ifdef HD_HOPPER
/* -- dq ---------------------------------------------------------------------------------------------------------------------- */
HD_DEV int first_query(const jobs &w, const job &j)
{
	return (w.tiles - 1 - j.tile) * ROWS;
}

/* Of 64 queries' scores and what comes behind them: their gradients, in s. */
template <int N> struct query_rows {
	int first, least, most; /* least, most: all of the warp's see keys most ... least - 1 */
	float lse[2], delta[2], scale;

	HD_DEV query_rows(const hd_att &t, const hd_att_d &x, const job &j, int64_t i) : first((int)i)
	{
		scale = exponent(t);
		least = (int)t.seen(i);
		most = (int)t.passed(i + 15);
		for (int e = 0; e < 2; e++) {
			int64_t row = lane_row(e), at = t.row(j.b, j.head, row);
			int some = row < t.seq && t.passed(row) < t.seen(row);

			lse[e] = some ? x.lse[at] * HD_LOG2E : 0;
			delta[e] = some ? x.delta[at] : 0;
		}
	}
	HD_DEV int64_t lane_row(int e) const
	{
		return first + afresh((int)threadIdx.x) % 32 / 4 + 8 * e;
	}
	/* Scores of keys from j on into probabilities, times the cap's slope. */
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

			for (int e = 0; e < 2; e++) { /* a query that is not there sees none */
				int64_t row = lane_row(e);

				gone[e] = within<N>(t.passed(row) - j);
				left[e] = within<N>((row < t.seq ? t.seen(row) : 0) - j);
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
			m.fetch_pair(at.at(), &x.k, &x.v, (int)t.kv_of(j.head), n.from + i * N, j.b);
		}
	}
	m.rows->put(turn, j, 0);
}

/* p = gradients of the scores of keys j ..., whose pair of tiles is `now`, while those of the tile before, `last`, are summed. */
template <int FIRST, int N, int D>
HD_DEV void turn_of_keys(const hd_att &t, const held<N, D> &m, own_rows<N, D> &own, const query_rows<N> &r, int group,
			 const ring<STAGES(N, D)> &now, float (*sum)[4], float (*s)[4], float (*d)[4], uint32_t (*p)[4],
			 int j)
{
	barrier_wait(&m.there[now.at()], now.parity());
	turn_wait(m.turn, group, now.n);
	hold<N>(s);
	hold<N>(d);
	hold<D>(sum);
	group_fence();
	own.begin(s, 0, m.pair(now.at()));
	own.begin(d, 1, m.pair(now.at()) + ROWS_BYTES(N, D));
	if (!FIRST)
		begin_sum<D, N>(sum, p, m.pair(now.before()));
	turn_pass(m.turn, group);
	group_wait<FIRST ? 1 : 2>();
	hold<N>(s);
	r.probabilities(t, s, j);
	group_wait<FIRST ? 0 : 1>();
	hold<N>(d);
	r.gradients(s, d);
	group_wait<0>();
	hold<D>(sum);
	if (!FIRST)
		let_go(&m.free[now.before()]);
	pack_scores<N>(p, s);
}

template <int N, int D> HD_DEV void consume_keys(const hd_att &t, const hd_att_d &x, const jobs &w, const held<N, D> &m)
{
	int group = (int)threadIdx.x / 128 - 1;
	float sum[D / 8][4], s[N / 8][4], d[N / 8][4];
	uint32_t p[N / 16][4];
	ring<STAGES(N, D)> now;
	own_rows<N, D> own;

	clear<N / 8>(s);
	clear<N / 8>(d);
	for (int turn = 0;; turn++) {
		job j = m.rows->take(turn);
		int i0 = first_query(w, j), first = i0 + warp_row();

		if (j.tile < 0)
			break;

		span n = span_of<N>(t, i0);
		query_rows<N> r(t, x, j, first);

		clear<D / 8>(sum);
		own.take(m.own(turn % OWN), &m.rows->free[turn % OWN]);
		if (n.n) {
			turn_of_keys<1, N, D>(t, m, own, r, group, now, sum, s, d, p, n.from);
			now.n++;
		}
		for (int i = 1; i < n.n; i++) {
			turn_of_keys<0, N, D>(t, m, own, r, group, now, sum, s, d, p, n.from + i * N);
			now.n++;
		}
		own.done(&m.rows->free[turn % OWN]);
		if (n.n) {
			hold<D>(sum);
			group_fence();
			begin_sum<D, N>(sum, p, m.pair(now.before()));
			group_wait<0>();
			hold<D>(sum);
			let_go(&m.free[now.before()]);
		}
		j = m.rows->jobs[turn % JOBS];
		first = first_query(w, j) + warp_row();
		put_rows<D>((bf16 *)x.dq + t.q_at(j.b, first, j.head), t.heads * t.dim, t.seq - first, sum, t.scale,
			    t.scale);
	}
}

/* -- dk and dv ----------------------------------------------------------------------------------------------------------------- */
/* Tiles of N queries that keys j0 ... j0 + ROWS - 1 of head kv are seen by: from ... end of each of the heads. */
template <int N> struct walk {
	int from, end, i, h, last;

	HD_DEV walk(const hd_att &t, int64_t j0, int kv)
	{
		from = i = (int)t.first_query(j0) / N * N;
		end = (int)t.last_query(hd_least(j0 + ROWS, t.keys) - 1);
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

/* By a warp: lanes bring the floats of a tile's queries, and one of them asks for its rows. */
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
		m.rows->put(turn, j, 0);
}

/* Floats of two neighbours, read at once. */
typedef pack<float, 2> pair;
HD_DEV pair pair_at(const float *x)
{
	HD_VECTOR(x, 8);
	return *(const pair *)(const void *)x;
}

/* Of 64 keys' scores and what comes behind them: probabilities and gradients. */
template <int N> struct key_rows {
	int key, first, last; /* first, last: all of the warp's are seen by queries first ... last - 1 */
	float scale;

	HD_DEV key_rows(const hd_att &t, int64_t k) : key((int)k)
	{
		scale = exponent(t);
		first = (int)(k + 15 < t.keys ? t.first_query(k + 15) : t.seq);
		last = (int)t.last_query(k);
	}
	/* Of the tile of queries i ... those that see a lane's two keys: from ... to - 1.  A key that is not there is seen by none. */
	HD_DEV void seen(const hd_att &t, int i, int *from, int *to) const
	{
		for (int e = 0; e < 2; e++) {
			int64_t j = key + afresh((int)threadIdx.x) % 32 / 4 + 8 * e;

			from[e] = within<N>((j < t.keys ? t.first_query(j) : t.seq) - i);
			to[e] = within<N>(t.last_query(j) - i);
		}
	}
	/* Scores of queries i ... into probabilities.  With the cap they go into p, and s has them times its slope. */
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

/* What both schemes below have of the block and of the group. */
template <int N, int D> struct keys_at {
	const held<N, D> &m;
	own_rows<N, D> own;
	ring<STAGES(N, D)> now;
	int group;

	HD_DEV keys_at(const held<N, D> &h, int g) : m(h), group(g)
	{
	}
	HD_DEV void begin_both(float (*s)[4], float (*d)[4])
	{
		own.begin(s, 0, m.pair(now.at()));
		own.begin(d, 1, m.pair(now.at()) + ROWS_BYTES(N, D));
	}
	HD_DEV void wait() const
	{
		barrier_wait(&m.there[now.at()], now.parity());
		turn_wait(m.turn, group, now.n);
	}
};

/* p, ds = probabilities of queries i ... and gradients of their scores, beside dv and dk += those of the tile before. */
template <int FIRST, int N, int D>
HD_DEV void turn_narrow(const hd_att &t, keys_at<N, D> &k, const key_rows<N> &r, float (*dk)[4], float (*dv)[4],
			float (*s)[4], float (*d)[4], uint32_t (*p)[4], uint32_t (*ds)[4], int i)
{
	const float *lse = k.m.lse(k.now.at());
	const unsigned char *before = k.m.pair(k.now.before());
	uint32_t early[N / 16][4];

	k.wait();
	hold<N>(s);
	hold<N>(d);
	hold<D>(dk);
	hold<D>(dv);
	group_fence();
	k.begin_both(s, d);
	if (!FIRST) {
		begin_sum<D, N>(dv, p, before + ROWS_BYTES(N, D));
		begin_sum<D, N>(dk, ds, before);
	}
	turn_pass(k.m.turn, k.group);
	group_wait<FIRST ? 1 : 3>();
	hold<N>(s);
	r.probabilities(t, s, early, lse, i);
	group_wait<FIRST ? 0 : 2>();
	hold<N>(d);
	r.gradients(s, d, lse + N);
	group_wait<0>();
	hold<D>(dk);
	hold<D>(dv);
	__syncwarp(); /* the floats, which lanes have read */
	if (!FIRST)
		let_go(&k.m.free[k.now.before()]);
	if (t.softcap > 0)
		copy_scores<N>(p, early);
	else
		pack_scores<N>(p, s);
	pack_scores<N>(ds, d);
}

/* The same where registers are few: dv += of this tile, so that its probabilities' registers are those of the gradients then. */
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
		let_go(&k.m.free[k.now.before()]);
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
	pack_scores<N>(p, d);
	__syncwarp(); /* the floats, which lanes have read */
}

template <int N, int D> HD_DEV void consume_queries(const hd_att &t, const hd_att_d &x, const held<N, D> &m)
{
	const int wide = D > 64;
	int group = (int)threadIdx.x / 128 - 1;
	float dk[D / 8][4], dv[D / 8][4], s[N / 8][4], d[N / 8][4];
	uint32_t p[N / 16][4], ds[N / 16][4];
	keys_at<N, D> k(m, group);

	clear<N / 8>(s);
	clear<N / 8>(d);
	for (int turn = 0;; turn++) {
		job j = m.rows->take(turn);
		int j0 = j.tile * ROWS, key = j0 + warp_row();
		int64_t at;

		if (j.tile < 0)
			break;

		walk<N> v(t, j0, j.head);
		key_rows<N> r(t, key);
		int some = v.more();

		clear<D / 8>(dk);
		clear<D / 8>(dv);
		k.own.take(m.own(turn % OWN), &m.rows->free[turn % OWN]);
		if (some) {
			if (wide)
				turn_wide<1>(t, k, r, dk, dv, s, d, p, v.i);
			else
				turn_narrow<1>(t, k, r, dk, dv, s, d, p, ds, v.i);
			v.next();
			k.now.n++;
		}
		for (; v.more(); v.next(), k.now.n++) {
			if (wide)
				turn_wide<0>(t, k, r, dk, dv, s, d, p, v.i);
			else
				turn_narrow<0>(t, k, r, dk, dv, s, d, p, ds, v.i);
		}
		k.own.done(&m.rows->free[turn % OWN]);
		if (some) {
			const unsigned char *before = m.pair(k.now.before());

			hold<D>(dv);
			hold<D>(dk);
			group_fence();
			if (!wide)
				begin_sum<D, N>(dv, p, before + ROWS_BYTES(N, D));
			begin_sum<D, N>(dk, wide ? p : ds, before);
			group_wait<0>();
			hold<D>(dk);
			hold<D>(dv);
			let_go(&m.free[k.now.before()]);
		}
		j = m.rows->jobs[turn % JOBS];
		key = j.tile * ROWS + warp_row();
		at = t.k_at(j.b, key, j.head);
		put_rows<D>((bf16 *)x.dk + at, t.kv_heads * t.dim, t.keys - key, dk, t.scale, t.scale);
		put_rows<D>((bf16 *)x.dv + at, t.kv_heads * t.dim, t.keys - key, dv, 1, 1);
	}
}
#endif

/* -- kernels ------------------------------------------------------------------------------------------------------------------- */
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
		m.make(32); /* the lanes of the warp that fetches */
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<24>();
		if (threadIdx.x < 32)
			produce_queries(t, x, w, m, y);
	} else {
		more_registers<240>();
		consume_queries(t, x, m);
	}
#endif
}

/* -- host ------------------------------------------------------------------------------------------------------------------------ */
template <int D, int PLAIN> static int allow(struct hd_err *err)
{
	HD_TRY(hd_cuda_allow_shared("attention", (const void *)wgmma_backward_q<D, PLAIN>, BYTES(KEYS(D), D), err));
	return hd_cuda_allow_shared("attention", (const void *)wgmma_backward_kv<D, PLAIN>, BYTES(QUERIES, D), err);
}

int hd_att_wgmma_d_prepare(const struct hd_att *t, struct hd_err *err)
{
	if (is_plain(t))
		return t->dim == 64 ? allow<64, 1>(err) : allow<128, 1>(err);
	return t->dim == 64 ? allow<64, 0>(err) : allow<128, 0>(err);
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

template <int D, int PLAIN> static int go(const struct hd_att *t, const struct hd_att_d *x, const struct hd_run *r)
{
	int64_t row = 2 * D * (int64_t)sizeof(bf16), group = t->heads / (t->kv_heads ? t->kv_heads : 1);
	jobs queries = jobs_of(t->seq, t->heads, t->batch, t->keys * row);
	jobs keys = jobs_of(t->keys, t->kv_heads, t->batch, t->seq * row * group);
	sides q, kv;

	HD_TRY(map_all<D>(&q, t, x, ROWS, KEYS(D)));
	HD_TRY(map_all<D>(&kv, t, x, QUERIES, ROWS));
	HD_LAUNCH((wgmma_backward_q<D, PLAIN>), blocks_of(queries), THREADS, BYTES(KEYS(D), D), r, *t, *x, queries, q);
	HD_LAUNCH((wgmma_backward_kv<D, PLAIN>), blocks_of(keys), THREADS, BYTES(QUERIES, D), r, *t, *x, keys, kv);
	return HD_OK;
}

int hd_att_wgmma_d(const struct hd_att *t, const struct hd_att_d *x, const struct hd_run *r)
{
	if (is_plain(t))
		return t->dim == 64 ? go<64, 1>(t, x, r) : go<128, 1>(t, x, r);
	return t->dim == 64 ? go<64, 0>(t, x, r) : go<128, 0>(t, x, r);
}
