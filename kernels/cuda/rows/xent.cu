/* SPDX-License-Identifier: Apache-2.0
 * xent, xent_combine, xent_d and xent_both: cross entropy over a slice of the vocabulary; the equations are in the
 * reference.
 *
 * One block per row.  xent reads the logits once.  Each thread keeps its own maximum and its sum of exponentials
 * around it, and these are joined at the end (Milakov and Gimelshein 2018).  Exponentials are 2^(x log2 e), one
 * multiplication and one instruction: with expf the arithmetic would take longer than memory.  The maximum is
 * subtracted first, which is exact where the result is large.
 *
 * xent_both copies a row into shared memory asynchronously.  A thread reads back only what it has copied itself, so
 * it waits for no other thread; only the reductions need the whole block.  Two rows of 50,304 bf16 fit into an SM of
 * 228 KB: while one arrives, the other is computed.  If a row does not fit, its end is read from memory twice.  The
 * order of additions is that of xent, so the bits are the same.
 */
#include "kernels/cuda/base/mma.h"
extern "C" {
#include "kernels/prepare/elementwise.h"
#include "kernels/prepare/xent.h"
}

#define THREADS 256
#define MANY 4 /* vectors that a thread reads at once */
#define LOG2_E 1.4426950409f
#define ROUND (MANY * THREADS * 16) /* bytes that a block reads at once */
#define AHEAD 6                     /* rounds in flight */
#define HELD (14 * ROUND)           /* maximum bytes of a row, on a GPU where a block may have 227 KB */

HD_CUDA_PREPARE_TYPES(prepare, "xent", "t*", "f", hd_prepare_xent(c, p))
HD_CUDA_PREPARE_TYPES(prepare_combine, "xent_combine", "f", "f", hd_prepare_same_dims(c, p, 3, 1))
HD_CUDA_PREPARE_TYPES(prepare_d, "xent_d", "t*f", "t", hd_prepare_xent_d(c, p))
HD_CUDA_PREPARE_TYPES(prepare_both_shared, "xent_both", "t*", "tf", hd_prepare_xent_both(c, p))

/* Loads this thread's MANY vectors at j, j + THREADS * N and so on, as far as the row has them. */
template <int N, class T> HD_DEV void fetch_logits(vec<N, T> *v, const T *z, int j, int cols)
{
#pragma unroll
	for (int i = 0; i < MANY; i++)
		if (j + i * THREADS * N < cols)
			v[i] = fetch<N>(z + j + i * THREADS * N);
}

/* Sets padding, from column `real` on, to -inf. */
template <int N> HD_DEV void no_padding(float *v, int j, int real)
{
	if (j + N > real)
		for (int k = 0; k < N; k++)
			v[k] = j + k < real ? v[k] : -INFINITY;
}

/* Adds vectors, as fetch_logits loads them, to the maximum and to the sum of exponentials around it.  While all are
 * -inf, the sum is around 0, so that NaN shows and nothing else counts. */
template <int N> HD_DEV void add_logits(float *top, float *part, const float (*v)[N], int j, int real)
{
	float high = *top, from, sum = 0;

	for (int i = 0; i < MANY; i++)
		for (int k = 0; k < N; k++)
			high = fmaxf(high, v[i][k]);
	if (high > *top)
		*part *= hd_exp2((*top - high) * LOG2_E);
	*top = high;
	from = high == -INFINITY ? 0 : high;
#pragma unroll
	for (int i = 0; i < MANY; i++)
		if (j + i * THREADS * N < real)
			for (int k = 0; k < N; k++)
				sum += hd_exp2((v[i][k] - from) * LOG2_E);
	*part += sum;
}

/* Adds a round of the row that begins at `from`. */
template <int N, class T> HD_DEV void add_round(float *top, float *part, const T *from, int j, int real)
{
	vec<N, T> raw[MANY] = {};
	float v[MANY][N];

	fetch_logits<N>(raw, from, j, real);
#pragma unroll
	for (int i = 0; i < MANY; i++) {
		floats(v[i], raw[i]);
		no_padding<N>(v[i], j + i * THREADS * N, real);
	}
	add_logits<N>(top, part, v, j, real);
}

/* Joins the threads' maxima and sums to those of the row, which all threads get. */
HD_DEV void join_threads(float *top, float *part, float *scratch)
{
	float whole = block_max<THREADS>(*top, scratch);

	*part = *top == -INFINITY ? *part : *part * hd_exp2((*top - whole) * LOG2_E);
	*part = block_sum<THREADS>(*part, scratch);
	*top = whole;
}

