/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/copies.h - copies between host and device memory that overlap with kernels.
 */
#ifndef HD_KERNELS_CUDA_COPIES_H
#define HD_KERNELS_CUDA_COPIES_H
#include <stddef.h>
#include <stdint.h>

void hd_cuda_copy(void *to, const void *from, size_t bytes, int to_host, int64_t request);
/* Makes later kernels wait for a copy to the device.  A copy to the host is waited for here. */
void hd_cuda_copied(int64_t request);
void hd_cuda_copies_forget(void); /* when the device is closed */

#endif
