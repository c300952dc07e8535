/* SPDX-License-Identifier: Apache-2.0
 * Products for x86-64 with AVX-512.
 */
#include <config.h>
#include "kernels/cpu/gemm/gemm.h"
#if HD_X86
#include "kernels/cpu/base/low.h"
HD_TARGET_AVX512
#define HD_VL 16
#define HD_MR 12
#define HD_NV 2
#define HD_GEMM_ISA hd_gemm_avx512
#include "kernels/cpu/gemm/micro.h"
HD_TARGET_END
#endif
