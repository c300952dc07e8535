/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/tiles/tiles.h - matrix products of bf16 on the tiles of x86-64 (AMX): c (m, n) = a (m, k) b (k, n) [+ c]
 * [+ bias].
 *
 * A tile has 16 rows of 64 bytes. A block of c of 32 x 32 is four tiles of fp32. It sums products of two tiles of a,
 * 16 rows x 32 k each, and two of b, 16 pairs of k x 16 columns. Operands are packed into such tiles, with zeros
 * beyond their extents.
 */
#ifndef HD_KERNELS_CPU_TILES_TILES_H
#define HD_KERNELS_CPU_TILES_TILES_H
#include "kernels/cpu/base/amx.h"
#include "kernels/cpu/base/simd.h"
#include "kernels/prepare/product.h"

/* -- product.c: complete products, by all threads. No bit of a result depends on their number. */
struct hd_amx;
int hd_amx_here(void); /* the processor and the operating system support tiles, and oneDNN may use them too */
int64_t hd_amx_bytes(const struct hd_mm_shape *s, int threads); /* bytes of scratch; 0: not supported */
/* Creates one product of this shape, or several with the same a, which are computed together. Each has the same bits
 * as when it is computed alone. Returns NULL if tiles do not support it. The caller owns the result. */
struct hd_amx *hd_amx_create(const struct hd_mm_shape *s, int64_t several);
void hd_amx_destroy(struct hd_amx *x);
int64_t hd_amx_taken(const struct hd_amx *x); /* bytes of scratch */

/* o: operands of each product; no c may overlap operands of another product. scratch: hd_amx_taken() bytes. */
void hd_amx_run(const struct hd_amx *x, void *scratch, const void *a, const struct hd_mm_operands *o);

/* -- blocks.c: how a product is cut */
#define HD_AMX_KEPT 512 /* largest k of a panel of a, which takes 32 KB of L1 */

struct hd_amx_size {
	int64_t batches, m, n, k;
	int a_across, b_across; /* elements of a, of b, are contiguous across k */
};

/* c is divided among threads: in each batch, `along` shares of its rows times `across` of its columns. A thread
 * processes its share block by block: rows x cols of c, and all of k, or `chunks` times `deep` of it. Sums stay in L2
 * between chunks. All sizes are multiples of 32. */
struct hd_amx_blocks {
	int64_t along, across;
	int64_t rows, cols, deep, chunks;
	int64_t kept;  /* k of a packed panel of a */
	int64_t group; /* panels of a that are packed together */
};
void hd_amx_cut(const struct hd_amx_size *s, int64_t threads, struct hd_amx_blocks *b);
int64_t hd_amx_block_bytes(const struct hd_amx_blocks *b); /* a packed block of b */
int64_t hd_amx_sums_bytes(const struct hd_amx_blocks *b);  /* sums that are kept outside c */

/* -- panel.c: the work of one thread */
struct hd_amx_out { /* destination of a panel of 32 rows when its sums are complete */
	void *c;
	const void *from; /* is added; or NULL */
	int64_t step;     /* elements between rows */
	const void *bias;
	int low, bias_low; /* c, bias: bf16 */
	int past;          /* c is written past the caches */
	int64_t rows, cols;
};

/* Memory that is needed next and prefetched to L2 meanwhile: rows of `width` bytes, `step` bytes apart. */
struct hd_amx_ahead {
	const char *row;
	int64_t step, width, rows;
	int64_t at; /* bytes of this row prefetched so far */
	/* Lines of 64 bytes in units of 1 / HD_AMX_LINE: those due now, and those that each pair of tiles adds. */
	int64_t due, lines;
};
#define HD_AMX_LINE 65536

struct hd_amx_next {
	struct hd_amx_ahead a, b, c; /* c: for writing */
};

/* Multiplies a packed panel of a with `blocks` packed panels of b, `b_step` elements apart, `tiles` pairs of tiles
 * each. sums: (blocks, 1024), accumulated from call to call and overwritten by the first; NULL if one call does it
 * all. out: with the last call, else NULL. next: prefetched on the way, and advanced. */
void hd_amx_panel(const uint16_t *a, const uint16_t *b, int64_t b_step, int64_t tiles, int64_t blocks, float *sums,
		  int first, const struct hd_amx_out *out, struct hd_amx_next *next);
/* Makes writes past the caches visible before all that follows. */
void hd_amx_settle(void);

#endif
