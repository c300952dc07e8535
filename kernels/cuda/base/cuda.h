/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/base/cuda.h - what the files of the cuda device share.
 *
 * A .cu file is one op: its kernels, and `prepare` and `run` as on every device.  `run` only enqueues work on the
 * stream hd_run.queue.  It does not wait or allocate, and its arguments depend on the launch alone.  Values that
 * change from step to step (seed, step, learning rate, loss scale, position) are read from the device's copy of the
 * step's numbers.  So a launch can be recorded once in a CUDA graph and replayed.
 *
 * nvcc compiles these files; with HD_SIM, so does any C++ compiler for the host (sim.h).
 *
 * Float operands are f32 or bf16, and arithmetic is in fp32.  Operands with 16-byte addresses and whole vectors are
 * read 16 bytes at a time, others element by element.
 */
#ifndef HD_KERNELS_CUDA_BASE_CUDA_H
#define HD_KERNELS_CUDA_BASE_CUDA_H
#ifdef HD_SIM
#include "kernels/cuda/sim/sim.h"
#else
#include <cuda_runtime.h>
#define HD_LAUNCH(kernel, blocks, threads, shared, r, ...) \
	do { \
		(kernel)<<<blocks, threads, shared, (cudaStream_t)(r)->queue>>>(__VA_ARGS__); \
		hd_cuda_launched(#kernel); \
	} while (0)
#define HD_DYNAMIC_SHARED(type, name) \
	extern __shared__ __align__(128) unsigned char hd_dynamic_shared[]; \
	type *name = (type *)hd_dynamic_shared
#define HD_SHARED(type, name, ...) __shared__ type name __VA_ARGS__ /* type name[...] */
#endif
extern "C" {
#include <heddle/kernel.h>
#include "engine/device/device.h"
#include "kernels/check.h"
}

#define HD_DEV __device__ __forceinline__
#define HD_WARP 32

/* -- host side, device.cu ------------------------------------------------------------------------------------------ */
/* The device's copy of the values that change from step to step.  Plugins read it as struct hd_step. */
struct hd_cuda_step {
	size_t size;
	uint64_t seed;
	int64_t step;
	double lr, loss_scale;
	int32_t train;
	uint32_t zero;
	int64_t position; /* for the engine alone */
};
static_assert(offsetof(struct hd_cuda_step, position) == sizeof(struct hd_step) &&
		      offsetof(struct hd_cuda_step, lr) == offsetof(struct hd_step, lr) &&
		      offsetof(struct hd_cuda_step, train) == offsetof(struct hd_step, train),
	      "the step's numbers begin as heddle/kernel.h has them");
const struct hd_kernel *hd_cuda_kernel(const char *name);
void *hd_cuda_queue(void);       /* the stream of all kernels */
int hd_cuda_gpu(void);           /* the GPU of this rank */
int hd_cuda_ranks_per_gpu(void); /* the most ranks of this host that share one GPU */
static inline const struct hd_cuda_step *hd_cuda_step_of(const struct hd_run *r)
{
	return (const struct hd_cuda_step *)r->step_constants;
}
/* Scratch memory on the device, for data passed between the launches of one kernel's run.  All kernels share it,
 * since launches run one after another.  `prepare` requests it, and `run` gets it (at least 256-byte aligned). */
void hd_cuda_scratch_need(size_t bytes);
void *hd_cuda_scratch(void);
/* Copies a constant of the kernel to device memory, for `prepare`.  Returns NULL with text in err if no memory is
 * left. */
void *hd_cuda_constant(const void *data, size_t bytes, struct hd_err *err);
void hd_cuda_constant_free(void *p);
void hd_cuda_zero(const struct hd_run *r, void *p, size_t bytes);
void hd_cuda_fill_bytes(const struct hd_run *r, void *p, int byte, size_t bytes);
void hd_cuda_move(const struct hd_run *r, void *to, const void *from, size_t bytes);
void hd_cuda_launched(const char *kernel);
void hd_cuda_note_error(cudaError_t e, const char *where); /* keeps the first error of a step; ignores cudaSuccess */
/* Checks as on every device; bf16 operands also count as the device's float. */
int hd_cuda_check(const char *kernel, const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err,
		  int (*prepare)(const struct hd_check *c, struct hd_prep *p));
/* Checks the dtypes of operands, inputs then outputs, one letter each.  "t": f32 or bf16, the same for all; "u":
 * likewise, for a second set; "f": f32; "*": any.  The last letter repeats.  Sets *t and *u to the dtypes found, or
 * 0. */
int hd_cuda_types(const char *kernel, const struct hd_kernel_desc *d, const char *ins, const char *outs, uint32_t *t,
		  uint32_t *u, struct hd_err *err);

/* Allows a kernel more than 48 KB of dynamic shared memory. */
#ifdef HD_SIM
static inline int hd_cuda_allow_shared(const char *what, const void *kernel, size_t bytes, struct hd_err *err)
{
	if (hd_sim_allow_shared(kernel, bytes) == cudaSuccess)
		return HD_OK;
	cudaGetLastError(); /* as below */
	return hd_err_set(err, HD_ENOTSUP, "%s: %zu bytes of shared memory: invalid argument", what, bytes);
}
#else
static inline int hd_cuda_allow_shared(const char *what, const void *kernel, size_t bytes, struct hd_err *err)
{
	struct cudaFuncAttributes has;
	cudaError_t e = cudaFuncGetAttributes(&has, kernel);

	if (e == cudaSuccess && has.maxDynamicSharedSizeBytes < (int)bytes) /* an earlier shape may have needed more */
		e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
	if (e == cudaSuccess)
		return HD_OK;
	cudaGetLastError(); /* else the next launch would report it */
	return hd_err_set(err, HD_ENOTSUP, "%s: %zu bytes of shared memory: %s", what, bytes, cudaGetErrorString(e));
}
#endif

static inline unsigned hd_blocks(int64_t n, int64_t each, int64_t most = 132 * 32)
{
	int64_t b = (n + each - 1) / each;

	return (unsigned)(b < 1 ? 1 : b < most ? b : most);
}
static inline int hd_aligned(const void *p)
{
	return ((uintptr_t)p & 15) == 0;
}
static HD_DEV __host__ int64_t hd_least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* -- numbers ------------------------------------------------------------------------------------------------------- */
struct bf16 {
	uint16_t bits;
};

HD_DEV float hd_bits_float(uint32_t u)
{
#ifdef HD_SIM
	float f;

	memcpy(&f, &u, 4);
	return f;
#else
	return __uint_as_float(u);
#endif
}
HD_DEV uint32_t hd_float_bits(float f)
{
#ifdef HD_SIM
	uint32_t u;

	memcpy(&u, &f, 4);
	return u;
#else
	return __float_as_uint(f);
#endif
}

HD_DEV float to_float(float x)
{
	return x;
}
HD_DEV float to_float(bf16 x)
{
	return hd_bits_float((uint32_t)x.bits << 16);
}
HD_DEV float to_float(double x)
{
	return (float)x;
}
HD_DEV void from_float(float *y, float x)
{
	*y = x;
}
HD_DEV void from_float(double *y, float x)
{
	*y = x;
}
HD_DEV void from_float(bf16 *y, float x) /* rounds to nearest even; NaN stays NaN */
{
#ifdef HD_SIM
	uint32_t u = hd_float_bits(x);

	y->bits = (uint16_t)(x == x ? (u + 0x7fff + (u >> 16 & 1)) >> 16 : u >> 16 | 0x40);
#else
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y->bits) : "f"(x));
#endif
}
/* Packs two bf16 into a register, the first in the low half. */
HD_DEV uint32_t hd_bf16_pair(float low, float high)
{
#ifdef HD_SIM
	bf16 a, b;

	from_float(&a, low);
	from_float(&b, high);
	return (uint32_t)b.bits << 16 | a.bits;
#else
	uint32_t u;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(high), "f"(low));
	return u;
