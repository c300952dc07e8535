/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/matmul/matmul.h - matrix products by oneDNN, with the implementation chosen by timing.
 *
 * A product is described by extents and strides alone: the dims are `batch`..., m, n, k, in this
 * order, so a transposed operand is only another stride.  Equal products share one set of
 * primitives.  One thread uses this at a time.
 */
#ifndef HD_KERNELS_CPU_MATMUL_MATMUL_H
#define HD_KERNELS_CPU_MATMUL_MATMUL_H
#include "engine/device/device.h"
#include "kernels/prepare/product.h"

struct hd_mm;
enum { HD_MM_OVERWRITES = 1, HD_MM_ADDS = 2 }; /* what runs will do, or both */
/* needs: of these.  The shape must be zeroed where it says nothing.  NULL: oneDNN has nothing for this shape on this
 * machine.  Owned by the caller, shared inside. */
struct hd_mm *hd_mm_get(const struct hd_mm_shape *s, int needs);
int hd_mm_has(const struct hd_mm_shape *s); /* hd_mm_get would have something */
/* Scratch that it takes for this, whichever implementation is chosen. */
int64_t hd_mm_bytes(const struct hd_mm_shape *s, int needs, int threads);
void hd_mm_put(struct hd_mm *mm);
/* sum 1: added to what c holds.  0, or HD_ENOTSUP: oneDNN refused at run time. */
int hd_mm_run(struct hd_mm *mm, int sum, void *c, const void *a, const void *b, const void *bias);

const struct hd_mm_shape *hd_mm_shape_of(const struct hd_mm *mm);

/* So many products of this shape with one a, made together; NULL: the implementation that was chosen cannot, or there is no
 * scratch for it.  Owned by the caller. */
struct hd_amx;
struct hd_amx *hd_mm_several(struct hd_mm *mm, int sum, int64_t several);

/* 1: products that add may add to something else than c holds. */
int hd_mm_adds(struct hd_mm *mm);
/* c = from + product; from lies as c does.  Where hd_mm_adds() says so. */
void hd_mm_add(struct hd_mm *mm, const void *from, void *c, const void *a, const void *b, const void *bias);

/* bound.c: the least seconds that a product of this shape is known to take, measured at the first call; 0: not known.  Bias, and
 * adding to c, are left out.  any: in whatever layout of the operands; else as they lie, or b packed. */
double hd_mm_least(const struct hd_mm_shape *s, int any);

int hd_mm_open(struct hd_err *err);
/* yes: from now on products have bits that depend on their shape and the processor alone (matmul_pieces.c). */
void hd_mm_fixed(int yes);
int hd_mm_is_fixed(void);
/* c (m, n) = a b + beta c, fp32 and row-major, 'T': transposed, for sizes that are known only now; mnk: m, n, k */
void hd_mm_sgemm(char ta, char tb, const int64_t mnk[3], const float *a, int64_t lda, const float *b, int64_t ldb,
		 float beta, float *c, int64_t ldc);
char *hd_mm_autotune(const char *known, const struct hd_exchange *x);
double hd_mm_rate(uint32_t dtype);
const char *hd_mm_slow(uint32_t dtype); /* a sentence, if products of dtype have no instructions here; else NULL */

#endif
