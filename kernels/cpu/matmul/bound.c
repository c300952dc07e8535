/* SPDX-License-Identifier: Apache-2.0
 * The shortest time that a product of a shape is known to take on this machine. Candidates are own products with vectors
 * and all implementations that oneDNN offers. Operands are as they are, or b is packed as the implementation prefers.
 * Timings are hot, on memory that was written, and the best of several runs.
 *
 * A second time is the best over all layouts: each operand along its rows or its columns, and the result transposed.
 * `bench --bound` compares a step with these times. Nothing that a step computes depends on them.
 */
#include <config.h>
#include "kernels/cpu/matmul/matmul_impl.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_RUNS = 3, MOST_RUNS = 12 };
#define LONGEST 0.03 /* seconds of one run, about: a longer product is cut, and its time is scaled */
#define HOPELESS 1.3 /* times the best: not run again */

struct least_time {
	struct hd_mm_shape shape;
	double seconds[2]; /* operands as they are; any layout */
	struct least_time *next;
};
static struct least_time *known;

struct touched {
	void *mem[HD_MM_OPERANDS], *scratch;
	size_t bytes[HD_MM_OPERANDS], scratch_bytes;
};

static int touch(struct touched *t, const_dnnl_primitive_desc_t pd, const struct hd_mm_primitive *p)
{
	static const struct {
		int operand, index;
		dnnl_query_t what;
	} of[] = { { HD_MM_A, 0, dnnl_query_src_md },
		   { HD_MM_B, 0, dnnl_query_weights_md },
		   { HD_MM_C, 0, dnnl_query_dst_md } };

	for (size_t i = 0; i < HD_LEN(of); i++)
		if (!hd_mm_touch(&t->mem[of[i].operand], &t->bytes[of[i].operand],
				 dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, of[i].what, of[i].index))))
			return 0;
	return hd_mm_touch(&t->scratch, &t->scratch_bytes, p->scratch_bytes);
}

static double time_of(const struct hd_mm_primitive *p, const struct touched *t)
{
	double begin = hd_seconds();

	if (hd_mm_execute(p->prim, &p->bound, t->scratch, t->mem[HD_MM_C], t->mem[HD_MM_A], t->mem[HD_MM_B], NULL) < 0)
		return 1e9;
	return hd_seconds() - begin;
}

static void try_one(dnnl_primitive_desc_t pd, struct touched *t, double *best)
{
	struct hd_mm_primitive p;

	if (strstr(hd_mm_name(pd), HD_MM_PLAIN_LOOPS) || !hd_mm_build(&p, pd, 0, 0))
		return;
	for (int run = 0; touch(t, pd, &p) && run < MOST_RUNS; run++) {
		double s = time_of(&p, t);

		if (s > HOPELESS * *best && run >= 1)
			break;
		if (s > 0.995 * *best && run >= LEAST_RUNS)
			break;
		*best = run && s < *best ? s : *best; /* the first run is cold */
	}
	hd_mm_drop(&p);
}

/* Tries every implementation for one layout. packed: b has the layout that the implementation prefers. */
static void try_layout(const struct hd_mm_shape *s, int packed, struct touched *t, double *best)
{
	dnnl_primitive_desc_t pd;
	struct hd_mm_offers o;
	int begun = 0;

	if (!(packed ? hd_mm_offers_packed(&o, s) : hd_mm_offers_begin(&o, s, 0, 0)))
		return;
	while ((pd = hd_mm_offers_next(&o, &begun))) {
		try_one(pd, t, best);
		dnnl_primitive_desc_destroy(pd);
	}
	hd_mm_offers_end(&o);
}

/* Tries an own product with vectors, with operands as they are. */
static void try_own(const struct hd_mm_shape *s, struct touched *t, double *best)
{
	size_t bytes = (size_t)hd_mm_own_bytes(s, HD_MM_GEMM, omp_get_max_threads());
	struct hd_mm_own own = { NULL, NULL, NULL };

	if (!t->mem[HD_MM_C] || !bytes || !hd_mm_touch(&t->scratch, &t->scratch_bytes, bytes) ||
	    !hd_mm_own_make(&own, s, HD_MM_GEMM))
		return;
	for (int run = 0; run < MOST_RUNS; run++) {
		double begin = hd_seconds(), seconds;

		hd_mm_own_run(&own, t->scratch, NULL, t->mem, 0);
		seconds = hd_seconds() - begin;
		if (run && seconds > HOPELESS * *best)
			break;
		*best = run && seconds < *best ? seconds : *best;
	}
	hd_mm_own_drop(&own);
}

/* Sets the strides of a dense matrix, contiguous along its rows or along its columns. */
static void lay(int64_t *stride, int row, int col, int64_t rows, int64_t cols, int along_columns)
{
	stride[row] = along_columns ? 1 : cols;
	stride[col] = along_columns ? rows : 1;
}

/* Tries a product of two matrices in all layouts. swap: its transpose, b' a'. */
static void try_layouts(const struct hd_mm_shape *shape, int swap, struct touched *t, double *best)
{
	struct hd_mm_shape s = { .ndim = 3 };
	int64_t *n = s.n;

	for (int o = HD_MM_A; o <= HD_MM_C; o++)
		s.dtype[o] = shape->dtype[o];
	n[0] = shape->n[swap];
	n[1] = shape->n[!swap];
	n[2] = shape->n[2];
	lay(s.stride[HD_MM_C], 0, 1, n[0], n[1], 0);
	for (int a = 0; a < 2; a++) {
		lay(s.stride[HD_MM_A], 0, 2, n[0], n[2], a);
		for (int b = 0; b < 2; b++) {
			lay(s.stride[HD_MM_B], 2, 1, n[2], n[1], b);
			try_layout(&s, 0, t, best);
		}
		try_layout(&s, 1, t, best);
	}
}

/* Where oneDNN has no products of bf16, the bound is that of fp32. */
static void use_known_dtypes(struct hd_mm_shape *s)
{
	struct hd_mm_offers o;

	if (hd_mm_offers_begin(&o, s, 0, 0)) {
		hd_mm_offers_end(&o);
		return;
	}
	for (int i = HD_MM_A; i <= HD_MM_C; i++)
		s->dtype[i] = HD_DTYPE_F32;
}

static void measure(struct least_time *b)
{
	struct hd_mm_shape s = b->shape;
	struct touched t = { 0 };
	double best = 1e9, by;

	s.dtype[HD_MM_BIAS] = 0;
	use_known_dtypes(&s);
	hd_mm_shrink(&s, LONGEST * hd_mm_rate(s.dtype[HD_MM_A]));
	by = hd_mm_flops(&b->shape) / hd_mm_flops(&s);
	try_layout(&s, 0, &t, &best);
	try_own(&s, &t, &best);
	if (s.ndim == 3)
		try_layout(&s, 1, &t, &best);
	b->seconds[0] = best < 1e9 ? best * by : 0;
	if (s.ndim == 3) {
		try_layouts(&s, 0, &t, &best);
		try_layouts(&s, 1, &t, &best);
	}
	b->seconds[1] = best < 1e9 ? best * by : 0;
	for (int o = 0; o < HD_MM_OPERANDS; o++)
		free(t.mem[o]);
	free(t.scratch);
}

double hd_mm_least(const struct hd_mm_shape *s, int any)
{
	struct least_time *b;

	for (b = known; b; b = b->next)
		if (!memcmp(&b->shape, s, sizeof(*s)))
			return b->seconds[any];
	b = hd_alloc(sizeof(*b));
	b->shape = *s;
	b->next = known;
	known = b;
	measure(b);
	return b->seconds[any];
}
