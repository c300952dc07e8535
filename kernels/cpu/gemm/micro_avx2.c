/* SPDX-License-Identifier: Apache-2.0
 * Products for x86-64 with AVX2 and FMA.
 */
#include <config.h>
#include "kernels/cpu/gemm/gemm.h"
#if HD_X86
#include "kernels/cpu/base/low.h"
HD_TARGET_AVX2
#define HD_VL 8
#define HD_MR 6
#define HD_NV 2
#define HD_GEMM_ISA hd_gemm_avx2
#include "kernels/cpu/gemm/micro.h"
HD_TARGET_END
#endif
