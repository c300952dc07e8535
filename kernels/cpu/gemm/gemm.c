/* SPDX-License-Identifier: Apache-2.0
 * Products with vectors. Each thread has a share of c and works alone:
 *
 *	for each block of its columns, at most widest()
 *		for each part of k that fits in L1 as a panel of b
 *			pack the block of b, which stays in L2 or L3
 *			for each block of its rows, at most TALL
 *				pack the block of a, which stays in L2
 *				for each panel of b, which stays in L1, and each panel of a: the micro-kernel
 *
 * A sum is that of its parts of k in order, whose number depends on k alone. So no bit depends on the threads. Where c
 * is bf16, sums wait in scratch until they are complete, and all of this is repeated for each WAITING rows.
 */
#include <config.h>
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/base/low.h"
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 1024, MANY = 16, TALL = 192, WAITING = 2 * TALL, LEAST_K = 8 };

/* Costs relative to a multiplication and addition in all lanes of a vector, two of which take a cycle. */
#define PACKING 1.5 /* an element that is packed */

struct hd_gemm {
	struct hd_mm_shape s;
	const struct hd_gemm_isa *isa;
	/* Columns of a product, rounded up to complete panels; columns of all products, which follow each other. */
	int64_t each, cols;
	int64_t batches, m, n, k;
	int64_t along, across;    /* c of a batch is divided into so many shares of rows times shares of columns */
	int64_t rows;             /* the most rows of a share */
	int64_t wide, deep, tall; /* sizes of blocks */
	int64_t threads;          /* threads that there is scratch for */
};

struct gemm_run {
	const struct hd_gemm *g;
	const char *a;
	const struct hd_mm_operands *o;
	char *scratch;
};

struct gemm_share { /* the share of one thread: rows and columns of c in a batch; its scratch */
	int64_t batch, row, row_end, col, col_end;
	float *a, *b, *bias, *sums; /* packed blocks; the bias of a block's columns; sums of a bf16 c */
};

struct gemm_step { /* rows and columns of a share, and k to k_end - 1 */
	int64_t row, row_end, col, col_end, k, k_end;
};

const struct hd_gemm_isa *hd_gemm_best(void)
{
#if HD_X86
	dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();

	if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core)
		return &hd_gemm_avx512;
	if ((isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 && __builtin_cpu_supports("fma"))
		return &hd_gemm_avx2;
#endif
	return &hd_gemm_plain;
}

int hd_gemm_preferred(void)
{
#if HD_X86 && !defined(__clang__) /* compiled by clang they were not measured */
	return hd_gemm_best() == &hd_gemm_avx2;
#else
	return 0;
#endif
}

/* ---- preparation ----------------------------------------------------------------------------- */

static int fits(const struct hd_mm_shape *s, const struct hd_gemm_isa *isa)
{
	int m = s->ndim - 3, n = m + 1, k = m + 2;

	return s->stride[HD_MM_C][n] <= 1 && s->n[m] * 2 > isa->rows && s->n[n] * 2 > isa->cols && s->n[k] >= LEAST_K &&
	       hd_mm_is_dense(s, HD_MM_A, m, k) && hd_mm_is_dense(s, HD_MM_B, n, k);
}

/* Returns the size of n's equal parts of at most `most`, a multiple of `unit`. */
static int64_t part(int64_t n, int64_t most, int64_t unit)
{
	return hd_up(hd_parts(n, hd_parts(n, most)), unit);
}

/* Returns the most rows, or columns, of a share. */
static int64_t share(int64_t n, int64_t shares, int64_t unit)
{
	return hd_parts(hd_parts(n, unit), shares) * unit;
}

/* Returns the most columns of a block. With many threads, blocks are narrower, so that all together stay small. */
static int64_t widest(const struct hd_gemm *g)
{
	return g->threads <= MANY ? WIDE : hd_up(WIDE * MANY / g->threads, g->isa->cols);
}

