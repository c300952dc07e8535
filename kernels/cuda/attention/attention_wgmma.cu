/* SPDX-License-Identifier: Apache-2.0
 * attention forward for compute capability 9.0a: bf16, head_dim 64 or 128 (Shah et al., FlashAttention-3, 2024).
 *
 * A block has three groups of four warps, and 128 queries of a head at a time.  In the first group, one thread asks
 * the copy engine for tiles of 128 keys and values, some tiles ahead, and for the block's next queries.  Each other
 * group has 64 queries, and computes a tile's scores from shared memory.  While it computes this tile's
 * exponentials, it also adds the previous tile's product of probabilities, in registers, and values.  Barriers in
 * shared memory tell which tiles have arrived and which may be overwritten.
 *
 * Compiled where CUDA_ARCH has 90a, and used on GPUs of that architecture unless HEDDLE_WGMMA=0 is set.
 */
#include "kernels/cuda/attention/groups.h"

#define KEYS 128
#define Q_KEPT(D) ((D) == 64) /* queries stay in registers, which saves bandwidth of shared memory */
#define GROWTH 8
#define STAGES(D) ((D) > 64 ? 2 : 4) /* powers of two, so that n % STAGES is cheap */
#define TILE_BYTES(D) (KEYS * (D) * (int)sizeof(bf16))
/* Bytes of shared memory: queries, tiles of keys and of values, barriers, and padding up to a multiple of 1024. */
#define BYTES(D) \
	(HD_TILE_ALIGN + OWN * (ROWS * (D) * (int)sizeof(bf16)) + 2 * STAGES(D) * TILE_BYTES(D) + STAGES(D) * 32 + 128)

#ifdef HD_HOPPER
struct stage {
	uint64_t k_there, k_free, v_there, v_free;
};

/* The layout of the block's shared memory. */
template <int D> struct room {
	unsigned char *first;
	stage *s;
	job_queue *rows;
	uint64_t *turn;

	HD_DEV explicit room(unsigned char *shared)
	{
		first = hd_first_tile(shared);
		s = (stage *)(void *)k(STAGES(D));
		rows = (job_queue *)(void *)(s + STAGES(D));
		turn = (uint64_t *)(void *)(rows + 1);
	}
	HD_DEV unsigned char *q(int own) const
	{
		return first + own * ROWS * D * (int)sizeof(bf16);
	}
	HD_DEV unsigned char *k(int at) const
	{
		return q(OWN) + at * 2 * TILE_BYTES(D);
	}
	HD_DEV unsigned char *v(int at) const
	{
		return k(at) + TILE_BYTES(D);
	}
	HD_DEV void make() const
	{
		rows->make();
		for (int i = 0; i < STAGES(D); i++) {
			barrier_make(&s[i].k_there, 1);
			barrier_make(&s[i].v_there, 1);
			barrier_make(&s[i].k_free, 8); /* one lane of each warp that reads */
			barrier_make(&s[i].v_free, 8);
		}
		barrier_make(&turn[0], TURN_ARRIVALS);
		barrier_make(&turn[1], TURN_ARRIVALS);
		barriers_made();
	}
};

HD_DEV int first_row(const jobs &w, const job &j)
{
	return (w.tiles - 1 - j.tile) * ROWS;
}

