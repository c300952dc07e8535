/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/rows/norm_sums.h - norm_d and sums of columns in one pass over the rows.
 *
 * ROW threads have a row, with K vectors of N columns each, and keep the sums of their columns in registers.  A
 * block has several places for rows, each of ROW threads.  Threads request their next row before they add up the
 * present one; otherwise memory would idle during each sum.
 */
#ifndef HD_KERNELS_CUDA_ROWS_NORM_SUMS_H
#define HD_KERNELS_CUDA_ROWS_NORM_SUMS_H
#include "kernels/cuda/base/mma.h"
#include "kernels/cuda/rows/norm.h"

#define STAGES 2 /* rows of bf16 at a place: one arrives while the other is processed */
#define UNIT 8   /* columns of a unit; a thread has one to three units */
/* threads of a block if a warp has a row: one block per multiprocessor, 168 registers per thread */
#define WARP_THREADS 384
#define LONG_THREADS 256 /* threads of a block if more threads have a row, or the row's threads if these are more */
#define LONG_BLOCKS 512  /* threads of a multiprocessor in that case, with 128 registers each */
#define MOST_COLS (2 * 512 * UNIT)

/* r: what is added to dx, or NULL. */
template <class T, class W> struct norm_d_args {
	T *dx;
	const T *r, *x;
	const W *w;
	const float *rstd, *mean;
	const T *dy;
	int64_t rows, cols;
	float each;
};

/* -- host side: the distribution of rows --------------------------------------------------------------------------- */
/* Returns the number of threads of a row.  Three units of fp32 would not fit in registers. */
static inline int row_of(int64_t cols, int low)
{
	int row = HD_WARP;

	if (low && cols <= 3 * HD_WARP * UNIT)
		return row;
	while (row < 512 && 2 * row * UNIT < cols)
		row *= 2;
	return row;
}
static HD_DEV __host__ constexpr int summed_threads(int row)
{
	return row == HD_WARP ? WARP_THREADS : row > LONG_THREADS ? row : LONG_THREADS;
}
static HD_DEV __host__ constexpr int summed_each(int row) /* blocks per multiprocessor */
{
	return row == HD_WARP ? 1 : LONG_BLOCKS / summed_threads(row);
}
/* Returns the number of blocks.  Each place gets at least two rows, if the rows suffice. */
static inline int64_t summed_blocks(int64_t rows, int64_t cols, int low)
{
	int row = row_of(cols, low), places = summed_threads(row) / row;
	int64_t blocks = hd_least(132 * summed_each(row), rows / (2 * places));

	return blocks < 1 ? 1 : blocks;
}

/* -- a row --------------------------------------------------------------------------------------------------------- */
typedef vec<4, float> four;

template <int K, int N, class T> struct norm_row {
	vec<N, T> x[K], d[K], r[K];
	float mu, rs;
};

/* Returns whether vector k of this thread is in the row.  All but those of the last unit always are. */
template <int K, int ROW, int N> HD_DEV bool has(int k, int first, int cols)
{
	return k < K - UNIT / N || first + k * ROW * N < cols;
}

template <int K, int N, class T> HD_DEV void none(norm_row<K, N, T> *v)
{
#pragma unroll
	for (int k = 0; k < K; k++)
		v->x[k] = v->d[k] = v->r[k] = {};
}

/* Loads a row.  Elements past its end are 0. */
template <int K, int ROW, int N, class T, class W>
HD_DEV void fetch_here(norm_row<K, N, T> *v, const norm_d_args<T, W> &a, int64_t row, int first)
{
	int64_t at = row * a.cols + first;

	if (row >= a.rows) {
		none(v);
		return;
	}
#pragma unroll
	for (int k = 0; k < K; k++) {
		int64_t from = at + k * ROW * N;
		bool in = has<K, ROW, N>(k, first, (int)a.cols);

		v->x[k] = in ? fetch<N>(a.x + from) : vec<N, T>{};
		v->d[k] = in ? fetch<N>(a.dy + from) : vec<N, T>{};
		v->r[k] = in && a.r ? fetch<N>(a.r + from) : vec<N, T>{};
	}
}

static HD_DEV void copy_vector(void *to, const void *from)
{
	copy_piece((bf16 *)to, (const bf16 *)from, 1);
}

