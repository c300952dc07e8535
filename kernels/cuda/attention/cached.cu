/* SPDX-License-Identifier: Apache-2.0
 * attention_cached: attention of a few new tokens over all earlier ones, whose keys and values are cached.
 *
 * Reading the caches dominates the time.  A block has one query.  Its warps take turns with the keys, one key at a
 * time, with lanes on dims.  Each warp keeps its own maximum, sum and mix of values (Milakov and Gimelshein, 2018),
 * and these are joined at the end in the order of warps.  A separate launch stores the new keys: before the queries,
 * or after them if there is a window, since a ring would lose keys that queries read.
 */
#include "kernels/cuda/attention/attention.h"

#define WARPS 8
#define MOST 8 /* dims per lane: head_dim up to 256 */

struct hd_att_cached : hd_att {
	int64_t past;
	const int32_t *positions;

	HD_DEV int64_t slot(int64_t position) const
	{
		return window ? position % past : position;
	}
	HD_DEV int64_t first(int64_t position) const
	{
		return window && position >= window ? position - window + 1 : 0;
	}
	HD_DEV int keeps(int64_t position, int64_t last) const
	{
		return position >= 0 && (window ? position + past > last : position < past);
	}
	/* Returns the element where the key at position j begins, for the query in column s at `position`.  It is in
	 * the caches, or in the new keys (*own). */
	HD_DEV int64_t key_at(int64_t b, int64_t s, int64_t kv, int64_t position, int64_t j, int *own) const
	{
		int64_t column = s - (position - j);

		*own = window && column >= 0;
		return ((*own ? b * seq + column : b * past + slot(j)) * kv_heads + kv) * dim;
	}
};

template <class T> __global__ void __launch_bounds__(256) keep(hd_att_cached t, T *cache, const T *from)
{
	int64_t row = t.kv_heads * t.dim, i = blockIdx.x, sequence = i / t.seq;
	int64_t position = t.positions[i], last = t.positions[(sequence + 1) * t.seq - 1];

	if (!t.keeps(position, last))
		return;
	for (int64_t d = threadIdx.x; d < row; d += 256)
		cache[(sequence * t.past + t.slot(position)) * row + d] = from[i * row + d];
}

struct hd_key_mix { /* of the keys that a warp has processed so far */
	float max, all, sum[MOST];
};

template <class T>
HD_DEV void take_key(const hd_att_cached &t, hd_key_mix &m, const float *q, const T *k, const T *v, int lane)
{
	float s = 0, high, less, p;

	for (int d = 0; d < MOST && lane + 32 * d < t.dim; d++)
		s += q[d] * to_float(k[lane + 32 * d]);
	s = t.capped(t.scale * warp_sum(s));
	high = fmaxf(m.max, s);
	less = m.max == -INFINITY ? 0 : expf(m.max - high);
	p = expf(s - high);
	m.max = high;
	m.all = m.all * less + p;
	for (int d = 0; d < MOST && lane + 32 * d < t.dim; d++)
		m.sum[d] = m.sum[d] * less + p * to_float(v[lane + 32 * d]);
}

template <class T>
__global__ void __launch_bounds__(WARPS * 32)
	queries(hd_att_cached t, T *o, const T *q, const T *k, const T *v, const T *old_k, const T *old_v)
{
	HD_DYNAMIC_SHARED(float, shared); /* for each warp: max, all, and the mix */
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	int64_t s = blockIdx.x, h = blockIdx.y, b = blockIdx.z, kv = t.kv_of(h), position = t.positions[b * t.seq + s];
	float mine[MOST], *of = shared + warp * (t.dim + 2);
	hd_key_mix m = { -INFINITY, 0, { 0 } };

	for (int d = 0; d < MOST; d++)
		mine[d] = lane + 32 * d < t.dim ? to_float(q[t.q_at(b, s, h) + lane + 32 * d]) : 0;
	for (int64_t j = t.first(position) + warp; j <= position; j += WARPS) {
		int own;
		int64_t at = t.key_at(b, s, kv, position, j, &own);

		take_key(t, m, mine, (own ? k : old_k) + at, (own ? v : old_v) + at, lane);
	}
	if (lane == 0)
		of[0] = m.max, of[1] = m.all;
	for (int d = 0; d < MOST && lane + 32 * d < t.dim; d++)
		of[2 + lane + 32 * d] = m.sum[d];
	__syncthreads();
	for (int64_t d = threadIdx.x; d < t.dim; d += WARPS * 32) {
		float max = -INFINITY, all = 0, sum = 0;

		for (int w = 0; w < WARPS; w++)
			max = fmaxf(max, shared[w * (t.dim + 2)]);
		for (int w = 0; w < WARPS && max != -INFINITY; w++) {
			const float *x = shared + w * (t.dim + 2);
			float less = x[0] == -INFINITY ? 0 : expf(x[0] - max);

			all += less * x[1];
			sum += less * x[2 + d];
		}
		from_float(o + t.q_at(b, s, h) + d, position < 0 ? 0 : sum / all); /* NaN stays NaN */
	}
}

/* -- prepare and run ----------------------------------------------------------------------------------------------- */
static size_t shared_bytes(const struct hd_attention *t)
{
	return (size_t)(WARPS * (t->dim + 2)) * sizeof(float);
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct hd_cached c;

	memset(&c, 0, sizeof(c));
	HD_TRY(hd_prepare_cached(d, "cuda", HD_DTYPE_F32, &c, err));
	if (c.t.dim > 32 * MOST)
		return hd_err_set(err, HD_ENOTSUP, "attention_cached: heads of %lld, but at most %d is possible",
				  (long long)c.t.dim, 32 * MOST);
	p->state = hd_alloc(sizeof(c));
	memcpy(p->state, &c, sizeof(c));
	p->release = free;
	return HD_OK;
}

template <class T> static void keep_both(const hd_att_cached &t, void *const *in, const struct hd_run *r)
{
	for (int k = 0; k < 2; k++)
		HD_LAUNCH(keep<T>, dim3((unsigned)(t.batch * t.seq)), dim3(256), 0, r, t, (T *)in[3 + k],
			  (const T *)in[1 + k]);
}

template <class T>
static void launch(const struct hd_cached *c, void *const *out, void *const *in, const struct hd_run *r)
{
	hd_att_cached t;

	(hd_attention &)t = c->t;
	t.past = c->past;
	t.positions = (const int32_t *)in[5];
	if (!t.window)
		keep_both<T>(t, in, r);
	HD_LAUNCH(queries<T>, dim3((unsigned)t.seq, (unsigned)t.heads, (unsigned)t.batch), dim3(WARPS * 32),
		  shared_bytes(&c->t), r, t, (T *)out[0], (const T *)in[0], (const T *)in[1], (const T *)in[2],
		  (const T *)in[3], (const T *)in[4]);
	if (t.window)
		keep_both<T>(t, in, r);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_cached *c = (const struct hd_cached *)p->state;

	c->t.low ? launch<bf16>(c, out, in, r) : launch<float>(c, out, in, r);
}

HD_CUDA_KERNEL(attention_cached, "attention_cached", 0, prepare, run);
