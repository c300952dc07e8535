/* SPDX-License-Identifier: Apache-2.0
 * Wrong kernels and launches, one for each thing that the simulation of the cuda device must notice (kernels/cuda/sim/sim.h), and
 * each beside the same without the mistake: a program of the simulation alone.
 *
 *	sim-wrong --list
 *	sim-wrong right|wrong NAME
 */
#include "kernels/cuda/base/hopper.h"
#include <stdio.h>

#define N 256

extern "C" void hd_sim_orders(int n, uint64_t switches); /* kernels/cuda/sim/sim_orders.cc */
static cudaStream_t queue, other;
static struct hd_run run;
void hd_cuda_launched(const char *)
{
} /* device.cu keeps a launch's error; here the message is enough */
static float *x, *y, host_x[4 * N], host_y[4 * N];

/* -- within a block ------------------------------------------------------------------------------------------------------- */
template <int WRONG> __global__ void turn_around(float *to, const float *from)
{
	HD_SHARED(float, tile, [N]);

	tile[threadIdx.x] = from[threadIdx.x];
	if (!WRONG)
		__syncthreads();
	to[threadIdx.x] = tile[N - 1 - threadIdx.x];
}

/* The barrier between the reads of one round and the writes of the next. */
template <int WRONG> __global__ void two_rounds(float *to, const float *from)
{
	HD_SHARED(float, tile, [N]);
	float sum = 0;

	for (int i = 0; i < 2; i++) {
		tile[threadIdx.x] = from[threadIdx.x] + (float)i;
		__syncthreads();
		sum += tile[N - 1 - threadIdx.x];
		if (!WRONG)
			__syncthreads();
	}
	to[threadIdx.x] = sum;
}

/* An exchange of registers orders no memory. */
template <int WRONG> __global__ void within_warp(float *to, const float *from)
{
	HD_SHARED(float, tile, [32]);
	float sum;

	tile[threadIdx.x] = from[threadIdx.x];
	sum = warp_sum(from[threadIdx.x]);
	if (!WRONG)
		__syncwarp();
	to[threadIdx.x] = tile[31 - threadIdx.x] + sum;
}

template <int WRONG> __global__ void half_a_barrier(float *to, const float *from)
{
	to[threadIdx.x] = from[threadIdx.x];
	if (WRONG && threadIdx.x % 32 == 0)
		__syncwarp(); /* and the others are at the block's */
	else
		__syncthreads();
}

template <int WRONG> __global__ void never_written(float *to, const float *from)
{
	HD_DYNAMIC_SHARED(float, tile);

	if (!WRONG || threadIdx.x)
		tile[threadIdx.x] = from[threadIdx.x];
	__syncthreads();
	to[threadIdx.x] = tile[N - 1 - threadIdx.x];
}

template <int WRONG> __global__ void beyond_shared(float *to, const float *from)
{
	HD_DYNAMIC_SHARED(float, tile);

	tile[threadIdx.x + WRONG] = from[threadIdx.x];
	to[threadIdx.x] = tile[threadIdx.x + WRONG];
}

template <int WRONG> __global__ void copy_not_waited_for(float *to, const float *from)
{
	HD_DYNAMIC_SHARED(float, tile);

	copy_piece((bf16 *)tile + 8 * threadIdx.x, (const bf16 *)from + 8 * threadIdx.x, 1);
	copies_commit();
	copies_wait<WRONG>();
	__syncthreads();
	to[threadIdx.x] = tile[N / 2 - 1 - threadIdx.x];
}

/* A copy is there for the thread that has waited; for others after a barrier. */
template <int WRONG> __global__ void copy_without_barrier(float *to, const float *from)
{
	HD_DYNAMIC_SHARED(float, tile);

	copy_piece((bf16 *)tile + 8 * threadIdx.x, (const bf16 *)from + 8 * threadIdx.x, 1);
	copies_commit();
	copies_wait<0>();
	if (!WRONG)
		__syncthreads();
	to[threadIdx.x] = tile[N / 2 - 1 - threadIdx.x];
}

/* -- device memory -------------------------------------------------------------------------------------------------------- */
template <int WRONG> __global__ void by_vectors(float *to, const float *from)
{
	float v[4];

	load<4>(v, from + 4 * threadIdx.x + (threadIdx.x == 3 ? WRONG : 0));
	store<4>(to + 4 * threadIdx.x, v);
}

template <int WRONG> __global__ void misaligned_copy(float *to, const float *from)
{
	HD_DYNAMIC_SHARED(float, tile);

	copy_piece((bf16 *)tile + 8 * threadIdx.x, (const bf16 *)from + 8 * threadIdx.x + WRONG, 1);
	copies_commit();
	copies_wait<0>();
	to[threadIdx.x] = tile[4 * threadIdx.x];
}

