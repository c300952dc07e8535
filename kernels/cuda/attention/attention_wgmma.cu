/* SPDX-License-Identifier: Apache-2.0
 * attention forward for compute capability 9.0a: bf16, head_dim 64 or 128 (Shah et al., FlashAttention-3, 2024).
 *
 * A block has 128 queries of a head and three groups of four warps.  Of the first one thread asks the copy engine for tiles of 128
 * keys and values, two ahead; each of the others has 64 queries, makes scores of a tile out of shared memory, and adds what the
 * probabilities of the tile before, in registers, make of its values, while the next exponentials are computed.  Which tile is there
 * and which may be fetched over is said by barriers in shared memory.
 *
 * Compiled where CUDA_ARCH has 90a, and used on GPUs of that architecture unless HEDDLE_WGMMA=0 is set.
 */
#include "kernels/cuda/attention/groups.h"

#define STAGES 2
#define TILE_BYTES(D) (KEYS * (D) * (int)sizeof(bf16))
/* Queries, tiles of keys and of values, barriers; and what the first may have to move to begin at a multiple of 1024. */
#define BYTES(D) (HD_TILE_ALIGN + (ROWS * (D) * (int)sizeof(bf16)) + 2 * STAGES * TILE_BYTES(D) + 128)

#ifdef HD_HOPPER
struct stage {
	uint64_t k_there, k_free, v_there, v_free;
};

/* What is in the block's shared memory. */
template <int D> struct room {
	unsigned char *q;
	stage *s;
	uint64_t *q_there;

	HD_DEV explicit room(unsigned char *shared)
	{
		q = hd_first_tile(shared);
		s = (stage *)(void *)(q + ROWS * D * sizeof(bf16) + 2 * STAGES * TILE_BYTES(D));
		q_there = (uint64_t *)(void *)(s + STAGES);
	}
	HD_DEV unsigned char *k(int turn) const
	{
		return q + ROWS * D * sizeof(bf16) + turn * 2 * TILE_BYTES(D);
	}
	HD_DEV unsigned char *v(int turn) const
	{
		return k(turn) + TILE_BYTES(D);
	}
};

template <int D>
HD_DEV void produce(const hd_att &t, const room<D> &m, span s, int64_t i0, const hd_tensor_map *q,
		    const hd_tensor_map *k, const hd_tensor_map *v)
{
	int b = (int)blockIdx.z, h = (int)blockIdx.y, kv = (int)t.kv_of(h);

	barrier_expect(m.q_there, TILE_BYTES(D));
	fetch_rows<D, ROWS>(m.q, q, h, i0, b, m.q_there);
	for (int i = 0; i < s.n; i++) {
		int turn = i % STAGES, before = (i / STAGES & 1) ^ 1;

		barrier_wait(&m.s[turn].k_free, before);
		barrier_expect(&m.s[turn].k_there, TILE_BYTES(D));
		fetch_rows<D, KEYS>(m.k(turn), k, kv, s.from + (int64_t)i * KEYS, b, &m.s[turn].k_there);
		barrier_wait(&m.s[turn].v_free, before);
		barrier_expect(&m.s[turn].v_there, TILE_BYTES(D));
		fetch_rows<D, KEYS>(m.v(turn), v, kv, s.from + (int64_t)i * KEYS, b, &m.s[turn].v_there);
	}
}

/* One row of a lane (e of two): scores into probabilities around the largest so far.  -> what earlier sums are to be times. */
HD_DEV float soften(float (*s)[4], float *max, float *all, float scale, int e)
{
	float high = -INFINITY, part = 0, less, old = *max;

#pragma unroll
	for (int n = 0; n < KEYS / 8; n++)
		high = fmaxf(high, fmaxf(s[n][2 * e], s[n][2 * e + 1]));
	*max = high = fmaxf(old, four_max(high) * scale);
	less = high == -INFINITY ? 0 : high; /* nothing seen yet: all terms are 0 */
#pragma unroll
	for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
		for (int x = 2 * e; x < 2 * e + 2; x++) {
			s[n][x] = hd_exp2(s[n][x] * scale - less);
			part += s[n][x];
		}
	less = hd_exp2(old - less);
	*all = *all * less + part;
	return less;
}

