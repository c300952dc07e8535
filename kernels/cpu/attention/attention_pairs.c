/* SPDX-License-Identifier: Apache-2.0
 * attention in bf16 with the vector instruction that multiplies pairs of bf16 (AVX512_BF16: vdpbf16ps).
 */
#include <config.h>
#include "kernels/cpu/base/amx.h"
#if HD_AMX
#define ON_UNITS 0
#include "kernels/cpu/attention/attention_tiles_forward.h"

const struct hd_att_isa hd_att_pairs = { .floats = floats, .forward = forward, .backward = backward };
#endif
