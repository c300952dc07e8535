/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/matmul.h - matrix products by oneDNN, with the implementation chosen by timing.
 *
 * A product is described by extents and strides alone: the dims are `batch`..., m, n, k, in this
 * order, so a transposed operand is only another stride.  Equal products share one set of
 * primitives.  One thread uses this at a time.
 */
#ifndef HD_KERNELS_CPU_MATMUL_H
#define HD_KERNELS_CPU_MATMUL_H
#include "engine/device/device.h"
#include "kernels/prepare/product.h"

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
const char *hd_mm_slow(uint32_t dtype);	/* a sentence, if products of dtype have no instructions here; else NULL */

#endif
