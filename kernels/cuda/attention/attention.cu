/* SPDX-License-Identifier: Apache-2.0
 * attention, attention_d (Dao et al., FlashAttention, 2022): the choice of kernels, and kernels for any dtype and
 * any head_dim up to 256.  attention_mma.cu has the case that models train with: bf16 with head_dim 64 or 128.
 *
 * Here a warp has one query (forward, dq) or one key (dk, dv).  The warps of a block share tiles of 32 rows of the
 * other side in shared memory.  Each lane computes one score; then lanes own dims.  Nothing depends on the order of
 * blocks.
 */
#include "kernels/cuda/attention/attention.h"

#define WARPS 8
#define TILE 32
#define MOST 8 /* dims per lane: head_dim up to 256 */

struct attention_state {
	struct hd_att t;
	int mma, wgmma;
};

static size_t tile_bytes(const struct hd_att *t)
{
	return (size_t)(TILE * (t->dim + 1)) * sizeof(float);
}

/* -- forward ------------------------------------------------------------------------------------------------------- */
template <class T> HD_DEV void fill_rows(float *tile, const T *from, int64_t rows, int64_t stride, int64_t dim)
{
	__syncthreads();
	for (int64_t i = threadIdx.x; i < TILE * dim; i += WARPS * 32)
		tile[i / dim * (dim + 1) + i % dim] = i / dim < rows ? to_float(from[i / dim * stride + i % dim]) : 0;
	__syncthreads();
}

HD_DEV float dot(const float *x, const float *y, int64_t n)
{
	float sum = 0;

	for (int64_t d = 0; d < n; d++)
		sum += x[d] * y[d];
	return sum;
}

template <class T> HD_DEV void own_row(float *row, const T *from, int64_t dim, int there) /* the row of this warp */
{
	for (int64_t d = threadIdx.x % 32; d < dim; d += 32)
		row[d] = there ? to_float(from[d]) : 0;
	__syncwarp();
}

template <class T>
__global__ void __launch_bounds__(WARPS * 32, 2) forward(hd_att t, T *o, float *lse, const T *q, const T *k, const T *v)
{
	HD_DYNAMIC_SHARED(float, tile);
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	float *mine = tile + TILE * (t.dim + 1) + warp * t.dim, sum[MOST], max = -INFINITY, all = 0;
	int64_t b = blockIdx.z, h = blockIdx.y, kv = t.kv_of(h), i = (int64_t)blockIdx.x * WARPS + warp;
	int64_t seen = i < t.seq ? t.seen(i) : 0, last = hd_least(((int64_t)blockIdx.x + 1) * WARPS, t.seq) - 1;
	int64_t from = t.window_begin((int64_t)blockIdx.x * WARPS) / TILE * TILE,
		window_begin = i < t.seq ? t.window_begin(i) : 0;

	own_row(mine, q + t.q_at(b, i < t.seq ? i : 0, h), t.dim, i < t.seq);
	for (int m = 0; m < MOST; m++)
		sum[m] = 0;
	for (int64_t j = from; j < t.seen(last); j += TILE) {
		float s, high, p;

		fill_rows(tile, k + t.k_at(b, j, kv), t.keys - j, t.kv_heads * t.dim, t.dim);
		s = j + lane < seen && j + lane >= window_begin
			    ? t.capped(t.scale * dot(mine, tile + lane * (t.dim + 1), t.dim))
			    : -INFINITY;
		fill_rows(tile, v + t.k_at(b, j, kv), t.keys - j, t.kv_heads * t.dim, t.dim);
		high = fmaxf(max, warp_max(s));
		p = s == -INFINITY ? 0 : expf(s - high); /* NaN stays NaN */
		if (max != high) {
			float less = max == -INFINITY ? 0 : expf(max - high);

			all *= less;
			for (int m = 0; m < MOST; m++)
				sum[m] *= less;
			max = high;
		}
		all += warp_sum(p);
		for (int n = 0; n < TILE; n++) {
			float x = __shfl_sync(~0u, p, n);

			for (int m = 0; m < MOST && lane + 32 * m < t.dim; m++)
				sum[m] += x * tile[n * (t.dim + 1) + lane + 32 * m];
		}
	}
	if (i >= t.seq)
		return;
	for (int m = 0; m < MOST && lane + 32 * m < t.dim; m++)
		from_float(o + t.q_at(b, i, h) + lane + 32 * m, seen > window_begin ? sum[m] / all : 0);
	if (lane == 0)
		lse[t.row(b, h, i)] = seen > window_begin ? max + logf(all) : -INFINITY;
}

