/* SPDX-License-Identifier: Apache-2.0
 * Thin products for x86-64 with AVX2 and FMA.
 */
#include <config.h>
#include "kernels/cpu/thin/thin.h"
#if HD_X86
#include "kernels/cpu/base/simd.h"
#include <immintrin.h>
HD_TARGET_AVX2
#define HD_VL 8
#define HD_MR 4
#define HD_THIN_ISA hd_thin_avx2
#include "kernels/cpu/thin/blocks.h"
HD_TARGET_END
#endif