/* Returns how long the thread with the most work takes. */
static double cost(const struct hd_gemm *g)
{
	double rows = (double)share(g->m, g->along, g->isa->rows),
	       cols = (double)share(g->cols, g->across, g->isa->cols);
	double lanes = (double)g->isa->cols / 2, blocks = (double)hd_parts((int64_t)cols, widest(g));

	return (double)hd_parts(g->batches * g->along * g->across, g->threads) * (double)g->k *
	       (rows * cols / lanes + PACKING * (rows * blocks + cols));
}

/* Chooses the shares of threads. */
static void cut(struct hd_gemm *g)
{
	int64_t rows = hd_parts(g->m, g->isa->rows), cols = hd_parts(g->cols, g->isa->cols);
	struct hd_gemm best = *g;

	for (int64_t along = 1; along <= hd_min(g->threads, rows); along++)
		for (int64_t across = 1; across <= hd_min(g->threads / along, cols); across++) {
			g->along = along;
			g->across = across;
			if (cost(g) < cost(&best))
				best = *g;
		}
	*g = best;
	g->wide = part(share(g->cols, g->across, g->isa->cols), widest(g), g->isa->cols);
	g->deep = part(g->k, g->isa->deep, 1);
	g->rows = share(g->m, g->along, g->isa->rows);
	g->tall = part(g->rows, TALL, g->isa->rows);
}

static void plan(struct hd_gemm *g, const struct hd_mm_shape *s, int64_t several, const struct hd_gemm_isa *isa,
		 int threads)
{
	*g = (struct hd_gemm){ .s = *s, .isa = isa, .batches = 1, .along = 1, .across = 1 };
	g->m = s->n[s->ndim - 3];
	g->n = s->n[s->ndim - 2];
	g->k = s->n[s->ndim - 1];
	g->each = hd_up(g->n, isa->cols);
	g->cols = several * g->each;
	g->threads = threads;
	for (int d = 0; d < s->ndim - 3; d++)
		g->batches *= s->n[d];
	cut(g);
}

static int is_low(const struct hd_gemm *g, int operand)
{
	return g->s.dtype[operand] == HD_DTYPE_BF16;
}

/* The floats of a thread's scratch, each number a multiple of 16. */
struct gemm_floats {
	int64_t a, b, bias, sums;
};

static struct gemm_floats floats_of(const struct hd_gemm *g)
{
	return (struct gemm_floats){ .a = hd_up(g->tall * g->deep + HD_GEMM_SLACK, 16),
				     .b = hd_up(g->wide * g->deep + HD_GEMM_SLACK, 16),
				     .bias = hd_up(g->wide, 16),
				     .sums = is_low(g, HD_MM_C) ? hd_up(hd_min(WAITING, g->rows) * g->wide, 16) : 0 };
}

static int64_t thread_bytes(const struct hd_gemm *g)
{
	struct gemm_floats f = floats_of(g);

	return hd_up((f.a + f.b + f.bias + f.sums) * 4, 4096);
}

int64_t hd_gemm_taken(const struct hd_gemm *g)
{
	return g->threads * thread_bytes(g);
}

int64_t hd_gemm_bytes(const struct hd_mm_shape *s, int threads)
{
	struct hd_gemm g;

	if (!fits(s, hd_gemm_best()))
		return 0;
	plan(&g, s, 1, hd_gemm_best(), threads);
	return hd_gemm_taken(&g);
}

/* A smaller product may be cut into longer parts, but not into longer ones than these. */
int64_t hd_gemm_most_bytes(const struct hd_mm_shape *largest, int threads)
{
	const struct hd_gemm_isa *isa = hd_gemm_best();
	struct hd_gemm g;

	plan(&g, largest, 1, isa, threads);
	g.rows = hd_up(g.m, isa->rows);
	g.wide = hd_min(widest(&g), hd_up(g.n, isa->cols));
	g.deep = hd_min(isa->deep, g.k);
	g.tall = hd_min(TALL, g.rows);
	return hd_gemm_taken(&g);
}

