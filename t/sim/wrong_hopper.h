/* SPDX-License-Identifier: Apache-2.0
 * Of wrong.cu what compute capability 9.0a has: two rounds of one product of four warps whose tiles the copy engine brings, and a
 * tile that it writes.
 */

#define TILE (64 * HD_ROW_BYTES)

enum { NONE, EARLY, BYTES, OVER, FENCE, SUMS, ROWS, OTHERS };

template <int M> HD_DEV void one_product(float (*c)[4], unsigned char *shared, int i)
{
	int other = M == OTHERS && threadIdx.x >= 64;

	if (M != FENCE)
		group_fence();
	group_mma<64>(c, hd_tile(shared + (M == ROWS ? 128 : 0), 8 * HD_ROW_BYTES, 16),
		      hd_tile(shared + (other ? 0 : TILE), 8 * HD_ROW_BYTES, 16), i > 0);
	group_commit();
	if (M != SUMS)
		group_wait<0>();
}

template <int M> __global__ void tiles_of_engine(float *to, const __grid_constant__ hd_tensor_map m)
{
	HD_DYNAMIC_SHARED(unsigned char, shared);
	uint64_t *there = (uint64_t *)(void *)(shared + 2 * TILE), *free = there + 1;
	float c[8][4] = { { 0 } };

	if (threadIdx.x == 0) {
		barrier_make(there, 1);
		barrier_make(free, 4);
		barriers_made();
	}
	__syncthreads();
	for (int i = 0; i < 2; i++) {
		if (threadIdx.x == 0) {
			if (M != OVER)
				barrier_wait(free, i ^ 1);
			barrier_expect(there, 2 * TILE + (M == BYTES));
			fetch_tile(shared, &m, 0, 0, 0, 0, there);
			fetch_tile(shared + TILE, &m, 0, 0, 0, 0, there);
		}
		if (M != EARLY)
			barrier_wait(there, i);
		one_product<M>(c, shared, i);
		if (threadIdx.x % 32 == 0)
			barrier_arrive(free);
	}
	to[threadIdx.x] = c[0][0];
}

/* Tiles that threads have written. */
template <int WRONG> __global__ void tiles_of_threads(float *to, const float *from)
{
	HD_DYNAMIC_SHARED(unsigned char, shared);
	uint64_t *unused = (uint64_t *)(void *)(shared + 2 * TILE);
	float c[8][4] = { { 0 } };

	for (int i = (int)threadIdx.x * 4; i < 2 * TILE; i += 128 * 4)
		*(float *)(void *)(shared + i) = from[threadIdx.x];
	if (threadIdx.x == 0)
		barrier_make(unused, 1);
	if (!WRONG)
		barriers_made(); /* the fence is in it */
	__syncthreads();
	one_product<NONE>(c, shared, 0);
	to[threadIdx.x] = c[0][0];
}

/* A tile of 16 rows that threads have written goes to memory. */
template <int M> __global__ void tile_to_memory(const float *from, const __grid_constant__ hd_tensor_map m)
{
	HD_DYNAMIC_SHARED(unsigned char, shared);

	for (int i = (int)threadIdx.x * 4; i < 16 * HD_ROW_BYTES; i += 32 * 4)
		*(float *)(void *)(shared + i) = from[threadIdx.x];
	if (M != FENCE)
		stores_fence();
	__syncwarp();
	if (threadIdx.x)
		return;
	put_tile(&m, 0, 0, 0, 0, shared);
	puts_commit();
	if (M == OVER) {
		*(float *)(void *)shared = 0;
		stores_fence();
	}
	if (M != SUMS)
		puts_wait<0>();
}

/* A warp reads what another has written, and one of its lanes says so. */
template <int WRONG> __global__ void lanes_read(float *to, const float *from)
{
	HD_SHARED(uint64_t, free, [1]);
	HD_SHARED(float, tile, [32]);
	float sum = 0;

	if (threadIdx.x == 0) {
		barrier_make(free, 1);
		barriers_made();
	}
	__syncthreads();
	if (threadIdx.x < 32)
		tile[threadIdx.x] = from[threadIdx.x];
	__syncthreads();
	if (threadIdx.x < 32) {
		barrier_wait(free, 0);
		tile[threadIdx.x] = sum;
	} else {
		sum = tile[threadIdx.x % 32];
		if (!WRONG)
			__syncwarp();
		if (threadIdx.x == 32)
			barrier_arrive(free);
	}
	to[threadIdx.x] = sum;
}

template <int M> static void engine_case(int wrong)
{
	hd_tensor_map m = {
		(const char *)x, { 64, 1, 16, 1 }, { 2, 128, 128, 2048 }, 64
	}; /* rows behind the 16th are zeros */

	if (wrong)
		HD_LAUNCH((tiles_of_engine<M>), 1, 128, 2 * TILE + 16, &run, y, m);
	else
		HD_LAUNCH((tiles_of_engine<NONE>), 1, 128, 2 * TILE + 16, &run, y, m);
}

template <int M> static void put_case(int wrong)
{
	hd_tensor_map m = { (const char *)y, { 64, 1, 16, 1 }, { 2, 128, 128, 2048 }, 16 };

	if (wrong)
		HD_LAUNCH((tile_to_memory<M>), 1, 32, 16 * HD_ROW_BYTES, &run, x, m);
	else
		HD_LAUNCH((tile_to_memory<NONE>), 1, 32, 16 * HD_ROW_BYTES, &run, x, m);
}

CASE(tiles_of_threads, tiles_of_threads, 1, 128, 2 * TILE + 16)
CASE(lanes_read, lanes_read, 1, 64, 0)
#define tile_read_early_case engine_case<EARLY>
#define bytes_that_do_not_come_case engine_case<BYTES>
#define tile_fetched_over_case engine_case<OVER>
#define no_group_fence_case engine_case<FENCE>
#define sums_not_waited_for_case engine_case<SUMS>
#define rows_of_two_eights_case engine_case<ROWS>
#define warps_differ_case engine_case<OTHERS>
#define tile_put_with_no_fence_case put_case<FENCE>
#define put_not_waited_for_case put_case<SUMS>
#define tile_changed_early_case put_case<OVER>
