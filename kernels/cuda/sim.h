/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/sim.h - the few things of CUDA that the kernels use, on the host: so that their logic is compiled by any
 * C++ compiler and tested on any machine, and whole models run on the cuda device where there is none.
 *
 * Blocks run one after the other, the threads of a block as fibers.  A fiber runs until it must wait for others:
 * __syncthreads, __syncwarp, or an exchange between the lanes of a warp.  The order of the threads changes from round to
 * round, and in every other block a warp runs ahead of the rest as far as it can, so that most missing barriers show.  A barrier that not all threads reach ends the process with a message.
 * What differs from a GPU: no memory model, no timing, fp32 as the host rounds it (no fused multiply-add is assumed).
 */
#ifndef HD_KERNELS_CUDA_SIM_H
#define HD_KERNELS_CUDA_SIM_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static
#define __constant__ static
#define __grid_constant__

struct dim3 {
	unsigned x, y, z;
	dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct uint4 { unsigned x, y, z, w; };

struct hd_sim_here { dim3 thread, block, threads, blocks; };	/* of the fiber that runs */
extern struct hd_sim_here hd_sim_here;
#define threadIdx hd_sim_here.thread
#define blockIdx hd_sim_here.block
#define blockDim hd_sim_here.threads
#define gridDim hd_sim_here.blocks

/* Runs body(ctx) once per thread of every block. */
void hd_sim_launch(const char *name, dim3 blocks, dim3 threads, size_t shared, void (*body)(void *), void *ctx);
void *hd_sim_shared(void);			/* the block's dynamic shared memory, filled with NaNs when it starts */
/* All lanes of this warp meet; the last calls work(all) with what each has passed (NULL: no such lane). */
void hd_sim_warp(void *mine, void (*work)(void **all));
void __syncthreads(void);
static inline void __syncwarp(unsigned mask = ~0u)
{
	(void)mask;
	hd_sim_warp(NULL, NULL);
}

template<class T> struct hd_sim_shuffle { T in, out; int from; };

template<class T> static void hd_sim_shuffle_work(void **all)
{
	for (int i = 0; i < 32; i++) {
		hd_sim_shuffle<T> *mine = (hd_sim_shuffle<T> *)all[i];

		if (mine)
			mine->out = all[mine->from] ? ((hd_sim_shuffle<T> *)all[mine->from])->in : mine->in;
	}
}

template<class T> static T hd_sim_shuffle_from(T x, int from)
{
	hd_sim_shuffle<T> s = { x, x, from & 31 };

	hd_sim_warp(&s, hd_sim_shuffle_work<T>);
	return s.out;
}

static inline int hd_sim_lane(void) { return (int)(threadIdx.x & 31); }
template<class T> static T __shfl_xor_sync(unsigned, T x, int mask) { return hd_sim_shuffle_from(x, hd_sim_lane() ^ mask); }
template<class T> static T __shfl_sync(unsigned, T x, int lane) { return hd_sim_shuffle_from(x, lane); }
template<class T> static T __shfl_down_sync(unsigned, T x, int by)
{
	return hd_sim_shuffle_from(x, hd_sim_lane() + by < 32 ? hd_sim_lane() + by : hd_sim_lane());
}

/* Of fibers one runs at a time. */
static inline int atomicAdd(int *p, int x)
{
	int was = *p;

	*p += x;
	return was;
}

template<class F> static void hd_sim_call(void *f) { (*(F *)f)(); }
template<class F> static void hd_sim_run(const char *name, dim3 blocks, dim3 threads, size_t shared, F f)
{
	hd_sim_launch(name, blocks, threads, shared, hd_sim_call<F>, &f);
}
#define HD_LAUNCH(kernel, blocks, threads, shared, r, ...) \
	hd_sim_run(#kernel, blocks, threads, shared, [=]() { kernel(__VA_ARGS__); })
#define HD_DYNAMIC_SHARED(type, name) type *name = (type *)hd_sim_shared()

/* -- the runtime: device memory is memory, and everything is done when a call returns -------------------------------------- */
typedef int cudaError_t;
typedef void *cudaStream_t, *cudaEvent_t;
enum { cudaSuccess = 0 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
/* Device memory can be reached from here on (kernels, copies), and no longer: a host that touches it ends with SIGSEGV. */
void hd_sim_open_memory(void);
void hd_sim_close_memory(void);
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind, cudaStream_t)
{
	hd_sim_open_memory();
	memcpy(to, from, n);
	hd_sim_close_memory();
	return 0;
}
static inline cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t)
{
	hd_sim_open_memory();
	memset(to, value, n);
	hd_sim_close_memory();
	return 0;
}

#endif
