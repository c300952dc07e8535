/* SPDX-License-Identifier: Apache-2.0
 * How a product on tiles is cut: into shares of c for the threads, and into blocks that fit in a part of L2. A model
 * of one thread counts the cycles of each way to cut it, and the cheapest is chosen. The model was fitted to 356
 * timings of 22 products of GPT-2, each cut in all ways, with operands in memory. The processor had 48 KB of L1 and 2
 * MB of L2, as all processors with tiles have so far. Its mean error is 9 %.
 */
#include <config.h>
#include "kernels/cpu/tiles/tiles.h"
#if HD_AMX

#define SIDE HD_AMX_SIDE
#define WIDEST 2048               /* most columns of a block */
#define L2 ((int64_t)1536 * 1024) /* most bytes of a packed block of b and the sums of a block of c */
#define ACROSS 8                  /* panels that are packed together of an a that is contiguous across k */

/* Costs in cycles. */
#define PRODUCT 123.0 /* two pairs of tiles: 32 x 32 x 32 */
#define CROWDED 45.0  /* extra, per MB above ROOM that L2 contains meanwhile */
#define ROOM 0.8
#define SPLIT 367.0 /* a block of 32 x 32 of a c whose rows several threads write */
#define COPY 0.43   /* an element of an a that is contiguous along k, including the transfer from memory */
#define TURN 0.72   /* an element of an a that is contiguous across k */
#define PAIR 0.93   /* an element of a b that is contiguous across k */
#define PAIR_K 0.65 /* an element of a b that is contiguous along k */

/* Returns the size of n's equal parts of at most `most`, a multiple of 32. */
static int64_t part(int64_t n, int64_t most)
{
	int64_t count = hd_parts(hd_up(n, SIDE), most);

	return hd_up(hd_parts(n, count), SIDE);
}

int64_t hd_amx_block_bytes(const struct hd_amx_blocks *b)
{
	return b->cols * b->deep * 2;
}

/* Returns the bytes of sums. They are those of a block of c if k is cut. Otherwise they are those of a group of panels
 * that is used in parts, or 0. */
int64_t hd_amx_sums_bytes(const struct hd_amx_blocks *b)
{
	if (b->chunks > 1)
		return b->rows * b->cols * 4;
	return b->deep > b->kept ? b->group * SIDE * b->cols * 4 : 0;
}

/* Returns the megabytes of a packed block of b, its sums, and the packed panels of a. */
static double megabytes(const struct hd_amx_blocks *b)
{
	return (double)(hd_amx_block_bytes(b) + hd_amx_sums_bytes(b) + b->group * SIDE * b->kept * 2) / 1e6;
}

/* Returns the cycles of the thread with the largest share. */
static double cost(const struct hd_amx_size *s, const struct hd_amx_blocks *b, int64_t threads)
{
	int64_t rows = hd_parts(hd_parts(s->m, SIDE), b->along) * SIDE,
		cols = hd_parts(hd_parts(s->n, SIDE), b->across) * SIDE;
	double tiles = (double)(rows / SIDE * (cols / SIDE)), k = (double)hd_up(s->k, SIDE);
	double of_a = (double)rows * k * (double)hd_parts(cols, b->cols),
	       of_b = (double)cols * k * (double)hd_parts(rows, b->rows);
	double mb = megabytes(b), product = PRODUCT + (mb > ROOM ? (mb - ROOM) * CROWDED : 0);
	double one = tiles * (k / SIDE * product + (b->across > 1 ? SPLIT : 0)) + of_a * (s->a_across ? TURN : COPY) +
		     of_b * (s->b_across ? PAIR : PAIR_K);

	return (double)hd_parts(s->batches * b->along * b->across, threads) * one;
}

/* Cuts into blocks of at most `wide` columns, with all of k or with chunks that stay in L1. Returns 0 if they do not
 * fit. */
static int cut(const struct hd_amx_size *s, struct hd_amx_blocks *b, int64_t wide, int chunked)
{
	int64_t rows = hd_parts(hd_parts(s->m, SIDE), b->along) * SIDE,
		cols = hd_parts(hd_parts(s->n, SIDE), b->across) * SIDE, left;

	b->cols = part(cols, wide);
	b->deep = chunked ? part(s->k, HD_AMX_KEPT) : hd_up(s->k, SIDE);
	b->kept = part(b->deep, HD_AMX_KEPT);
	b->chunks = hd_parts(s->k, b->deep);
	b->group = s->a_across ? hd_min(ACROSS, hd_parts(rows, SIDE)) : 1;
	b->rows = rows;
	if (chunked && b->chunks == 1)
		return 0;
	left = L2 - hd_amx_block_bytes(b);
	if (b->chunks > 1 && left > 0)
		b->rows =
			part(rows, left / (b->cols * 4) / SIDE * SIDE > 0 ? left / (b->cols * 4) / SIDE * SIDE : SIDE);
	return hd_amx_block_bytes(b) + hd_amx_sums_bytes(b) <= L2;
}

static void keep_best(const struct hd_amx_size *s, const struct hd_amx_blocks *b, int64_t threads, double *best,
		      struct hd_amx_blocks *kept)
{
	double cycles = cost(s, b, threads);

	if (cycles < *best) {
		*best = cycles;
		*kept = *b;
	}
}

/* Some cut always fits: narrow blocks of one panel. */
void hd_amx_cut(const struct hd_amx_size *s, int64_t threads, struct hd_amx_blocks *kept)
{
	int64_t panels = hd_parts(s->m, SIDE), strips = hd_parts(s->n, SIDE);
	double best = 1e300;

	for (int64_t along = 1; along <= hd_min(threads, panels); along++)
		for (int64_t across = 1; across <= hd_min(threads / along, strips); across++)
			for (int64_t wide = SIDE; wide <= WIDEST; wide += SIDE)
				for (int chunked = 0; chunked < 2; chunked++) {
					struct hd_amx_blocks b = { .along = along, .across = across };

					if (cut(s, &b, wide, chunked))
						keep_best(s, &b, threads, &best, kept);
				}
}
#endif
