/* SPDX-License-Identifier: Apache-2.0
 * sum over named dims.
 *
 * Adjacent dims merge to (kept, summed, kept) where they can, which covers column sums, row sums and all between.
 * Pieces of a fixed size are summed in fp32 and added up in double, in a fixed order. So the result does not depend on
 * the number of threads. Anything else is summed element by element.
 */
#include <config.h>
#include "kernels/cpu/base/scratch.h"
#include "kernels/cpu/base/vectors.h"
#include "kernels/prepare/sum.h"
#include <stdlib.h>
#include <string.h>

#define TILE 1024 /* columns of one task: memory is read in long runs */
#define RUN 128   /* sums side by side for one contiguous run */
#define PIECE 256 /* rows summed in fp32 before they are added to a double */
#define LONG 4096 /* rows from which a narrow sum is cut for several threads */
#define CUTS 16
#define TASKS 64 /* most tasks of columns, with their cuts */

#define INLINE HD_INLINE

struct cpu_sum {
	struct hd_sum_prep s;
	int64_t cuts; /* with more than 1, partial sums are in scratch: cuts x p x q */
};

/* ---- prepare --------------------------------------------------------------------------------- */

/* Returns the number of cuts. With few columns, several threads each sum some of the rows. It depends on the shape
 * alone, so that no sum depends on the threads. */
static int64_t cuts_of(const struct hd_sum_prep *s)
{
	int64_t tasks = s->p * ((s->q + TILE - 1) / TILE);

	if (s->empty || !s->simple || tasks >= CUTS)
		return 1;
	if (s->q == 1)
		return s->r < LONG ? 1 : CUTS;
	return s->r < 2 * PIECE ? 1 : hd_min(s->r / PIECE, TASKS / tasks);
}

static int64_t bytes_of(const struct hd_sum_prep *s)
{
	int64_t cuts = cuts_of(s);

	return cuts > 1 ? cuts * s->p * s->q * (int64_t)sizeof(double) : 0;
}

static int64_t scratch(const struct hd_kernel_desc *d, int threads)
{
	struct hd_err ignored = { 0 };
	struct hd_sum_prep s = { 0 };

	(void)threads;
	return hd_prepare_sum(d, "cpu", &s, &ignored) < 0 ? 0 : bytes_of(&s);
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct hd_sum_prep s = { 0 };
	struct cpu_sum *t;

	HD_TRY(hd_prepare_sum(d, "cpu", &s, err));
	t = hd_alloc(sizeof(*t));
	*t = (struct cpu_sum){ s, cuts_of(&s) };
	p->state = t;
	return hd_scratch_take(p, bytes_of(&s), "sum", err);
}

/* ---- run ------------------------------------------------------------------------------------- */

static inline float load(const void *a, uint32_t dtype, int64_t i)
{
	return hd_get(a, dtype == HD_DTYPE_BF16, i);
}

static void store(const struct hd_sum_prep *s, void *c, int64_t i, double x, int acc)
{
	hd_put(c, s->dtype_c == HD_DTYPE_BF16, i, (float)(x + (acc ? load(c, s->dtype_c, i) : 0)));
}

/* Adds rows of n columns each to x; the first begins at element `at`, and they are `step` apart. Sums are kept in
 * registers. */
INLINE void add_any(float *x, const void *a, int64_t at, int64_t step, int64_t rows, int64_t n, const int low)
{
	int64_t whole = n / HD_TWO * HD_TWO;

	for (int64_t j = 0; j < whole; j += HD_TWO) {
		hd_floats sum[2] = { { 0 } }, v[2];

		for (int64_t i = 0; i < rows; i++) {
			hd_fetch_two(a, low, at + (i + rows) * step + j);
			hd_get_two(v, a, low, low, at + i * step + j);
			sum[0] += v[0];
			sum[1] += v[1];
		}
		hd_add_two(x + j, sum, low);
	}
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = whole; j < n; j++)
			x[j] += hd_get(a, low, at + i * step + j);
}

HD_CLONES static void add_wide(float *x, const void *a, int64_t at, int64_t step, int64_t rows, int64_t n)
{
	add_any(x, a, at, step, rows, n, 0);
}

HD_CLONES static void add_low(float *x, const void *a, int64_t at, int64_t step, int64_t rows, int64_t n)
{
	add_any(x, a, at, step, rows, n, 1);
}

static void add_rows(float *x, const void *a, uint32_t dtype, int64_t at, int64_t step, int64_t rows, int64_t n)
{
	for (int64_t i = 0; i < rows; i += HD_STRIP)
		(dtype == HD_DTYPE_F32 ? add_wide : add_low)(x, a, at + i * step, step, hd_min(HD_STRIP, rows - i), n);
}