template <int D>
HD_DEV void produce(const hd_att &t, const jobs &w, const room<D> &m, const hd_tensor_map *q, const hd_tensor_map *k,
		    const hd_tensor_map *v)
{
	ring<STAGES(D)> at;
	int turn = 0;
	job j;

	for (; j.find(w, turn); turn++) {
		int i0 = first_row(w, j);
		int kv = t.kv_of_int(j.head);
		span n = span_of<KEYS>(t, i0);

		m.rows->announce(turn, j, ROWS * D * (int)sizeof(bf16));
		fetch_rows<D, ROWS>(m.q(turn % OWN), q, j.head, i0, j.b, &m.rows->there[turn % OWN]);
		for (int i = 0; i < n.n; i++, at.n++) {
			stage *s = &m.s[at.at()];

			barrier_wait(&s->k_free, at.parity() ^ 1);
			barrier_expect(&s->k_there, TILE_BYTES(D));
			fetch_rows<D, KEYS>(m.k(at.at()), k, kv, n.from + i * KEYS, j.b, &s->k_there);
			barrier_wait(&s->v_free, at.parity() ^ 1);
			barrier_expect(&s->v_there, TILE_BYTES(D));
			fetch_rows<D, KEYS>(m.v(at.at()), v, kv, n.from + i * KEYS, j.b, &s->v_there);
		}
	}
	m.rows->announce(turn, j, 0);
}

/* Turns the scores of a lane's two rows into probabilities relative to a base near the largest score so far.  less:
 * factor for earlier sums.  The base stays the same while a row's exponentials grow by at most 2^GROWTH (as in
 * FlashAttention-4): bf16 is as exact there. */
HD_DEV void soften(float (*s)[4], float *max, float *all, float *less, float scale)
{
	float high[4] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY }, part[4] = { 0, 0, 0, 0 }, base[2];

#pragma unroll
	for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
		for (int x = 0; x < 4; x++)
			high[x] = fmaxf(high[x], s[n][x]);
#pragma unroll
	for (int e = 0; e < 2; e++) {
		float old = max[e];

		float now = four_max(fmaxf(high[2 * e], high[2 * e + 1])) * scale;

		max[e] = now > old + GROWTH ? now : old;
		base[e] = max[e] == -INFINITY ? 0 : max[e]; /* no key seen yet: all terms are 0 */
		less[e] = hd_exp2(old - base[e]);
	}
#pragma unroll
	for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
		for (int x = 0; x < 4; x++) {
			s[n][x] = hd_exp2(s[n][x] * scale - base[x / 2]);
			part[x] += s[n][x];
		}
#pragma unroll
	for (int e = 0; e < 2; e++)
		all[e] = all[e] * less[e] + (part[2 * e] + part[2 * e + 1]);
}

/* The state of a group's 64 queries; a lane has two of them. */
struct rows {
	/* least, most: all of the warp's queries see keys most ... least - 1 */
	int row[2], seen[2], window_begin[2], least, most;
	float max[2], all[2], less[2], scale;

	HD_DEV rows(const hd_att &t, int first)
	{
		int g = (int)threadIdx.x % 32 / 4;

		scale = exponent(t);
		least = (int)t.seen(first);
		most = (int)t.window_begin(first + 15);
		for (int e = 0; e < 2; e++) {
			row[e] = first + g + 8 * e;
			window_begin[e] = (int)t.window_begin(row[e]);
			seen[e] = row[e] < t.seq && window_begin[e] < t.seen(row[e]) ? (int)t.seen(row[e]) : 0;
			max[e] = -INFINITY;
			all[e] = 0;
		}
	}
	/* Turns scores of keys j ... into probabilities. */
	HD_DEV void soften_tile(const hd_att &t, float (*s)[4], int j)
	{
		if (t.softcap > 0)
			cap<KEYS / 8>(t, s);
		if (j + KEYS > least || j < most) {
			int left[2] = { within<KEYS>(seen[0] - j), within<KEYS>(seen[1] - j) };
			int gone[2] = { t.window ? within<KEYS>(window_begin[0] - j) : 0,
					t.window ? within<KEYS>(window_begin[1] - j) : 0 };

			hide<KEYS / 8>(s, gone, left);
		}
		soften(s, max, all, less, scale);
	}
	HD_DEV int negative() const
	{
		return all[0] < 0 || all[1] < 0;
	}
	template <int D> HD_DEV void shrink(float (*o)[4]) const
	{
		if (!__ballot_sync(~0u, less[0] != 1 || less[1] != 1))
			return;
#pragma unroll
		for (int n = 0; n < D / 8; n++)
#pragma unroll
			for (int x = 0; x < 4; x++)
				o[n][x] *= less[x / 2];
	}
	HD_DEV void finish(const hd_att &t, float *lse, int64_t b, int64_t h)
	{
		for (int e = 0; e < 2; e++) {
			all[e] = four_sum(all[e]);
			if (threadIdx.x % 4 == 0 && row[e] < t.seq)
				lse[t.row(b, h, row[e])] = seen[e] ? (max[e] + log2f(all[e])) * HD_LN2 : -INFINITY;
			all[e] = all[e] > 0 ? 1 / all[e] : all[e]; /* NaN stays NaN */
		}
	}
};

