/* SPDX-License-Identifier: Apache-2.0
 * Products of bf16 on tiles, as training meets them: operands that lie in memory, not in a cache.  What is slow then is not the
 * tiles but c, if its rows are written in pieces far apart.  So
 *
 *	b is packed in blocks that fit a part of L2, by all threads together, and used up before the next,
 *	rows of c are shared out among the threads in panels of 32,
 *	a panel of a, of at most KEPT of k, stays in L1 while it passes all columns of the block, and c is written row by row,
 *	what is read of a for the next panels is fetched to L2 in that time.
 *
 * The sum over k runs from first to last in fp32, whatever the blocks, so nothing depends on them nor on the threads.
 */
#include <config.h>
#include "kernels/cpu/matmul/amx.h"
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#if HD_AMX

#define SIDE HD_AMX_SIDE
/* Chosen by timing on a processor with 48 KB of L1 and 2 MB of L2, as all with tiles have so far. */
#define KEPT 384                    /* k of a panel of a: 24 KB of L1 */
#define GROUP 8                     /* panels of an a that lies across k, which are packed together */
#define LONGEST 1536                /* k of a block of b */
#define BLOCK ((int64_t)640 * 1024) /* its elements: 1.25 MB of L2 */
#define SUMS ((int64_t)320 * 1024)  /* of one thread, beside a block: 1.25 MB */
#define PRODUCTS 100                /* made in the time in which an element is packed */

struct hd_amx {
	struct hd_mm_shape s;
	int64_t m, n, k; /* extents; panels: of 32 rows */
	int64_t panels, batches;
	int64_t group;               /* panels of a that are packed together */
	int64_t wide, blocks;        /* columns of a block of b, a multiple of 32; blocks along n */
	int64_t deep, chunks;        /* k of one, likewise */
	int64_t each, sums, threads; /* bytes of a block and of its sums, threads that there is scratch for */
};

struct amx_team { /* threads in `across` groups; a group has blocks of its own, and its members panels */
	int64_t across, along, group, member;
	char *block; /* two, of this group, one after the other */
	uint16_t *a; /* of this thread */
	float *sums; /* of this thread, or of the panels of this group */
};

struct amx_run {
	const struct hd_amx *x;
	const char *a, *b, *bias;
	char *c;
	int sum;
	char *scratch;
};

int hd_amx_here(void)
{
	return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx &&
	       hd_amx_allowed();
}

