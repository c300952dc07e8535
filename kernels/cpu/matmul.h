/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/matmul.h - matrix products by oneDNN, with the implementation chosen by timing.
 *
 * A product is described by extents and strides alone: the dims are `batch`..., m, n, k, in this
 * order, so a transposed operand is only another stride.  Equal products share one set of
 * primitives.  One thread uses this at a time.
 */
#ifndef HD_KERNELS_CPU_MATMUL_H
#define HD_KERNELS_CPU_MATMUL_H
#include "engine/device.h"

enum { HD_MM_A, HD_MM_B, HD_MM_C, HD_MM_BIAS, HD_MM_OPERANDS };

struct hd_mm_shape { /* c(batch, m, n) = sum over k of a(batch, m, k) b(batch, k, n) + bias */
	int ndim; /* 3 + batch dims */
	uint32_t dtype[HD_MM_OPERANDS]; /* HD_F32 or HD_BF16; of bias 0: none */
	int64_t n[HD_MAX_DIMS + 3]; /* all > 0 */
	/* elements; 0 where the operand has not the dim */
	int64_t stride[HD_MM_OPERANDS][HD_MAX_DIMS + 3];
};

struct hd_mm;
/* needs: bit 0, runs that overwrite; bit 1, runs that add.  The shape must be zeroed where it
 * says nothing.  NULL: oneDNN has nothing for this shape on this machine.  Owned by the caller,
 * shared inside. */
struct hd_mm *hd_mm_get(const struct hd_mm_shape *s, int needs);
void hd_mm_put(struct hd_mm *mm);
/* sum 1: added to what c holds.  0, or HD_ENOTSUP: oneDNN refused at run time. */
int hd_mm_run(struct hd_mm *mm, int sum, void *c, const void *a, const void *b, const void *bias);

int hd_mm_open(struct hd_err *err);
char *hd_mm_settle(const char *known, const struct hd_exchange *x);
double hd_mm_rate(uint32_t dtype);

#endif
