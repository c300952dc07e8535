/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/sim/sim.h - the few parts of CUDA that the kernels use, on the host.
 *
 * So any C++ compiler can compile the kernels' logic, any machine can test it, and whole models run on the cuda
 * device without a GPU.
 *
 * Blocks run one after another in an order drawn from a seed, and the threads of a block run as fibers (sim.cc).  A
 * fiber runs until it must wait for others: at __syncthreads, __syncwarp, or an exchange between the lanes of a
 * warp.  The order of the threads changes from round to round.  In about half of the blocks one warp runs ahead of
 * the others as far as it can.  Tests of kernels run each launch in several orders, which must give the same bits
 * (sim_orders.cc).
 *
 * At every load and store the compiler calls sim_watch.cc, through the calls meant for its thread sanitizer.  It
 * detects accesses out of bounds, by two threads that no barrier orders, by two launches that no event orders, and
 * to a copy that has not arrived.  The runtime (sim_runtime.cc) has streams, events and captures by CUDA's rules,
 * and does the work at once.
 *
 * An error ends the process with one message: kernel, block, thread, address.  The simulation differs from a GPU in
 * three ways: it has no timing, does not reorder a thread's own accesses, and rounds fp32 like the host (without
 * assuming fused multiply-add).
 */
#ifndef HD_KERNELS_CUDA_SIM_SIM_H
#define HD_KERNELS_CUDA_SIM_SIM_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <new>
#include <tuple>

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __constant__ static
#define __grid_constant__
/* Code of the simulation itself, which is not instrumented; where it matters, it reports its own accesses. */
#define HD_SIM_UNSEEN __attribute__((no_sanitize("thread", "alignment")))

#pragma GCC visibility push(default) /* kernels of plugins call these too */
struct dim3 {
	unsigned x, y, z;
	dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
	{
	}
};
struct alignas(16) uint4 {
	unsigned x, y, z, w;
};

struct hd_sim_here {
	dim3 thread, block, threads, blocks;
}; /* of the running fiber */
extern struct hd_sim_here hd_sim_here;
#define threadIdx hd_sim_here.thread
#define blockIdx hd_sim_here.block
#define blockDim hd_sim_here.threads
#define gridDim hd_sim_here.blocks

typedef int cudaError_t;
typedef struct hd_sim_stream *cudaStream_t;
typedef struct hd_sim_event *cudaEvent_t;
typedef struct hd_sim_graph *cudaGraph_t, *cudaGraphExec_t;

/* -- for the code of kernels --------------------------------------------------------------------------------------- */
void *hd_sim_shared(void); /* the block's dynamic shared memory */
/* Returns a variable in shared memory, identified by the address of its name. */
void *hd_sim_static(const void *name, size_t bytes, size_t align);
/* Reports an access that the kernel's own loads and stores do not show. */
enum { HD_SIM_READ, HD_SIM_WRITE, HD_SIM_ATOMIC };
void hd_sim_touch(const void *p, size_t bytes, int how);
void hd_sim_aligned(const void *p, size_t bytes, const char *what);
/* Copies 4, 8 or 16 bytes to shared memory (zeros if `from` is NULL).  They arrive when this thread has waited for
 * their group. */
void hd_sim_copy(void *to, const void *from, int bytes);
void hd_sim_copies_commit(void);
void hd_sim_copies_wait(int left);
/* Waits for all lanes of this warp.  The last one calls work(all) with what each lane has passed (NULL: no such
 * lane). */
void hd_sim_warp(void *mine, void (*work)(void **all));
void hd_sim_warp_ordered(void); /* the same; what each lane has done precedes what the others do next */
void __syncthreads(void);
static inline void __syncwarp(unsigned mask = ~0u)
{
	(void)mask;
	hd_sim_warp_ordered();
}

template <class T> struct hd_sim_shuffle {
	T in, out;
	int from;
};

template <class T> HD_SIM_UNSEEN static void hd_sim_shuffle_work(void **all)
{
	for (int i = 0; i < 32; i++) {
		hd_sim_shuffle<T> *mine = (hd_sim_shuffle<T> *)all[i];

		if (mine)
			mine->out = all[mine->from] ? ((hd_sim_shuffle<T> *)all[mine->from])->in : mine->in;
	}
}

template <class T> HD_SIM_UNSEEN static T hd_sim_shuffle_from(T x, int from)
{
	hd_sim_shuffle<T> s = { x, x, from & 31 };

	hd_sim_warp(&s, hd_sim_shuffle_work<T>);
	return s.out;
}

HD_SIM_UNSEEN static inline int hd_sim_lane(void)
{
	return (int)(threadIdx.x & 31);
}
template <class T> static T __shfl_xor_sync(unsigned, T x, int mask)
{
	return hd_sim_shuffle_from(x, hd_sim_lane() ^ mask);
}
template <class T> static T __shfl_sync(unsigned, T x, int lane)
{
	return hd_sim_shuffle_from(x, lane);
}
template <class T> static T __shfl_down_sync(unsigned, T x, int by)
{
	return hd_sim_shuffle_from(x, hd_sim_lane() + by < 32 ? hd_sim_lane() + by : hd_sim_lane());
}

struct hd_sim_vote {
	int in;
	unsigned out;
};
HD_SIM_UNSEEN static inline void hd_sim_vote_work(void **all)
{
	unsigned votes = 0;

	for (int i = 0; i < 32; i++)
		votes |= all[i] && ((hd_sim_vote *)all[i])->in ? 1u << i : 0;
	for (int i = 0; i < 32; i++)
		if (all[i])
			((hd_sim_vote *)all[i])->out = votes;
}
HD_SIM_UNSEEN static inline unsigned __ballot_sync(unsigned, int x)
{
	hd_sim_vote v = { x, 0 };

	hd_sim_warp(&v, hd_sim_vote_work);
	return v.out;
}
static inline int __popc(unsigned x)
{
	return __builtin_popcount(x);
}

