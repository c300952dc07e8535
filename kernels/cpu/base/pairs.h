/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/pairs.h - the vector instruction of x86-64 that multiplies pairs of bf16 and adds both products to a float
 * (AVX512_BF16: vdpbf16ps; Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2).  Subnormal numbers count as zero.
 * Some processors run it at twice the rate of fp32, others at half, so its rate is measured.
 */
#ifndef HD_KERNELS_CPU_BASE_PAIRS_H
#define HD_KERNELS_CPU_BASE_PAIRS_H

/* 1: this processor has it, and the vector instructions of HD_AMX_TARGET (base/amx.h).  From any thread. */
int hd_pairs_here(void);

/* 1: it has, and products of pairs are faster than those of fp32 numbers.  Measured in microseconds, the first time. */
int hd_pairs_fast(void);

#endif
