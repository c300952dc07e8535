/* SPDX-License-Identifier: Apache-2.0
 * attention for x86-64 with AVX2 and FMA.
 */
#include <config.h>
#include "kernels/cpu/attention/attention.h"
#if HD_ATT_X86
#include <immintrin.h>
#pragma GCC target("avx2,fma")
#define HD_RED_MAX(a, b) _mm256_max_ps((__m256)(a), (__m256)(b))
#define HD_VL 8
#define HD_MR 4
#define HD_NV 3
#define HD_ISA hd_att_avx2
#include "kernels/cpu/attention/attention_blocks.h"
#endif