template <int WRONG> __global__ void misaligned_rows(float *to, const float *from)
{
	HD_DYNAMIC_SHARED(bf16, tile);
	uint32_t r[4];

	for (int i = 0; i < 32; i++)
		tile[threadIdx.x * 32 + i].bits = (uint16_t)i;
	__syncwarp();
	matrices(r, tile + threadIdx.x * 32 + WRONG, 0);
	to[threadIdx.x] = (float)r[0] + from[0];
}

template <int WRONG> __global__ void one_too_many(float *to, const float *from)
{
	to[threadIdx.x + WRONG * (3 * N + 1)] = from[threadIdx.x];
}

/* Blocks of a launch have no order. */
template <int WRONG> __global__ void blocks_meet(float *to, const float *from)
{
	int i = (int)(threadIdx.x + blockIdx.x * N);

	to[WRONG ? i % N : i] = from[i];
}

/* What a thread gets of a counter depends on who comes first: where its number goes must not.  Each block adds to what it found, so
 * an order that began with what the one before it left would be told too. */
template <int WRONG> __global__ void by_turns(float *to, const float *from)
{
	HD_SHARED(int, count, [1]);
	int at;

	if (!threadIdx.x)
		count[0] = 0;
	__syncthreads();
	at = atomicAdd(count, 1);
	to[blockIdx.x * N + (WRONG ? at : threadIdx.x)] += from[threadIdx.x];
}

template <int WRONG> __global__ void by_the_first(float *to, const float *from)
{
	HD_SHARED(int, count, [1]);
	int at;

	if (!threadIdx.x)
		count[0] = 0;
	__syncthreads();
	at = atomicAdd(count, 1);
	if (WRONG ? !at : !threadIdx.x)
		to[blockIdx.x * N + threadIdx.x] = from[0];
}

/* -- launches ------------------------------------------------------------------------------------------------------------- */
__global__ void nothing(float *to, const float *from)
{
	HD_SHARED(float, tile, [1024]);

	tile[threadIdx.x + threadIdx.z] = to == from ? 0.0f : 1.0f;
}

#define GO(kernel, blocks, threads, shared) \
	do { \
		if (wrong) \
			HD_LAUNCH((kernel<1>), blocks, threads, shared, &run, y, (const float *)x); \
		else \
			HD_LAUNCH((kernel<0>), blocks, threads, shared, &run, y, (const float *)x); \
	} while (0)
#define CASE(name, kernel, blocks, threads, shared) \
	static void name##_case(int wrong) \
	{ \
		GO(kernel, blocks, threads, shared); \
	}
#define LAUNCH(name, blocks, threads, shared) \
	static void name##_case(int wrong) \
	{ \
		HD_LAUNCH(nothing, blocks, threads, shared, &run, y, (const float *)x); \
	}

CASE(turn_around, turn_around, 1, N, 0)
CASE(two_rounds, two_rounds, 1, N, 0)
CASE(within_warp, within_warp, 1, 32, 0)
CASE(half_a_barrier, half_a_barrier, 1, N, 0)
CASE(beyond_shared, beyond_shared, 1, N, N * sizeof(float))
CASE(copy_not_waited_for, copy_not_waited_for, 1, N / 2, 2 * N * sizeof(float))
CASE(copy_without_barrier, copy_without_barrier, 1, N / 2, 2 * N * sizeof(float))
CASE(by_vectors, by_vectors, 1, N / 2, 0)
CASE(misaligned_copy, misaligned_copy, 1, N / 4, N * sizeof(float))
CASE(misaligned_rows, misaligned_rows, 1, 32, 32 * 34 * sizeof(bf16))
CASE(one_too_many, one_too_many, 1, N, 0)
CASE(blocks_meet, blocks_meet, 4, N, 0)
LAUNCH(too_many_threads, 1, wrong ? 1025 : 1024, 0)
LAUNCH(deep_block, 1, wrong ? dim3(1, 1, 65) : dim3(1, 1, 64), 0)
LAUNCH(tall_grid, (wrong ? dim3(1, 65536) : dim3(1, 300)), 1, 0)
LAUNCH(no_blocks, wrong ? 0 : 1, 1, 0)
LAUNCH(variables_and_shared, 1, 1, wrong ? (size_t)45 << 10 : (size_t)44 << 10)

/* Whole launches again, and one block of four. */
#define ORDERS(name, kernel, switches) \
	static void name##_case(int wrong) \
	{ \
		hd_sim_orders(20, switches); \
		GO(kernel, 4, N, 0); \
		hd_sim_orders(1, 0); \
		cudaMemcpyAsync(host_y, y, sizeof(host_y), cudaMemcpyDeviceToHost, queue); \
		for (int i = 0; i < 4; i++) \
			if (host_y[i * N] != host_x[0]) \
				fprintf(stderr, "block %d left %g\n", i, (double)host_y[i * N]); \
	}
