/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/thin/thin.h - products of few rows with a large matrix, as generation makes them: c (m, n) = a (m, k) b (k, n).
 */
#ifndef HD_KERNELS_CPU_THIN_THIN_H
#define HD_KERNELS_CPU_THIN_THIN_H
#include "kernels/cpu/base/amx.h"
#include "kernels/prepare/product.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HD_THIN_X86 \
	1 /* else hd_thin_plain alone: other compilers do not compile a file for a newer processor than the program */
#else
#define HD_THIN_X86 0
#endif

#define HD_THIN_ROWS 4  /* up to here nothing else is as fast */
#define HD_THIN_MOST 32 /* up to here it is timed against others */

struct hd_thin;
/* Bytes of scratch; 0: not for this shape. */
int64_t hd_thin_bytes(const struct hd_mm_shape *s, int64_t rows, int tiles, int threads);
/* NULL: not for this shape.  rows: m at most; tiles: of more than HD_THIN_ROWS in bf16 on matrix units, which are here.  Owned by the
 * caller. */
struct hd_thin *hd_thin_create(const struct hd_mm_shape *s, int64_t rows, int tiles);
void hd_thin_destroy(struct hd_thin *t);
/* keep: added to c.  bias, along n, may be NULL. */
/* scratch: of hd_thin_bytes, for as many threads as there were at create. */
void hd_thin_run(const struct hd_thin *t, void *scratch, int keep, void *c, const void *a, const void *b,
		 const void *bias, uint32_t bias_dtype);

/* Parts of at most `most` that n is: n / most, rounded up */
static inline int64_t hd_thin_parts(int64_t n, int64_t most)
{
	return (n + most - 1) / most;
}

/* -- what one thread does */
#define HD_THIN_UNIT 64    /* columns: threads share them out in multiples of it */
#define HD_THIN_PANEL 1024 /* columns that pass through a cache together, where b lies along n */

/* Lines of a block of memory, fetched a few at a time while another block is in use: one row after the other, which is the order
 * that memory is fastest in. */
struct hd_fetch {
	const char *at;
	int64_t line, lines, rows, step; /* lines of a row, and rows, that are left; bytes between rows */
};

static inline struct hd_fetch hd_fetch_of(const void *b, int64_t bytes, int64_t rows, int64_t step)
{
	int64_t lines = (bytes + 63) / 64;

	return (struct hd_fetch){ (const char *)b, lines, lines, lines ? rows : 0, step };
}

static inline __attribute__((always_inline)) void hd_fetch_lines(struct hd_fetch *f, int64_t n)
{
	for (; n > 0 && f->rows > 0; n--) {
		__builtin_prefetch(f->at, 0, 2);
		f->at += 64;
		if (--f->line == 0) {
			f->at += f->step - 64 * f->lines;
			f->line = f->lines;
			f->rows--;
		}
	}
}

struct hd_thin_job {
	int64_t m, k;
	const float *rows;        /* (m, k) */
	int64_t row_step;         /* elements between them */
	const uint16_t *low_rows; /* in place of rows, for pairs.c: as rows */
	const uint16_t *tiles;    /* in place of rows, for tiles.c: as it packs them */
	const void *b;
	int64_t b_step; /* elements between rows of b, or between its columns */
	int low;        /* b: bf16 */
	int along_k;    /* columns of b lie in one piece, else its rows do */
	/* b is in a cache, and so this is fetched; NULL: what comes next of b.  Of at most HD_THIN_ROWS rows. */
	struct hd_fetch *next;
};

/* y (m, n) of columns from..from + n - 1; y_step: between rows of y */
typedef void hd_thin_fn(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n);
hd_thin_fn hd_thin_plain, hd_thin_avx2, hd_thin_avx512; /* blocks.h */
hd_thin_fn *hd_thin_best(void);                         /* of these, on this processor */
#if HD_AMX
hd_thin_fn hd_thin_pairs; /* pairs.c: bf16 by a vector instruction of its own */
/* tiles.c: bf16 on matrix units.  scratch: of this thread. */
size_t hd_thin_tiles_bytes(int64_t k, int along_k); /* of scratch */
void hd_thin_tiles_pack(uint16_t *to, const struct hd_thin_job *j, const uint16_t *a, int64_t step);
void hd_thin_tiles(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, void *scratch);
#endif

#endif