struct hd_gemm *hd_gemm_create(const struct hd_mm_shape *s, int64_t several, const struct hd_gemm_isa *isa)
{
	struct hd_gemm *g;

	if (!fits(s, isa))
		return NULL;
	g = hd_alloc(sizeof(*g));
	plan(g, s, several, isa, omp_get_max_threads());
	return g;
}

void hd_gemm_destroy(struct hd_gemm *g)
{
	free(g);
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Columns of one product within a block, whose columns are those of several products. Its first column there is
 * `from`. */
struct gemm_piece {
	const struct hd_mm_operands *o;
	int64_t from, col, n; /* col: the first column in the product; n: how many columns */
};

/* Returns the piece that begins at column v of all products. end: of the block. */
static struct gemm_piece piece_at(const struct gemm_run *r, int64_t v, int64_t end)
{
	const struct hd_gemm *g = r->g;
	struct gemm_piece p = { .o = r->o + v / g->each, .from = v, .col = v % g->each };

	p.n = hd_min(end - v, g->n - p.col);
	return p;
}

/* Returns where the next piece begins. */
static int64_t next_piece(const struct gemm_run *r, const struct gemm_piece *p)
{
	return p->from + hd_up(p->n, r->g->isa->cols);
}

/* Returns the stride of operand o along dim d of m, n, k. */
static int64_t stride(const struct hd_gemm *g, int o, int d)
{
	return g->s.stride[o][g->s.ndim - 3 + d];
}
enum { ROWS, COLUMNS, TERMS };

static struct hd_gemm_pack pack_of(const struct hd_gemm *g, int o, int along, float *to, const void *from, int64_t at)
{
	return (struct hd_gemm_pack){ .to = to,
				      .from = hd_at(from, g->s.dtype[o], at),
				      .step = stride(g, o, along),
				      .k_step = stride(g, o, TERMS),
				      .low = is_low(g, o) };
}

static void pack_b(const struct gemm_run *r, const struct gemm_share *h, const struct gemm_step *t)
{
	const struct hd_gemm *g = r->g;
	int64_t batch = hd_mm_batch_at(&g->s, h->batch, HD_MM_B);
	struct gemm_piece p;

	for (int64_t v = t->col; v < t->col_end; v = next_piece(r, &p)) {
		struct hd_gemm_pack pack;

		p = piece_at(r, v, t->col_end);
		pack = pack_of(g, HD_MM_B, COLUMNS, h->b + (v - t->col) * (t->k_end - t->k), p.o->b,
			       batch + p.col * stride(g, HD_MM_B, COLUMNS) + t->k * stride(g, HD_MM_B, TERMS));
		pack.n = pack.there = p.n;
		pack.k = t->k_end - t->k;
		g->isa->pack_b(&pack);
	}
}

static void pack_a(const struct gemm_run *r, const struct gemm_share *h, const struct gemm_step *t, int64_t row,
		   int64_t row_end)
{
	const struct hd_gemm *g = r->g;
	struct hd_gemm_pack pack = pack_of(g, HD_MM_A, ROWS, h->a, r->a,
					   hd_mm_batch_at(&g->s, h->batch, HD_MM_A) + row * stride(g, HD_MM_A, ROWS) +
						   t->k * stride(g, HD_MM_A, TERMS));

	pack.n = row_end - row;
	pack.there = g->m - row;
	pack.k = t->k_end - t->k;
	g->isa->pack_a(&pack);
}

/* ---- run ------------------------------------------------------------------------------------- */

/* Returns where element (row, column of p) of a tensor with c's layout is. */
static int64_t c_at(const struct gemm_run *r, const struct gemm_share *h, const struct gemm_piece *p, int64_t row)
{
	return hd_mm_batch_at(&r->g->s, h->batch, HD_MM_C) + row * stride(r->g, HD_MM_C, ROWS) + p->col;
}

/* Adds a micro-kernel's sums to the part of c that exists: rows x cols. */
static void add_edge(const struct hd_gemm_micro *t, const float *sums, int64_t width, int64_t rows, int64_t cols)
{
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < cols; j++) {
			float x = sums[i * width + j];

			x += t->from ? t->from[i * t->step + j] : 0;
			x += t->bias ? t->bias[j] : 0;
			t->c[i * t->step + j] = x;
		}
}