/* What a group of four warps keeps of its 64 queries. */
struct rows {
	int64_t row[2], seen[2], passed[2], least,
		most; /* least, most: all of the warp's see keys most ... least - 1 */
	float max[2], all[2], less[2], scale;

	HD_DEV rows(const hd_att &t, int64_t first)
	{
		int g = (int)threadIdx.x % 32 / 4;

		scale = exponent(t);
		least = t.seen(first);
		most = t.passed(first + 15);
		for (int e = 0; e < 2; e++) {
			row[e] = first + g + 8 * e;
			passed[e] = t.passed(row[e]);
			seen[e] = row[e] < t.seq && passed[e] < t.seen(row[e]) ? t.seen(row[e]) : 0;
			max[e] = -INFINITY;
			all[e] = 0;
		}
	}
	/* Scores of keys j ... into probabilities. */
	HD_DEV void soften_tile(const hd_att &t, float (*s)[4], int64_t j)
	{
		if (t.softcap > 0)
			cap<KEYS / 8>(t, s);
		if (j + KEYS > least || j < most) {
			int left[2] = { within<KEYS>(seen[0] - j), within<KEYS>(seen[1] - j) };
			int gone[2] = { within<KEYS>(passed[0] - j), within<KEYS>(passed[1] - j) };

			hide<KEYS / 8>(s, gone, left);
		}
		for (int e = 0; e < 2; e++)
			less[e] = soften(s, &max[e], &all[e], scale, e);
	}
	template <int D> HD_DEV void shrink(float (*o)[4]) const
	{
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
			all[e] = all[e] > 0 ? 1 / all[e] : all[e]; /* NaN stays */
		}
	}
};

template <int D> HD_DEV void consume(const hd_att &t, const room<D> &m, span n, int64_t i0, bf16 *o, float *lse)
{
	int group = (int)threadIdx.x / 128 - 1, warp = (int)threadIdx.x / 32 % 4, i = 1;
	int64_t first = i0 + group * 64 + warp * 16, b = blockIdx.z, h = blockIdx.y;
	const unsigned char *q = m.q + group * 64 * HD_ROW_BYTES;
	float sum[D / 8][4], s[KEYS / 8][4];
	uint32_t p[KEYS / 16][4];
	rows r(t, first);

	clear<D / 8>(sum);
	clear<KEYS / 8>(s);
	barrier_wait(m.q_there, 0);
	if (n.n) {
		barrier_wait(&m.s[0].k_there, 0);
		hold<KEYS>(s);
		group_fence();
		begin_scores<D, KEYS>(s, q, m.k(0));
		group_wait<0>();
		hold<KEYS>(s);
		let_go(&m.s[0].k_free);
		r.soften_tile(t, s, n.from);
		pack_scores<KEYS>(p, s);
	}
	for (; i < n.n; i++) { /* scores of tile i beside the values of tile i - 1 */
		stage *now = &m.s[i % STAGES], *last = &m.s[(i - 1) % STAGES];

		barrier_wait(&now->k_there, i / STAGES & 1);
		barrier_wait(&last->v_there, (i - 1) / STAGES & 1);
		hold<KEYS>(s);
		hold<D>(sum);
		group_fence();
		begin_scores<D, KEYS>(s, q, m.k(i % STAGES));
		begin_sum<D, KEYS>(sum, p, m.v((i - 1) % STAGES));
		group_wait<1>();
		hold<KEYS>(s);
		let_go(&now->k_free);
		r.soften_tile(t, s, n.from + (int64_t)i * KEYS);
		group_wait<0>();
		hold<D>(sum);
		let_go(&last->v_free);
		pack_scores<KEYS>(p, s);
		r.template shrink<D>(sum);
	}
	if (n.n) {
		barrier_wait(&m.s[(i - 1) % STAGES].v_there, (i - 1) / STAGES & 1);
		hold<D>(sum);
		group_fence();
		begin_sum<D, KEYS>(sum, p, m.v((i - 1) % STAGES));
		group_wait<0>();
		hold<D>(sum);
	}
	r.finish(t, lse, b, h);
	put_rows<D>(o + t.q_at(b, first, h), t.heads * t.dim, t.seq - first, sum, r.all[0], r.all[1]);
}
#endif

