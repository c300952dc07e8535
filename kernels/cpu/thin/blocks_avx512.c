/* SPDX-License-Identifier: Apache-2.0
 * Thin products for x86-64 with AVX-512.
 */
#include <config.h>
#include "kernels/cpu/thin/thin.h"
#if HD_THIN_X86
#include "kernels/cpu/base/simd.h"
#include <immintrin.h>
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,prefer-vector-width=512")
#define HD_VL 16
#define HD_MR 8
#define HD_THIN_ISA hd_thin_avx512
#include "kernels/cpu/thin/blocks.h"
#endif
