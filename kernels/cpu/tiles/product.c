/* SPDX-License-Identifier: Apache-2.0
 * Products of bf16 on tiles, as in training: with operands in memory rather than in a cache. The tiles are so fast
 * that everything else dominates. So
 *
 *	each thread has a share of c and works alone (blocks.c),
 *	b is packed in blocks that fit in a part of L2, and a block is used completely before the next,
 *	a panel of a, 32 rows and at most HD_AMX_KEPT of k, stays in L1 while it meets all columns of the block,
 *	meanwhile the next parts of a and b, and the next rows of c to be written, are prefetched to L2.
 *
 * The sum over k runs from first to last in fp32, whatever the blocks, so nothing depends on them nor on the threads.
 */
#include <config.h>
#include "kernels/cpu/tiles/tiles.h"
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#if HD_AMX

#define SIDE HD_AMX_SIDE
/* Minimum bytes of a c that is written past the caches. Gradients of weights, in fp32, are not read until the
 * optimizer runs. A bf16 result is read soon, if a cache can keep it. */
#define PAST_F32 ((int64_t)2 << 20)
#define PAST_BF16 ((int64_t)16 << 20)

struct hd_amx {
	struct hd_mm_shape s;
	struct hd_amx_size size;
	struct hd_amx_blocks blocks;
	/* Number of products, whose columns follow each other; columns of one, rounded up to a multiple of 32. */
	int64_t several, each;
	int64_t threads; /* threads that there is scratch for */
};

struct amx_run {
	const struct hd_amx *x;
	const char *a;
	const struct hd_mm_operands *o;
	char *scratch;
};

struct amx_share { /* the share of one thread: rows and columns of c in a batch; its scratch */
	int64_t batch, row, row_end, col, col_end;
	uint16_t *block, *a;
	float *sums;
};

struct amx_step { /* a block: rows row to row_end - 1 of c and a, columns of c and b, and k to k_end - 1 */
	int64_t row, row_end, col, col_end, k, k_end;
};

int hd_amx_here(void)
{
	return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx &&
	       hd_amx_allowed();
}

/* ---- preparation ----------------------------------------------------------------------------- */

static int fits(const struct hd_mm_shape *s)
{
	int m = s->ndim - 3, n = m + 1, k = m + 2;

	return s->dtype[HD_MM_A] == HD_DTYPE_BF16 && s->dtype[HD_MM_B] == HD_DTYPE_BF16 && s->stride[HD_MM_C][n] <= 1 &&
	       s->n[n] > 1 && hd_mm_is_dense(s, HD_MM_A, m, k) && hd_mm_is_dense(s, HD_MM_B, n, k);
}

static int plan(struct hd_amx *x, const struct hd_mm_shape *s, int64_t several, int threads)
{
	if (!fits(s) || !hd_amx_here())
		return 0;
	*x = (struct hd_amx){ .s = *s, .several = several, .each = hd_up(s->n[s->ndim - 2], SIDE), .threads = threads };
	x->size = (struct hd_amx_size){ .batches = 1,
					.m = s->n[s->ndim - 3],
					.n = several * x->each,
					.k = s->n[s->ndim - 1],
					.a_across = s->stride[HD_MM_A][s->ndim - 1] > 1,
					.b_across = s->stride[HD_MM_B][s->ndim - 1] > 1 };
	for (int d = 0; d < s->ndim - 3; d++)
		x->size.batches *= s->n[d];
	hd_amx_cut(&x->size, threads, &x->blocks);
	return 1;
}

/* The scratch of one thread: its block of b, its panels of a, its sums. */
static int64_t panels_bytes(const struct hd_amx *x)
{
	return x->blocks.group * SIDE * x->blocks.kept * 2;
}

static int64_t thread_bytes(const struct hd_amx *x)
{
	return hd_up(hd_amx_block_bytes(&x->blocks) + panels_bytes(x) + hd_amx_sums_bytes(&x->blocks), 4096);
}

int64_t hd_amx_taken(const struct hd_amx *x)
{
	return x->threads * thread_bytes(x);
}

