/* SPDX-License-Identifier: Apache-2.0
 * The cuda device: one GPU per rank, one stream for all kernels, memory, errors that name the kernel, and recordings
 * (CUDA graphs).
 */
#include "kernels/cuda/base/cuda.h"
#include "kernels/cuda/clock.h"
#include "kernels/cuda/copies.h"
#include "kernels/cuda/base/peak.h"
#include "kernels/cuda/matmul/product.h"
#include "engine/base/hash.h"
#include <stdio.h>

static struct {
	cudaStream_t queue;
	struct hd_cuda_step *step; /* on the device */
	void *pinned;
	void *scratch, *smaller[64]; /* smaller: earlier ones, whose addresses recordings may contain */
	int nsmaller;
	size_t scratch_bytes, scratch_need;
	cudaError_t failed; /* the first error of a step */
	char where[120];
	cudaError_t failed_before; /* `failed` when a capture began: errors of a failed capture are not the step's */
	int rank, ranks, gpus, device, open; /* rank, ranks: among those that may use the same GPUs */
} here;

static const char *text_of(cudaError_t e)
{
	return cudaGetErrorString(e);
}

void *hd_cuda_queue(void)
{
	return (void *)here.queue;
}
int hd_cuda_gpu(void)
{
	return here.device;
}
int hd_cuda_ranks_per_gpu(void)
{
	return here.gpus ? (here.ranks + here.gpus - 1) / here.gpus : 1;
}

void hd_cuda_note_error(cudaError_t e, const char *where)
{
	if (e == cudaSuccess || here.failed != cudaSuccess)
		return;
	here.failed = e;
	snprintf(here.where, sizeof(here.where), "%s", where);
}

void hd_cuda_launched(const char *kernel)
{
	hd_cuda_note_error(cudaPeekAtLastError(), kernel);
}

/* -- memory -------------------------------------------------------------------------------------------------------- */
static void wait_here(const char *where)
{
	hd_cuda_note_error(cudaStreamSynchronize(here.queue), where);
}

static void *device_alloc(size_t bytes, struct hd_err *err)
{
	void *p = NULL;
	cudaError_t e = cudaMalloc(&p, bytes ? bytes : 1);

	if (e != cudaSuccess) {
#ifndef HD_SIM
		size_t left = 0, all = 0;

		cudaGetLastError();
		cudaMemGetInfo(&left, &all);
		hd_err_set(err, HD_ENOMEM,
			   "cuda: %zu bytes of device memory are needed, but %zu of %zu are free on GPU %d", bytes,
			   left, all, here.device);
#else
		hd_err_set(err, HD_ENOMEM, "cuda: %zu bytes of device memory are needed, but are not available", bytes);
#endif
		return NULL;
	}
	hd_cuda_note_error(cudaMemsetAsync(p, 0, bytes, here.queue), "clearing memory");
	wait_here("clearing memory");
	return p;
}

static void device_free(void *p)
{
	wait_here("before memory is given back");
	cudaFree(p);
}

static void *host_alloc(size_t bytes, struct hd_err *err)
{
	void *p = NULL;

#ifdef HD_SIM
	p = calloc(1, bytes ? bytes : 1);
#else
	if (cudaHostAlloc(&p, bytes ? bytes : 1, cudaHostAllocDefault) == cudaSuccess)
		memset(p, 0, bytes);
	else
		p = NULL;
#endif
	if (!p)
		hd_err_set(err, HD_ENOMEM, "cuda: cannot allocate %zu bytes of page-locked host memory", bytes);
	return p;
}

static void host_free(void *p)
{
#ifdef HD_SIM
	free(p);
#else
	cudaFreeHost(p);
#endif
}

#ifdef HD_SIM
static void pin(void *p, size_t bytes)
{
	(void)p, (void)bytes;
}
static void unpin(void)
{
}
#else
static void pin(void *p, size_t bytes)
{
	if (!here.pinned && cudaHostRegister(p, bytes, cudaHostRegisterDefault) == cudaSuccess)
		here.pinned = p;
	cudaGetLastError(); /* if it fails, copies are only slower */
}

static void unpin(void)
{
	if (here.pinned)
		cudaHostUnregister(here.pinned);
	here.pinned = NULL;
}
#endif

static void put(void *device, const void *host, size_t bytes)
{
	hd_cuda_note_error(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, here.queue),
			   "a copy to the device");
	wait_here("a copy to the device");
}

static void load(void *device, const void *host, size_t bytes)
{
	hd_cuda_note_error(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, here.queue),
			   "a copy to the device");
}

static void get(void *host, const void *device, size_t bytes)
{
	hd_cuda_note_error(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, here.queue),
			   "a copy from the device");
	wait_here("a copy from the device");
}