#endif
}

/* Returns 2^x, or 0 if that is below 2^-126. */
HD_DEV float hd_exp2(float x)
{
#ifdef HD_SIM
	float y = exp2f(x);

	return y < 0x1p-126f ? 0 : y;
#else
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}

/* Returns 1 / sqrt(x) with an error of at most two units in the last place. */
HD_DEV float hd_rsqrt(float x)
{
#ifdef HD_SIM
	return 1 / sqrtf(x);
#else
	return rsqrtf(x);
#endif
}

/* Returns 1 / x, exact except for the last bit. */
HD_DEV float hd_reciprocal(float x)
{
#ifdef HD_SIM
	return 1 / x;
#else
	float y;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}

template <class T, int N> struct alignas(sizeof(T) * N) pack {
	T v[N];
};

#ifdef HD_SIM
#define HD_VECTOR(p, bytes) \
	hd_sim_aligned(p, bytes, "a vector") /* not every compiler reports the alignment that a struct copy needs */
#else
#define HD_VECTOR(p, bytes) ((void)0)
#endif

/* A vector of N numbers as in memory, at most 16 bytes. */
template <int N, class T> struct vec {
	pack<T, N> p;

	HD_DEV float at(int k) const
	{
		return to_float(p.v[k]);
	}
	HD_DEV void set(const float *x)
	{
		for (int k = 0; k < N; k++)
			from_float(&p.v[k], x[k]);
	}
};
#ifndef HD_SIM
/* bf16 vectors are stored as 32-bit words: nvcc would give each 16-bit half a register of its own. */
template <int N> struct alignas(2 * N) words {
	uint32_t w[N / 2];

	HD_DEV float at(int k) const
	{
		return hd_bits_float(k % 2 ? w[k / 2] & 0xffff0000u : w[k / 2] << 16);
	}
	HD_DEV void set(const float *x)
	{
		for (int k = 0; k < N; k += 2)
			w[k / 2] = hd_bf16_pair(x[k], x[k + 1]);
	}
};
template <> struct vec<2, bf16> : words<2> {
};
template <> struct vec<4, bf16> : words<4> {
};
template <> struct vec<8, bf16> : words<8> {
};
#endif

