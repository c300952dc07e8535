/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/gemm/gemm.h - matrix products with vectors of floats: c (m, n) = a (m, k) b (k, n) [+ from] [+ bias].
 *
 * The method is that of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, 2008). Blocks of a
 * and b are packed so that they stay in caches. A panel is a few rows of a, or a few columns of b. A micro-kernel
 * multiplies two panels, and keeps all sums in registers. Operands are fp32 or bf16; sums are fp32.
 */
#ifndef HD_KERNELS_CPU_GEMM_GEMM_H
#define HD_KERNELS_CPU_GEMM_GEMM_H
#include "kernels/cpu/base/isa.h"
#include "kernels/prepare/product.h"

/* -- micro.h: what is compiled for each vector width */
struct hd_gemm_micro { /* c (rows, cols) = a b [+ from] [+ bias] */
	int64_t k;
	const float *a, *b; /* packed panels: (k, rows) and (k, cols) */
	float *c;
	const float *from; /* or NULL; may be c */
	const float *bias; /* or NULL */
	int64_t step;      /* elements between rows of c, and of from */
	const char *next;  /* memory that is needed next: `lines` cache lines of it are prefetched */
	int64_t lines;
};

/* n rows of a, or columns of b, are packed into panels (k, width) of fp32, one panel after the other. Rows that are
 * missing in the last panel are zeros. */
struct hd_gemm_pack {
	float *to;        /* with room for HD_GEMM_SLACK more floats */
	const void *from; /* bf16 with `low` */
	/* Elements between rows of a or columns of b, and between values of k. One of them is 1. */
	int64_t step, k_step, n, k;
	int64_t there; /* rows or columns that may be read, n of which are packed */
	int low;
};
#define HD_GEMM_SLACK 16

struct hd_gemm_isa {
	int64_t rows, cols; /* of a micro-kernel's result */
	int64_t deep;       /* the most terms that are summed at once: a panel of b takes most of L1 */
	void (*multiply)(const struct hd_gemm_micro *t);
	void (*pack_a)(const struct hd_gemm_pack *p);
	void (*pack_b)(const struct hd_gemm_pack *p);
};
#define HD_GEMM_MOST_SUMS 384 /* the most elements of a micro-kernel's result */

extern const struct hd_gemm_isa hd_gemm_plain;
extern const struct hd_gemm_isa hd_gemm_avx2, hd_gemm_avx512; /* with HD_X86 */
const struct hd_gemm_isa *hd_gemm_best(void);                 /* the best that oneDNN, too, may use here */
/* Returns 1 if these products are used where none are timed, and for bf16 if oneDNN has none. That is so if GCC compiled
 * them, and the processor is an x86-64 with AVX2 and without AVX-512. There they were measured: they take .5 to 1.05
 * times as long as those of oneDNN 2.6. */
int hd_gemm_preferred(void);

/* -- gemm.c: complete products, by all threads. No bit of a result depends on their number. */
struct hd_gemm;
int64_t hd_gemm_bytes(const struct hd_mm_shape *s, int threads); /* bytes of scratch; 0: the shape is not supported */
/* Creates one product of this shape, or several with the same a, which are computed together. Each has the same bits
 * as when it is computed alone. Returns NULL if the shape is not supported. The caller owns the result. */
struct hd_gemm *hd_gemm_create(const struct hd_mm_shape *s, int64_t several, const struct hd_gemm_isa *isa);
void hd_gemm_destroy(struct hd_gemm *g);
int64_t hd_gemm_taken(const struct hd_gemm *g); /* bytes of scratch */
/* o: operands of each product; no c may overlap operands of another product. scratch: hd_gemm_taken() bytes from a
 * multiple of 64 on. */
void hd_gemm_run(const struct hd_gemm *g, void *scratch, const void *a, const struct hd_mm_operands *o);
/* The same for one product whose sizes are known only at run time. They are at most those of `largest`, and so is the
 * number of threads. */
int64_t hd_gemm_most_bytes(const struct hd_mm_shape *largest, int threads); /* bytes of scratch */
void hd_gemm_run_shape(const struct hd_mm_shape *s, void *scratch, const void *a, const struct hd_mm_operands *o);

#endif
