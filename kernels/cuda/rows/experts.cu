/* SPDX-License-Identifier: Apache-2.0
 * dispatch, combine and combine_dg: tokens to the slots of their experts, and back.
 *
 * If rows are counted, one block first adds up the counts.  So every block knows where the rows of an expert and a
 * sample begin, and each choice has its own row.  If slots are given, each slot looks up the choice that takes it,
 * and empty slots become zero in the same pass.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/experts.h"
}

#define THREADS 256

struct slot_layout {
	int64_t samples, seq, topk, cols, experts, per_sample, group, capacity;
	int32_t counted;
	const int64_t *begin; /* counted: the first row of each (expert, sample) */

	/* Returns the row of choice i, whose slot is not negative. */
	HD_DEV int64_t row(int64_t i, int32_t slot) const
	{
		int64_t b = i / topk / seq, t = i / topk % seq, e = slot / capacity, at = slot % capacity,
			many = group / seq;

		if (counted)
			return begin[e * samples + b] + at;
		if (group <= seq)
			return (e * samples + b) * per_sample + t / group * capacity + at;
		return (e * samples + b / many * many + at / per_sample) * per_sample + at % per_sample;
	}
};

/* Requests scratch memory for the first rows, or for the choice in each slot. */
static void need_scratch(const struct hd_prep *p)
{
	hd_cuda_scratch_need(p->n[9] ? (size_t)(p->n[4] * p->n[0]) * sizeof(int64_t)
				     : (size_t)(p->n[4] * p->n[0] * p->n[5]) * sizeof(int32_t));
}

static int with_scratch(struct hd_prep *p, int rc)
{
	if (rc >= 0)
		need_scratch(p);
	return rc;
}

HD_CUDA_PREPARE_TYPES(prepare_plain, "dispatch", "t**", "t", with_scratch(p, hd_prepare_dispatch(c, p)))
HD_CUDA_PREPARE_TYPES(prepare_gates, "dispatch", "t*f*", "t", with_scratch(p, hd_prepare_dispatch(c, p)))
HD_CUDA_PREPARE_TYPES(prepare_combine_plain, "combine", "t**", "t", with_scratch(p, hd_prepare_combine(c, p)))
HD_CUDA_PREPARE_TYPES(prepare_combine_gates, "combine", "t*f*", "t", with_scratch(p, hd_prepare_combine(c, p)))
HD_CUDA_PREPARE_TYPES(prepare_dg, "combine_dg", "tt**", "f", with_scratch(p, hd_prepare_combine_dg(c, p)))

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return (hd_attr_num(d->attr, "gates", 0) != 0 ? prepare_gates : prepare_plain)(d, p, err);
}

static int prepare_combine(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return (hd_attr_num(d->attr, "gates", 0) != 0 ? prepare_combine_gates : prepare_combine_plain)(d, p, err);
}

/* Sets begin[i] to the sum of the counts before i. */
__global__ void __launch_bounds__(THREADS) add_up(const int32_t *counts, int64_t n, int64_t *begin)
{
	HD_SHARED(int64_t, warps, [THREADS / HD_WARP]);
	int lane = (int)threadIdx.x % HD_WARP, warp = (int)threadIdx.x / HD_WARP;
	int64_t before = 0;

	for (int64_t from = 0; from < n; from += THREADS) {
		int64_t i = from + threadIdx.x, mine = i < n ? counts[i] : 0, sum = mine, all = 0;

		for (int o = 1; o < HD_WARP; o *= 2) {
			int64_t left = __shfl_sync(~0u, sum, lane >= o ? lane - o : lane);

			sum += lane >= o ? left : 0;
		}
		__syncthreads();
		if (lane == HD_WARP - 1)
			warps[warp] = sum;
		__syncthreads();
		for (int w = 0; w < THREADS / HD_WARP; w++) {
			sum += w < warp ? warps[w] : 0;
			all += warps[w];
		}
		if (i < n)
			begin[i] = before + sum - mine;
		before += all;
	}
}

static slot_layout layout_of(const struct hd_prep *p, void *const *in, const struct hd_run *r)
{
	slot_layout t = { p->n[0], p->n[1], p->n[2], p->n[3], p->n[4], p->n[5], p->n[6], p->n[7], p->n[9] != 0, NULL };
	int64_t n = t.experts * t.samples;

	if (!t.counted)
		return t;
	t.begin = (const int64_t *)hd_cuda_scratch();
	if (n)
		HD_LAUNCH(add_up, 1, THREADS, 0, r, (const int32_t *)in[p->n[10]], n, (int64_t *)hd_cuda_scratch());
	return t;
}

/* -- dispatch ------------------------------------------------------------------------------------------------------ */
/* Computes to = g * from for one row, by one block. */
template <int N, class T> HD_DEV void scaled_row(T *to, const T *from, float g, int64_t cols)
{
	for (int64_t j = (int64_t)threadIdx.x * N; j < cols; j += THREADS * N) {
		float v[N];

		load<N>(v, from + j);
		for (int k = 0; k < N; k++)
			v[k] *= g;
		store<N>(to + j, v);
	}
}

template <int N, class T>
__global__ void __launch_bounds__(THREADS)
	send_rows(slot_layout t, T *d, const T *x, const int32_t *slots, const float *gates)
{
	int64_t i = blockIdx.x;
	int32_t slot = slots[i];

	if (slot >= 0)
		scaled_row<N>(d + t.row(i, slot) * t.cols, x + i / t.topk * t.cols, gates ? gates[i] : 1, t.cols);
}

__global__ void __launch_bounds__(THREADS) choice_of_slot(slot_layout t, const int32_t *slots, int64_t n, int32_t *of)
{
	int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

	if (i < n && slots[i] >= 0)
		of[t.row(i, slots[i])] = (int32_t)i;
}

