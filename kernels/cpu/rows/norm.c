/* SPDX-License-Identifier: Apache-2.0
 * norm, norm_d and norm_dw: layer norm and RMS norm; the equations are in the reference.
 *
 * A row stays in L1 over its passes, so memory is read once. The variance is computed around the mean (two passes),
 * since the difference of two large sums would cancel. norm_dw sums columns, and so does norm_d, over the same rows
 * while they are in L1. These sums are computed in blocks of rows, which are added in order (columns.h). That also
 * keeps the rounding of long sums small.
 *
 * x, y, dx and dy may be bf16 (`low`), w and b too (`wlow`); everything else is fp32. A function is compiled for each
 * combination.
 */
#include <config.h>
#include <math.h>
#include "kernels/cpu/base/columns.h"
#include "kernels/cpu/base/vectors.h"
#include "kernels/prepare/norm.h"

HD_PREPARE_LOW(prepare, "norm", "tu", "tf", hd_prepare_norm(c, p))
HD_PREPARE_LOW(prepare_d_shared, "norm_d", "tuf*", "tf", hd_prepare_norm_d(c, p))
HD_PREPARE_LOW(prepare_d_add_shared, "norm_d_add", "ttuf*", "tf", hd_prepare_norm_d_add(c, p))
HD_PREPARE_LOW(prepare_dw_shared, "norm_dw", "tf*", "f", hd_prepare_norm_dw(c, p))

/* Checks that the last input, dy, has the dtype of x, which the letters cannot express. */
static int same_dy(const char *kernel, const struct hd_kernel_desc *d, struct hd_err *err)
{
	if (d->in[d->nin - 1].dtype == d->in[0].dtype)
		return HD_OK;
	return hd_err_set(err, HD_ENOTSUP, "%s: input %u has dtype %s, it must be %s", kernel, d->nin - 1,
			  hd_dtype_name(d->in[d->nin - 1].dtype), hd_dtype_name(d->in[0].dtype));
}

/* Returns the column sums of norm_d: its results after the first. */
static struct hd_column_sums sums_d(const struct hd_prep *p)
{
	return hd_column_sums_of(p->n[0], (p->n[3] + p->n[4]) * p->n[1]);
}

static int64_t bytes_d(const struct hd_prep *p)
{
	const struct hd_column_sums c = sums_d(p);

	return hd_column_sums_bytes(&c);
}

static int prepare_d(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_d_shared(d, p, err));
	HD_TRY(same_dy("norm_d", d, err));
	return hd_scratch_take(p, bytes_d(p), "norm_d", err);
}

static int64_t scratch_d(const struct hd_kernel_desc *d, int threads)
{
	(void)threads;
	return hd_scratch_of_shape(d, prepare_d_shared, bytes_d);
}

static int prepare_d_add(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_d_add_shared(d, p, err));
	HD_TRY(same_dy("norm_d_add", d, err));
	return hd_scratch_take(p, bytes_d(p), "norm_d_add", err);
}

static int64_t scratch_d_add(const struct hd_kernel_desc *d, int threads)
{
	(void)threads;
	return hd_scratch_of_shape(d, prepare_d_add_shared, bytes_d);
}

static struct hd_column_sums sums_dw(const struct hd_prep *p)
{
	return hd_column_sums_of(p->n[0], (p->n[3] ? 2 : 1) * p->n[1]);
}

static int64_t bytes_dw(const struct hd_prep *p)
{
	const struct hd_column_sums c = sums_dw(p);

	return hd_column_sums_bytes(&c);
}

static int prepare_dw(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_dw_shared(d, p, err));
	HD_TRY(same_dy("norm_dw", d, err));
	return hd_scratch_take(p, bytes_dw(p), "norm_dw", err);
}

static int64_t scratch_dw(const struct hd_kernel_desc *d, int threads)
{
	(void)threads;
	return hd_scratch_of_shape(d, prepare_dw_shared, bytes_dw);
}

#define INLINE HD_INLINE
#define MOST_ROWS 2

struct stats {
	float mean, rstd;
};