static void multiply(const struct hd_gemm_isa *isa, const struct hd_gemm_micro *t, int64_t rows, int64_t cols)
{
	float sums[HD_GEMM_MOST_SUMS];
	struct hd_gemm_micro edge = *t;

	if (rows >= isa->rows && cols >= isa->cols) {
		isa->multiply(t);
		return;
	}
	edge.c = sums;
	edge.step = isa->cols;
	edge.from = edge.bias = NULL;
	isa->multiply(&edge);
	add_edge(t, sums, isa->cols, hd_min(rows, isa->rows), hd_min(cols, isa->cols));
}

/* Multiplies the packed block of a with the panels of a piece. t: the first panels. */
static void use_panels(const struct gemm_run *r, const struct hd_gemm_micro *first, int64_t rows, int64_t cols)
{
	const struct hd_gemm_isa *isa = r->g->isa;
	int64_t panels = hd_parts(rows, isa->rows), lines = hd_parts(isa->cols * first->k * 4 / 64, panels);

	for (int64_t j = 0; j < cols; j += isa->cols)
		for (int64_t i = 0; i < rows; i += isa->rows) {
			struct hd_gemm_micro t = *first;

			t.a += i * t.k;
			t.b += j * t.k;
			t.c += i * t.step + j;
			t.from += t.from ? i * t.step + j : 0;
			t.bias += t.bias ? j : 0;
			t.next = (const char *)(t.b + isa->cols * t.k) + i / isa->rows * lines * 64;
			t.lines = j + isa->cols < cols ? lines : 0;
			multiply(isa, &t, rows - i, cols - j);
		}
}

/* Computes a piece of the columns of rows row to row_end - 1. */
static void use_piece(const struct gemm_run *r, const struct gemm_share *h, const struct gemm_step *t,
		      const struct gemm_piece *p, int64_t row, int64_t row_end)
{
	const struct hd_gemm *g = r->g;
	int64_t at = c_at(r, h, p, row), depth = t->k_end - t->k;
	struct hd_gemm_micro first = { .k = depth, .a = h->a, .b = h->b + (p->from - t->col) * depth };

	if (is_low(g, HD_MM_C)) {
		first.c = h->sums + (row - t->row) * g->wide + p->from - t->col;
		first.step = g->wide;
		first.from = t->k ? first.c : NULL;
	} else {
		first.c = (float *)p->o->c + at;
		first.step = stride(g, HD_MM_C, ROWS);
		first.from = t->k ? first.c : p->o->from ? (const float *)p->o->from + at : NULL;
		first.bias = p->o->bias && !t->k ? h->bias + p->from - t->col : NULL;
	}
	use_panels(r, &first, row_end - row, p->n);
}

static void use_block(const struct gemm_run *r, const struct gemm_share *h, const struct gemm_step *t)
{
	struct gemm_piece p;

	pack_b(r, h, t);
	for (int64_t row = t->row, end; row < t->row_end; row = end) {
		end = hd_min(t->row_end, row + r->g->tall);
		pack_a(r, h, t, row, end);
		for (int64_t v = t->col; v < t->col_end; v = next_piece(r, &p)) {
			p = piece_at(r, v, t->col_end);
			use_piece(r, h, t, &p, row, end);
		}
	}
}

/* Reads the bias of a block's columns as fp32. */
static void read_bias(const struct gemm_run *r, const struct gemm_share *h, const struct gemm_step *t)
{
	const struct hd_mm_shape *s = &r->g->s;
	struct gemm_piece p;

	for (int64_t v = t->col; v < t->col_end; v = next_piece(r, &p)) {
		int64_t at = hd_mm_batch_at(s, h->batch, HD_MM_BIAS);

		p = piece_at(r, v, t->col_end);
		for (int64_t j = 0; j < p.n && p.o->bias; j++)
			h->bias[v - t->col + j] =
				hd_get(p.o->bias, s->dtype[HD_MM_BIAS] == HD_DTYPE_BF16, at + p.col + j);
	}
}

