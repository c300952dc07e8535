/* SPDX-License-Identifier: Apache-2.0
 * Thin products for any processor: vectors of four floats.
 */
#include <config.h>
#define HD_VL 4
#define HD_MR 4
#define HD_THIN_ISA hd_thin_plain
#include "kernels/cpu/thin/blocks.h"
