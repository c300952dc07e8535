/* SPDX-License-Identifier: Apache-2.0
 * sum over named dims.
 *
 * Neighbouring dims merge to (kept, summed, kept) where they can: column sums, row sums and what
 * lies between.  Pieces of a fixed size are summed in fp32 and joined in double, in a fixed
 * order, so the result does not depend on the number of threads.  Anything else is summed element
 * by element.
 */
#include <config.h>
#include "engine/device/device.h"
#include <stdlib.h>
#include <string.h>

#define TILE 128		/* columns of one task */
#define PIECE 256		/* rows summed in fp32 before they join a double */
#define LONG 4096		/* rows from which a narrow sum is cut for several threads */
#define CUTS 16

struct dim {
	int64_t n, a, c;	/* c 0: summed */
};

struct sum {
	uint32_t dtype_a, dtype_c;
	int64_t count;		/* elements of c */
	int ndim, simple;
	struct dim dim[HD_MAX_DIMS];
	int64_t p, r, q;	/* simple: a is (p, r, q), c is (p, q) */
	int64_t cuts;
	double *partial;	/* cuts x p x q; NULL: one cut */
};

/* ---- prepare --------------------------------------------------------------------------------- */

static void collect(struct sum *s, const struct hd_view *a, const struct hd_view *c)
{
	int64_t step = 1;

	for (int i = (int)a->ndim - 1; i >= 0; i--) {
		struct dim d = { .n = a->n[i], .a = step };
		struct dim *last = &s->dim[s->ndim ? s->ndim - 1 : 0];
		int64_t in_c = 1;

		for (uint32_t j = c->ndim; j-- > 0; in_c *= c->n[j])
			if (c->dims[j] == a->dims[i])
				d.c = in_c;
		step *= d.n;
		if (d.n == 1)
			continue;
		if (s->ndim && d.c == last->c * last->n && !d.c == !last->c)
			last->n *= d.n;
		else
			s->dim[s->ndim++] = d;
	}
}

/* s->dim has the innermost dim first */
static void classify(struct sum *s)
{
	int i = 0;

	s->p = s->r = s->q = 1;
	if (i < s->ndim && s->dim[i].c == 1)
		s->q = s->dim[i++].n;
	if (i < s->ndim && !s->dim[i].c)
		s->r = s->dim[i++].n;
	if (i < s->ndim && s->dim[i].c == s->q)
		s->p = s->dim[i++].n;
	s->simple = i == s->ndim;
	s->cuts = 1;
	if (s->simple && s->r >= LONG && s->p * ((s->q + TILE - 1) / TILE) < CUTS) {
		s->cuts = CUTS;
		s->partial = hd_alloc((size_t)(s->cuts * s->p * s->q) * sizeof(double));
	}
}

static void release(void *state)
{
	struct sum *s = state;

	free(s->partial);
	free(s);
}

static int readable(uint32_t dtype)
{
	return dtype == HD_F32 || dtype == HD_BF16;
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct sum *s;

	if (d->nin != 1 || d->nout != 1)
		return hd_err_set(err, HD_EINVAL, "sum: %u inputs and %u outputs, not 1 and 1",
				  d->nin, d->nout);
	if (!readable(d->in[0].dtype) || !readable(d->out[0].dtype))
		return hd_err_set(err, HD_ENOTSUP, "sum: no %s to %s on cpu",
				  hd_dtype_name(d->in[0].dtype), hd_dtype_name(d->out[0].dtype));
	for (uint32_t i = 0; i < d->out[0].ndim; i++) {
		uint32_t j = 0;

		while (j < d->in[0].ndim && d->in[0].dims[j] != d->out[0].dims[i])
			j++;
		if (j == d->in[0].ndim || d->in[0].n[j] != d->out[0].n[i])
			return hd_err_set(err, HD_EINVAL,
					  "sum: c has dim %s, which a has not in that size",
					  d->out[0].dims[i]->name);
	}
	s = hd_alloc(sizeof(*s));
	s->dtype_a = d->in[0].dtype;
	s->dtype_c = d->out[0].dtype;
	s->count = hd_view_count(&d->out[0]);
	if (s->count && hd_view_count(&d->in[0])) {
		collect(s, &d->in[0], &d->out[0]);
		classify(s);
	}
	p->state = s;
	p->release = release;
	return 0;
}

/* ---- run ------------------------------------------------------------------------------------- */

