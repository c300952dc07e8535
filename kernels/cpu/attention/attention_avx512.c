/* SPDX-License-Identifier: Apache-2.0
 * attention for x86-64 with AVX-512.
 */
#include <config.h>
#include "kernels/cpu/attention/attention.h"
#if HD_X86
#include <immintrin.h>
HD_TARGET_AVX512
#define HD_RED_MAX(a, b) _mm512_max_ps((__m512)(a), (__m512)(b))
#define HD_VL 16
#define HD_MR 8
#define HD_NV 2
#define HD_ISA hd_att_avx512
#include "kernels/cpu/attention/attention_blocks.h"
HD_TARGET_END
#endif
