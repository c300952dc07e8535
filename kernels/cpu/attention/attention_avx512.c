/* SPDX-License-Identifier: Apache-2.0
 * attention for x86-64 with AVX-512.
 */
#include <config.h>
#include "kernels/cpu/attention/attention.h"
#if HD_ATT_X86
#include <immintrin.h>
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,prefer-vector-width=512")
#define HD_RED_MAX(a, b) _mm512_max_ps((__m512)(a), (__m512)(b))
#define HD_VL 16
#define HD_MR 8
#define HD_NV 2
#define HD_ISA hd_att_avx512
#include "kernels/cpu/attention/attention_blocks.h"
#endif