template <int N, class T>
__global__ void __launch_bounds__(THREADS) xent(const T *z, const int32_t *targets, float *max, float *sum,
						float *target, int64_t cols, int64_t real, int64_t first)
{
	HD_SHARED(float, scratch, [THREADS / HD_WARP]);
	int64_t row = blockIdx.x, t = targets[row] - first;
	float top = -INFINITY, part = 0;

	z += row * cols;
	for (int j = (int)threadIdx.x * N; j < real; j += MANY * THREADS * N)
		add_round<N>(&top, &part, z, j, (int)real);
	join_threads(&top, &part, scratch);
	if (threadIdx.x == 0) {
		max[row] = top;
		sum[row] = part;
		target[row] = t >= 0 && t < real ? to_float(z[t]) : 0;
	}
}

struct xent_combine {
	float *y;
	const float *max, *whole, *sum;

	template <int N> HD_DEV void at(int64_t i) const
	{
		for (int k = 0; k < N; k++)
			y[i + k] = sum[i + k] * expf(max[i + k] - whole[i + k]);
	}
};

struct xent_row {
	float top, d, scale;
	int target, real; /* column of the target; -1: not in this slice */
};

/* Replaces the logits v of columns j ... by their gradients. */
template <int N> HD_DEV void xent_slope(float *v, const xent_row &x, int j)
{
	for (int k = 0; k < N; k++)
		v[k] = hd_exp2((v[k] - x.top) * LOG2_E) * x.scale;
	if (x.target >= j && x.target < j + N)
		for (int k = 0; k < N; k++)
			v[k] -= j + k == x.target ? x.d : 0;
	if (j + N > x.real)
		for (int k = 0; k < N; k++)
			v[k] = j + k < x.real ? v[k] : 0;
}

/* Computes the gradients of a round of the row.  dz may be `from`: each thread reads elements before it writes them. */
template <int N, class T> HD_DEV void slope_round(T *dz, const T *from, const xent_row &x, int j, int cols)
{
	vec<N, T> raw[MANY] = {};

	fetch_logits<N>(raw, from, j, cols);
#pragma unroll
	for (int i = 0; i < MANY; i++) {
		int at = j + i * THREADS * N;
		float v[N];

		if (at >= cols)
			break;
		floats(v, raw[i]);
		xent_slope<N>(v, x, at);
		store<N>(dz + at, v);
	}
}

template <int N, class T>
__global__ void __launch_bounds__(THREADS)
	xent_d(T *dz, const T *z, const int32_t *targets, const float *max, const float *sum, const float *dnll,
	       int64_t cols, int64_t real, int64_t first)
{
	int64_t row = blockIdx.x, t = targets[row] - first;
	xent_row x = { max[row], dnll[row], dnll[row] / sum[row], t >= 0 && t < real ? (int)t : -1, (int)real };

	z += row * cols;
	dz += row * cols;
	for (int j = (int)threadIdx.x * N; j < cols; j += MANY * THREADS * N)
		slope_round<N>(dz, z, x, j, (int)cols);
}

/* -- both in one pass ---------------------------------------------------------------------------------------------- */
/* Starts to copy this thread's vectors of a round to shared memory, as far as the row has them. */
template <int N, class T> HD_DEV void bring_round(T *to, const T *z, int j, int cols)
{
#pragma unroll
	for (int i = 0; i < MANY; i++)
		if (j + i * THREADS * N < cols)
			copy_piece((bf16 *)(to + j + i * THREADS * N), (const bf16 *)(z + j + i * THREADS * N), 1);
	copies_commit();
}

/* Adds the columns that are held. */
template <int N, class T> HD_DEV void add_held(float *top, float *part, T *row, const T *z, int held, int real)
{
	const int COLS = MANY * THREADS * N;
	int j = (int)threadIdx.x * N;

	for (int k = 0; k < AHEAD; k++)
		bring_round<N>(row, z, j + k * COLS, held);
	for (; j < held; j += COLS) {
		copies_wait<AHEAD - 1>();
		if (j < real)
			add_round<N>(top, part, (const T *)row, j, (int)hd_least(held, real));
		bring_round<N>(row, z, j + AHEAD * COLS, held);
	}
	copies_wait<0>();
}

struct xent_rows {
	const int32_t *targets;
	float *max, *sum, *target;
	double value;
	const struct hd_cuda_step *scaled;
	int64_t first;
	int cols, real, held; /* held: columns that stay in shared memory, whole rounds or all; 0 if N is 1 */
};

/* dz may be z. */
template <int N, class T> __global__ void __launch_bounds__(THREADS, 2) xent_both(T *dz, const T *z, xent_rows a)
{
	HD_SHARED(float, scratch, [THREADS / HD_WARP]);
	HD_DYNAMIC_SHARED(T, row);
	int64_t t = a.targets[blockIdx.x] - a.first;
	float top = -INFINITY, part = 0, d = (float)(a.scaled ? a.value * a.scaled->loss_scale : a.value);
	int begin = (int)threadIdx.x * N, target = t >= 0 && t < a.real ? (int)t : -1;
	xent_row x;

	z += (int64_t)blockIdx.x * a.cols;
	dz += (int64_t)blockIdx.x * a.cols;
	if (threadIdx.x == 0)
		a.target[blockIdx.x] = target >= 0 ? to_float(z[target]) : 0;
	if (N > 1)
		add_held<N>(&top, &part, row, z, a.held, a.real);
	for (int j = a.held + begin; j < a.real; j += MANY * THREADS * N)
		add_round<N>(&top, &part, z, j, a.real);
	join_threads(&top, &part, scratch);
	if (threadIdx.x == 0) {
		a.max[blockIdx.x] = top;
		a.sum[blockIdx.x] = part;
	}
	x = { top, d, d / part, target, a.real };
	for (int j = begin; N > 1 && j < a.held; j += MANY * THREADS * N)
		slope_round<N>(dz, (const T *)row, x, j, a.held);
	for (int j = a.held + begin; j < a.cols; j += MANY * THREADS * N)
		slope_round<N>(dz, z, x, j, a.cols);
}

