/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/elementwise/gelu_table.h - gelu of bf16 by a table.  bf16 has 65,536 values, so gelu and its slope of all of them take
 * 256 KiB.  The few thousand that a layer meets stay in L1, and a lookup is several times faster than an exponential and a division
 * where the processor gathers words quickly.
 */
#ifndef HD_KERNELS_CPU_ELEMENTWISE_GELU_TABLE_H
#define HD_KERNELS_CPU_ELEMENTWISE_GELU_TABLE_H
#include <stdint.h>

/* y = gelu(x), and its slope, of n fp32 numbers: what the table holds, rounded to bf16. */
void hd_gelu_slope(float *y, float *slope, const float *x, int64_t n);

/* 1: looking up is faster than hd_gelu_slope() here, and the table is made.  Measured in less than a millisecond, the first time.
 * From any thread. */
int hd_gelu_table_fast(void);

/* y = gelu(x), and its slope (or NULL), of the first elements of n, all bf16 -> how many: n, less what is not a multiple of 32.  An
 * output may be x.  Only on a processor with hd_pairs_here() (base/pairs.h), and after hd_gelu_table_fast(), which makes the table. */
int64_t hd_gelu_look_up(uint16_t *y, uint16_t *slope, const uint16_t *x, int64_t n);

/* y[i] = from[bits of x[i]]: another table of fp32 numbers, by the bits of bf16.  Fast, and to be called, where
 * hd_gelu_table_fast() says so. */
void hd_look_up(float *y, const float *from, const uint16_t *x, int64_t n);

#endif