/* Loads the warp's queries as fragments. */
template <int D> HD_DEV void take_queries(uint32_t (*to)[4], bf16 *q)
{
#pragma unroll
	for (int d = 0; d < D; d += 16)
		fragment_a<64>(to[d / 16], q + columns<ROWS>(d / 64 * 64) / (int)sizeof(bf16), warp_row(), d % 64);
}

/* Writes the complete sums of the job of this turn. */
template <int D>
HD_DEV void put_job(const hd_att &t, const jobs &w, const room<D> &m, int turn, bf16 *o, float (*sum)[4],
		    const float *times)
{
	job j = m.rows->jobs[turn % JOBS];
	int first = first_row(w, j) + warp_row();

	put_rows<D>(o + t.q_at(j.b, first, j.head), t.heads * t.dim, t.seq - first, sum, times[0], times[1]);
}

/* Adds the last tile's values to sum if no other tile follows. */
template <int D>
HD_DEV void add_last(const room<D> &m, const ring<STAGES(D)> &now, float (*sum)[4], uint32_t (*p)[4], int more)
{
	hold<D>(sum);
	group_fence();
	begin_sum<D, KEYS>(sum, p, m.v(now.before()), more);
	group_wait<0>();
	hold<D>(sum);
	warp_arrive(&m.s[now.before()].v_free);
}

template <int D> HD_DEV void consume(const hd_att &t, const jobs &w, const room<D> &m, bf16 *o, float *lse)
{
	/* open: the turn whose sums lack the last tile's values; more: they contain earlier tiles */
	int group = (int)threadIdx.x / 128 - 1, open = -1, more = 0;
	float sum[D / 8][4], s[KEYS / 8][4], times[2] = { 0, 0 };
	uint32_t p[KEYS / 16][4], kept[D / 16][4];
	ring<STAGES(D)> now;

	clear<KEYS / 8>(s);
	clear<D / 8>(sum);
	pack_scores<KEYS>(p, s);
	for (int turn = 0;; turn++) {
		job j = m.rows->receive(turn);
		int i0 = first_row(w, j);
		unsigned char *q = m.q(turn % OWN);
		span n = span_of<KEYS>(t, i0);
		rows r(t, i0 + warp_row());

		if (j.tile < 0)
			break;
		if (Q_KEPT(D))
			take_queries<D>(kept, (bf16 *)(void *)q);
		/* The scores of a tile are issued together with the values of the previous one, possibly the
		 * previous job's last.  If no job is open, the second product reads rows that exist, and its result
		 * is not used. */
		for (int i = 0; i < n.n; i++) {
			barrier_wait(&m.s[now.at()].k_there, now.parity());
			turn_wait(m.turn, group, now.n);
			hold<KEYS>(s);
			hold<D>(sum);
			group_fence();
			if (Q_KEPT(D))
				begin_scores_kept<D, KEYS>(s, kept, m.k(now.at()));
			else
				begin_scores<D, KEYS>(s, q + group * 64 * HD_ROW_BYTES, m.k(now.at()));
			begin_sum<D, KEYS>(sum, p, open < 0 ? q : m.v(now.before()), more);
			turn_pass(m.turn, group);
			group_wait<1>();
			hold<KEYS>(s);
			warp_arrive(&m.s[now.at()].k_free);
			r.soften_tile(t, s, n.from + i * KEYS);
			/* ptxas moves a wait to the front of straight-line code, before the exponentials.  So the
			 * wait comes after a loop that needs their sums, which are never negative. */
			barrier_wait(&m.s[now.at()].v_there, now.parity() | r.negative());
			group_wait<0>();
			hold<D>(sum);
			hold_operands<KEYS>(p);
			if (open >= 0)
				warp_arrive(&m.s[now.before()].v_free);
			pack_scores<KEYS>(p, s);
			if (i > 0)
				r.template shrink<D>(sum);
			else if (open >= 0)
				put_job<D>(t, w, m, open, o, sum, times);
			open = turn;
			more = i > 0;
			now.n++;
		}
		warp_arrive(&m.rows->free[turn % OWN]);
		if (!n.n && open >= 0) {
			add_last<D>(m, now, sum, p, more);
			put_job<D>(t, w, m, open, o, sum, times);
		}
		j = m.rows->jobs[turn % JOBS];
		r.finish(t, lse, j.b, j.head);
		times[0] = r.all[0];
		times[1] = r.all[1];
		if (!n.n) {
			clear<D / 8>(sum);
			put_job<D>(t, w, m, turn, o, sum, times);
			open = -1;
		}
	}
	if (open >= 0) {
		add_last<D>(m, now, sum, p, more);
		put_job<D>(t, w, m, open, o, sum, times);
	}
}
#endif