/* -- within the device --------------------------------------------------------------------------------------------- */
void hd_cuda_fill_bytes(const struct hd_run *r, void *p, int byte, size_t bytes)
{
	if (bytes)
		hd_cuda_note_error(cudaMemsetAsync(p, byte, bytes, (cudaStream_t)r->queue), "clearing memory");
}

void hd_cuda_zero(const struct hd_run *r, void *p, size_t bytes)
{
	hd_cuda_fill_bytes(r, p, 0, bytes);
}

void hd_cuda_move(const struct hd_run *r, void *to, const void *from, size_t bytes)
{
	if (bytes && to != from)
		hd_cuda_note_error(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)r->queue),
				   "a copy");
}

void hd_cuda_scratch_need(size_t bytes)
{
	here.scratch_need = bytes > here.scratch_need ? bytes : here.scratch_need;
}

/* Returns the scratch memory.  It is allocated at the first use after a request, since all prepares of a program
 * come first. */
void *hd_cuda_scratch(void)
{
	struct hd_err err = {};

	if (here.scratch_need > here.scratch_bytes) {
		if (here.scratch && here.nsmaller < (int)HD_LEN(here.smaller))
			here.smaller[here.nsmaller++] = here.scratch;
		if (here.scratch_need < 2 * here.scratch_bytes) /* so that later programs cause few allocations */
			here.scratch_need = 2 * here.scratch_bytes;
		here.scratch = device_alloc(here.scratch_need, &err);
		here.scratch_bytes = here.scratch ? here.scratch_need : 0;
		if (!here.scratch)
			hd_cuda_note_error((cudaError_t)2, "the kernels' scratch memory");
	}
	return here.scratch;
}

void *hd_cuda_constant(const void *data, size_t bytes, struct hd_err *err)
{
	void *p = device_alloc(bytes, err);

	if (p)
		put(p, data, bytes);
	return p;
}

void hd_cuda_constant_free(void *p)
{
	if (here.open) /* otherwise it was freed with the device */
		cudaFree(p);
}

/* -- opening and closing ------------------------------------------------------------------------------------------- */
static void among(int rank, int ranks)
{
	here.rank = rank;
	here.ranks = ranks;
}

/* Streams share a number of the GPU's hardware queues, 8 by default, and a stream waits for earlier work in its
 * queue.  Kernels and each communicator have their own streams.  The driver reads the variable when it starts. */
static void ask_for_queues(void)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

static int one_for_each_rank(int gpus, struct hd_err *err)
{
	here.gpus = gpus;
	if (here.ranks <= gpus || getenv("HD_TEST_SHARE_GPU")) /* for tests of layouts on one GPU */
		return HD_OK;
	return hd_err_set(err, HD_ENOTSUP, "cuda: %d ranks of this host may use only %d GPU%s: each needs its own",
			  here.ranks, gpus, gpus == 1 ? "" : "s");
}

#ifdef HD_SIM
static uint64_t visible(void)
{
	const char *name = getenv("HD_TEST_SIM_GPU");

	return name ? hd_hash_add_text(HD_HASH_START, name) : 0;
}

static int choose_gpu(struct hd_err *err)
{
	return one_for_each_rank(1, err);
}

static int64_t memory(int64_t *left)
{
	*left = (int64_t)4 << 30;
	return *left;
}

static char *describe(void)
{
	return hd_strdup("cuda: simulated on the host, for tests");
}
#else
static uint64_t visible(void)
{
	struct cudaDeviceProp p;
	uint64_t hash = HD_HASH_START;
	int n = 0;

	ask_for_queues();
	if (cudaGetDeviceCount(&n) != cudaSuccess)
		n = 0;
	for (int i = 0; i < n; i++)
		if (cudaGetDeviceProperties(&p, i) == cudaSuccess)
			for (size_t k = 0; k < sizeof(p.uuid.bytes); k++)
				hash = hd_hash_add(hash, (unsigned char)p.uuid.bytes[k]);
	cudaGetLastError(); /* opening the device reports what is wrong */
	return hash;
}

