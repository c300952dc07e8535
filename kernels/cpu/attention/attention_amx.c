/* SPDX-License-Identifier: Apache-2.0
 * attention in bf16 on matrix units: Intel AMX.
 */
#include <config.h>
#include "kernels/cpu/base/amx.h"
#if HD_AMX
#define ON_UNITS 1
#include "kernels/cpu/attention/attention_tiles_forward.h"

const struct hd_att_isa hd_att_amx = { .floats = floats, .forward = forward, .backward = backward };
#endif