/* Loads a vector without converting it.  Loads issued together share one latency, and raw vectors take few registers
 * until they become floats. */
template <int N, class T> HD_DEV vec<N, T> fetch(const T *x)
{
	HD_VECTOR(x, N * sizeof(T));
	return *(const vec<N, T> *)x;
}
template <int N, class T> HD_DEV void floats(float *y, const vec<N, T> &v)
{
	for (int k = 0; k < N; k++)
		y[k] = v.at(k);
}

/* Loads at most 16 bytes at a time: data aligned to 16 bytes need not be aligned to more. */
template <int N, class T> HD_DEV void load(float *y, const T *x)
{
	const int P = N * sizeof(T) > 16 ? 16 / (int)sizeof(T) : N;

#pragma unroll
	for (int k = 0; k < N; k += P)
		floats(y + k, fetch<P>(x + k));
}
template <int N, class T> HD_DEV void put(T *y, const vec<N, T> &v)
{
	HD_VECTOR(y, N * sizeof(T));
	*(vec<N, T> *)y = v;
}
template <int N, class T> HD_DEV void store(T *y, const float *x)
{
	const int P = N * sizeof(T) > 16 ? 16 / (int)sizeof(T) : N;

#pragma unroll
	for (int k = 0; k < N; k += P) {
		vec<P, T> v;

		v.set(x + k);
		put<P>(y + k, v);
	}
}

/* -- sums over a warp or a block, in a fixed order; every thread gets the result ----------------------------------- */
template <class T> HD_DEV T warp_sum(T x)
{
	for (int o = HD_WARP / 2; o; o /= 2)
		x += __shfl_xor_sync(~0u, x, o);
	return x;
}
HD_DEV float warp_max(float x)
{
	for (int o = HD_WARP / 2; o; o /= 2)
		x = fmaxf(x, __shfl_xor_sync(~0u, x, o));
	return x;
}
template <int THREADS, class T> HD_DEV T block_sum(T x, T *scratch) /* scratch: THREADS / 32 */
{
	x = warp_sum(x);
	if (THREADS == HD_WARP)
		return x;
	__syncthreads(); /* results of an earlier call may still be read */
	if (threadIdx.x % HD_WARP == 0)
		scratch[threadIdx.x / HD_WARP] = x;
	__syncthreads();
	x = 0;
	for (int i = 0; i < THREADS / HD_WARP; i++)
		x += scratch[i];
	return x;
}
template <int THREADS> HD_DEV float block_max(float x, float *scratch)
{
	x = warp_max(x);
	if (THREADS == HD_WARP)
		return x;
	__syncthreads();
	if (threadIdx.x % HD_WARP == 0)
		scratch[threadIdx.x / HD_WARP] = x;
	__syncthreads();
	x = scratch[0];
	for (int i = 1; i < THREADS / HD_WARP; i++)
		x = fmaxf(x, scratch[i]);
	return x;
}