static int choose_gpu(struct hd_err *err)
{
	int driver = 0, runtime = 0, n = 0;
	struct cudaDeviceProp p;
	cudaError_t e;

	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	if (!driver)
		return hd_err_set(err, HD_ENOTSUP, "cuda: this machine has no NVIDIA driver");
	if (driver / 1000 < runtime / 1000)
		return hd_err_set(err, HD_ENOTSUP, "cuda: the driver is for CUDA %d.%d, but this build needs CUDA %d",
				  driver / 1000, driver % 1000 / 10, runtime / 1000);
	e = cudaGetDeviceCount(&n);
	if (e != cudaSuccess || !n)
		return hd_err_set(err, HD_ENOTSUP, "cuda: no GPU can be used: %s",
				  e ? cudaGetErrorString(e) : "there is none");
	HD_TRY(one_for_each_rank(n, err));
	here.device = here.rank % n;
	e = cudaSetDevice(here.device);
	if (e == cudaSuccess)
		e = cudaGetDeviceProperties(&p, here.device);
	if (e == cudaSuccess && p.major < 8)
		return hd_err_set(err, HD_ENOTSUP,
				  "cuda: GPU %d (%s) has compute capability %d.%d, but at least 8.0 is needed",
				  here.device, p.name, p.major, p.minor);
	if (e != cudaSuccess)
		return hd_err_set(err, HD_ENOTSUP, "cuda: GPU %d: %s", here.device, cudaGetErrorString(e));
	return HD_OK;
}

static int64_t memory(int64_t *left)
{
	size_t some = 0, all = 0;

	cudaMemGetInfo(&some, &all);
	*left = (int64_t)some;
	return (int64_t)all;
}

static char *describe(void)
{
	struct cudaDeviceProp p;
	size_t left = 0, all = 0;
	int driver = 0;

	if (cudaGetDeviceProperties(&p, here.device) != cudaSuccess)
		return hd_strdup("cuda");
	cudaMemGetInfo(&left, &all);
	cudaDriverGetVersion(&driver);
	return hd_format("cuda: GPU %d, %s (%d.%d), %.1f of %.1f GB free, driver for CUDA %d.%d", here.device, p.name,
			 p.major, p.minor, (double)left / 1e9, (double)all / 1e9, driver / 1000, driver % 1000 / 10);
}

/* Detects at startup, not in the first step, that the kernels were not compiled for this GPU's architecture. */
__global__ void hello(int *x)
{
	*x = 42;
}

static int try_kernel(struct hd_err *err)
{
	int *x = NULL, back = 0;
	cudaError_t e = cudaMalloc((void **)&x, sizeof(*x));

	if (e == cudaSuccess) {
		hello<<<1, 1, 0, here.queue>>>(x);
		e = cudaGetLastError();
	}
	if (e == cudaSuccess)
		e = cudaMemcpyAsync(&back, x, sizeof(back), cudaMemcpyDeviceToHost, here.queue);
	if (e == cudaSuccess)
		e = cudaStreamSynchronize(here.queue);
	cudaFree(x);
	if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorUnsupportedPtxVersion)
		return hd_err_set(err, HD_ENOTSUP, "cuda: this build has no code for GPU %d's architecture: %s",
				  here.device, cudaGetErrorString(e));
	if (e != cudaSuccess || back != 42)
		return hd_err_set(err, HD_ENOTSUP, "cuda: GPU %d does not run a kernel: %s", here.device,
				  cudaGetErrorString(e));
	return HD_OK;
}
#endif

static int open_device(int threads, struct hd_err *err)
{
	cudaError_t e;

	(void)threads;
	ask_for_queues();
	HD_TRY(choose_gpu(err));
	e = cudaStreamCreateWithFlags(&here.queue, cudaStreamNonBlocking);
	if (e != cudaSuccess)
		return hd_err_set(err, HD_ENOTSUP, "cuda: cannot create a stream on GPU %d: %s", here.device,
				  cudaGetErrorString(e));
#ifndef HD_SIM
	HD_TRY(try_kernel(err));
#endif
	here.open = 1;
	here.step = (struct hd_cuda_step *)device_alloc(sizeof(*here.step), err);
	return here.step ? hd_product_open(here.queue, err) : HD_ENOMEM;
}

static void close_device(void)
{
	if (!here.open)
		return;
	hd_product_close();
	hd_cuda_copies_forget();
	hd_cuda_marks_forget();
	unpin();
	cudaFree(here.scratch);
	while (here.nsmaller)
		cudaFree(here.smaller[--here.nsmaller]);
	cudaFree(here.step);
	cudaStreamDestroy(here.queue);
	here.open = 0;
	here.scratch = NULL;
	here.scratch_bytes = 0;
}

/* -- a step -------------------------------------------------------------------------------------------------------- */
static void begin(struct hd_run *r)
{
	struct hd_cuda_step s;

	memset(&s, 0, sizeof(s));
	s.size = sizeof(struct hd_step);
	s.seed = r->seed;
	s.step = r->step;
	s.position = r->position;
	s.lr = r->lr;
	s.loss_scale = r->loss_scale;
	s.train = r->train;
	r->queue = (void *)here.queue;
	r->step_constants = here.step;
	put(here.step, &s, sizeof(s));
}

