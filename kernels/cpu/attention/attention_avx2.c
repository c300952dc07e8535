/* SPDX-License-Identifier: Apache-2.0
 * attention for x86-64 with AVX2 and FMA.
 */
#include <config.h>
#include "kernels/cpu/attention/attention.h"
#if HD_X86
#include <immintrin.h>
HD_TARGET_AVX2
#define HD_RED_MAX(a, b) _mm256_max_ps((__m256)(a), (__m256)(b))
#define HD_VL 8
#define HD_MR 4
#define HD_NV 3
#define HD_ISA hd_att_avx2
#include "kernels/cpu/attention/attention_blocks.h"
HD_TARGET_END
#endif
