/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/elementwise/gelu_table.h - gelu of bf16 by a table. bf16 has 65,536 values, so gelu and its slope of all
 * of them take 256 KiB. The few thousand values that a layer meets stay in L1. Where the processor gathers words
 * quickly, a lookup is several times faster than an exponential and a division.
 */
#ifndef HD_KERNELS_CPU_ELEMENTWISE_GELU_TABLE_H
#define HD_KERNELS_CPU_ELEMENTWISE_GELU_TABLE_H
#include <stdint.h>

/* Computes y = gelu(x), and its slope, of n fp32 numbers. The table contains the same values, rounded to bf16. */
void hd_gelu_slope(float *y, float *slope, const float *x, int64_t n);

/* Returns 1 if looking up is faster than hd_gelu_slope() here; the table is filled then. The first call measures that,
 * in less than a millisecond. May be called from any thread. */
int hd_gelu_table_fast(void);

/* Looks up y = gelu(x), and its slope (or NULL), all in bf16. Returns how many elements it did: n, rounded down to a
 * multiple of 32. An output may be x. Requires hd_pairs_here() (base/pairs.h), and an earlier call of
 * hd_gelu_table_fast(), which fills the table. */
int64_t hd_gelu_look_up(uint16_t *y, uint16_t *slope, const uint16_t *x, int64_t n);

/* Looks up y[i] = from[bits of x[i]] in a different table, of fp32 numbers, indexed by the bits of bf16. May be called
 * only where hd_gelu_table_fast() returns 1, and is fast there. */
void hd_look_up(float *y, const float *from, const uint16_t *x, int64_t n);

#endif
