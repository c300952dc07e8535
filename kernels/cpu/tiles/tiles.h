/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/tiles/tiles.h - matrix products of bf16 on the tiles of x86-64 (AMX): c (m, n) = a (m, k) b (k, n) [+ c] [+ bias].
 *
 * A tile has 16 rows of 64 bytes.  A block of c of 32 x 32 is four tiles of fp32, to which two tiles of a, 16 rows x 32 k each,
 * and two of b, 16 pairs of k x 16 columns, are multiplied.  Operands are packed into such tiles, zeros beyond their extents.
 */
#ifndef HD_KERNELS_CPU_TILES_TILES_H
#define HD_KERNELS_CPU_TILES_TILES_H
#include "kernels/cpu/base/amx.h"
#include "kernels/cpu/base/simd.h"
#include "kernels/prepare/product.h"

/* n in pieces of at most `each` */
static inline int64_t hd_amx_pieces(int64_t n, int64_t each)
{
	return (n + each - 1) / each;
}

static inline int64_t hd_amx_up(int64_t n, int64_t unit)
{
	return hd_amx_pieces(n, unit) * unit;
}

/* -- product.c: whole products, by all threads.  No bit of a result depends on their number. */
struct hd_amx;
int hd_amx_here(void); /* this processor and its kernel have tiles, and oneDNN may use them too */
int64_t hd_amx_bytes(const struct hd_mm_shape *s, int threads); /* of scratch; 0: no product for this kernel */
/* Several products of this shape with one a, or one; they are made together, and each has the bits that it has alone.  NULL: no product
 * for this kernel.  Owned by the caller. */
struct hd_amx *hd_amx_create(const struct hd_mm_shape *s, int64_t several);
void hd_amx_destroy(struct hd_amx *x);
int64_t hd_amx_taken(const struct hd_amx *x); /* bytes of scratch */

/* c = from + a b + bias.  from: NULL (nothing), c, or what lies as c does; bias: NULL if there is none. */
struct hd_amx_operands {
	void *c;
	const void *from, *b, *bias;
};
/* o: of each product; no c lies where another's operand does.  scratch: of hd_amx_taken. */
void hd_amx_run(const struct hd_amx *x, void *scratch, const void *a, const struct hd_amx_operands *o);

/* -- blocks.c: how it is cut */
#define HD_AMX_KEPT 512 /* k of a panel of a, at most: 32 KB of L1 */

struct hd_amx_size {
	int64_t batches, m, n, k;
	int a_across, b_across; /* elements of a, of b, lie side by side across k */
};

/* c is shared out among threads, `along` shares of its rows and `across` of its columns, of each batch.  A thread takes its share
 * block by block: rows x cols of c, and of k all, or `chunks` times `deep`, whose sums stay in L2 in between.  All multiples of 32. */
struct hd_amx_blocks {
	int64_t along, across;
	int64_t rows, cols, deep, chunks;
	int64_t kept;  /* k of a packed panel of a */
	int64_t group; /* panels of a that are packed together */
};
void hd_amx_cut(const struct hd_amx_size *s, int64_t threads, struct hd_amx_blocks *b);
int64_t hd_amx_block_bytes(const struct hd_amx_blocks *b); /* a packed block of b */
int64_t hd_amx_sums_bytes(const struct hd_amx_blocks *b);  /* what is set aside of c */

/* -- panel.c: what one thread does */
struct hd_amx_out { /* where a panel of 32 rows goes when its sums are whole */
	void *c;
	const void *from; /* added; NULL: nothing */
	int64_t step;     /* elements between rows */
	const void *bias;
	int low, bias_low; /* c, bias: bf16 */
	int past;          /* c goes past the caches */
	int64_t rows, cols;
};

/* Memory that is needed next, fetched to L2 in the meantime: rows of `width` bytes, `step` bytes apart. */
struct hd_amx_ahead {
	const char *row;
	int64_t step, width, rows;
	int64_t at;         /* bytes of the row that were fetched */
	int64_t due, lines; /* lines of 64 bytes, for each pair of tiles that is multiplied; in HD_AMX_LINE */
};
#define HD_AMX_LINE 65536

struct hd_amx_next {
	struct hd_amx_ahead a, b, c; /* c: to be written */
};

/* A packed panel of a times `blocks` packed panels of b, `b_step` elements apart, `tiles` pairs of tiles each.  sums: (blocks,
 * 1024), what is added up from call to call, set at the first; NULL if one call is all.  out: with the last call, else NULL.
 * next: fetched on the way, and moved on. */
void hd_amx_panel(const uint16_t *a, const uint16_t *b, int64_t b_step, int64_t tiles, int64_t blocks, float *sums,
		  int first, const struct hd_amx_out *out, struct hd_amx_next *next);
/* What went past the caches is seen by all that follows. */
void hd_amx_settle(void);

#endif
