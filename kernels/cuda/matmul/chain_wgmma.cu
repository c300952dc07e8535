/* SPDX-License-Identifier: Apache-2.0
 * A sum of products in one launch (chain.cu) for compute capability 9.0a.
 *
 * A block computes 128 x 128 of the result, with two groups of four warps and one more warp.  One thread of that
 * warp asks the copy engine for 64 of the depth of both operands, as far ahead as there are stages.  Each group has
 * 64 rows, and multiplies from shared memory.  Barriers tell which stages have arrived and which may be overwritten.
 * Two blocks fit on a multiprocessor: one writes while the other computes.  Rows of b lie along the depth (TB,
 * weights [in,out]), or along the columns (weights [out,in]).
 *
 * Compiled where CUDA_ARCH has 90a, and used on GPUs of that architecture where it is the fastest, unless
 * HEDDLE_WGMMA=0 is set.
 */
#include "kernels/cuda/matmul/chain.h"
#include "kernels/cuda/base/hopper.h"

#define COMPUTE 256                /* threads of the two groups; then comes the warp that fetches */
#define HALF (TILE * HD_ROW_BYTES) /* bytes of one operand in a stage */
#define BYTES (HD_TILE_ALIGN + STAGES * 2 * HALF + STAGES * (int)sizeof(struct slot))

struct slot {
	uint64_t there, free;
};

struct maps {
	hd_tensor_map a[HD_CHAIN_MOST], b[HD_CHAIN_MOST];
};

#ifdef HD_HOPPER
template <int TB> HD_DEV void produce(const hd_terms &t, const maps &m, unsigned char *tiles, slot *s, int m0, int n0)
{
	hd_chain_place at = { 0, 0 };

	for (int i = 0; i < t.steps; i++, at.next(t)) {
		int turn = i % STAGES;

		barrier_wait(&s[turn].free, (i / STAGES & 1) ^ 1);
		barrier_expect(&s[turn].there, 2 * HALF);
		fetch_tile(tiles + turn * 2 * HALF, &m.a[at.term], at.d, 0, m0, 0, &s[turn].there);
		for (int n = 0; n < (TB ? 1 : TILE / 64); n++)
			fetch_tile(tiles + turn * 2 * HALF + HALF + n * DEEP * HD_ROW_BYTES, &m.b[at.term],
				   TB ? at.d : n0 + n * 64, 0, TB ? n0 : at.d, 0, &s[turn].there);
	}
}

HD_DEV void warp_arrive(slot *s)
{
	if (threadIdx.x % 32 == 0)
		barrier_arrive(&s->free);
}

/* Begins sum (64 x 128) += a stage's rows of a times its b. */
template <int TB> HD_DEV void begin_stage(float (*sum)[4], const unsigned char *a, const unsigned char *b)
{
#pragma unroll
	for (int k = 0; k < DEEP; k += 16) {
		uint64_t rows = hd_tile(a + k * 2, 8 * HD_ROW_BYTES, 16);

		if (TB)
			group_mma<TILE>(sum, rows, hd_tile(b + k * 2, 8 * HD_ROW_BYTES, 16), 1);
		else
			group_mma_b_transposed<TILE>(sum, rows,
						     hd_tile(b + k * HD_ROW_BYTES, 8 * HD_ROW_BYTES,
							     DEEP * HD_ROW_BYTES),
						     1);
	}
	group_commit();
}

