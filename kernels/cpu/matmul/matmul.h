/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/matmul/matmul.h - matrix products by oneDNN or by own kernels, chosen by timing.
 *
 * A product is described by extents and strides alone. The dims are `batch`..., m, n, k, in this order, so a
 * transposed operand merely has different strides. Equal products share one set of primitives. Only one thread may use
 * this at a time.
 */
#ifndef HD_KERNELS_CPU_MATMUL_MATMUL_H
#define HD_KERNELS_CPU_MATMUL_MATMUL_H
#include "engine/device/device.h"
#include "kernels/prepare/product.h"

struct hd_mm;
enum { HD_MM_OVERWRITES = 1, HD_MM_ADDS = 2 }; /* what runs will do; they may be combined */
/* Returns the product of this shape, which equal shapes share, or NULL if nothing here supports it. needs: what runs will do. Unused fields of the shape must be zero. The caller releases the product with
 * hd_mm_put(). */
struct hd_mm *hd_mm_get(const struct hd_mm_shape *s, int needs);
int hd_mm_has(const struct hd_mm_shape *s); /* whether hd_mm_get would return a product */
/* Returns the bytes of scratch that suffice for this, whichever implementation is chosen. */
int64_t hd_mm_bytes(const struct hd_mm_shape *s, int needs, int threads);
void hd_mm_put(struct hd_mm *mm);
/* Runs the product. sum 1: adds it to c. Returns 0, or HD_ENOTSUP if oneDNN refused it at run time. */
int hd_mm_run(struct hd_mm *mm, int sum, void *c, const void *a, const void *b, const void *bias);

const struct hd_mm_shape *hd_mm_shape_of(const struct hd_mm *mm);

/* A product of our own: one of these, or none. */
struct hd_mm_own {
	struct hd_amx *tiles;
	struct hd_thin *thin;
	struct hd_gemm *gemm;
};
enum { HD_MM_OWN = 3 };
/* Creates `several` products of this shape with the same a, which are computed together. Returns 0 if the chosen
 * implementation does not support that, or scratch is too small. The caller owns what *o gets. */
int hd_mm_several(struct hd_mm_own *o, struct hd_mm *mm, int sum, int64_t several);
/* operands: of each product; no c may overlap operands of another product. */
void hd_mm_several_run(const struct hd_mm_own *o, const void *a, const struct hd_mm_operands *operands);
void hd_mm_own_drop(struct hd_mm_own *o);

/* Returns 1 if products that add may add to something other than c. */
int hd_mm_adds(struct hd_mm *mm);
/* Computes c = from + product, where `from` has c's layout. For products for which hd_mm_adds() returns 1. */
void hd_mm_add(struct hd_mm *mm, const void *from, void *c, const void *a, const void *b, const void *bias);

/* bound.c: returns the fewest seconds that a product of this shape is known to take, or 0 if that is not known. The
 * first call measures it, without bias and without adding to c. any: in any layout of the operands; else as they are,
 * or with b packed. */
double hd_mm_least(const struct hd_mm_shape *s, int any);

int hd_mm_open(struct hd_err *err);
/* yes: from now on the bits of products depend only on their shape and the processor (matmul_pieces.c). */
void hd_mm_fixed(int yes);
int hd_mm_is_fixed(void);
/* Computes c (m, n) = a b + beta c in fp32 and row-major, for sizes known only at run time. 'T': transposed. mnk: m,
 * n, k. */
void hd_mm_sgemm(char ta, char tb, const int64_t mnk[3], const float *a, int64_t lda, const float *b, int64_t ldb,
		 float beta, float *c, int64_t ldc);
char *hd_mm_autotune(const char *known, const struct hd_exchange *x);
double hd_mm_rate(uint32_t dtype);
const char *hd_mm_slow(uint32_t dtype); /* a warning if products of dtype have no instructions here, else NULL */

#endif