template <int D>
__global__ void __launch_bounds__(THREADS, 1)
	wgmma_forward(hd_att t, bf16 *o, float *lse, const __grid_constant__ hd_tensor_map q,
		      const __grid_constant__ hd_tensor_map k, const __grid_constant__ hd_tensor_map v)
{
#ifdef HD_HOPPER
	HD_DYNAMIC_SHARED(unsigned char, shared);
	room<D> m(shared);
	int64_t i0 = ((int64_t)gridDim.x - 1 - blockIdx.x) * ROWS; /* long rows first */
	span n = span_of(t, i0);

	if (threadIdx.x == 0) {
		barrier_make(m.q_there, 1);
		for (int i = 0; i < STAGES; i++) {
			barrier_make(&m.s[i].k_there, 1);
			barrier_make(&m.s[i].v_there, 1);
			barrier_make(&m.s[i].k_free, 8); /* a lane of each warp that reads */
			barrier_make(&m.s[i].v_free, 8);
		}
		barriers_made();
	}
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<24>();
		if (threadIdx.x == 0)
			produce<D>(t, m, n, i0, &q, &k, &v);
	} else {
		more_registers<240>();
		consume<D>(t, m, n, i0, o, lse);
	}
#endif
}

/* -- host ------------------------------------------------------------------------------------------------------------------ */
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
			return hd_err_set(err, HD_ENOTSUP, "cuda: no tensor of the copy engine");
	}
	return HD_OK;
}

static int is_hopper(void)
{
	return 1;
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
	return hd_err_set(err, HD_ENOTSUP, "cuda: no tensor of the copy engine");
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
#endif

int hd_cuda_by_wgmma(void)
{
	const char *asked = getenv("HEDDLE_WGMMA");

	return is_hopper() && !(asked && !strcmp(asked, "0"));
}

int hd_att_wgmma_has(const struct hd_att *t, struct hd_err *err)
{
	if (!hd_att_mma_has(t) || !t->batch || !t->seq || !t->keys || !hd_cuda_by_wgmma())
		return 0;
	return t->dim == 64 ? hd_cuda_allow_shared("attention", (const void *)wgmma_forward<64>, BYTES(64), err) >= 0
			    : hd_cuda_allow_shared("attention", (const void *)wgmma_forward<128>, BYTES(128), err) >= 0;
}

template <int D>
static int go(const struct hd_att *t, void *o, float *lse, const void *q, const void *k, const void *v,
	      const struct hd_run *r)
{
	int64_t nq[4] = { D, t->heads, t->seq, t->batch }, nk[4] = { D, t->kv_heads, t->keys, t->batch };
	int64_t sq[3] = { D, t->heads * D, t->seq * t->heads * D },
		sk[3] = { D, t->kv_heads * D, t->keys * t->kv_heads * D };
	dim3 grid((unsigned)((t->seq + ROWS - 1) / ROWS), (unsigned)t->heads, (unsigned)t->batch);
	struct hd_err none = { 0, 0, "" };
	hd_tensor_map mq, mk, mv;

	HD_TRY(hd_tensor_map_make(&mq, q, nq, sq, ROWS, &none));
	HD_TRY(hd_tensor_map_make(&mk, k, nk, sk, KEYS, &none));
	HD_TRY(hd_tensor_map_make(&mv, v, nk, sk, KEYS, &none));
	HD_LAUNCH((wgmma_forward<D>), grid, THREADS, BYTES(D), r, *t, (bf16 *)o, lse, mq, mk, mv);
	return HD_OK;
}

int hd_att_wgmma(const struct hd_att *t, void *o, float *lse, const void *q, const void *k, const void *v,
		 const struct hd_run *r)
{
	return t->dim == 64 ? go<64>(t, o, lse, q, k, v, r) : go<128>(t, o, lse, q, k, v, r);
}