/* Copies the row to a stage in shared memory.  A thread copies and reads only its own vectors, so it waits for no
 * other thread. */
template <int K, int ROW, int N, class T, class W>
HD_DEV void copy_next(vec<N, T> *stage, const norm_d_args<T, W> &a, int64_t row, int first)
{
	const int STEP = summed_threads(ROW);
	int64_t at = row * a.cols + first;

	stage += threadIdx.x;
	if (row < a.rows)
#pragma unroll
		for (int k = 0; k < K; k++)
			if (has<K, ROW, N>(k, first, (int)a.cols)) {
				copy_vector(stage + 3 * k * STEP, a.x + at + k * ROW * N);
				copy_vector(stage + (3 * k + 1) * STEP, a.dy + at + k * ROW * N);
				if (a.r)
					copy_vector(stage + (3 * k + 2) * STEP, a.r + at + k * ROW * N);
			}
	copies_commit();
}
template <int K, int ROW, int N, class T, class W>
HD_DEV void take_copy(norm_row<K, N, T> *v, const vec<N, T> *stage, const norm_d_args<T, W> &a, int64_t row, int first)
{
	const int STEP = summed_threads(ROW);

	if (row >= a.rows) {
		none(v);
		return;
	}
	stage += threadIdx.x;
#pragma unroll
	for (int k = 0; k < K; k++) {
		bool in = has<K, ROW, N>(k, first, (int)a.cols);

		v->x[k] = in ? stage[3 * k * STEP] : vec<N, T>{};
		v->d[k] = in ? stage[(3 * k + 1) * STEP] : vec<N, T>{};
		v->r[k] = in && a.r ? stage[(3 * k + 2) * STEP] : vec<N, T>{};
	}
}

/* Reads the copy again.  The compiler must not keep what it read before, or anything computed from it. */
template <int K, int ROW, int N, class T, class W>
HD_DEV void reload_copy(norm_row<K, N, T> *v, const vec<N, T> *stage, const norm_d_args<T, W> &a, int64_t row,
			int first)
{
#ifndef HD_SIM
	asm volatile("" ::: "memory");
#endif
	take_copy<K, ROW, N>(v, stage, a, row, first);
}

/* Loads the row's rstd and mean, whose latency is long too. */
template <int K, int N, class T, class W>
HD_DEV void fetch_numbers(norm_row<K, N, T> *v, const norm_d_args<T, W> &a, int64_t row)
{
	v->rs = row < a.rows ? a.rstd[row] : 0;
	v->mu = row < a.rows && a.mean ? a.mean[row] : 0;
}

/* Stores the weights in shared memory, in the order in which threads read them, so that they need no registers. */
template <int K, int ROW, int N, class W> HD_DEV void keep_weights(four (*weights)[ROW], const W *w, int cols)
{
	int first = (int)threadIdx.x * N;

	if (threadIdx.x < ROW)
		for (int k = 0; k < K; k++)
			for (int i = 0; i < N; i += 4) {
				float x[4] = {};

				if (w && has<K, ROW, N>(k, first, cols))
					load<4>(x, w + first + k * ROW * N + i);
				weights[(k * N + i) / 4][threadIdx.x].set(x);
			}
	__syncthreads();
}

template <int K, int N> struct column_sums {
	float dw[K][N], db[K][N], all[K][N];
};

/* Adds the row to the sums for dw and db.  sum, dot: over this thread's columns. */
template <int K, int ROW, int N, class T>
HD_DEV void take_row(column_sums<K, N> *s, const norm_row<K, N, T> &v, const four (*weights)[ROW], float *sum,
		     float *dot)
{
#pragma unroll
	for (int k = 0; k < K; k++)
		for (int i = 0; i < N; i++) {
			float w = weights[(k * N + i) / 4][threadIdx.x % ROW].at(i % 4), dy = v.d[k].at(i),
			      xhat = (v.x[k].at(i) - v.mu) * v.rs;

			s->dw[k][i] += dy * xhat;
			s->db[k][i] += dy;
			*sum += w * dy;
			*dot += w * dy * xhat;
		}
}

/* Writes dx, and adds it as rounded to the third sums.  dx may be r or dy: each thread reads elements before it
 * writes them. */