static int finish(struct hd_err *err)
{
	cudaError_t e;

	wait_here("a kernel of this step (CUDA_LAUNCH_BLOCKING=1 says which)");
	e = here.failed;
	here.failed = cudaSuccess;
	return e == cudaSuccess ? HD_OK : hd_err_set(err, HD_EIO, "cuda: %s: %s", here.where, text_of(e));
}

#ifdef HD_SIM
static double peak(uint32_t dtype)
{
	(void)dtype;
	return 1e9;
}
#else
/* Returns the vendor's figure, or for an unknown GPU the rate that a large product reaches. */
static double peak(uint32_t dtype)
{
	struct cudaDeviceProp p;
	double known = 0;

	if (cudaGetDeviceProperties(&p, here.device) == cudaSuccess)
		known = hd_cuda_peak_of(p.name, p.multiProcessorCount, dtype == HD_DTYPE_BF16);
	return known > 0 ? known : hd_matmul_rate(dtype);
}
#endif

static int ready(void)
{
	return cudaStreamQuery(here.queue) != cudaErrorNotReady;
}

/* Stores the GPU's name, under which measured choices are saved. */
static void name_of(char *name, size_t n)
{
#ifdef HD_SIM
	snprintf(name, n, "simulated");
#else
	struct cudaDeviceProp p;

	snprintf(name, n, "%s", cudaGetDeviceProperties(&p, here.device) == cudaSuccess ? p.name : "GPU");
#endif
}

static char *autotune(const char *known, const struct hd_exchange *x)
{
	char *text = hd_einsum_choices(), *picks, name[256];

	name_of(name, sizeof(name));
	picks = hd_product_tune(known, x, here.queue, name);
	hd_append(&text, "einsum.summed %lld\n%s", (long long)hd_chain_picked(), picks);
	free(picks);
	return text;
}

static int record(void)
{
	here.failed_before = here.failed;
	if (cudaStreamBeginCapture(here.queue, cudaStreamCaptureModeThreadLocal) == cudaSuccess)
		return HD_OK;
	cudaGetLastError();
	return HD_ENOTSUP;
}

/* A failed capture has not run anything, so its errors are forgotten.  The launches then run one by one, and a real
 * error occurs again. */
static void *recorded(void)
{
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec = NULL;
	cudaError_t e = cudaStreamEndCapture(here.queue, &graph);

	if (e == cudaSuccess && graph && here.failed == here.failed_before)
		cudaGraphInstantiate(&exec, graph, 0);
	if (graph)
		cudaGraphDestroy(graph);
	if (!exec) {
		here.failed = here.failed_before;
		cudaGetLastError();
	}
	return (void *)exec;
}

static int replay(void *recording)
{
	hd_cuda_note_error(cudaGraphLaunch((cudaGraphExec_t)recording, here.queue), "a recorded unit");
	return HD_OK;
}

static void forget(void *recording)
{
	cudaGraphExecDestroy((cudaGraphExec_t)recording);
}

extern "C" const struct hd_device_comm *hd_cuda_comm(void);

static const struct hd_device_ops *table(void)
{
	static struct hd_device_ops ops;

	ops.name = "cuda";
	ops.open = open_device;
	ops.close = close_device;
	ops.kernel = hd_cuda_kernel;
	ops.fixed = hd_product_fixed;
	ops.autotune = autotune;
	ops.warning = hd_einsum_refusals;
	ops.matmul_rate = hd_matmul_rate;
	ops.visible = visible;
	ops.among = among;
	ops.memory = memory;
	ops.describe = describe;
	ops.alloc = device_alloc;
	ops.free = device_free;
	ops.alloc_host = host_alloc;
	ops.free_host = host_free;
	ops.pin = pin;
	ops.put = put;
	ops.load = load;
	ops.get = get;
	ops.move = hd_cuda_copy;
	ops.moved = hd_cuda_copied;
	ops.begin = begin;
	ops.finish = finish;
	ops.ready = ready;
	ops.peak = peak;
	ops.record = record;
	ops.recorded = recorded;
	ops.replay = replay;
	ops.forget = forget;
	ops.mark = hd_cuda_mark;
	ops.between = hd_cuda_between;
	ops.comm = hd_cuda_comm();
	return &ops;
}

extern "C" __attribute__((visibility("default"))) const struct hd_device_module *heddle_device(void);
extern "C" const struct hd_device_module *heddle_device(void)
{
	static struct hd_device_module m;

	m.version = HD_DEVICE_VERSION;
	m.ops_size = sizeof(struct hd_device_ops);
	m.run_size = sizeof(struct hd_run);
	m.ops = table();
	return &m;
}
