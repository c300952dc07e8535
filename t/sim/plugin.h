/* SPDX-License-Identifier: Apache-2.0
 * t/sim/plugin.h - what a plugin's .cu file includes first to be compiled for the simulated device: what it would have of the
 * CUDA toolkit, under names of its own (examples/squared-relu/squared_relu.cu).
 */
#ifndef HD_T_SIM_PLUGIN_H
#define HD_T_SIM_PLUGIN_H
#include "kernels/cuda/sim/sim.h"

struct bf16 {
	uint16_t bits;
};
static inline float FLOAT_OF(bf16 x)
{
	uint32_t u = (uint32_t)x.bits << 16;
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}
static inline bf16 BF16_OF(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof(u));
	return bf16{ (uint16_t)(x == x ? (u + 0x7fff + (u >> 16 & 1)) >> 16 : u >> 16 | 0x40) };
}
#define LAUNCH(kernel, blocks, threads, stream, ...) \
	hd_sim_run(#kernel, blocks, threads, 0, (cudaStream_t)(stream), kernel, __VA_ARGS__)

#endif
