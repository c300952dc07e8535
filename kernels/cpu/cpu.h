/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/cpu.h - declarations that the files of the cpu device share.
 */
#ifndef HD_KERNELS_CPU_CPU_H
#define HD_KERNELS_CPU_CPU_H
#include "engine/device/device.h"

const struct hd_kernel *hd_cpu_kernel(const char *name);

#endif
