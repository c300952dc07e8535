/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/pairs.h - the vector instruction of x86-64 that multiplies pairs of bf16 and adds both products to
 * a float. It is vdpbf16ps of AVX512_BF16 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2). It
 * treats subnormal numbers as zero. Some processors run it at twice the rate of fp32, others at half, so its rate is
 * measured.
 */
#ifndef HD_KERNELS_CPU_BASE_PAIRS_H
#define HD_KERNELS_CPU_BASE_PAIRS_H

/* Returns 1 if this processor has it, and the vector instructions of HD_AMX_TARGET (base/amx.h). May be called from
 * any thread. */
int hd_pairs_here(void);

/* Returns 1 if the processor has it and products of pairs are faster than those of fp32 numbers. The first call
 * measures that, within microseconds. */
int hd_pairs_fast(void);

#endif
