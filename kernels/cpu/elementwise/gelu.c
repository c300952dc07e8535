/* SPDX-License-Identifier: Apache-2.0
 * gelu and gelu_d, tanh form: (1 + tanh u) / 2 = 1 / (1 + exp(-2u)) = s, so
 *
 *	y = x s		slope = s + x s (1 - s) 2u'	dx = dy slope	with u = sqrt(2/pi) (x + 0.044715 x^3)
 *
 * which takes one exponential and one division, and keeps small values for large negative x. From |x| = FAR on, s is 1
 * or below 2e-38. So x is clamped there, where the exponential is still a normal number. NaN stays NaN.
 *
 * gelu and gelu_slope of bf16 look their values up where that is faster (gelu_table.h); the bits are the same.
 *
 * gelu_slope computes y and the slope from one s, in the time of y alone. gelu_slope_d multiplies by the slope. It
 * also sums the columns of its result, as rounded, while a row is in L1.
 */
#include <config.h>
#include "kernels/cpu/base/columns.h"
#include "kernels/cpu/base/vectors.h"
#include "kernels/cpu/elementwise/gelu_table.h"
#include "kernels/prepare/elementwise.h"

#define TWO_ROOT_2_PI 1.5957691216f
#define CUBIC 0.044715f
#define FAR 9.98f
#define INLINE static inline __attribute__((always_inline))

HD_PREPARE_LOW(prepare, "gelu", "t", "t", hd_prepare_same_dims(c, p, 1, 1))
HD_PREPARE_LOW(prepare_d, "gelu_d", "t", "t", hd_prepare_same_dims(c, p, 2, 1))
HD_PREPARE_LOW(prepare_slope, "gelu_slope", "t", "t", hd_prepare_same_dims(c, p, 1, 2))
HD_PREPARE_LOW(slope_d_shape, "gelu_slope_d", "t", "tf", hd_prepare_slope_d(c, p))

static struct hd_column_sums sums_of(const struct hd_prep *p)
{
	return hd_column_sums_of(p->n[0] / p->n[1], p->n[1]);
}

static int64_t bytes_of(const struct hd_prep *p)
{
	const struct hd_column_sums c = p->n[1] ? sums_of(p) : (struct hd_column_sums){ 0, 0, 1 };

	return hd_column_sums_bytes(&c);
}

static int64_t scratch(const struct hd_kernel_desc *d, int threads)
{
	(void)threads;
	return hd_scratch_of_shape(d, slope_d_shape, bytes_of);
}

static int prepare_slope_d(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(slope_d_shape(d, p, err));
	return hd_scratch_take(p, bytes_of(p), "gelu_slope_d", err);
}

struct point {
	/* x is clamped from below, at -FAR; v is clamped at FAR as well. */
	float x, v, w, e, s;
};

/* All uses of this round alike, so gelu and gelu_slope compute the same bits. w is a factor in every sum that it is
 * part of. So whether products are contracted does not depend on who else reads them. hd_pick selects by bits: from ?:
 * GCC would create three paths of all that follows. */
INLINE struct point at(float x)
{
	struct point a = { .x = hd_pick(x < -FAR, -FAR, x) };

	a.v = hd_pick(a.x > FAR, FAR, a.x);
	a.w = a.v * a.v;
	a.e = hd_expf_within(-TWO_ROOT_2_PI * a.v * (1 + CUBIC * a.w));
	a.s = 1 / (1 + a.e);
	return a;
}

/* 1 - s is computed as e s, without cancellation. */
INLINE float slope(struct point a)
{
	return a.s + a.s * (a.v * (TWO_ROOT_2_PI * (1 + 3 * CUBIC * a.w)) * (a.e * a.s));
}

HD_CLONES static void gelu(float *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		struct point a = at(x[j]);

		y[j] = a.x * a.s;
	}
}

HD_CLONES static void gelu_d(float *dx, const float *x, const float *dy, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		dx[j] = dy[j] * slope(at(x[j]));
}

HD_CLONES void hd_gelu_slope(float *y, float *to, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		struct point a = at(x[j]);

		y[j] = a.x * a.s;
		to[j] = slope(a);
	}
}

INLINE void times_any(void *dx, const void *k, const void *dy, int64_t n, const int low)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		hd_put(dx, low, j, hd_get(k, low, j) * hd_get(dy, low, j));
}

HD_CLONES static void times(void *dx, const void *k, const void *dy, int64_t n)
{
	times_any(dx, k, dy, n, 0);
}

HD_CLONES static void times_low(void *dx, const void *k, const void *dy, int64_t n)
{
	times_any(dx, k, dy, n, 1);
}