/* Writes a bf16 c from the sums of a block: c = sums + from + bias. */
static void write_low(const struct gemm_run *r, const struct gemm_share *h, const struct gemm_step *t)
{
	float tmp[WIDE];
	struct gemm_piece p;

	for (int64_t v = t->col; v < t->col_end; v = next_piece(r, &p)) {
		p = piece_at(r, v, t->col_end);
		for (int64_t row = t->row; row < t->row_end; row++) {
			int64_t at = c_at(r, h, &p, row);
			float *y = h->sums + (row - t->row) * r->g->wide + v - t->col;

			if (p.o->from)
				hd_add_floats(y, hd_read(p.o->from, HD_DTYPE_BF16, at, p.n, tmp), p.n);
			if (p.o->bias)
				hd_add_floats(y, h->bias + v - t->col, p.n);
			hd_store_bf16((uint16_t *)p.o->c + at, y, p.n);
		}
	}
}

/* Computes a block of columns of rows t->row to t->row_end - 1. */
static void do_columns(const struct gemm_run *r, const struct gemm_share *h, struct gemm_step *t)
{
	const struct hd_gemm *g = r->g;

	read_bias(r, h, t);
	for (t->k = 0; t->k < g->k; t->k = t->k_end) {
		t->k_end = hd_min(g->k, t->k + g->deep);
		use_block(r, h, t);
	}
	if (is_low(g, HD_MM_C))
		write_low(r, h, t);
}

static void do_share(const struct gemm_run *r, const struct gemm_share *h)
{
	int64_t each = is_low(r->g, HD_MM_C) ? WAITING : r->g->rows;
	struct gemm_step t;

	for (t.col = h->col; t.col < h->col_end; t.col = t.col_end) {
		t.col_end = hd_min(h->col_end, t.col + r->g->wide);
		for (t.row = h->row; t.row < h->row_end; t.row = t.row_end) {
			t.row_end = hd_min(h->row_end, t.row + each);
			do_columns(r, h, &t);
		}
	}
}

/* Returns where share i of n rows or columns begins. */
static int64_t nth(int64_t n, int64_t i, int64_t of, int64_t unit)
{
	return hd_min(hd_parts(n, unit) * i / of * unit, n);
}

static void work(const struct gemm_run *r)
{
	const struct hd_gemm *g = r->g;
	int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
	struct gemm_share h = { .a = (float *)(r->scratch + me * thread_bytes(g)) };
	struct gemm_floats f = floats_of(g);

	h.b = h.a + f.a;
	h.bias = h.b + f.b;
	h.sums = h.bias + f.bias;
	for (int64_t i = me; i < g->batches * g->along * g->across; i += threads) {
		int64_t along = i / g->across % g->along, across = i % g->across;

		h.batch = i / (g->across * g->along);
		h.row = nth(g->m, along, g->along, g->isa->rows);
		h.row_end = nth(g->m, along + 1, g->along, g->isa->rows);
		h.col = nth(g->cols, across, g->across, g->isa->cols);
		h.col_end = nth(g->cols, across + 1, g->across, g->isa->cols);
		do_share(r, &h);
	}
}

void hd_gemm_run(const struct hd_gemm *g, void *scratch, const void *a, const struct hd_mm_operands *o)
{
	const struct gemm_run r = { g, a, o, scratch };

#pragma omp parallel num_threads((int)g->threads)
	work(&r);
}

void hd_gemm_run_shape(const struct hd_mm_shape *s, void *scratch, const void *a, const struct hd_mm_operands *o)
{
	struct hd_gemm g;

	plan(&g, s, 1, hd_gemm_best(), omp_get_max_threads());
	hd_gemm_run(&g, scratch, a, o);
}
