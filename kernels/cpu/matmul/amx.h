/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/matmul/amx.h - matrix products of bf16 on the tiles of x86-64 (AMX): c (m, n) = a (m, k) b (k, n) [+ c] [+ bias].
 *
 * A tile has 16 rows of 64 bytes.  A block of c of 32 x 32 is four tiles of fp32, to which two tiles of a, 16 rows x 32 k each,
 * and two of b, 16 pairs of k x 16 columns, are multiplied.  Operands are packed into such tiles, zeros beyond their extents.
 */
#ifndef HD_KERNELS_CPU_MATMUL_AMX_H
#define HD_KERNELS_CPU_MATMUL_AMX_H
#include "kernels/cpu/base/amx.h"
#include "kernels/cpu/matmul/matmul.h"

/* -- amx.c: whole products, by all threads.  No bit of a result depends on their number. */
struct hd_amx;
int hd_amx_here(void); /* this processor and its kernel have tiles, and oneDNN may use them too */
int64_t hd_amx_bytes(const struct hd_mm_shape *s, int threads); /* of scratch; 0: no product for this kernel */
/* NULL: no product for this kernel.  Owned by the caller. */
struct hd_amx *hd_amx_create(const struct hd_mm_shape *s);
void hd_amx_destroy(struct hd_amx *x);
/* scratch: of hd_amx_bytes, for as many threads as there were at create. */
void hd_amx_run(const struct hd_amx *x, void *scratch, int sum, void *c, const void *a, const void *b,
		const void *bias);

/* -- amx_tiles.c: what one thread does */
struct hd_amx_out { /* where a panel of 32 rows goes when its sums are whole */
	void *c;
	int64_t step; /* elements between rows */
	const void *bias;
	int low, bias_low; /* c, bias: bf16 */
	int sum;           /* added to c */
	int64_t rows, cols;
};

/* What is packed next, fetched to L2 in the meantime: rows of `width` bytes, `step` bytes apart. */
struct hd_amx_ahead {
	const char *row;
	int64_t step, width, rows;
	int64_t at;         /* bytes of the row that were fetched */
	int64_t due, lines; /* lines of 64 bytes, for each pair of tiles that is multiplied; in HD_AMX_LINE */
};
#define HD_AMX_LINE 65536

/* A packed panel of a times `blocks` packed panels of b, `b_step` elements apart, `tiles` pairs of tiles each.  sums: (blocks,
 * 1024), what is added up from call to call, set at the first; NULL if one call is all.  out: with the last call, else NULL.
 * next: fetched on the way, and moved on. */
void hd_amx_panel(const uint16_t *a, const uint16_t *b, int64_t b_step, int64_t tiles, int64_t blocks, float *sums,
		  int first, const struct hd_amx_out *out, struct hd_amx_ahead *next);

#endif
