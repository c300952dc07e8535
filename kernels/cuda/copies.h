/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/copies.h - copies between the host's memory and the device's beside kernels.
 */
#ifndef HD_KERNELS_CUDA_COPIES_H
#define HD_KERNELS_CUDA_COPIES_H
#include <stddef.h>
#include <stdint.h>

void hd_cuda_copy(void *to, const void *from, size_t bytes, int to_host, int64_t request);
void hd_cuda_copied(int64_t request); /* what is enqueued next finds it done; a copy to the host is waited for */
void hd_cuda_copies_forget(void);     /* at the end */

#endif
