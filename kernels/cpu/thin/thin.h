/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/thin/thin.h - products of few rows with a large matrix, as in generation: c (m, n) = a (m, k) b (k, n).
 */
#ifndef HD_KERNELS_CPU_THIN_THIN_H
#define HD_KERNELS_CPU_THIN_THIN_H
#include "kernels/cpu/base/amx.h"
#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/base/simd.h"
#include "kernels/prepare/product.h"

#define HD_THIN_ROWS 4  /* up to here no other kernel is as fast */
#define HD_THIN_MOST 32 /* up to here it is timed against other kernels */

struct hd_thin;
/* Returns the bytes of scratch, or 0 if this shape is not supported. */
int64_t hd_thin_bytes(const struct hd_mm_shape *s, int64_t rows, int tiles, int threads);
/* Returns NULL if this shape is not supported. rows: the largest m. tiles: matrix units are available, and are used
 * for more than HD_THIN_ROWS rows of bf16. The caller owns the result. */
struct hd_thin *hd_thin_create(const struct hd_mm_shape *s, int64_t rows, int tiles);
void hd_thin_destroy(struct hd_thin *t);
/* keep: the product is added to c. bias, along n, may be NULL. */
/* scratch: of hd_thin_bytes(), for the number of threads at the time of hd_thin_create(). */
void hd_thin_run(const struct hd_thin *t, void *scratch, int keep, void *c, const void *a, const void *b,
		 const void *bias, uint32_t bias_dtype);

/* -- the work of one thread */
#define HD_THIN_UNIT 64    /* columns: threads divide them in multiples of this */
#define HD_THIN_PANEL 1024 /* columns processed together so that they fit in a cache, where b is along n */

/* Cache lines of a block of memory, prefetched a few at a time while another block is in use. They are in row order,
 * in which memory is fastest. */
struct hd_fetch {
	const char *at;
	/* Lines left in this row, lines of a row, rows left, bytes between rows. */
	int64_t line, lines, rows, step;
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
	int64_t row_step;         /* elements between rows */
	const uint16_t *low_rows; /* instead of rows, for pairs.c: the same in bf16 */
	const uint16_t *tiles;    /* instead of rows, for tiles.c: as hd_thin_tiles_pack() packs them */
	const void *b;
	int64_t b_step; /* elements between rows of b, or between its columns */
	int low;        /* b is bf16 */
	int along_k;    /* columns of b are contiguous, else its rows are */
	/* Lines to prefetch instead of b's own, where b is in a cache already; NULL: the next lines of b. For at most
	 * HD_THIN_ROWS rows. */
	struct hd_fetch *next;
};

/* Computes columns from..from + n - 1 of y (m, n), whose rows are y_step apart. */
typedef void hd_thin_fn(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n);
hd_thin_fn hd_thin_plain, hd_thin_avx2, hd_thin_avx512; /* blocks.h */
hd_thin_fn *hd_thin_best(void);                         /* the best of these for this processor */
#if HD_AMX
hd_thin_fn hd_thin_pairs; /* pairs.c: bf16 with a vector instruction for it */
/* tiles.c: bf16 on matrix units. scratch: this thread's. */
size_t hd_thin_tiles_bytes(int64_t k, int along_k); /* bytes of scratch */
void hd_thin_tiles_pack(uint16_t *to, const struct hd_thin_job *j, const uint16_t *a, int64_t step);
void hd_thin_tiles(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, void *scratch);
#endif

#endif