template <int N, class T>
__global__ void __launch_bounds__(THREADS)
	fetch_rows(slot_layout t, T *d, const T *x, const float *gates, const int32_t *of)
{
	int64_t row = blockIdx.x;
	int32_t i = of[row];

	if (i >= 0) {
		scaled_row<N>(d + row * t.cols, x + i / t.topk * t.cols, gates ? gates[i] : 1, t.cols);
		return;
	}
	for (int64_t j = (int64_t)threadIdx.x * N; j < t.cols; j += THREADS * N) {
		float zero[N];

		for (int k = 0; k < N; k++)
			zero[k] = 0;
		store<N>(d + row * t.cols + j, zero);
	}
}

template <int N, class T>
static void dispatch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	slot_layout t = layout_of(p, in, r);
	const T *x = (const T *)in[0];
	const int32_t *slots = (const int32_t *)in[1];
	const float *gates = p->n[8] ? (const float *)in[2] : NULL;
	int64_t n = t.samples * t.seq * t.topk, rows = t.experts * t.samples * t.per_sample;
	int32_t *of = (int32_t *)hd_cuda_scratch();

	if (!t.cols)
		return;
	if (t.counted) {
		if (n)
			HD_LAUNCH((send_rows<N, T>), (unsigned)n, THREADS, 0, r, t, (T *)out[0], x, slots, gates);
		return;
	}
	if (!rows)
		return;
	hd_cuda_fill_bytes(r, of, 0xff, (size_t)rows * sizeof(*of));
	if (n)
		HD_LAUNCH(choice_of_slot, (unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, r, t, slots, n, of);
	HD_LAUNCH((fetch_rows<N, T>), (unsigned)rows, THREADS, 0, r, t, (T *)out[0], x, gates, of);
}

/* -- combine ------------------------------------------------------------------------------------------------------- */
template <int N, class T>
__global__ void __launch_bounds__(THREADS)
	bring_back(slot_layout t, T *x, const T *y, const int32_t *slots, const float *gates)
{
	int64_t first = blockIdx.x * t.topk;

	for (int64_t j = (int64_t)threadIdx.x * N; j < t.cols; j += THREADS * N) {
		float sum[N], v[N];

		for (int k = 0; k < N; k++)
			sum[k] = 0;
		for (int64_t i = first; i < first + t.topk; i++) {
			float g = gates ? gates[i] : 1;

			if (slots[i] < 0)
				continue;
			load<N>(v, y + t.row(i, slots[i]) * t.cols + j);
			for (int k = 0; k < N; k++)
				sum[k] += v[k] * g;
		}
		store<N>(x + blockIdx.x * t.cols + j, sum);
	}
}

template <int N, class T>
static void combine(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	slot_layout t = layout_of(p, in, r);

	if (t.samples && t.seq && t.cols)
		HD_LAUNCH((bring_back<N, T>), (unsigned)(t.samples * t.seq), THREADS, 0, r, t, (T *)out[0],
			  (const T *)in[0], (const int32_t *)in[1], p->n[8] ? (const float *)in[2] : NULL);
}

/* Each warp has one choice. */
template <int N, class T>
__global__ void __launch_bounds__(THREADS)
	products_of_rows(slot_layout t, float *dg, const T *dx, const T *y, const int32_t *slots)
{
	int64_t i = (int64_t)blockIdx.x * (THREADS / HD_WARP) + threadIdx.x / HD_WARP;
	int32_t slot = i < t.samples * t.seq * t.topk ? slots[i] : -1;
	float sum = 0;

	if (i >= t.samples * t.seq * t.topk)
		return;
	if (slot >= 0) {
		dx += i / t.topk * t.cols;
		y += t.row(i, slot) * t.cols;
	}
	for (int64_t j = threadIdx.x % HD_WARP * N; j < t.cols && slot >= 0; j += HD_WARP * N) {
		float a[N], b[N];

		load<N>(a, dx + j);
		load<N>(b, y + j);
		for (int k = 0; k < N; k++)
			sum += a[k] * b[k];
	}
	sum = warp_sum(sum);
	if (threadIdx.x % HD_WARP == 0)
		dg[i] = sum;
}

template <int N, class T>
static void combine_dg(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	slot_layout t = layout_of(p, in, r);
	int64_t n = t.samples * t.seq * t.topk, warps = THREADS / HD_WARP;

	if (n)
		HD_LAUNCH((products_of_rows<N, T>), (unsigned)((n + warps - 1) / warps), THREADS, 0, r, t,
			  (float *)out[0], (const T *)in[0], (const T *)in[1], (const int32_t *)in[2]);
}

/* -- choice of kernel ---------------------------------------------------------------------------------------------- */
/* Rows are read in vectors if they begin at multiples of 16 bytes. */
#define PICK(function, a, b) \
	template <class T> \
	static void function##_by(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r) \
	{ \
		const int V = 16 / sizeof(T); \
\
		p->n[3] % V == 0 && hd_aligned(a) && hd_aligned(b) ? function<V, T>(p, out, in, r) \
								   : function<1, T>(p, out, in, r); \
	} \
	static void run_##function(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r) \
	{ \
		(p->n[14] == HD_DTYPE_F32 ? function##_by<float> : function##_by<bf16>)(p, out, in, r); \
	}
PICK(dispatch, in[0], out[0])
PICK(combine, in[0], out[0])
PICK(combine_dg, in[0], in[1])

HD_CUDA_KERNEL(dispatch, "dispatch", 0, prepare, run_dispatch);
HD_CUDA_KERNEL(combine, "combine", 0, prepare_combine, run_combine);
HD_CUDA_KERNEL(combine_dg, "combine_dg", 0, prepare_dg, run_combine_dg);