ORDERS(whole_by_turns, by_turns, UINT64_MAX)
ORDERS(part_by_turns, by_turns, 1)
ORDERS(by_the_first, by_the_first, 1)

static void never_written_case(int wrong)
{
	GO(never_written, 1, N, N * sizeof(float));
	cudaMemcpyAsync(host_y, y, sizeof(host_y), cudaMemcpyDeviceToHost, queue);
	if (!(host_y[N - 1] == host_y[N - 1]))
		fprintf(stderr, "what was never written is not a number\n");
}

static void shared_not_asked_for_case(int wrong)
{
	struct hd_err err = {};

	if (!wrong)
		hd_cuda_allow_shared("nothing", (const void *)nothing, (size_t)100 << 10, &err);
	HD_LAUNCH(nothing, 1, 1, (size_t)100 << 10, &run, y, (const float *)x);
}

static void more_than_there_is_case(int wrong)
{
	struct hd_err err = {};

	if (hd_cuda_allow_shared("nothing", (const void *)nothing, (size_t)(wrong ? 228 : 227) << 10, &err) < 0)
		fprintf(stderr, "refused: %s\n", err.text);
}

/* -- streams -------------------------------------------------------------------------------------------------------------- */
static void no_event_case(int wrong)
{
	cudaEvent_t e;

	cudaEventCreate(&e);
	cudaMemsetAsync(x, 0, N * sizeof(float), queue);
	cudaEventRecord(e, queue);
	if (!wrong)
		cudaStreamWaitEvent(other, e, 0);
	cudaMemcpyAsync(y, x, N * sizeof(float), cudaMemcpyDeviceToDevice, other);
	cudaEventDestroy(e);
}

/* The event was recorded before the write that matters. */
static void early_event_case(int wrong)
{
	cudaEvent_t e;

	cudaEventCreate(&e);
	if (wrong)
		cudaEventRecord(e, queue);
	HD_LAUNCH((one_too_many<0>), 1, N, 0, &run, y, (const float *)x);
	if (!wrong)
		cudaEventRecord(e, queue);
	cudaStreamWaitEvent(other, e, 0);
	cudaMemsetAsync(x, 0, sizeof(float), other); /* which the kernel reads */
	cudaEventDestroy(e);
}

static void host_waits_case(int wrong)
{
	cudaMemsetAsync(x, 0, N * sizeof(float), queue);
	cudaStreamSynchronize(wrong ? other : queue);
	cudaMemcpyAsync(y, x, N * sizeof(float), cudaMemcpyDeviceToDevice, other);
}

/* A capture with `within` in it; what comes of it is said. */
static void captured(void (*within)(void))
{
	cudaGraph_t g = NULL;
	cudaGraphExec_t e;

	cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal);
	HD_LAUNCH((one_too_many<0>), 1, N, 0, &run, y, (const float *)x);
	within();
	if (cudaStreamEndCapture(queue, &g) != cudaSuccess) {
		fprintf(stderr, "there is %s graph: %s\n", g ? "a" : "no", cudaGetErrorString(cudaGetLastError()));
		return;
	}
	cudaGraphInstantiate(&e, g, 0);
	cudaGraphDestroy(g);
	cudaMemsetAsync(x, 0x3c, 4 * N * sizeof(float), queue);
	cudaGraphLaunch(e, queue);
	cudaMemcpyAsync(host_x, x, sizeof(host_x), cudaMemcpyDeviceToHost, queue);
	cudaMemcpyAsync(host_y, y, sizeof(host_y), cudaMemcpyDeviceToHost, queue);
	if (memcmp(host_x, host_y, N * sizeof(float)))
		fprintf(stderr, "the graph did not run\n");
	cudaGraphExecDestroy(e);
}

static void plain(void)
{
}
static void synchronize(void)
{
	cudaStreamSynchronize(queue);
}
static void query(void)
{
	cudaStreamQuery(queue);
}
static void another_stream(void)
{
	cudaStreamSynchronize(other);
}
static void allocate(void)
{
	void *p;

	cudaMalloc(&p, 100);
}
static void wait_for_outside(void)
{
	cudaEvent_t e;

	cudaEventCreate(&e);
	cudaEventRecord(e, other);
	cudaStreamWaitEvent(queue, e, 0);
}
static void sync_in_capture_case(int wrong)
{
	captured(wrong ? synchronize : plain);
}
static void query_in_capture_case(int wrong)
{
	captured(wrong ? query : another_stream);
}
static void malloc_in_capture_case(int wrong)
{
	captured(wrong ? allocate : plain);
}
static void event_into_capture_case(int wrong)
{
	captured(wrong ? wait_for_outside : plain);
}

