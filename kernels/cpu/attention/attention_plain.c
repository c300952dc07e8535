/* SPDX-License-Identifier: Apache-2.0
 * attention for any processor: vectors of four floats.
 */
#include <config.h>
#define HD_VL 4
#define HD_MR 4
#define HD_NV 2
#define HD_ISA hd_att_plain
#include "kernels/cpu/attention/attention_blocks.h"