/* -- backward ------------------------------------------------------------------------------------------------------ */
template <class T>
__global__ void __launch_bounds__(WARPS * 32) deltas(hd_att t, float *delta, const T *o, const T *d_o)
{
	int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, h = row % t.heads, i = row / t.heads % t.seq;
	int64_t b = row / t.heads / t.seq;
	float sum = 0;

	if (row >= t.batch * t.seq * t.heads)
		return;
	for (int64_t d = threadIdx.x % 32; d < t.dim; d += 32)
		sum += to_float(o[row * t.dim + d]) * to_float(d_o[row * t.dim + d]);
	sum = warp_sum(sum);
	if (threadIdx.x % 32 == 0)
		delta[t.row(b, h, i)] = sum;
}

/* The same for D bf16, 16 bytes per lane: D / 8 lanes share a row and have AT_ONCE rows in flight. */
#define AT_ONCE 4
template <int D>
__global__ void __launch_bounds__(WARPS * 32) deltas_wide(hd_att t, float *delta, const bf16 *o, const bf16 *d_o)
{
	const unsigned lanes = D / 8, rows = WARPS * 32 / lanes;
	unsigned heads = (unsigned)t.heads, seq = (unsigned)t.seq, all = (unsigned)t.batch * seq * heads;
	unsigned lane = threadIdx.x % lanes, first = blockIdx.x * rows * AT_ONCE + threadIdx.x / lanes;
	vec<8, bf16> x[AT_ONCE], y[AT_ONCE];

#pragma unroll
	for (int i = 0; i < AT_ONCE; i++) {
		unsigned row = first + i * rows;
		int64_t at = (int64_t)(row < all ? row : 0) * D + lane * 8;

		x[i] = fetch<8>(o + at);
		y[i] = fetch<8>(d_o + at);
	}
#pragma unroll
	for (int i = 0; i < AT_ONCE; i++) {
		unsigned row = first + i * rows, place = row / heads, b = place / seq;
		float sum = 0;

		for (int k = 0; k < 8; k++)
			sum += x[i].at(k) * y[i].at(k);
		for (unsigned k = lanes / 2; k; k /= 2)
			sum += __shfl_xor_sync(~0u, sum, (int)k);
		if (lane == 0 && row < all)
			delta[t.row(b, row - place * heads, place - b * seq)] = sum;
	}
}

template <class T> __global__ void __launch_bounds__(WARPS * 32, 2) backward_q(hd_att t, hd_att_d x)
{
	HD_DYNAMIC_SHARED(float, tile);
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	float *other = tile + TILE * (t.dim + 1), *mine = other + TILE * (t.dim + 1) + warp * 2 * t.dim, sum[MOST];
	int64_t b = blockIdx.z, h = blockIdx.y, kv = t.kv_of(h), i = (int64_t)blockIdx.x * WARPS + warp;
	int64_t seen = i < t.seq ? t.seen(i) : 0, last = hd_least(((int64_t)blockIdx.x + 1) * WARPS, t.seq) - 1;
	int64_t from = t.window_begin((int64_t)blockIdx.x * WARPS) / TILE * TILE,
		window_begin = i < t.seq ? t.window_begin(i) : 0;
	int64_t at = t.q_at(b, i < t.seq ? i : 0, h);
	float lse = i < t.seq ? x.lse[t.row(b, h, i)] : 0, delta = i < t.seq ? x.delta[t.row(b, h, i)] : 0;

	own_row(mine, (const T *)x.q + at, t.dim, i < t.seq);
	own_row(mine + t.dim, (const T *)x.d_o + at, t.dim, i < t.seq);
	for (int m = 0; m < MOST; m++)
		sum[m] = 0;
	for (int64_t j = from; j < t.seen(last); j += TILE) {
		float s = 0;

		fill_rows(tile, (const T *)x.k + t.k_at(b, j, kv), t.keys - j, t.kv_heads * t.dim, t.dim);
		fill_rows(other, (const T *)x.v + t.k_at(b, j, kv), t.keys - j, t.kv_heads * t.dim, t.dim);
		if (j + lane < seen && j + lane >= window_begin) {
			s = t.capped(t.scale * dot(mine, tile + lane * (t.dim + 1), t.dim));
			s = t.scale * expf(s - lse) * t.slope(s) *
			    (dot(mine + t.dim, other + lane * (t.dim + 1), t.dim) - delta);
		}
		for (int n = 0; n < TILE; n++) {
			float ds = __shfl_sync(~0u, s, n);

			for (int m = 0; m < MOST && lane + 32 * m < t.dim; m++)
				sum[m] += ds * tile[n * (t.dim + 1) + lane + 32 * m];
		}
	}
	for (int m = 0; m < MOST && lane + 32 * m < t.dim && i < t.seq; m++)
		from_float((T *)x.dq + at + lane + 32 * m, sum[m]);
}