/* Computes consecutive rows, and adds them to sums, which are kept in registers. */
INLINE void rows_any(void *dx, const void *k, const void *dy, int64_t rows, int64_t cols, float *sums, const int low)
{
	int64_t whole = cols / HD_TWO * HD_TWO;

	for (int64_t j = 0; j < whole; j += HD_TWO) {
		hd_floats sum[2] = { { 0 } }, by[2], d[2];

		for (int64_t at = j; at < rows * cols; at += cols) {
			hd_fetch_two(k, low, at + rows * cols);
			hd_fetch_two(dy, low, at + rows * cols);
			hd_get_two(by, k, low, low, at);
			hd_get_two(d, dy, low, low, at);
			d[0] *= by[0];
			d[1] *= by[1];
			hd_put_two(dx, low, at, d);
			sum[0] += d[0];
			sum[1] += d[1];
		}
		hd_add_two(sums + j, sum, low);
	}
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = whole; j < cols; j++) {
			float d = hd_get(k, low, i * cols + j) * hd_get(dy, low, i * cols + j);

			hd_put(dx, low, i * cols + j, d);
			sums[j] += low ? hd_of_bf16(hd_bf16_of(d)) : d;
		}
}

HD_CLONES static void rows_wide(void *dx, const void *k, const void *dy, int64_t rows, int64_t cols, float *sums)
{
	rows_any(dx, k, dy, rows, cols, sums, 0);
}

HD_CLONES static void rows_low(void *dx, const void *k, const void *dy, int64_t rows, int64_t cols, float *sums)
{
	rows_any(dx, k, dy, rows, cols, sums, 1);
}

/* Computes elements i to i + n - 1 of y, and of the slope unless it is NULL. n is at most a vector step. */
static void piece(void *y, void *slope, const void *x, int64_t t, int64_t i, int64_t n, int look_up)
{
	float wide[HD_PIECE], to[HD_PIECE], by[HD_PIECE];
	const float *from;

	if (look_up) {
		int64_t done =
			hd_gelu_look_up(hd_into(y, t, i), slope ? hd_into(slope, t, i) : NULL, hd_at(x, t, i), n);

		i += done;
		n -= done;
	}
	from = hd_read(x, t, i, n, wide);
	if (slope) {
		hd_gelu_slope(hd_write_to(y, t, i, to), hd_write_to(slope, t, i, by), from, n);
		hd_write(slope, t, i, n, by);
	} else {
		gelu(hd_write_to(y, t, i, to), from, n);
	}
	hd_write(y, t, i, n, to);
}

static void run_pieces(const struct hd_prep *p, void *y, void *slope, const void *x, const struct hd_run *r)
{
	int64_t n = hd_used(r, p->n[0]), t = p->n[14], step = hd_vector_step(t);
	int look_up = t == HD_DTYPE_BF16 && hd_gelu_table_fast();

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += step)
		piece(y, slope, x, t, i, hd_min(step, n - i), look_up);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	run_pieces(p, out[0], NULL, in[0], r);
}

static void run_slope(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	run_pieces(p, out[0], out[1], in[0], r);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = hd_used(r, p->n[0]), t = p->n[14], step = hd_vector_step(t);

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += step) {
		float x[HD_PIECE], dy[HD_PIECE], dx[HD_PIECE];
		int64_t k = hd_min(step, n - i);

		gelu_d(hd_write_to(out[0], t, i, dx), hd_read(in[0], t, i, k, x), hd_read(in[1], t, i, k, dy), k);
		hd_write(out[0], t, i, k, dx);
	}
}

/* Computes the rows of a block, and their sums. */
static void block_d(const struct hd_prep *p, void *const *out, void *const *in, int64_t block)
{
	const struct hd_column_sums c = sums_of(p);
	int64_t t = p->n[14], cols = c.cols, to = hd_min(c.rows, (block + 1) * c.block);
	float *sums = (float *)hd_scratch() + block * cols;

	memset(sums, 0, (size_t)cols * sizeof(*sums));
	for (int64_t i = block * c.block; i < to; i += HD_STRIP)
		(t == HD_DTYPE_BF16 ? rows_low : rows_wide)(hd_into(out[0], t, i * cols), hd_at(in[0], t, i * cols),
							    hd_at(in[1], t, i * cols), hd_min(HD_STRIP, to - i), cols,
							    sums);
}

static void run_slope_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = hd_used(r, p->n[0]), t = p->n[14];

	if (p->n[1]) {
		const struct hd_column_sums c = sums_of(p);
		int64_t blocks = hd_column_sums_blocks(&c);

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
		for (int64_t b = 0; b < blocks; b++)
			block_d(p, out, in, b);
		hd_column_sums_join(&c, 0, c.cols, out[1], r->acc);
		return;
	}
#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += HD_CHUNK)
		(t == HD_DTYPE_BF16 ? times_low : times)(hd_into(out[0], t, i), hd_at(in[0], t, i), hd_at(in[1], t, i),
							 hd_min(HD_CHUNK, n - i));
}

const struct hd_kernel hd_cpu_gelu = { .name = "gelu", .flags = HD_K_ROWS, .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_gelu_d = { .name = "gelu_d", .flags = HD_K_ROWS, .prepare = prepare_d, .run = run_d };
const struct hd_kernel hd_cpu_gelu_slope = {
	.name = "gelu_slope", .flags = HD_K_ROWS, .prepare = prepare_slope, .run = run_slope
};
const struct hd_kernel hd_cpu_gelu_slope_d = { .name = "gelu_slope_d",
					       .flags = HD_K_ROWS | HD_K_ACC_REST,
					       .prepare = prepare_slope_d,
					       .scratch = scratch,
					       .run = run_slope_d };