template <int TB>
HD_DEV void consume(const hd_terms &t, unsigned char *tiles, slot *s, int64_t c_step, bf16 *c, const bf16 *add, int m0,
		    int n0)
{
	int group = (int)threadIdx.x / 128, warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
	float sum[TILE / 8][4];

#pragma unroll
	for (int n = 0; n < TILE / 8; n++)
		sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
	for (int i = 0; i < t.steps; i++) {
		unsigned char *a = tiles + i % STAGES * 2 * HALF, *b = a + HALF;

		barrier_wait(&s[i % STAGES].there, i / STAGES & 1);
		hold<TILE>(sum);
		group_fence();
		begin_stage<TB>(sum, a + group * 64 * HD_ROW_BYTES, b);
		group_wait<1>(); /* the products of the previous stage */
		if (i)
			warp_arrive(&s[(i - 1) % STAGES]);
	}
	group_wait<0>();
	hold<TILE>(sum);
#pragma unroll
	for (int n = 0; n < TILE / 8; n++)
#pragma unroll
		for (int h = 0; h < 2; h++)
			hd_put_sum(t, c_step, c, add, m0 + group * 64 + warp * 16 + h * 8 + lane / 4,
				   n0 + n * 8 + lane % 4 * 2, &sum[n][2 * h]);
}
#endif

template <int TB>
__global__ void __launch_bounds__(COMPUTE + HD_WARP, 2)
	chain_by_groups(hd_terms t, int64_t c_step, bf16 *c, const bf16 *add, const __grid_constant__ maps m)
{
#ifdef HD_HOPPER
	HD_DYNAMIC_SHARED(unsigned char, shared);
	unsigned char *tiles = hd_first_tile(shared);
	slot *s = (slot *)(void *)(tiles + STAGES * 2 * HALF);
	int m0 = (int)blockIdx.y * TILE, n0 = (int)blockIdx.x * TILE;

	if (threadIdx.x == 0) {
		for (int i = 0; i < STAGES; i++) {
			barrier_make(&s[i].there, 1);
			barrier_make(&s[i].free, 8); /* one lane of each warp that reads */
		}
		barriers_made();
	}
	__syncthreads();
	if (threadIdx.x < COMPUTE)
		consume<TB>(t, tiles, s, c_step, c, add, m0, n0);
	else if (threadIdx.x == COMPUTE)
		produce<TB>(t, m, tiles, s, m0, n0);
#endif
}

/* -- host ---------------------------------------------------------------------------------------------------------- */
int hd_chain_wgmma_has(void)
{
	struct hd_err none = {};

	return hd_cuda_by_wgmma() &&
	       hd_cuda_allow_shared("einsum", (const void *)chain_by_groups<0>, BYTES, &none) >= 0 &&
	       hd_cuda_allow_shared("einsum", (const void *)chain_by_groups<1>, BYTES, &none) >= 0;
}

/* Describes a matrix to the copy engine in tiles of `high` rows by 64: dims 2 and 0 of a four-dim tensor. */
static int map_of(hd_tensor_map *m, const bf16 *base, int64_t rows, int64_t columns, int64_t step, int high)
{
	int64_t n[4] = { columns, 1, rows, 1 }, strides[3] = { step, step, rows * step };
	struct hd_err none = {};

	return hd_tensor_map_make(m, base, n, strides, high, &none);
}

int hd_chain_wgmma(const hd_terms *t, int turned, int64_t c_step, bf16 *c, const bf16 *add, const struct hd_run *r)
{
	dim3 grid((unsigned)((t->columns + TILE - 1) / TILE), (unsigned)((t->m + TILE - 1) / TILE));
	maps m;

	memset((void *)&m, 0, sizeof(m));
	for (int i = 0; i < t->n; i++) {
		HD_TRY(map_of(&m.a[i], t->a[i], t->m, t->depth[i], t->a_step[i], TILE));
		HD_TRY(turned ? map_of(&m.b[i], t->b[i], t->columns, t->depth[i], t->b_step[i], TILE)
			      : map_of(&m.b[i], t->b[i], t->depth[i], t->columns, t->b_step[i], DEEP));
	}
	if (turned)
		HD_LAUNCH(chain_by_groups<1>, grid, COMPUTE + HD_WARP, BYTES, r, *t, c_step, c, add, m);
	else
		HD_LAUNCH(chain_by_groups<0>, grid, COMPUTE + HD_WARP, BYTES, r, *t, c_step, c, add, m);
	return HD_OK;
}