template <class T> __global__ void __launch_bounds__(WARPS * 32, 2) backward_kv(hd_att t, hd_att_d x)
{
	HD_DYNAMIC_SHARED(float, tile);
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	float *other = tile + TILE * (t.dim + 1), *mine = other + TILE * (t.dim + 1) + warp * 2 * t.dim, dk[MOST],
	      dv[MOST];
	int64_t b = blockIdx.z, kv = blockIdx.y, j = (int64_t)blockIdx.x * WARPS + warp;
	int64_t at = t.k_at(b, j < t.keys ? j : 0, kv), from = t.first_query((int64_t)blockIdx.x * WARPS);
	int64_t end = t.end_query(hd_least(((int64_t)blockIdx.x + 1) * WARPS, t.keys) - 1);

	own_row(mine, (const T *)x.k + at, t.dim, j < t.keys);
	own_row(mine + t.dim, (const T *)x.v + at, t.dim, j < t.keys);
	for (int m = 0; m < MOST; m++)
		dk[m] = dv[m] = 0;
	for (int64_t h = t.head_from(kv); h < t.head_to(kv); h++)
		for (int64_t i = from; i < end; i += TILE) {
			float p = 0, ds = 0;

			fill_rows(tile, (const T *)x.q + t.q_at(b, i, h), t.seq - i, t.heads * t.dim, t.dim);
			fill_rows(other, (const T *)x.d_o + t.q_at(b, i, h), t.seq - i, t.heads * t.dim, t.dim);
			if (i + lane < t.seq && j < t.keys && j < t.seen(i + lane) && j >= t.window_begin(i + lane)) {
				float s = t.capped(t.scale * dot(mine, tile + lane * (t.dim + 1), t.dim));

				p = expf(s - x.lse[t.row(b, h, i + lane)]);
				ds = t.scale * p * t.slope(s) *
				     (dot(mine + t.dim, other + lane * (t.dim + 1), t.dim) -
				      x.delta[t.row(b, h, i + lane)]);
			}
			for (int n = 0; n < TILE; n++) {
				float pn = __shfl_sync(~0u, p, n), dn = __shfl_sync(~0u, ds, n);

				for (int m = 0; m < MOST && lane + 32 * m < t.dim; m++) {
					dk[m] += dn * tile[n * (t.dim + 1) + lane + 32 * m];
					dv[m] += pn * other[n * (t.dim + 1) + lane + 32 * m];
				}
			}
		}
	for (int m = 0; m < MOST && lane + 32 * m < t.dim && j < t.keys; m++) {
		from_float((T *)x.dk + at + lane + 32 * m, dk[m]);
		from_float((T *)x.dv + at + lane + 32 * m, dv[m]);
	}
}

/* -- prepare and run ----------------------------------------------------------------------------------------------- */
static size_t forward_bytes(const struct hd_att *t)
{
	return tile_bytes(t) + (size_t)(WARPS * t->dim) * sizeof(float);
}
static size_t backward_bytes(const struct hd_att *t)
{
	return 2 * tile_bytes(t) + (size_t)(2 * WARPS * t->dim) * sizeof(float);
}

template <class T> static int allow(const struct hd_att *t, struct hd_err *err)
{
	HD_TRY(hd_cuda_allow_shared("attention", (const void *)forward<T>, forward_bytes(t), err));
	HD_TRY(hd_cuda_allow_shared("attention", (const void *)backward_q<T>, backward_bytes(t), err));
	return hd_cuda_allow_shared("attention", (const void *)backward_kv<T>, backward_bytes(t), err);
}

static int prepare_any(const struct hd_kernel_desc *d, struct hd_prep *p, int backward, struct hd_err *err)
{
	struct attention_state s, *kept;

	memset(&s, 0, sizeof(s));
	HD_TRY(hd_prepare_attention(d, backward, "cuda", HD_DTYPE_F32, &s.t, err));
	if (s.t.dim > 32 * MOST)
		return hd_err_set(err, HD_ENOTSUP, "attention: head_dim is %lld, but at most %d is possible on cuda",
				  (long long)s.t.dim, 32 * MOST);
	s.mma = d->in[0].dtype == HD_DTYPE_BF16 && hd_att_mma_has(&s.t);
	if (s.mma)
		HD_TRY(hd_att_mma_prepare(&s.t, err));
	s.wgmma = s.mma && hd_att_wgmma_has(&s.t, err) && (!backward || hd_att_wgmma_d_prepare(&s.t, err) >= 0);
	HD_TRY(d->in[0].dtype == HD_DTYPE_BF16 ? allow<bf16>(&s.t, err) : allow<float>(&s.t, err));
	if (backward)
		hd_cuda_scratch_need((size_t)(s.t.batch * s.t.heads * s.t.seq) * sizeof(float));
	kept = (struct attention_state *)hd_alloc(sizeof(*kept));
	*kept = s;
	p->n[14] = d->in[0].dtype;
	p->state = kept;
	p->release = free;
	return 0;
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return prepare_any(d, p, 0, err);
}
static int prepare_d(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return prepare_any(d, p, 1, err);
}