template <int K, int ROW, int N, class T>
HD_DEV void put_row_d(T *dx, column_sums<K, N> *s, const norm_row<K, N, T> &v, const four (*weights)[ROW], float sum,
		      float dot, int first, int cols)
{
#pragma unroll
	for (int k = 0; k < K; k++)
		if (has<K, ROW, N>(k, first, cols)) {
			vec<N, T> out;
			float y[N];

			for (int i = 0; i < N; i++) {
				float w = weights[(k * N + i) / 4][threadIdx.x % ROW].at(i % 4);

				y[i] = v.r[k].at(i) +
				       v.rs * (w * v.d[k].at(i) - sum - (v.x[k].at(i) - v.mu) * v.rs * dot);
			}
			out.set(y);
			put<N>(dx + first + k * ROW * N, out);
			for (int i = 0; i < N; i++)
				s->all[k][i] += out.at(i);
		}
}

/* Computes two sums over the threads of a row.  Rows alternate between two scratch areas, so values that are still
 * read are not overwritten. */
template <int ROW, int WARPS> HD_DEV void row_sums(float *a, float *b, float (*scratch)[WARPS])
{
	int warp = (int)threadIdx.x / HD_WARP, first = warp / (ROW / HD_WARP) * (ROW / HD_WARP);

	*a = warp_sum(*a);
	*b = warp_sum(*b);
	if (ROW == HD_WARP)
		return;
	if (threadIdx.x % HD_WARP == 0) {
		scratch[0][warp] = *a;
		scratch[1][warp] = *b;
	}
	__syncthreads();
	*a = scratch[0][first];
	*b = scratch[1][first];
	for (int i = 1; i < ROW / HD_WARP; i++) {
		*a += scratch[0][first + i];
		*b += scratch[1][first + i];
	}
}

/* Adds up the sums of a block's places, in their order, and writes them to part. */
template <int ROW, int N, int PLACES> HD_DEV void put_places(float *part, const float *sum, four *lanes, int cols)
{
	int place = (int)threadIdx.x / ROW, mine = (int)threadIdx.x % ROW * N;

	for (int i = 0; i < N; i += 4)
		lanes[(place * ROW * N + mine + i) / 4].set(sum + i);
	__syncthreads();
	for (int i = (int)threadIdx.x; i < ROW * N / 4 && 4 * i < cols; i += ROW * PLACES) {
		float x[4], y[4];

		floats(x, lanes[i]);
		for (int p = 1; p < PLACES; p++) {
			floats(y, lanes[p * ROW * N / 4 + i]);
			for (int j = 0; j < 4; j++)
				x[j] += y[j];
		}
		store<4>(part + 4 * i, x);
	}
	__syncthreads();
}

template <int K, int ROW, int N, int PLACES>
HD_DEV void put_sums(float *part, const float (*sum)[N], four *lanes, int cols)
{
	int mine = (int)threadIdx.x % ROW * N;

#pragma unroll
	for (int k = 0; k < K; k++, part += ROW * N, cols -= ROW * N) {
		if constexpr (PLACES > 1)
			put_places<ROW, N, PLACES>(part, sum[k], lanes, cols);
		else if (mine < cols)
			store<N>(part + mine, sum[k]);
	}
}

/* The layout of a block's shared memory: weights, then stages.  At the end, the sums of its places take the stages'
 * memory. */
template <int K, int ROW, int N, class T> struct summed_shared {
	static const int PLACES = summed_threads(ROW) / ROW, W = K * ROW * N / 4,
			 STAGE = sizeof(T) == 2 ? 3 * K * summed_threads(ROW) : 0,
			 LANES = PLACES > 1 ? PLACES *ROW *N / 4 : 0,
			 AFTER = STAGES * STAGE > LANES ? STAGES *STAGE : LANES, BYTES = 16 * (W + AFTER);
};

/* part: for each block the sums for dw and db (the first `weights` of these), and with `sums` those of dx as it was
 * rounded. */
