/* SPDX-License-Identifier: Apache-2.0
 * Products for any processor: vectors of four floats.
 */
#include <config.h>
#define HD_VL 4
#define HD_MR 4
#define HD_NV 2
#define HD_GEMM_ISA hd_gemm_plain
#include "kernels/cpu/gemm/micro.h"