int64_t hd_amx_bytes(const struct hd_mm_shape *s, int threads)
{
	struct hd_amx x;

	return plan(&x, s, 1, threads) ? hd_amx_taken(&x) : 0;
}

struct hd_amx *hd_amx_create(const struct hd_mm_shape *s, int64_t several)
{
	struct hd_amx *x = hd_alloc(sizeof(*x));

	if (plan(x, s, several, omp_get_max_threads()))
		return x;
	free(x);
	return NULL;
}

void hd_amx_destroy(struct hd_amx *x)
{
	free(x);
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* a_at() returns element (i, k) of a; b_at() returns element (k, first column of p) of b. */
static const uint16_t *a_at(const struct amx_run *r, const struct amx_share *h, int64_t i, int64_t k)
{
	const int64_t *step = r->x->s.stride[HD_MM_A] + r->x->s.ndim - 3;

	return (const uint16_t *)r->a + hd_mm_batch_at(&r->x->s, h->batch, HD_MM_A) + i * step[0] + k * step[2];
}

/* Columns of one product within a block, whose columns are those of several products. Its first column there is
 * `from`. */
struct amx_piece {
	const struct hd_mm_operands *o;
	int64_t from, col, n; /* col: the first column in the product; n: how many columns */
};

/* Returns the piece that begins at column v of all products. end: of the block. */
static struct amx_piece piece_at(const struct amx_run *r, int64_t v, int64_t end)
{
	const struct hd_amx *x = r->x;
	struct amx_piece p = { .o = r->o + v / x->each, .from = v, .col = v % x->each };

	p.n = hd_min(end - v, x->s.n[x->s.ndim - 2] - p.col);
	return p;
}

/* Returns where the next piece begins. */
static int64_t next_piece(const struct amx_piece *p)
{
	return p->from + hd_parts(p->n, SIDE) * SIDE;
}

static const uint16_t *b_at(const struct amx_run *r, const struct amx_share *h, const struct amx_piece *p, int64_t k)
{
	const int64_t *step = r->x->s.stride[HD_MM_B] + r->x->s.ndim - 3;

	return (const uint16_t *)p->o->b + hd_mm_batch_at(&r->x->s, h->batch, HD_MM_B) + p->col * step[1] + k * step[2];
}

/* Returns whether c is written past the caches, which takes complete lines of 64 bytes. */
static int bypasses_cache(const struct hd_amx *x, const struct hd_mm_operands *o)
{
	int low = x->s.dtype[HD_MM_C] == HD_DTYPE_BF16;
	int64_t size = low ? 2 : 4, bytes = x->size.m * x->s.n[x->s.ndim - 2] * size;

	return !o->from && x->s.ndim == 3 && bytes >= (low ? PAST_BF16 : PAST_F32) && !((uintptr_t)o->c % 64) &&
	       !(x->s.stride[HD_MM_C][0] * size % 64);
}

/* Describes the destination of a piece's rows from `row` to at most row_end - 1. */
static struct hd_amx_out out_of(const struct amx_run *r, const struct amx_share *h, const struct amx_piece *p,
				int64_t row, int64_t row_end)
{
	const struct hd_amx *x = r->x;
	const struct hd_mm_shape *s = &x->s;
	int64_t step = s->stride[HD_MM_C][s->ndim - 3], c = hd_mm_batch_at(s, h->batch, HD_MM_C) + row * step + p->col;
	int64_t bias = hd_mm_batch_at(s, h->batch, HD_MM_BIAS) + p->col;
	int low = s->dtype[HD_MM_C] == HD_DTYPE_BF16, bias_low = s->dtype[HD_MM_BIAS] == HD_DTYPE_BF16;

	return (struct hd_amx_out){ .c = (char *)p->o->c + c * (low ? 2 : 4),
				    .from = p->o->from ? (const char *)p->o->from + c * (low ? 2 : 4) : NULL,
				    .step = step,
				    .bias = p->o->bias ? (const char *)p->o->bias + bias * (bias_low ? 2 : 4) : NULL,
				    .low = low,
				    .bias_low = bias_low,
				    .past = bypasses_cache(x, p->o),
				    .rows = hd_min(SIDE, row_end - row),
				    .cols = p->n };
}

/* ---- prefetches ------------------------------------------------------------------------------ */

/* Describes the prefetch of n x k elements from `from` on, spread over the multiplication of `tiles` pairs of tiles. */
static struct hd_amx_ahead ahead(const uint16_t *from, int64_t step, int64_t k_step, int64_t n, int64_t k,
				 int64_t tiles)
{
	struct hd_amx_ahead f = { .row = (const char *)from };

	f.rows = k_step > 1 ? k : n;
	f.width = (k_step > 1 ? n : k) * 2;
	f.step = (k_step > 1 ? k_step : step) * 2;
	f.lines = f.rows * ((f.width + 63) / 64) * HD_AMX_LINE / (tiles ? tiles : 1) + 1;
	return f;
}

static struct hd_amx_ahead a_ahead(const struct amx_run *r, const struct amx_share *h, int64_t row, int64_t row_end,
				   int64_t k, int64_t k_end, int64_t tiles)
{
	const int64_t *step = r->x->s.stride[HD_MM_A] + r->x->s.ndim - 3;

	return ahead(a_at(r, h, row, k), step[0], step[2], row_end - row, k_end - k, tiles);
}

/* Describes the prefetch of a block's first piece. */
static struct hd_amx_ahead b_ahead(const struct amx_run *r, const struct amx_share *h, const struct amx_step *t,
				   int64_t tiles)
{
	const int64_t *step = r->x->s.stride[HD_MM_B] + r->x->s.ndim - 3;
	struct amx_piece p = piece_at(r, t->col, t->col_end);

	return ahead(b_at(r, h, &p, t->k), step[1], step[2], p.n, t->k_end - t->k, tiles);
}

/* Describes the prefetch of the next rows of c, or of what is added to it. */
static struct hd_amx_ahead c_ahead(const struct hd_amx_out *o, int64_t rows, int64_t tiles)
{
	int64_t bytes = o->low ? 2 : 4;
	struct hd_amx_ahead f = { .row = (const char *)(o->from ? o->from : o->c) + SIDE * o->step * bytes,
				  .step = o->step * bytes,
				  .width = o->cols * bytes,
				  .rows = o->past ? 0 : hd_min(rows, SIDE) };

	f.lines = f.rows * ((f.width + 63) / 64) * HD_AMX_LINE / tiles + 1;
	return f;
}

/* ---- run ------------------------------------------------------------------------------------- */

struct amx_pack { /* packing of n x k elements of a or b into panels of 32 x k */
	uint16_t *to;
	int64_t to_step; /* elements between panels */
	const uint16_t *from;
	int64_t step, k_step, n, k;
	int pairs;
};

/* Packs panels one after the other if their elements are contiguous along k. Else packs all of them a few k at a time,
 * so that memory is read in long pieces. */
static void pack_panels(const struct amx_pack *p)
{
	int64_t each = p->k_step <= 1 ? p->k : SIDE;

	for (int64_t k = 0; k < p->k; k += each)
		for (int64_t j = 0; j * SIDE < p->n; j++)
			hd_amx_pack(p->to + j * p->to_step + k * SIDE, p->from + j * SIDE * p->step + k * p->k_step,
				    p->step, p->k_step, hd_min(SIDE, p->n - j * SIDE), hd_min(each, p->k - k),
				    p->pairs);
}

static void pack_block(const struct amx_run *r, const struct amx_share *h, const struct amx_step *t)
{
	const int64_t *step = r->x->s.stride[HD_MM_B] + r->x->s.ndim - 3;
	int64_t deep = hd_up(t->k_end - t->k, SIDE);
	struct amx_piece p;

	for (int64_t v = t->col; v < t->col_end; v = next_piece(&p)) {
		p = piece_at(r, v, t->col_end);
		pack_panels(&(struct amx_pack){ .to = h->block + (v - t->col) * deep,
						.to_step = deep * SIDE,
						.from = b_at(r, h, &p, t->k),
						.step = step[1],
						.k_step = step[2],
						.n = p.n,
						.k = t->k_end - t->k,
						.pairs = 1 });
	}
}

struct amx_part { /* a part of a block's a: rows row to row_end - 1, and k to k_end - 1 */
	int64_t row, row_end, k, k_end;
};

static struct amx_part first_part(const struct hd_amx *x, const struct amx_step *t)
{
	return (struct amx_part){ t->row, hd_min(t->row_end, t->row + x->blocks.group * SIDE), t->k,
				  hd_min(t->k_end, t->k + x->blocks.kept) };
}

/* Advances to the next part. Returns 0 if this was the last one of its block. */
static int next_part(const struct hd_amx *x, const struct amx_step *t, struct amx_part *p)
{
	p->k = p->k_end;
	if (p->k >= t->k_end) {
		p->k = t->k;
		p->row = p->row_end;
		p->row_end = hd_min(t->row_end, p->row + x->blocks.group * SIDE);
	}
	p->k_end = hd_min(t->k_end, p->k + x->blocks.kept);
	return p->row < t->row_end;
}

/* Multiplies a packed panel of a, rows from `row` on, with the block. */
static void use_panel(const struct amx_run *r, const struct amx_share *h, const struct amx_step *t,
		      const struct amx_part *p, int64_t row, struct hd_amx_next *next)
{
	const struct hd_amx *x = r->x;
	const uint16_t *a = h->a + (row - p->row) * x->blocks.kept;
	int64_t deep = hd_up(t->k_end - t->k, SIDE), tiles = hd_parts(p->k_end - p->k, SIDE);
	int first = p->k == 0, last = p->k_end == x->size.k;
	float *sums = h->sums + (row - (x->blocks.chunks > 1 ? t->row : p->row)) * x->blocks.cols;
	struct amx_piece piece;

	for (int64_t v = t->col; v < t->col_end; v = next_piece(&piece)) {
		struct hd_amx_out out;

		piece = piece_at(r, v, t->col_end);
		out = out_of(r, h, &piece, row, t->row_end);
		next->c = last ? c_ahead(&out, t->row_end - row - SIDE, tiles * hd_parts(piece.n, SIDE))
			       : (struct hd_amx_ahead){ .rows = 0 };
		hd_amx_panel(a, h->block + (v - t->col) * deep + (p->k - t->k) * SIDE, deep * SIDE, tiles,
			     hd_parts(piece.n, SIDE), first && last ? NULL : sums + (v - t->col) * SIDE, first,
			     last ? &out : NULL, next);
	}
}

static void use_part(const struct amx_run *r, const struct amx_share *h, const struct amx_step *t,
		     const struct amx_part *p, struct hd_amx_next *next)
{
	const struct hd_amx *x = r->x;
	const int64_t *step = x->s.stride[HD_MM_A] + x->s.ndim - 3;

	pack_panels(&(struct amx_pack){ .to = h->a,
					.to_step = SIDE * x->blocks.kept,
					.from = a_at(r, h, p->row, p->k),
					.step = step[0],
					.k_step = step[2],
					.n = p->row_end - p->row,
					.k = p->k_end - p->k });
	for (int64_t row = p->row; row < p->row_end; row += SIDE)
		use_panel(r, h, t, p, row, next);
}

/* Computes a block. after: the next block, or NULL. */
static void use_block(const struct amx_run *r, const struct amx_share *h, const struct amx_step *t,
		      const struct amx_step *after)
{
	const struct hd_amx *x = r->x;
	int64_t blocks = hd_parts(t->col_end - t->col, SIDE);
	struct amx_part p = first_part(x, t), q = p;
	struct hd_amx_next next = { .a = { .rows = 0 } };

	pack_block(r, h, t);
	if (after)
		next.b = b_ahead(r, h, after,
				 hd_parts(t->row_end - t->row, SIDE) * hd_parts(t->k_end - t->k, SIDE) * blocks);
	for (int more = 1; more; p = q) {
		int64_t tiles = hd_parts(p.row_end - p.row, SIDE) * hd_parts(p.k_end - p.k, SIDE) * blocks;

		more = next_part(x, t, &q);
		if (!more && after)
			q = first_part(x, after);
		next.a = more || after ? a_ahead(r, h, q.row, q.row_end, q.k, q.k_end, tiles)
				       : (struct hd_amx_ahead){ .rows = 0 };
		use_part(r, h, t, &p, &next);
	}
}

static void set_ends(const struct hd_amx *x, const struct amx_share *h, struct amx_step *t)
{
	t->k_end = hd_min(x->size.k, t->k + x->blocks.deep);
	t->row_end = hd_min(h->row_end, t->row + x->blocks.rows);
	t->col_end = hd_min(h->col_end, t->col + x->blocks.cols);
}

/* Advances along k, then to the block below, then to the next columns. Returns 0 if this was the last block. */
static int next_step(const struct hd_amx *x, const struct amx_share *h, struct amx_step *t)
{
	t->k = t->k_end;
	if (t->k >= x->size.k) {
		t->k = 0;
		t->row = t->row_end;
	}
	if (t->row >= h->row_end) {
		t->row = h->row;
		t->col = t->col_end;
	}
	set_ends(x, h, t);
	return t->col < h->col_end;
}

static void do_share(const struct amx_run *r, const struct amx_share *h)
{
	struct amx_step now = { .row = h->row, .col = h->col }, after;

	set_ends(r->x, h, &now);
	after = now;
	for (int more = h->row < h->row_end && h->col < h->col_end; more; now = after) {
		more = next_step(r->x, h, &after);
		use_block(r, h, &now, more ? &after : NULL);
	}
}

static int64_t nth(int64_t n, int64_t i, int64_t of)
{
	return hd_min(hd_parts(n, SIDE) * i / of * SIDE, n);
}

static void work(const struct amx_run *r)
{
	const struct hd_amx *x = r->x;
	const struct hd_amx_blocks *b = &x->blocks;
	int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
	char *own = r->scratch + me * thread_bytes(x);
	struct amx_share h = { .block = (uint16_t *)own, .a = (uint16_t *)(own + hd_amx_block_bytes(b)) };

	h.sums = (float *)((char *)h.a + panels_bytes(x));
	hd_amx_begin();
	for (int64_t i = me; i < x->size.batches * b->along * b->across; i += threads) {
		int64_t along = i / b->across % b->along, across = i % b->across;

		h.batch = i / (b->across * b->along);
		h.row = nth(x->size.m, along, b->along);
		h.row_end = nth(x->size.m, along + 1, b->along);
		h.col = nth(x->size.n, across, b->across);
		h.col_end = nth(x->size.n, across + 1, b->across);
		do_share(r, &h);
	}
	hd_amx_end();
	hd_amx_settle();
}

void hd_amx_run(const struct hd_amx *x, void *scratch, const void *a, const struct hd_mm_operands *o)
{
	const struct amx_run r = { x, a, o, scratch };

#pragma omp parallel num_threads((int)x->threads)
	work(&r);
}

#else
int64_t hd_amx_bytes(const struct hd_mm_shape *s, int threads)
{
	(void)s, (void)threads;
	return 0;
}
int64_t hd_amx_taken(const struct hd_amx *x)
{
	(void)x;
	return 0;
}
int hd_amx_here(void)
{
	return 0;
}
struct hd_amx *hd_amx_create(const struct hd_mm_shape *s, int64_t several)
{
	(void)s, (void)several;
	return NULL;
}
void hd_amx_destroy(struct hd_amx *x)
{
	(void)x;
}
void hd_amx_run(const struct hd_amx *x, void *scratch, const void *a, const struct hd_mm_operands *o)
{
	(void)x, (void)scratch, (void)a, (void)o;
}
#endif