/* -- elementwise: f.at<N>(i) does elements i ... i + N - 1 --------------------------------------------------------- */
template <int N, class F> HD_DEV void hd_elements(int64_t n, const F &f)
{
	int64_t step = (int64_t)gridDim.x * blockDim.x, t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (int64_t i = t * N; i + N <= n; i += step * N)
		f.template at<N>(i);
	if (N > 1 && t < n % N)
		f.template at<1>(n - n % N + t);
}
template <int N, class F> __global__ void __launch_bounds__(256) each_element(int64_t n, F f)
{
	hd_elements<N>(n, f);
}
/* Applies f to the rows in use, of `each` elements.  Their number is the sum of `many` counts, added here since only
 * the device has them. */
template <int N, class F>
__global__ void __launch_bounds__(256) each_used(const int32_t *counts, int64_t many, int64_t each, F f)
{
	HD_SHARED(int32_t, scratch, [256 / HD_WARP]);
	int32_t rows = 0;

	for (int64_t i = threadIdx.x; i < many; i += 256)
		rows += counts[i];
	hd_elements<N>(block_sum<256>(rows, scratch) * each, f);
}
/* Applies f to n elements.  wide: all operands are aligned.  N: at most as many elements as 16 bytes of the
 * narrowest operand hold. */
template <int N, class F> static void hd_each(const struct hd_run *r, int64_t n, int wide, F f)
{
	if (n <= 0)
		return;
	if (wide)
		HD_LAUNCH((each_element<N, F>), hd_blocks(n, 256 * N), 256, 0, r, n, f);
	else
		HD_LAUNCH((each_element<1, F>), hd_blocks(n, 256), 256, 0, r, n, f);
}
/* The same for kernels with HD_K_ROWS: applies f to those of the n elements that lie in rows in use. */
template <int N, class F> static void hd_each_used(const struct hd_run *r, int64_t n, int wide, F f)
{
	int64_t each = r->rows_most ? n / r->rows_most : 0;

	if (!r->rows_most || !r->row_counts)
		hd_each<N>(r, hd_used(r, n), wide, f);
	else if (n > 0 && wide)
		HD_LAUNCH((each_used<N, F>), hd_blocks(n, 256 * N), 256, 0, r, r->row_counts, r->nrow_counts, each, f);
	else if (n > 0)
		HD_LAUNCH((each_used<1, F>), hd_blocks(n, 256), 256, 0, r, r->row_counts, r->nrow_counts, each, f);
}

#define HD_CUDA_PREPARE(function, kernel, expr) \
	static int function##_check(const struct hd_check *c, struct hd_prep *p) \
	{ \
		return expr; \
	} \
	static int function(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err) \
	{ \
		return hd_cuda_check(kernel, d, p, err, function##_check); \
	}
/* The same; also stores the dtypes of the t and u operands in p->n[14] and p->n[15]. */
#define HD_CUDA_PREPARE_TYPES(function, kernel, ins, outs, expr) \
	static int function##_check(const struct hd_check *c, struct hd_prep *p) \
	{ \
		return expr; \
	} \
	static int function(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err) \
	{ \
		uint32_t t, u; \
\
		HD_TRY(hd_cuda_check(kernel, d, p, err, function##_check)); \
		if (hd_cuda_types(kernel, d, ins, outs, &t, &u, err) < 0) { \
			if (p->release) \
				p->release(p->state); \
			p->state = NULL; \
			return err ? err->code : HD_ENOTSUP; \
		} \
		p->n[14] = t; \
		p->n[15] = u; \
		return HD_OK; \
	}
#define HD_CUDA_KERNEL(symbol, text, flag, prepare, run) \
	extern "C" const struct hd_kernel hd_cuda_##symbol; \
	extern "C" const struct hd_kernel hd_cuda_##symbol = { text, flag, prepare, run,  NULL, \
							       NULL, NULL, NULL,    NULL, NULL }
#define HD_CUDA_KERNEL_JOINS(symbol, text, flag, prepare, run, join, run_joined, unjoin) \
	extern "C" const struct hd_kernel hd_cuda_##symbol; \
	extern "C" const struct hd_kernel hd_cuda_##symbol = { text,       flag,   prepare, run,  join, \
							       run_joined, unjoin, NULL,    NULL, NULL }

#endif