static inline float widen(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static inline float load(const void *a, uint32_t dtype, int64_t i)
{
	return dtype == HD_F32 ? ((const float *)a)[i] : widen(((const uint16_t *)a)[i]);
}

static void store(const struct sum *s, void *c, int64_t i, double x, int acc)
{
	float f = (float)(x + (acc ? load(c, s->dtype_c, i) : 0));
	uint32_t u;

	if (s->dtype_c == HD_F32) {
		((float *)c)[i] = f;
		return;
	}
	memcpy(&u, &f, 4);
	u = f == f ? u + 0x7fff + (u >> 16 & 1) : u | 0x400000;
	((uint16_t *)c)[i] = (uint16_t)(u >> 16);
}

/* x[j] += a[j] over n columns: the loops are apart by dtype so that each vectorises */
__attribute__((optimize("O3")))
static void add_row(float *restrict x, const void *a, uint32_t dtype, int64_t at, int64_t n)
{
	const float *f = (const float *)a + at;
	const uint16_t *h = (const uint16_t *)a + at;

	if (dtype == HD_F32)
		for (int64_t j = 0; j < n; j++)
			x[j] += f[j];
	else
		for (int64_t j = 0; j < n; j++)
			x[j] += widen(h[j]);
}

/* Columns of rows r0 ... r1 - 1, `n` columns from element `at`, rows `step` apart */
static void columns(double *total, const struct sum *s, const void *a, int64_t at, int64_t n,
		    int64_t r0, int64_t r1)
{
	float x[TILE];

	memset(total, 0, (size_t)n * sizeof(*total));
	for (int64_t r = r0; r < r1; r += PIECE) {
		int64_t end = r + PIECE < r1 ? r + PIECE : r1;

		memset(x, 0, sizeof(x));
		for (int64_t i = r; i < end; i++)
			add_row(x, a, s->dtype_a, at + i * s->q, n);
		for (int64_t j = 0; j < n; j++)
			total[j] += (double)x[j];
	}
}

/* One contiguous run: TILE running sums instead of one, which is both faster and more exact */
static double row(const struct sum *s, const void *a, int64_t at, int64_t n)
{
	float x[TILE];
	double total = 0;

	for (int64_t i = 0; i < n; i += TILE * PIECE) {
		int64_t end = i + TILE * PIECE < n ? i + TILE * PIECE : n;

		memset(x, 0, sizeof(x));
		for (int64_t k = i; k < end; k += TILE)
			add_row(x, a, s->dtype_a, at + k, end - k < TILE ? end - k : TILE);
		for (int j = 0; j < TILE; j++)
			total += (double)x[j];
	}
	return total;
}

/* Task (cut, p, tile of columns): to the partial sums where there are several cuts, else to c */
static void task(const struct sum *s, void *c, const void *a, int acc, int64_t t)
{
	int64_t tiles = (s->q + TILE - 1) / TILE, tile = t % tiles, p = t / tiles % s->p,
		cut = t / tiles / s->p;
	int64_t len = (s->r + s->cuts - 1) / s->cuts, r0 = cut * len,
		r1 = r0 + len < s->r ? r0 + len : s->r;
	int64_t col = tile * TILE, n = s->q - col < TILE ? s->q - col : TILE;
	double total[TILE];

	if (s->q == 1)
		total[0] = r1 > r0 ? row(s, a, p * s->r + r0, r1 - r0) : 0;
	else
		columns(total, s, a, p * s->r * s->q + col, n, r0, r1);
	for (int64_t j = 0; j < n; j++) {
		if (s->partial)
			s->partial[(cut * s->p + p) * s->q + col + j] = total[j];
		else
			store(s, c, p * s->q + col + j, total[j], acc);
	}
}

static void simple(const struct sum *s, void *c, const void *a, int acc)
{
	int64_t tasks = s->cuts * s->p * ((s->q + TILE - 1) / TILE);

	#pragma omp parallel for if (tasks * s->r > 1024)
	for (int64_t t = 0; t < tasks; t++)
		task(s, c, a, acc, t);
	for (int64_t i = 0; s->partial && i < s->count; i++) {
		double x = 0;

		for (int64_t cut = 0; cut < s->cuts; cut++)
			x += s->partial[cut * s->count + i];
		store(s, c, i, x, acc);
	}
}

static double gather(const struct sum *s, const void *a, int64_t at, int d)
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

static void any(const struct sum *s, void *c, const void *a, int acc)
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

static void run(const struct hd_prep *prep, void *const *out, void *const *in,
		const struct hd_run *r)
{
	const struct sum *s = prep->state;

	if (!s->cuts) {		/* nothing to sum */
		for (int64_t i = 0; i < s->count && !r->acc; i++)
			store(s, out[0], i, 0, 0);
	} else if (s->simple) {
		simple(s, out[0], in[0], r->acc);
	} else {
		any(s, out[0], in[0], r->acc);
	}
}

const struct hd_kernel hd_cpu_sum = {
	.name = "sum", .flags = HD_K_ACC, .prepare = prepare, .run = run};
