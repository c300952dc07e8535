/* SPDX-License-Identifier: Apache-2.0
 * squared_relu.h - declarations that the CPU and GPU kernels share.
 */
#ifndef SQUARED_RELU_H
#define SQUARED_RELU_H
#include <heddle/strategy.h>
#ifdef __cplusplus
extern "C" {
#endif

struct sizes { /* of one launch */
	int64_t n;
	uint32_t dtype;
	int backward; /* 1: inputs x and dy; 0: input x */
};
int squared_relu_prepare(struct hd_strategy *self, struct hd_kernel_prepare *a);
int squared_relu_run_cuda(const struct hd_kernel_run *a);

#ifdef __cplusplus
}
#endif
#endif