static int64_t up(int64_t n, int64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* ---- preparation ----------------------------------------------------------------------------- */

/* Elements of an operand lie side by side along one of its two dims.  A dim of extent 1 has stride 0, which says nothing of the
 * other. */
static int is_dense(const struct hd_mm_shape *s, int operand, int dim, int k)
{
	const int64_t *stride = s->stride[operand];

	return s->n[dim] == 1 || stride[dim] == 1 || (s->n[k] > 1 && stride[k] == 1);
}

static int fits(const struct hd_mm_shape *s)
{
	int m = s->ndim - 3, n = m + 1, k = m + 2;

	return s->dtype[HD_MM_A] == HD_DTYPE_BF16 && s->dtype[HD_MM_B] == HD_DTYPE_BF16 && s->stride[HD_MM_C][n] <= 1 &&
	       s->n[n] > 1 && is_dense(s, HD_MM_A, m, k) && is_dense(s, HD_MM_B, n, k);
}

/* n cut into equal parts of at most `most`, multiples of 32 */
static int64_t part(int64_t n, int64_t most, int64_t *parts)
{
	*parts = (up(n, SIDE) + most - 1) / most;
	return up((n + *parts - 1) / *parts, SIDE);
}

/* Bytes of one thread's panel and sums. */
static int64_t own_bytes(const struct hd_amx *x)
{
	return x->group * (SIDE * KEPT * 2 + (x->chunks > 1 ? 0 : SIDE * x->wide * 4));
}

/* Blocks of b for `across` groups of threads.  An a that lies across k costs as much to pack as it does to use with a few blocks,
 * so all columns of a group are one block there, if its sums stay in a cache too. */
static void cut(struct hd_amx *x, int64_t across)
{
	int64_t cols = up((x->n + across - 1) / across, SIDE), rows = up(x->m * across / x->threads, SIDE), parts;
	int64_t deep = BLOCK / cols / SIDE * SIDE;

	if (x->group == 1 || deep < KEPT || rows * cols > SUMS)
		deep = LONGEST;
	x->deep = part(x->k, least(deep, LONGEST), &x->chunks);
	x->wide = part(cols, BLOCK / x->deep / SIDE * SIDE, &parts);
	x->blocks = (x->n + x->wide - 1) / x->wide;
}

/* What one of the threads has to do in `across` groups, for each k, in elements that it packs, or fetches from who did. */
static int64_t cost(const struct hd_amx *x, int64_t across, int64_t threads)
{
	int64_t along = threads / across, rows = (x->panels + along - 1) / along * SIDE;

	return (x->batches * x->blocks + across - 1) / across * (rows * x->wide / PRODUCTS + rows + x->wide);
}

static int64_t best_across(const struct hd_amx *x, int64_t threads)
{
	int64_t best = 1;

	for (int64_t across = 2; across <= threads; across++)
		if (cost(x, across, threads) < cost(x, best, threads))
			best = across;
	return best;
}

static void cut_best(struct hd_amx *x)
{
	struct hd_amx y = *x;
	int64_t best = INT64_MAX;

	for (int64_t across = 1; across <= x->threads; across++) {
		cut(&y, across);
		if (cost(&y, across, x->threads) < best) {
			best = cost(&y, across, x->threads);
			*x = y;
		}
	}
}

static int plan(struct hd_amx *x, const struct hd_mm_shape *s, int threads)
{
	if (!fits(s) || !hd_amx_here())
		return 0;
	*x = (struct hd_amx){ .s = *s };
	x->m = s->n[s->ndim - 3];
	x->n = s->n[s->ndim - 2];
	x->k = s->n[s->ndim - 1];
	x->panels = (x->m + SIDE - 1) / SIDE;
	x->batches = 1;
	for (int d = 0; d < s->ndim - 3; d++)
		x->batches *= s->n[d];
	x->group = s->stride[HD_MM_A][s->ndim - 1] <= 1 ? 1 : GROUP;
	x->threads = threads;
	cut_best(x);
	x->each = x->wide * x->deep * 2;
	x->sums = x->chunks > 1 ? x->panels * SIDE * x->wide * 4 : 0;
	return 1;
}

int64_t hd_amx_bytes(const struct hd_mm_shape *s, int threads)
{
	struct hd_amx x;

	return plan(&x, s, threads) ? x.threads * (2 * x.each + x.sums + own_bytes(&x)) : 0;
}

struct hd_amx *hd_amx_create(const struct hd_mm_shape *s)
{
	struct hd_amx *x = hd_alloc(sizeof(*x));

	if (plan(x, s, omp_get_max_threads()))
		return x;
	free(x);
	return NULL;
}

void hd_amx_destroy(struct hd_amx *x)
{
	free(x);
}

/* ---- run ------------------------------------------------------------------------------------- */

/* Threads in groups: what a group packs, each of its members reads. */
static struct amx_team join(const struct hd_amx *x, char *scratch)
{
	int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
	struct amx_team t = { .across = best_across(x, threads) };
	char *own;

	t.along = threads / t.across;
	t.group = me / t.along;
	t.member = me % t.along;
	t.block = scratch + t.group * (2 * x->each + x->sums);
	own = scratch + threads * (2 * x->each + x->sums) + me * own_bytes(x);
	t.a = (uint16_t *)own;
	t.sums = (float *)(x->chunks > 1 ? t.block + 2 * x->each : own + x->group * SIDE * KEPT * 2);
	return t;
}

/* Elements from the first of operand o to the first of batch i. */
static int64_t batch_at(const struct hd_amx *x, int64_t i, int o)
{
	int64_t at = 0;

	for (int d = x->s.ndim - 4; d >= 0; d--) {
		at += i % x->s.n[d] * x->s.stride[o][d];
		i /= x->s.n[d];
	}
	return at;
}

struct amx_block {                          /* of b, and what it is multiplied with */
	int64_t batch, from, cols, k, deep; /* from: column; k: first; deep: how many */
	char *mem;
};

struct amx_pack { /* n x k elements of a or b into panels of 32 x k */
	uint16_t *to;
	int64_t to_step; /* elements between panels */
	const uint16_t *from;
	int64_t step, k_step, n, k;
	int pairs;
};

/* Panels i to end - 1: one after the other if they lie along k, else all of them a few k at a time, so that memory is read in
 * long pieces. */
static void pack_panels(const struct amx_pack *p, int64_t i, int64_t end)
{
	int64_t each = p->k_step <= 1 ? p->k : SIDE;

	for (int64_t k = 0; k < p->k; k += each)
		for (int64_t j = i; j < end; j++)
			hd_amx_pack(p->to + j * p->to_step + k * SIDE, p->from + j * SIDE * p->step + k * p->k_step,
				    p->step, p->k_step, least(SIDE, p->n - j * SIDE), least(each, p->k - k), p->pairs);
}

static void pack_block(const struct amx_run *r, const struct amx_team *t, const struct amx_block *b)
{
	const struct hd_amx *x = r->x;
	const int64_t *step = x->s.stride[HD_MM_B] + x->s.ndim - 3;
	int64_t first = batch_at(x, b->batch, HD_MM_B) + b->from * step[1] + b->k * step[2];
	int64_t panels = (b->cols + SIDE - 1) / SIDE;
	const struct amx_pack p = { .to = (uint16_t *)b->mem,
				    .to_step = up(b->deep, SIDE) * SIDE,
				    .from = (const uint16_t *)r->b + first,
				    .step = step[1],
				    .k_step = step[2],
				    .n = b->cols,
				    .k = b->deep,
				    .pairs = 1 };

	pack_panels(&p, panels * t->member / t->along, panels * (t->member + 1) / t->along);
}

/* Where rows of c from `row` on go. */
static struct hd_amx_out out_of(const struct amx_run *r, const struct amx_block *b, int64_t row)
{
	const struct hd_amx *x = r->x;
	const struct hd_mm_shape *s = &x->s;
	int64_t step = s->stride[HD_MM_C][s->ndim - 3], c = batch_at(x, b->batch, HD_MM_C) + row * step + b->from;
	int64_t bias = batch_at(x, b->batch, HD_MM_BIAS) + b->from;
	int low = s->dtype[HD_MM_C] == HD_DTYPE_BF16, bias_low = s->dtype[HD_MM_BIAS] == HD_DTYPE_BF16;

	return (struct hd_amx_out){ .c = r->c + c * (low ? 2 : 4),
				    .step = step,
				    .bias = r->bias ? r->bias + bias * (bias_low ? 2 : 4) : NULL,
				    .low = low,
				    .bias_low = bias_low,
				    .sum = r->sum,
				    .rows = least(SIDE, x->m - row),
				    .cols = b->cols };
}

struct amx_part { /* of a: panels p to end - 1, and `deep` of k from `k` on, of the block's */
	int64_t p, end, k, deep;
};

static int64_t panels_of(int64_t n)
{
	return (n + SIDE - 1) / SIDE;
}

/* The first element of a part. */
static const uint16_t *part_of(const struct amx_run *r, const struct amx_block *b, const struct amx_part *part)
{
	const struct hd_amx *x = r->x;
	const int64_t *step = x->s.stride[HD_MM_A] + x->s.ndim - 3;

	return (const uint16_t *)r->a + batch_at(x, b->batch, HD_MM_A) + part->p * SIDE * step[0] +
	       (b->k + part->k) * step[2];
}

/* What is read of a for a part, while as many pairs of tiles are multiplied. */
static struct hd_amx_ahead ahead_of(const struct amx_run *r, const struct amx_block *b, const struct amx_part *part,
				    int64_t tiles)
{
	const struct hd_amx *x = r->x;
	const int64_t *step = x->s.stride[HD_MM_A] + x->s.ndim - 3;
	int64_t rows = least(part->end * SIDE, x->m) - part->p * SIDE;
	struct hd_amx_ahead f = { .row = (const char *)part_of(r, b, part) };

	f.rows = step[2] > 1 ? part->deep : rows;
	f.width = (step[2] > 1 ? rows : part->deep) * 2;
	f.step = (step[2] > 1 ? step[2] : step[0]) * 2;
	f.lines = f.rows * ((f.width + 63) / 64) * HD_AMX_LINE / tiles + 1;
	return f;
}

/* The part after this one; 0: it was the last of its block.  end: of this thread's panels */
static int next_part(const struct hd_amx *x, const struct amx_block *b, int64_t each, int64_t end,
		     struct amx_part *part)
{
	part->k += part->deep;
	if (part->k >= b->deep) {
		part->k = 0;
		part->p = part->end;
		part->end = least(end, part->p + x->group);
	}
	part->deep = least(each, b->deep - part->k);
	return part->p < end;
}

/* A part of a times the block; next: what is packed after it */
static void use_part(const struct amx_run *r, const struct amx_team *t, const struct amx_block *b,
		     const struct amx_part *part, struct hd_amx_ahead *next)
{
	const struct hd_amx *x = r->x;
	const int64_t *step = x->s.stride[HD_MM_A] + x->s.ndim - 3;
	int64_t b_step = up(b->deep, SIDE) * SIDE, first = b->k + part->k == 0,
		last = b->k + part->k + part->deep == x->k;
	const struct amx_pack pack = { .to = t->a,
				       .to_step = SIDE * KEPT,
				       .from = part_of(r, b, part),
				       .step = step[0],
				       .k_step = step[2],
				       .n = x->m - part->p * SIDE,
				       .k = part->deep };

	pack_panels(&pack, 0, part->end - part->p);
	for (int64_t i = part->p; i < part->end; i++) {
		struct hd_amx_out out = out_of(r, b, i * SIDE);
		float *sums = t->sums + (x->chunks > 1 ? i : i - part->p) * SIDE * x->wide;

		hd_amx_panel(t->a + (i - part->p) * SIDE * KEPT, (const uint16_t *)b->mem + part->k * SIDE, b_step,
			     panels_of(part->deep), panels_of(b->cols), first && last ? NULL : sums, (int)first,
			     last ? &out : NULL, next);
	}
}

/* This thread's panels, from p to end - 1, times the block */
static void use_panels(const struct amx_run *r, const struct amx_team *t, const struct amx_block *b, int64_t p,
		       int64_t end)
{
	const struct hd_amx *x = r->x;
	int64_t parts, each = part(b->deep, KEPT, &parts);
	struct amx_part now = { p, least(end, p + x->group), 0, least(each, b->deep) }, next = now;

	for (int more = p < end; more; now = next) {
		struct hd_amx_ahead ahead = { .rows = 0 };

		more = next_part(x, b, each, end, &next);
		if (more)
			ahead = ahead_of(r, b, &next, (now.end - now.p) * panels_of(now.deep) * panels_of(b->cols));
		use_part(r, t, b, &now, &ahead);
	}
}

/* All of a block: two are packed in turn, so that one barrier is enough. */
static void use_block(const struct amx_run *r, const struct amx_team *t, int64_t item, int64_t chunk, char *mem)
{
	const struct hd_amx *x = r->x;
	int busy = t->group < t->across && item < x->batches * x->blocks;
	int64_t first = x->panels * t->member / t->along, end = x->panels * (t->member + 1) / t->along;
	struct amx_block b = { item / x->blocks, item % x->blocks * x->wide, 0, chunk * x->deep, 0, mem };

	b.cols = least(x->wide, x->n - b.from);
	b.deep = least(x->deep, x->k - b.k);
	if (busy)
		pack_block(r, t, &b);
#pragma omp barrier
	if (busy)
		use_panels(r, t, &b, first, end);
}

static void work(const struct amx_run *r)
{
	const struct hd_amx *x = r->x;
	const struct amx_team t = join(x, r->scratch);
	int64_t items = x->batches * x->blocks, turn = 0;

	hd_amx_begin();
	for (int64_t i = 0; i < items; i += t.across)
		for (int64_t chunk = 0; chunk < x->chunks; chunk++, turn ^= 1)
			use_block(r, &t, i + t.group, chunk, t.block + turn * x->each);
	hd_amx_end();
}

void hd_amx_run(const struct hd_amx *x, void *scratch, int sum, void *c, const void *a, const void *b, const void *bias)
{
	const struct amx_run r = { x, a, b, bias, c, sum, scratch };

#pragma omp parallel num_threads((int)x->threads)
	work(&r);
}

#else
int64_t hd_amx_bytes(const struct hd_mm_shape *s, int threads)
{
	(void)s, (void)threads;
	return 0;
}
int hd_amx_here(void)
{
	return 0;
}
struct hd_amx *hd_amx_create(const struct hd_mm_shape *s)
{
	(void)s;
	return NULL;
}
void hd_amx_destroy(struct hd_amx *x)
{
	(void)x;
}
void hd_amx_run(const struct hd_amx *x, void *scratch, int sum, void *c, const void *a, const void *b, const void *bias)
{
	(void)x, (void)scratch, (void)sum, (void)c, (void)a, (void)b, (void)bias;
}
#endif