/* Sums the columns of rows r0 ... r1 - 1: `n` columns from element `at` on, with rows `step` apart. */
static void columns(double *total, const struct hd_sum_prep *s, const void *a, int64_t at, int64_t n, int64_t r0,
		    int64_t r1)
{
	float x[TILE];

	memset(total, 0, (size_t)n * sizeof(*total));
	for (int64_t r = r0; r < r1; r += PIECE) {
		memset(x, 0, (size_t)n * sizeof(*x));
		add_rows(x, a, s->dtype_a, at + r * s->q, s->q, hd_min(PIECE, r1 - r), n);
		for (int64_t j = 0; j < n; j++)
			total[j] += (double)x[j];
	}
}

/* Sums one contiguous run in RUN running sums instead of one, which is both faster and more exact. */
static double row(const struct hd_sum_prep *s, const void *a, int64_t at, int64_t n)
{
	float x[RUN];
	double total = 0;

	for (int64_t i = 0; i < n; i += RUN * PIECE) {
		int64_t here = hd_min(RUN * PIECE, n - i), whole = here / RUN;

		memset(x, 0, sizeof(x));
		add_rows(x, a, s->dtype_a, at + i, RUN, whole, RUN);
		add_rows(x, a, s->dtype_a, at + i + whole * RUN, RUN, 1, here - whole * RUN);
		for (int j = 0; j < RUN; j++)
			total += (double)x[j];
	}
	return total;
}

/* Runs a task (cut, p, tile of columns). It writes partial sums where there are several cuts, else c. */
static void task(const struct cpu_sum *sum, double *partial, void *c, const void *a, int acc, int64_t t)
{
	const struct hd_sum_prep *s = &sum->s;
	int64_t tiles = (s->q + TILE - 1) / TILE, tile = t % tiles, p = t / tiles % s->p, cut = t / tiles / s->p;
	int64_t len = (s->r + sum->cuts - 1) / sum->cuts, r0 = cut * len, r1 = r0 + len < s->r ? r0 + len : s->r;
	int64_t col = tile * TILE, n = s->q - col < TILE ? s->q - col : TILE;
	double total[TILE];

	if (s->q == 1)
		total[0] = r1 > r0 ? row(s, a, p * s->r + r0, r1 - r0) : 0;
	else
		columns(total, s, a, p * s->r * s->q + col, n, r0, r1);
	for (int64_t j = 0; j < n; j++) {
		if (sum->cuts > 1)
			partial[(cut * s->p + p) * s->q + col + j] = total[j];
		else
			store(s, c, p * s->q + col + j, total[j], acc);
	}
}

static void simple(const struct cpu_sum *sum, void *c, const void *a, int acc)
{
	const struct hd_sum_prep *s = &sum->s;
	int64_t tasks = sum->cuts * s->p * ((s->q + TILE - 1) / TILE);
	double *partial = hd_scratch();

#pragma omp parallel for if (tasks * s->r > 1024)
	for (int64_t t = 0; t < tasks; t++)
		task(sum, partial, c, a, acc, t);
	for (int64_t i = 0; sum->cuts > 1 && i < s->count; i++) {
		double x = 0;

		for (int64_t cut = 0; cut < sum->cuts; cut++)
			x += partial[cut * s->count + i];
		store(s, c, i, x, acc);
	}
}

static double gather(const struct hd_sum_prep *s, const void *a, int64_t at, int d)
{
	double x = 0;

	if (d == s->ndim)
		return load(a, s->dtype_a, at);
	if (s->dim[d].c)
		return gather(s, a, at, d + 1);
	for (int64_t i = 0; i < s->dim[d].n; i++)
		x += gather(s, a, at + i * s->dim[d].a, d + 1);
	return x;
}

static void any(const struct hd_sum_prep *s, void *c, const void *a, int acc)
{
#pragma omp parallel for
	for (int64_t i = 0; i < s->count; i++) {
		int64_t at = 0;

		for (int d = 0; d < s->ndim; d++)
			if (s->dim[d].c)
				at += i / s->dim[d].c % s->dim[d].n * s->dim[d].a;
		store(s, c, i, gather(s, a, at, 0), acc);
	}
}

static void run(const struct hd_prep *prep, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct cpu_sum *sum = prep->state;
	const struct hd_sum_prep *s = &sum->s;

	if (s->empty) {
		for (int64_t i = 0; i < s->count && !r->acc; i++)
			store(s, out[0], i, 0, 0);
	} else if (s->simple) {
		simple(sum, out[0], in[0], r->acc);
	} else {
		any(s, out[0], in[0], r->acc);
	}
}

const struct hd_kernel hd_cpu_sum = {
	.name = "sum", .flags = HD_K_ACC, .prepare = prepare, .scratch = scratch, .run = run
};