template <class T>
static void launch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int V = 16 / sizeof(T);
	const T *z = (const T *)in[0];

	if (!p->n[0])
		return;
	if (p->n[1] % V == 0 && hd_aligned(z))
		HD_LAUNCH((xent<V, T>), (unsigned)p->n[0], THREADS, 0, r, z, (const int32_t *)in[1], (float *)out[0],
			  (float *)out[1], (float *)out[2], p->n[1], p->n[2], p->n[3]);
	else
		HD_LAUNCH((xent<1, T>), (unsigned)p->n[0], THREADS, 0, r, z, (const int32_t *)in[1], (float *)out[0],
			  (float *)out[1], (float *)out[2], p->n[1], p->n[2], p->n[3]);
}

template <class T>
static void launch_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int V = 16 / sizeof(T);
	const T *z = (const T *)in[0];
	T *dz = (T *)out[0];

	if (!p->n[0] || !p->n[1])
		return;
	if (p->n[1] % V == 0 && hd_aligned(z) && hd_aligned(dz))
		HD_LAUNCH((xent_d<V, T>), (unsigned)p->n[0], THREADS, 0, r, dz, z, (const int32_t *)in[1],
			  (const float *)in[2], (const float *)in[3], (const float *)in[4], p->n[1], p->n[2], p->n[3]);
	else
		HD_LAUNCH((xent_d<1, T>), (unsigned)p->n[0], THREADS, 0, r, dz, z, (const int32_t *)in[1],
			  (const float *)in[2], (const float *)in[3], (const float *)in[4], p->n[1], p->n[2], p->n[3]);
}

/* Sets p->n[5], the number of columns to hold: 0 on a device whose blocks cannot have that much memory. */
template <class T> static void hold(struct hd_prep *p)
{
	const int V = 16 / sizeof(T);
	struct hd_err none = {};
	int64_t held = hd_least(p->n[1], HELD / (int64_t)sizeof(T));

	if (hd_cuda_allow_shared("xent_both", (const void *)xent_both<V, T>, (size_t)held * sizeof(T), &none) < 0)
		held = 0;
	p->n[5] = held;
}

static int prepare_both(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_both_shared(d, p, err));
	p->n[14] == HD_DTYPE_F32 ? hold<float>(p) : hold<bf16>(p);
	return HD_OK;
}

template <class T>
static void launch_both(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int V = 16 / sizeof(T);
	const T *z = (const T *)in[0];
	T *dz = (T *)out[0];
	xent_rows a = {};

	if (!p->n[0])
		return;
	a.targets = (const int32_t *)in[1];
	a.max = (float *)out[1], a.sum = (float *)out[2], a.target = (float *)out[3];
	a.value = p->f[0], a.scaled = p->n[4] ? hd_cuda_step_of(r) : NULL;
	a.cols = (int)p->n[1], a.real = (int)p->n[2], a.first = p->n[3];
	if (p->n[1] % V == 0 && hd_aligned(z) && hd_aligned(dz)) {
		a.held = (int)p->n[5];
		HD_LAUNCH((xent_both<V, T>), (unsigned)p->n[0], THREADS, (size_t)a.held * sizeof(T), r, dz, z, a);
	} else {
		HD_LAUNCH((xent_both<1, T>), (unsigned)p->n[0], THREADS, 0, r, dz, z, a);
	}
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? launch<float>(p, out, in, r) : launch<bf16>(p, out, in, r);
}

static void run_combine(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	xent_combine f = { (float *)out[0], (const float *)in[0], (const float *)in[1], (const float *)in[2] };

	hd_each<1>(r, p->n[0], 1, f);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? launch_d<float>(p, out, in, r) : launch_d<bf16>(p, out, in, r);
}

static void run_both(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? launch_both<float>(p, out, in, r) : launch_both<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(xent, "xent", 0, prepare, run);
HD_CUDA_KERNEL(xent_combine, "xent_combine", 0, prepare_combine, run_combine);
HD_CUDA_KERNEL(xent_d, "xent_d", 0, prepare_d, run_d);
HD_CUDA_KERNEL(xent_both, "xent_both", 0, prepare_both, run_both);