/* Returns the sum of x - mean, or of its squares. */
INLINE float row_sum(const void *x, float mean, const int squares, int64_t n, const int low)
{
	hd_floats sums[HD_SUMS] = { { 0 } }, v[HD_SUMS];
	int64_t j = 0;
	float rest = 0;

	for (; j + HD_STRIDE <= n; j += HD_STRIDE) {
		hd_get_two(v, x, low, low, j);
		hd_get_two(v + 2, x, low, low, j + 2 * HD_LANES);
#pragma GCC unroll 4
		for (int k = 0; k < HD_SUMS; k++) {
			v[k] -= mean;
			sums[k] += squares ? v[k] * v[k] : v[k];
		}
	}
	for (; j < n; j++) {
		float one = hd_get(x, low, j) - mean;

		rest += squares ? one * one : one;
	}
	return hd_sum_floats(sums) + rest;
}

/* Computes the statistics of consecutive rows. Each pass covers all of them, so no row's sum waits for the previous
 * row's. */
INLINE void rows_stats(struct stats *s, const void *x, int rows, int64_t n, int rms, double eps, const int low)
{
	const int64_t t = low ? HD_DTYPE_BF16 : HD_DTYPE_F32;

	for (int i = 0; i < rows; i++)
		s[i].mean = rms ? 0 : row_sum(hd_at(x, t, i * n), 0, 0, n, low) / (float)n;
	for (int i = 0; i < rows; i++)
		s[i].rstd = row_sum(hd_at(x, t, i * n), s[i].mean, 1, n, low);
	for (int i = 0; i < rows; i++)
		s[i].rstd = (float)(1 / sqrt((double)s[i].rstd / (double)n + eps));
}

INLINE void row_scale(float *y, const void *x, struct stats s, const void *w, const void *b, int64_t n, const int low,
		      const int wlow)
{
	if (b) {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			y[j] = (hd_get(x, low, j) - s.mean) * s.rstd * hd_get(w, wlow, j) + hd_get(b, wlow, j);
	} else {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			y[j] = (hd_get(x, low, j) - s.mean) * s.rstd * hd_get(w, wlow, j);
	}
}

/* Scales a row of bf16 piece by piece, and rounds each piece at once. */
INLINE void row_scale_low(uint16_t *y, const uint16_t *x, struct stats s, const void *w, const void *b, int64_t n,
			  const int wlow)
{
	const int64_t u = wlow ? HD_DTYPE_BF16 : HD_DTYPE_F32;
	float piece[HD_PIECE];

	for (int64_t j = 0; j < n; j += HD_PIECE) {
		int64_t m = hd_min(HD_PIECE, n - j);

		row_scale(piece, x + j, s, hd_at(w, u, j), b ? hd_at(b, u, j) : NULL, m, 1, wlow);
		hd_store_bf16(y + j, piece, m);
	}
}

typedef void rows_fn(struct stats *s, void *y, const void *x, const void *w, const void *b, int rows, int64_t n,
		     int rms, double eps);

#define ROWS(name, low, wlow) \
	HD_CLONES static void name(struct stats *s, void *y, const void *x, const void *w, const void *b, int rows, \
				   int64_t n, int rms, double eps) \
	{ \
		rows_stats(s, x, rows, n, rms, eps, low); \
		for (int i = 0; i < rows; i++) { \
			if (low) \
				row_scale_low((uint16_t *)y + i * n, (const uint16_t *)x + i * n, s[i], w, b, n, \
					      wlow); \
			else \
				row_scale((float *)y + i * n, (const float *)x + i * n, s[i], w, b, n, 0, wlow); \
		} \
	}
ROWS(rows_wide, 0, 0)
ROWS(rows_low, 1, 0)
ROWS(rows_lowest, 1, 1)
ROWS(rows_odd, 0, 1)

/* Returns how many rows are processed at a time: two, unless they are long. L1 keeps one long row, whose sums take
 * longer than the latency to hide. */
static int64_t rows_at_a_time(const struct hd_prep *p)
{
	return p->n[1] * (p->n[14] == HD_DTYPE_BF16 ? 2 : 4) <= 8192 ? MOST_ROWS : 1;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t rows = p->n[0], cols = p->n[1], rms = p->n[2], step = rows_at_a_time(p);
	int64_t t = p->n[14], u = p->n[15];
	float *rstd = out[1], *mean = rms ? NULL : out[2];
	rows_fn *f = t == HD_DTYPE_BF16   ? (u == HD_DTYPE_BF16 ? rows_lowest : rows_low)
		     : u == HD_DTYPE_BF16 ? rows_odd
					  : rows_wide;

	(void)r;
#pragma omp parallel for schedule(static) if (rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < rows; i += step) {
		struct stats s[MOST_ROWS];
		int n = (int)hd_min(step, rows - i);

		f(s, hd_into(out[0], t, i * cols), hd_at(in[0], t, i * cols), in[1], p->n[3] ? in[2] : NULL, n, cols,
		  rms != 0, p->f[0]);
		for (int k = 0; k < n; k++) {
			rstd[i + k] = s[k].rstd;
			if (mean)
				mean[i + k] = s[k].mean;
		}
	}
}