template <int K, int ROW, int N, class T, class W>
__global__ void __launch_bounds__(summed_threads(ROW), summed_each(ROW))
	norm_d_summed(norm_d_args<T, W> a, float *part, int weights, int sums)
{
	typedef summed_shared<K, ROW, N, T> shared;
	const int PLACES = shared::PLACES, WARPS = summed_threads(ROW) / HD_WARP, STAGE = shared::STAGE;
	const bool STAGED = STAGE > 0;
	HD_DYNAMIC_SHARED(four, begin_shared);
	HD_SHARED(float, scratch, [2][2][WARPS]);
	four(*w)[ROW] = (four(*)[ROW])begin_shared, *lanes = begin_shared + shared::W;
	vec<N, T> *stages = (vec<N, T> *)lanes;
	int first = (int)threadIdx.x % ROW * N, cols = (int)a.cols, turn = 0;
	int64_t row = blockIdx.x * (int64_t)PLACES + threadIdx.x / ROW, step = (int64_t)gridDim.x * PLACES;
	column_sums<K, N> s = {};
	norm_row<K, N, T> v, next;

	fetch_numbers(&next, a, row);
	if (STAGED)
		copy_next<K, ROW, N>(stages, a, row, first);
	keep_weights<K, ROW, N>(w, a.w, cols);
	for (int64_t begin = (int64_t)blockIdx.x * PLACES; begin < a.rows; begin += step, row += step, turn ^= 1) {
		float sum = 0, dot = 0;

		v = next;
		fetch_numbers(&next, a, row + step);
		if (STAGED) {
			copy_next<K, ROW, N>(stages + (turn ^ 1) * STAGE, a, row + step, first);
			copies_wait<1>();
			take_copy<K, ROW, N>(&v, stages + turn * STAGE, a, row, first);
		} else {
			fetch_here<K, ROW, N>(&v, a, row, first);
		}
		take_row<K, ROW, N>(&s, v, w, &sum, &dot);
		row_sums<ROW, WARPS>(&sum, &dot, scratch[turn]);
		sum = a.mean ? sum * a.each : 0;
		if (STAGED) /* read again: registers cannot hold the row together with what was computed from it */
			reload_copy<K, ROW, N>(&v, stages + turn * STAGE, a, row, first);
		if (row < a.rows)
			put_row_d<K, ROW, N>(a.dx + row * cols, &s, v, w, sum, dot * a.each, first, cols);
	}
	__syncthreads(); /* no thread reads a stage any more */
	part += blockIdx.x * (int64_t)(weights + sums) * cols;
	if (weights > 0)
		put_sums<K, ROW, N, PLACES>(part, s.dw, lanes, cols);
	if (weights > 1)
		put_sums<K, ROW, N, PLACES>(part + cols, s.db, lanes, cols);
	if (sums)
		put_sums<K, ROW, N, PLACES>(part + weights * cols, s.all, lanes, cols);
}

template <class T, class W> struct launch_summed {
	const norm_d_args<T, W> &a;
	float *part;
	int weights, sums;
	const struct hd_run *r;
	/* If not NULL, nothing is launched; the kernel's shared memory is requested, and the result stored here. */
	int *allow;

	template <int K, int ROW, int N> void start() const
	{
		const int low = sizeof(T) == 2;
		const size_t bytes = summed_shared<K, ROW, N, T>::BYTES;

		if (allow) {
			*allow = hd_cuda_allow_shared("norm_d", (const void *)norm_d_summed<K, ROW, N, T, W>, bytes,
						      NULL);
			return;
		}
		HD_LAUNCH((norm_d_summed<K, ROW, N, T, W>), (unsigned)summed_blocks(a.rows, a.cols, low),
			  summed_threads(ROW), bytes, r, a, part, weights, sums);
	}
	template <int UNITS, int ROW> void launch() const
	{
		const int N = 16 / sizeof(T);

		start<UNITS * UNIT / N, ROW, N>();
	}
	void warps() const
	{
		if (a.cols <= HD_WARP * UNIT)
			launch<1, HD_WARP>();
		else if (a.cols <= 2 * HD_WARP * UNIT)
			launch<2, HD_WARP>();
		else
			launch<sizeof(T) == 2 ? 3 : 2, HD_WARP>();
	}
	void any() const
	{
		switch (row_of(a.cols, sizeof(T) == 2)) {
		case 32: warps(); break;
		case 64: launch<2, 64>(); break;
		case 128: launch<2, 128>(); break;
		case 256: launch<2, 256>(); break;
		default: launch<2, 512>();
		}
	}
};

#endif