template <int D, int PLAIN>
__global__ void __launch_bounds__(THREADS, 1)
	wgmma_forward(hd_att t, jobs w, bf16 *o, float *lse, const __grid_constant__ hd_tensor_map q,
		      const __grid_constant__ hd_tensor_map k, const __grid_constant__ hd_tensor_map v)
{
#ifdef HD_HOPPER
	HD_DYNAMIC_SHARED(unsigned char, shared);
	room<D> m(shared);

	if (PLAIN)
		make_plain(&t);
	if (threadIdx.x == 0)
		m.make();
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<40>();
		if (threadIdx.x == 0)
			produce<D>(t, w, m, &q, &k, &v);
	} else {
		more_registers<232>();
		consume<D>(t, w, m, o, lse);
	}
#endif
}

/* -- host ---------------------------------------------------------------------------------------------------------- */
#ifdef HD_SIM
int hd_tensor_map_make(hd_tensor_map *m, const void *base, const int64_t *n, const int64_t *strides, int rows,
		       struct hd_err *err)
{
	hd_sim_aligned(base, 16, "a tensor of the copy engine");
	m->base = (const char *)base;
	m->rows = rows;
	for (int d = 0; d < 4; d++) {
		m->n[d] = n[d];
		m->stride[d] = d ? strides[d - 1] * 2 : 2;
		if (n[d] < 1 || rows > 256 || (d && m->stride[d] % 16))
			return hd_err_set(err, HD_ENOTSUP, "cuda: cannot create a tensor of the copy engine");
	}
	return HD_OK;
}

static int is_hopper(void)
{
	return 1;
}

int hd_cuda_multiprocessors(void)
{
	return 5; /* few, so that a block has several jobs */
}
#else
typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
			      const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
			      CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_fn encode_of(void)
{
	static encode_fn encode;
	enum cudaDriverEntryPointQueryResult found;
	cudaError_t e;

	if (encode)
		return encode;
#if CUDART_VERSION >= 12050
	e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault,
					     &found);
#else
	e = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", (void **)&encode, cudaEnableDefault, &found);
#endif
	if (e != cudaSuccess || found != cudaDriverEntryPointSuccess)
		encode = NULL;
	return encode;
}

