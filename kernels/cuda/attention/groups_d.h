/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/attention/groups_d.h - what both backward kernels by wgmma share (attention_wgmma_d.cu).
 *
 * They share the layout of the block's shared memory: two operands of its own rows, and pairs of tiles of the other
 * side.  They also share a group's own rows.
 */
#ifndef HD_KERNELS_CUDA_ATTENTION_GROUPS_D_H
#define HD_KERNELS_CUDA_ATTENTION_GROUPS_D_H
#include "kernels/cuda/attention/groups.h"

#define KEYS(D) ((D) > 64 ? 64 : 128) /* keys of a tile, in the kernel for dq */
#define QUERIES 64                    /* queries of a tile, in the kernel for dk and dv */
#define STAGES(N, D) ((D) > 64 ? 3 : (N) > 64 ? 4 : 5)
#define ROWS_BYTES(N, D) ((N) * (D) * (int)sizeof(bf16))
/* Bytes of shared memory: two operands of the block's rows, pairs of tiles of N rows, two floats for each of these
 * rows, and barriers. */
#define BYTES(N, D) \
	(HD_TILE_ALIGN + OWN * 2 * ROWS_BYTES(ROWS, D) + \
	 STAGES(N, D) * (2 * ROWS_BYTES(N, D) + 2 * (N) * (int)sizeof(float) + 16) + 128)

struct sides {
	hd_tensor_map q, d_o, k, v;
};

#ifdef HD_HOPPER
/* The layout of the block's shared memory. */
template <int N, int D> struct held {
	static const int stages = STAGES(N, D);
	unsigned char *first;
	float *sums;
	uint64_t *there, *free, *turn;
	job_queue *rows;

	HD_DEV explicit held(unsigned char *shared)
	{
		first = hd_first_tile(shared);
		sums = (float *)(void *)pair(stages);
		there = (uint64_t *)(void *)(sums + stages * 2 * N);
		free = there + stages;
		turn = free + stages;
		rows = (job_queue *)(void *)(turn + 2);
	}
	HD_DEV unsigned char *own(int i) const /* the second operand follows */
	{
		return first + i * 2 * ROWS_BYTES(ROWS, D);
	}
	HD_DEV unsigned char *pair(int at) const
	{
		return own(OWN) + at * 2 * ROWS_BYTES(N, D);
	}
	HD_DEV float *lse(int at) const /* lse times log2(e), then delta */
	{
		return sums + at * 2 * N;
	}
	HD_DEV void make(int arrivals) const
	{
		rows->make();
		for (int i = 0; i < stages; i++) {
			barrier_make(&there[i], arrivals);
			barrier_make(&free[i], 8); /* one lane of each warp that reads */
		}
		barrier_make(&turn[0], TURN_ARRIVALS);
		barrier_make(&turn[1], TURN_ARRIVALS);
		barriers_made();
	}
	/* Called by one thread. */
	HD_DEV void fetch_own(int turn, const job &j, const hd_tensor_map *a, const hd_tensor_map *b, int row) const
	{
		uint64_t *there = &rows->there[turn % OWN];
		unsigned char *to = own(turn % OWN);

		rows->announce(turn, j, 2 * ROWS_BYTES(ROWS, D));
		fetch_rows<D, ROWS>(to, a, j.head, row, j.b, there);
		fetch_rows<D, ROWS>(to + ROWS_BYTES(ROWS, D), b, j.head, row, j.b, there);
	}
	HD_DEV void fetch_pair(int at, const hd_tensor_map *a, const hd_tensor_map *b, int head, int row,
			       int batch) const
	{
		barrier_expect(&there[at], 2 * ROWS_BYTES(N, D));
		fetch_rows<D, N>(pair(at), a, head, row, batch, &there[at]);
		fetch_rows<D, N>(pair(at) + ROWS_BYTES(N, D), b, head, row, batch, &there[at]);
	}
};

/* A group's sums from tile to tile.  A job's last tile is added together with the next job's first scores; until
 * then the job is open. */
struct open_job {
	/* open: turn of the open job, < 0 if none is open; more: its sums already contain earlier tiles */
	int open, more;

	HD_DEV open_job() : open(-1), more(0)
	{
	}
};

/* A group's 64 rows of the block's two operands, in shared memory and as fragments.  With 64 dims and tiles of 64
 * rows, the fragments stay in registers.  Products that read both operands from shared memory would need its full
 * bandwidth. */
template <int N, int D> struct own_rows {
	static const int kept = N == 64 && D == 64, pieces = kept ? D / 16 : 1;
	const unsigned char *at;
	uint32_t a[2][pieces][4];

	HD_DEV void load(unsigned char *own, uint64_t *free)
	{
		int group = (int)threadIdx.x / 128 - 1;

		at = own + group * 64 * HD_ROW_BYTES;
#pragma unroll
		for (int x = 0; x < (kept ? 2 : 0); x++)
#pragma unroll
			for (int d = 0; d < pieces; d++)
				fragment_a<64>(a[x][d], (bf16 *)(void *)(own + x * ROWS_BYTES(ROWS, D)), warp_row(),
					       d * 16);
		if (kept) {
			__syncwarp();
			warp_arrive(free);
		}
	}
	HD_DEV void done(uint64_t *free) const
	{
		if (!kept)
			warp_arrive(free);
	}
	/* Begins s (64 x N) = rows of operand x times the N rows of b. */
	HD_DEV void begin(float (*s)[4], int x, const unsigned char *b)
	{
		if (kept)
			begin_scores_kept<pieces * 16, N>(s, a[x], b);
		else
			begin_scores<D, N>(s, at + x * ROWS_BYTES(ROWS, D), b);
	}
};
#endif

#endif