struct norm_sums {
	float g, dot; /* sums of g = w dy, and of g (x - mean) rstd */
};

INLINE struct norm_sums row_d_sums(const void *x, const void *w, struct stats s, const void *dy, int64_t n,
				   const int low, const int wlow)
{
	hd_floats sums[HD_SUMS] = { { 0 } }, dots[HD_SUMS] = { { 0 } }, v[HD_SUMS], g[HD_SUMS], d[HD_SUMS];
	struct norm_sums rest = { 0, 0 };
	int64_t j = 0;

	for (; j + HD_STRIDE <= n; j += HD_STRIDE) {
#pragma GCC unroll 2
		for (int k = 0; k < HD_SUMS; k += 2) {
			hd_get_two(v + k, x, low, low, j + k * HD_LANES);
			hd_get_two(g + k, w, wlow, low, j + k * HD_LANES);
			hd_get_two(d + k, dy, low, low, j + k * HD_LANES);
		}
#pragma GCC unroll 4
		for (int k = 0; k < HD_SUMS; k++) {
			g[k] *= d[k];
			sums[k] += g[k];
			dots[k] += g[k] * ((v[k] - s.mean) * s.rstd);
		}
	}
	for (; j < n; j++) {
		float one = hd_get(w, wlow, j) * hd_get(dy, low, j);

		rest.g += one;
		rest.dot += one * ((hd_get(x, low, j) - s.mean) * s.rstd);
	}
	return (struct norm_sums){ hd_sum_floats(sums) + rest.g, hd_sum_floats(dots) + rest.dot };
}

INLINE float scaled(const void *x, const void *w, struct stats s, struct norm_sums m, const void *dy, int64_t j,
		    const int low, const int wlow)
{
	return s.rstd * (hd_get(w, wlow, j) * hd_get(dy, low, j) - m.g - (hd_get(x, low, j) - s.mean) * s.rstd * m.dot);
}

/* add: a row that is added, or NULL. */
INLINE void row_d_scale(float *dx, const void *x, const void *w, struct stats s, struct norm_sums m, const void *dy,
			const void *add, int64_t n, const int low, const int wlow)
{
	if (add) {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			dx[j] = scaled(x, w, s, m, dy, j, low, wlow) + hd_get(add, low, j);
	} else {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			dx[j] = scaled(x, w, s, m, dy, j, low, wlow);
	}
}

INLINE void row_d_any(void *dx, const void *x, const void *w, struct stats s, const void *dy, const void *add,
		      int64_t n, int rms, const int low, const int wlow)
{
	struct norm_sums m = row_d_sums(x, w, s, dy, n, low, wlow);
	float piece[HD_PIECE];

	m.g = rms ? 0 : m.g / (float)n;
	m.dot /= (float)n;
	if (!low) {
		row_d_scale(dx, x, w, s, m, dy, add, n, 0, wlow);
		return;
	}
	for (int64_t j = 0; j < n; j += HD_PIECE) {
		int64_t k = hd_min(HD_PIECE, n - j);

		row_d_scale(piece, (const uint16_t *)x + j, hd_at(w, wlow ? HD_DTYPE_BF16 : HD_DTYPE_F32, j), s, m,
			    (const uint16_t *)dy + j, add ? (const uint16_t *)add + j : NULL, k, 1, wlow);
		hd_store_bf16((uint16_t *)dx + j, piece, k);
	}
}

#define ROW_D(name, low, wlow) \
	HD_CLONES static void name(void *dx, const void *x, const void *w, struct stats s, const void *dy, \
				   const void *add, int64_t n, int rms) \
	{ \
		row_d_any(dx, x, w, s, dy, add, n, rms, low, wlow); \
	}