int hd_tensor_map_make(hd_tensor_map *m, const void *base, const int64_t *n, const int64_t *strides, int rows,
		       struct hd_err *err)
{
	encode_fn encode = encode_of();
	cuuint64_t dims[4] = { (cuuint64_t)n[0], (cuuint64_t)n[1], (cuuint64_t)n[2], (cuuint64_t)n[3] };
	cuuint64_t bytes[3] = { (cuuint64_t)strides[0] * 2, (cuuint64_t)strides[1] * 2, (cuuint64_t)strides[2] * 2 };
	cuuint32_t box[4] = { 64, 1, (cuuint32_t)rows, 1 }, step[4] = { 1, 1, 1, 1 };

	if (encode && encode(m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)base, dims, bytes, box, step,
			     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
			     CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS)
		return HD_OK;
	return hd_err_set(err, HD_ENOTSUP, "cuda: cannot create a tensor of the copy engine");
}

static int is_hopper(void)
{
#ifdef HD_CUDA_90A
	int major = 0, minor = 0;

	cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, hd_cuda_gpu());
	cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, hd_cuda_gpu());
	return major == 9 && minor == 0;
#else
	return 0;
#endif
}

int hd_cuda_multiprocessors(void)
{
	static int n;

	if (!n && cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, hd_cuda_gpu()) != cudaSuccess)
		n = 1;
	return n;
}
#endif

int hd_cuda_by_wgmma(void)
{
	const char *asked = getenv("HEDDLE_WGMMA");

	return is_hopper() && !(asked && !strcmp(asked, "0"));
}

template <int D> static int allow(struct hd_err *err)
{
	HD_TRY(hd_cuda_allow_shared("attention", (const void *)wgmma_forward<D, 0>, BYTES(D), err));
	return hd_cuda_allow_shared("attention", (const void *)wgmma_forward<D, 1>, BYTES(D), err);
}

int hd_att_wgmma_has(const struct hd_att *t, struct hd_err *err)
{
	if (!hd_att_mma_has(t) || !t->batch || !t->seq || !t->keys || t->batch * t->heads * t->seq > INT32_MAX ||
	    t->batch * t->kv_heads * t->keys > INT32_MAX || !hd_cuda_by_wgmma())
		return 0;
	return (t->dim == 64 ? allow<64>(err) : allow<128>(err)) >= 0;
}

template <int D>
static int launch(const struct hd_att *t, void *o, float *lse, const void *q, const void *k, const void *v,
		  const struct hd_run *r)
{
	int64_t nq[4] = { D, t->heads, t->seq, t->batch }, nk[4] = { D, t->kv_heads, t->keys, t->batch };
	int64_t sq[3] = { D, t->heads * D, t->seq * t->heads * D },
		sk[3] = { D, t->kv_heads * D, t->keys * t->kv_heads * D };
	jobs w = jobs_of(t->seq, t->heads, t->batch, t->keys * 2 * D * (int64_t)sizeof(bf16));
	struct hd_err none = {};
	hd_tensor_map mq, mk, mv;

	HD_TRY(hd_tensor_map_make(&mq, q, nq, sq, ROWS, &none));
	HD_TRY(hd_tensor_map_make(&mk, k, nk, sk, KEYS, &none));
	HD_TRY(hd_tensor_map_make(&mv, v, nk, sk, KEYS, &none));
	if (is_plain(t))
		HD_LAUNCH((wgmma_forward<D, 1>), blocks_of(w), THREADS, BYTES(D), r, *t, w, (bf16 *)o, lse, mq, mk, mv);
	else
		HD_LAUNCH((wgmma_forward<D, 0>), blocks_of(w), THREADS, BYTES(D), r, *t, w, (bf16 *)o, lse, mq, mk, mv);
	return HD_OK;
}

int hd_att_wgmma(const struct hd_att *t, void *o, float *lse, const void *q, const void *k, const void *v,
		 const struct hd_run *r)
{
	return t->dim == 64 ? launch<64>(t, o, lse, q, k, v, r) : launch<128>(t, o, lse, q, k, v, r);
}