/* -- compute capability 9.0a, base/hopper.h: sim_hopper.cc --------------------------------------------------------- */
/* A tile is fetched as late as possible: when all other arrivals of its barrier's phase are in.  Until then its
 * memory is poison that nobody may touch.  The sums of a product are poison until they have been waited for. */
struct hd_sim_tensor_map {
	const char *base;
	int64_t n[4], stride[4]; /* strides in bytes; stride[0] is unused */
	int rows;
};
uint64_t hd_sim_shared_address(const void *p);
void hd_sim_mbarrier(uint64_t *b, int arrivals);
void hd_sim_arrive(uint64_t *b, int bytes);
void hd_sim_await(uint64_t *b, int parity);
void hd_sim_fetch(void *to, const hd_sim_tensor_map *m, const int *at, uint64_t *b);
void hd_sim_proxy_fence(void);
/* Writes a tile to memory.  It is read and written as late as possible: when this thread waits for its group. */
void hd_sim_put(const hd_sim_tensor_map *m, const int *at, const void *from);
void hd_sim_puts_commit(void);
void hd_sim_puts_wait(int left);
/* Stores four 8x8 matrices from registers to rows whose addresses lanes 0-7, 8-15, ... give. */
void hd_sim_put_matrices(void *row, const uint32_t *x);
void hd_sim_group_fence(void);
void hd_sim_group_commit(void);
void hd_sim_group_wait(int left);
/* Takes a as a descriptor, or as four registers (fragment).  turned: the rows of b's tile lie along the columns. */
void hd_sim_group_mma(float (*c)[4], int n, uint64_t a, const uint32_t *fragment, uint64_t b, int turned, int add);

/* Only one fiber runs at a time, so this is atomic. */
HD_SIM_UNSEEN static inline int atomicAdd(int *p, int x)
{
	int was = *p;

	hd_sim_touch(p, sizeof(*p), HD_SIM_ATOMIC);
	*p += x;
	return was;
}

/* -- launches ------------------------------------------------------------------------------------------------------ */
struct hd_sim_work { /* work on a stream, which a capture keeps: fn(arg), with arg malloc'ed */
	const char *name;
	const void *kernel; /* NULL: not a kernel; fn itself reports its accesses */
	dim3 blocks, threads;
	size_t shared;
	void (*fn)(void *arg);
	void *arg;
};
void hd_sim_enqueue(cudaStream_t s, const struct hd_sim_work *w);
cudaError_t hd_sim_allow_shared(const void *kernel, size_t bytes);

template <class... P> struct hd_sim_call {
	void (*kernel)(P...);
	std::tuple<P...> args;
};
template <class... P> HD_SIM_UNSEEN static void hd_sim_calls(void *arg)
{
	hd_sim_call<P...> c = *(hd_sim_call<P...> *)arg; /* each thread has its own parameters */

	std::apply(c.kernel, c.args);
}
/* Arguments are evaluated at the launch, and a graph keeps their values. */
template <class... P, class... A>
static void hd_sim_run(const char *name, dim3 blocks, dim3 threads, size_t shared, cudaStream_t s, void (*kernel)(P...),
		       A... args)
{
	static_assert((((sizeof(P) + 7) / 8 * 8) + ... + 0) <= 4096, "the parameters of a kernel have 4 KB");
	hd_sim_call<P...> *c = (hd_sim_call<P...> *)malloc(sizeof(*c));
	hd_sim_work w = { name, (const void *)kernel, blocks, threads, shared, hd_sim_calls<P...>, c };

	new (c) hd_sim_call<P...>{ kernel, std::tuple<P...>(args...) };
	hd_sim_enqueue(s, &w);
}
#define HD_LAUNCH(kernel, blocks, threads, shared, r, ...) \
	do { \
		hd_sim_run(#kernel, blocks, threads, shared, (cudaStream_t)(r)->queue, kernel, __VA_ARGS__); \
		hd_cuda_launched(#kernel); \
	} while (0)
#define HD_DYNAMIC_SHARED(type, name) type *name = (type *)hd_sim_shared()
#define HD_SHARED(type, name, ...) \
	typedef type name##_in_shared __VA_ARGS__; \
	static const char name##_name = 0; \
	name##_in_shared &name = \
		*(name##_in_shared *)hd_sim_static(&name##_name, sizeof(name##_in_shared), alignof(name##_in_shared))

/* -- the runtime: by CUDA's rules, but all work is done when a call returns ---------------------------------------- */
enum {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInvalidResourceHandle = 400,
	cudaErrorNotReady = 600,
	cudaErrorStreamCaptureUnsupported = 900,
	cudaErrorStreamCaptureInvalidated = 901,
	cudaErrorStreamCaptureIsolation = 905,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaEventRecordDefault = 0, cudaEventRecordExternal = 1 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum { cudaStreamCaptureModeThreadLocal = 1 };
const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
/* Between these calls (in kernels and copies) device memory is accessible.  Otherwise a host access ends with
 * SIGSEGV. */
void hd_sim_open_memory(void);
void hd_sim_close_memory(void);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, int mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x);
cudaError_t cudaEventCreate(cudaEvent_t *e);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
/* Elapsed time is one millisecond, except for products whose time tests set (sim_lt.h); these add it to hd_sim_ms. */
extern double hd_sim_ms;
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t);

#pragma GCC visibility pop
#endif