#include "t/sim/wrong_hopper.h"

static const struct {
	const char *name;
	void (*go)(int wrong);
	const char *says;
} cases[] = {
#define C(name, says) \
	{ \
#name, name##_case, says \
	}
	C(turn_around, "of shared memory .* which thread .* (wrote|reads), and no barrier"),
	C(two_rounds, "of shared memory .* which thread .* (wrote|reads), and no barrier"),
	C(within_warp, "which thread .* (wrote|reads), and no barrier"),
	C(half_a_barrier, "a barrier that .* of 256 threads do not reach"),
	C(never_written, "never written is not a number"),
	C(beyond_shared, "4 bytes at 1024 of the shared memory, which has 1024"),
	C(copy_not_waited_for, "asynchronous copy of thread .* has not been waited for"),
	C(copy_without_barrier, "which thread .* (wrote|reads), and no barrier|not been waited for"),
	C(by_vectors, "not a multiple of 16"),
	C(misaligned_copy, "the source of an asynchronous copy at .* not a multiple of 16"),
	C(misaligned_rows, "a row of ldmatrix at .* not a multiple of 16"),
	C(one_too_many, "beyond the end of device memory|where no device memory"),
	C(blocks_meet, "of another block wrote"),
	C(whole_by_turns, "is [0-9a-f]{8} in order [0-9]+ and [0-9a-f]{8} in order 0"),
	C(part_by_turns, "is [0-9a-f]{8} in order [0-9]+ and [0-9a-f]{8} in order 0"),
	C(by_the_first, "order [0-9]+ writes .*, and order 0 does not"),
	C(too_many_threads, "[(]1025,1,1[)] threads a block"),
	C(deep_block, "[(]1,1,65[)] threads a block"),
	C(tall_grid, "[(]1,65536,1[)] blocks"),
	C(no_blocks, "[(]0,1,1[)] blocks"),
	C(variables_and_shared, "46080 bytes of shared memory and 4096 of variables in it: 49152 are possible"),
	C(shared_not_asked_for, "102400 bytes of shared memory, 49152 were asked for"),
	C(more_than_there_is, "refused: nothing: 233472 bytes"),
	C(no_event, "which stream 0 wrote, and no event"),
	C(early_event, "which stream 0 reads, and no event"),
	C(host_waits, "which stream 0 wrote, and no event"),
	C(sync_in_capture, "cudaStreamSynchronize is refused while a stream is captured"),
	C(query_in_capture, "cudaStreamQuery is refused while a stream is captured"),
	C(malloc_in_capture, "cudaMalloc is refused while a stream is captured"),
	C(event_into_capture, "dependency created on uncaptured work"),
	C(tile_read_early, "asynchronous copy of thread 0 has not been waited for|an arrival too many"),
	C(bytes_that_do_not_come,
	  "a phase that never ends: of 1 arrivals 0 are missing, and 16384 bytes come where 16385 are expected"),
	C(tile_fetched_over, "which thread .* reads, and no barrier|has not been waited for|a phase that never ends"),
	C(no_group_fence, "a product with no wgmma.fence"),
	C(sums_not_waited_for, "ends with products that it has not waited for|a product with no wgmma.fence"),
	C(rows_of_two_eights, "a tile that begins in the middle of 8 rows"),
	C(warps_differ, "warps 0 and 2 of a group make other products"),
	C(tiles_of_threads, "wrote by a store with no fence.proxy.async"),
	C(tile_put_with_no_fence, "wrote by a store with no fence.proxy.async"),
	C(put_not_waited_for, "ends with tiles to memory that it has not waited for"),
	C(tile_changed_early, "was changed before the copy engine had read it"),
	C(lanes_read, "which thread .* reads, and no barrier"),
};

static void set_up(void)
{
	cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking);
	cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
	run.queue = queue;
	cudaMalloc((void **)&x, sizeof(host_x));
	cudaMalloc((void **)&y, N * sizeof(float));
	cudaFree(y);
	cudaMalloc((void **)&y, sizeof(host_y));
	for (int i = 0; i < 4 * N; i++)
		host_x[i] = (float)(i + 1);
	cudaMemcpyAsync(x, host_x, sizeof(host_x), cudaMemcpyHostToDevice, queue);
	cudaMemsetAsync(y, 0, sizeof(host_y), queue);
	cudaStreamSynchronize(queue);
}

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc == 2 && !strcmp(argv[1], "--list"))
			printf("%s %s\n", cases[i].name, cases[i].says);
		else if (argc == 3 && !strcmp(argv[2], cases[i].name)) {
			set_up();
			cases[i].go(!strcmp(argv[1], "wrong"));
		}
	}
	return 0;
}