ROW_D(row_d, 0, 0)
ROW_D(row_d_low, 1, 0)
ROW_D(row_d_lowest, 1, 1)
ROW_D(row_d_odd, 0, 1)

/* Operands of norm_d, and of norm_d_add after its first. */
struct back {
	void (*row)(void *dx, const void *x, const void *w, struct stats s, const void *dy, const void *add, int64_t n,
		    int rms);
	void *dx;
	const void *add, *x, *w, *dy; /* add: or NULL */
	const float *rstd, *mean;
	int64_t cols, dtype;
	int rms;
};

static struct back back_of(const struct hd_prep *p, void *dx, const void *add, void *const *in)
{
	int64_t rms = p->n[2], low = p->n[14] == HD_DTYPE_BF16, wlow = p->n[15] == HD_DTYPE_BF16;

	return (struct back){ .row = low    ? (wlow ? row_d_lowest : row_d_low)
				     : wlow ? row_d_odd
					    : row_d,
			      .dx = dx,
			      .add = add,
			      .x = in[0],
			      .w = in[1],
			      .rstd = in[2],
			      .mean = rms ? NULL : in[3],
			      .dy = in[rms ? 3 : 4],
			      .cols = p->n[1],
			      .dtype = p->n[14],
			      .rms = rms != 0 };
}

static void one_row(const struct back *b, int64_t i)
{
	struct stats s = { b->mean ? b->mean[i] : 0, b->rstd[i] };
	int64_t at = i * b->cols, t = b->dtype;

	b->row(hd_into(b->dx, t, at), hd_at(b->x, t, at), b->w, s, hd_at(b->dy, t, at),
	       b->add ? hd_at(b->add, t, at) : NULL, b->cols, b->rms);
}

struct dw {
	const void *x, *dy;
	const float *rstd, *mean;
	int64_t cols, dtype;
};

/* Adds up rows from..to-1, a strip, over columns j..j+31, in registers. plain: for b alone. */
INLINE void add_two(const struct dw *a, float *w, float *b, int64_t from, int64_t to, int64_t j, const int low,
		    const int plain)
{
	hd_floats sum[2] = { { 0 } }, dots[2] = { { 0 } }, x[2], dy[2];

	for (int64_t i = from; i < to; i++) {
		float mean = a->mean ? a->mean[i] : 0, rstd = plain ? 0 : a->rstd[i];

		if (!plain) {
			hd_fetch_two(a->x, low, (i + HD_STRIP) * a->cols + j);
			hd_fetch_two(a->dy, low, (i + HD_STRIP) * a->cols + j);
			hd_get_two(x, a->x, low, low, i * a->cols + j);
		}
		hd_get_two(dy, a->dy, low, low, i * a->cols + j);
		for (int k = 0; k < 2; k++) {
			if (!plain)
				dots[k] += dy[k] * ((x[k] - mean) * rstd);
			sum[k] += dy[k];
		}
	}
	if (!plain)
		hd_add_two(w + j, dots, low);
	if (b)
		hd_add_two(b + j, sum, low);
}

INLINE void strip_dw(const struct dw *a, float *w, float *b, int64_t from, int64_t to, const int low, const int plain)
{
	int64_t whole = a->cols / HD_TWO * HD_TWO;

	for (int64_t j = 0; j < whole; j += HD_TWO)
		add_two(a, w, b, from, to, j, low, plain);
	for (int64_t i = from; i < to; i++)
		for (int64_t j = whole; j < a->cols; j++) {
			float dy = hd_get(a->dy, low, i * a->cols + j);

			if (!plain)
				w[j] += dy * ((hd_get(a->x, low, i * a->cols + j) - (a->mean ? a->mean[i] : 0)) *
					      a->rstd[i]);
			if (b)
				b[j] += dy;
		}
}

#define STRIP(name, low, plain) \
	HD_CLONES static void name(const struct dw *a, float *w, float *b, int64_t from, int64_t to) \
	{ \
		strip_dw(a, w, b, from, to, low, plain); \
	}
STRIP(strip_wide, 0, 0)
STRIP(strip_low, 1, 0)
STRIP(strip_plain, 0, 1)
STRIP(strip_plain_low, 1, 1)