static unsigned per_warp(int64_t n)
{
	return (unsigned)((n + WARPS - 1) / WARPS);
}

template <class T>
static void launch(const struct attention_state *s, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_att *t = &s->t;
	dim3 grid(per_warp(t->seq), (unsigned)t->heads, (unsigned)t->batch);

	HD_LAUNCH((forward<T>), grid, WARPS * 32, forward_bytes(t), r, *t, (T *)out[0], (float *)out[1],
		  (const T *)in[0], (const T *)in[1], (const T *)in[2]);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct attention_state *s = (const struct attention_state *)p->state;
	int wide = hd_aligned(in[0]) && hd_aligned(in[1]) && hd_aligned(in[2]) && hd_aligned(out[0]);

	if (!s->t.batch || !s->t.seq || !s->t.heads)
		return;
	if (s->wgmma && wide && hd_att_wgmma(&s->t, out[0], (float *)out[1], in[0], in[1], in[2], r) >= 0)
		return;
	if (s->mma && wide)
		hd_att_mma(&s->t, out[0], (float *)out[1], in[0], in[1], in[2], r);
	else
		p->n[14] == HD_DTYPE_F32 ? launch<float>(s, out, in, r) : launch<bf16>(s, out, in, r);
}

static void begin_deltas(const struct hd_att *t, float *delta, const bf16 *o, const bf16 *d_o, const struct hd_run *r)
{
	unsigned blocks = hd_blocks(t->batch * t->seq * t->heads * t->dim, WARPS * 32 * 8 * AT_ONCE, INT32_MAX);

	if (t->dim == 64)
		HD_LAUNCH((deltas_wide<64>), blocks, WARPS * 32, 0, r, *t, delta, o, d_o);
	else
		HD_LAUNCH((deltas_wide<128>), blocks, WARPS * 32, 0, r, *t, delta, o, d_o);
}

template <class T>
static void launch_d(const struct attention_state *s, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_att *t = &s->t;
	float *delta = (float *)hd_cuda_scratch();
	hd_att_d x = { in[0], in[1], in[2], in[5], (const float *)in[4], delta, out[0], out[1], out[2] };
	dim3 queries(per_warp(t->seq), (unsigned)t->heads, (unsigned)t->batch);
	dim3 keys(per_warp(t->keys), (unsigned)t->kv_heads, (unsigned)t->batch);
	int wide = 1;

	for (int i = 0; i < 6; i++)
		wide &= i == 4 || hd_aligned(in[i]);
	for (int i = 0; i < 3; i++)
		wide &= hd_aligned(out[i]);
	if (s->mma && wide)
		begin_deltas(t, delta, (const bf16 *)in[3], (const bf16 *)in[5], r);
	else
		HD_LAUNCH((deltas<T>), per_warp(t->batch * t->seq * t->heads), WARPS * 32, 0, r, *t, delta,
			  (const T *)in[3], (const T *)in[5]);
	if (s->wgmma && wide && hd_att_wgmma_d(t, &x, r) >= 0)
		return;
	if (s->mma && wide) {
		hd_att_mma_d(t, &x, r);
		return;
	}
	HD_LAUNCH((backward_q<T>), queries, WARPS * 32, backward_bytes(t), r, *t, x);
	HD_LAUNCH((backward_kv<T>), keys, WARPS * 32, backward_bytes(t), r, *t, x);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct attention_state *s = (const struct attention_state *)p->state;

	if (!s->t.batch || !s->t.seq || !s->t.heads || !s->t.keys || !s->t.kv_heads)
		return;
	p->n[14] == HD_DTYPE_F32 ? launch_d<float>(s, out, in, r) : launch_d<bf16>(s, out, in, r);
}

HD_CUDA_KERNEL(attention, "attention", 0, prepare, run);
HD_CUDA_KERNEL(attention_d, "attention_d", 0, prepare_d, run_d);
