/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/clock.h - times measured by the GPU's clock: hd_device_ops.mark and .between.
 */
#ifndef HD_KERNELS_CUDA_CLOCK_H
#define HD_KERNELS_CUDA_CLOCK_H
#include <stdint.h>

void hd_cuda_mark(int64_t mark);
double hd_cuda_between(int64_t from, int64_t to);
void hd_cuda_marks_forget(void); /* when the device is closed */

#endif