/* Adds up a strip: dy times normalized x in w, and dy in b unless b is NULL. If w is NULL, dy alone. */
static void strip(const struct dw *a, float *w, float *b, int64_t from, int64_t to)
{
	int low = a->dtype == HD_DTYPE_BF16;

	if (w)
		(low ? strip_low : strip_wide)(a, w, b, from, to);
	else
		(low ? strip_plain_low : strip_plain)(a, w, b, from, to);
}

/* Adds up rows from..to-1 in w and, unless it is NULL, in b. */
static void block_dw(const struct dw *a, float *w, float *b, int64_t from, int64_t to)
{
	memset(w, 0, (size_t)a->cols * sizeof(*w));
	if (b)
		memset(b, 0, (size_t)a->cols * sizeof(*b));
	for (int64_t i = from; i < to; i += HD_STRIP)
		strip(a, w, b, i, hd_min(to, i + HD_STRIP));
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_column_sums c = sums_dw(p);
	int64_t rms = p->n[2], blocks = hd_column_sums_blocks(&c), cols = p->n[1];
	struct dw a = { .x = in[0],
			.rstd = in[1],
			.mean = rms ? NULL : in[2],
			.dy = in[rms ? 2 : 3],
			.cols = cols,
			.dtype = p->n[14] };

#pragma omp parallel for schedule(static) if (c.rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < blocks; i++) {
		float *sums = (float *)hd_scratch() + i * c.cols;

		block_dw(&a, sums, p->n[3] ? sums + cols : NULL, i * c.block, hd_min(c.rows, (i + 1) * c.block));
	}
	hd_column_sums_join(&c, 0, cols, out[0], r->acc);
	if (p->n[3])
		hd_column_sums_join(&c, cols, cols, out[1], r->acc);
}

/* Processes a strip of rows at a time, so that its operands are in the caches when they are summed. */
static void block_d(const struct back *b, const struct hd_prep *p, float *sums, int64_t from, int64_t to)
{
	const struct dw weights = { b->x, b->dy, b->rstd, b->mean, b->cols, b->dtype };
	const struct dw result = { NULL, b->dx, NULL, NULL, b->cols, b->dtype };

	memset(sums, 0, (size_t)((p->n[3] + p->n[4]) * b->cols) * sizeof(*sums));
	for (int64_t i = from; i < to; i += HD_STRIP) {
		int64_t end = hd_min(to, i + HD_STRIP);

		for (int64_t k = i; k < end; k++)
			one_row(b, k);
		if (p->n[3])
			strip(&weights, sums, p->n[3] > 1 ? sums + b->cols : NULL, i, end);
		if (p->n[4])
			strip(&result, NULL, sums + p->n[3] * b->cols, i, end);
	}
}

static void rows_d(const struct hd_prep *p, void *const *out, const struct back *b, int acc)
{
	const struct hd_column_sums c = sums_d(p);
	int64_t rows = p->n[0], cols = p->n[1], blocks = hd_column_sums_blocks(&c);

	if (!c.cols) {
#pragma omp parallel for schedule(static) if (rows * cols >= HD_SMALL)
		for (int64_t i = 0; i < rows; i++)
			one_row(b, i);
		return;
	}
#pragma omp parallel for schedule(static) if (rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < blocks; i++)
		block_d(b, p, (float *)hd_scratch() + i * c.cols, i * c.block, hd_min(rows, (i + 1) * c.block));
	for (int64_t k = 0; k * cols < c.cols; k++)
		hd_column_sums_join(&c, k * cols, cols, out[1 + k], acc);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct back b = back_of(p, out[0], NULL, in);

	rows_d(p, out, &b, r->acc);
}

static void run_d_add(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct back b = back_of(p, out[0], in[0], in + 1);

	rows_d(p, out, &b, r->acc);
}

const struct hd_kernel hd_cpu_norm = { .name = "norm", .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_norm_d = {
	.name = "norm_d", .flags = HD_K_ACC_REST, .prepare = prepare_d, .scratch = scratch_d, .run = run_d
};
const struct hd_kernel hd_cpu_norm_d_add = { .name = "norm_d_add",
					     .flags = HD_K_ACC_REST,
					     .prepare = prepare_d_add,
					     .scratch = scratch_d_add,
					     .run = run_d_add };
const struct hd_kernel hd_cpu_norm_dw = {
	.name = "norm_dw", .flags = HD_K_ACC, .prepare = prepare_dw, .scratch = scratch_dw, .run = run_dw
};
