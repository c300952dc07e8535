/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/attention/groups.h - what attention by wgmma shares, forward and backward (attention_wgmma.cu,
 * attention_wgmma_d.cu).
 *
 * A block has three groups of four warps.  One warp of the first group fetches tiles; each of the other groups has
 * half of the block's rows.
 */
#ifndef HD_KERNELS_CUDA_ATTENTION_GROUPS_H
#define HD_KERNELS_CUDA_ATTENTION_GROUPS_H
#include "kernels/cuda/attention/tiles.h"
#include "kernels/cuda/base/hopper.h"

#define THREADS 384
#define ROWS 128 /* queries or keys of a job */
#define OWN 2    /* sets of rows that a block holds: those of the current job, and those of its next one */

#define SECTION_BYTES (16 << 20) /* bytes of the other side that all blocks read at about the same time */

/* Attention with neither a cap nor a window has its own kernels.  Otherwise code for these would be inside the
 * loops. */
static inline int is_plain(const struct hd_att *t)
{
	return !(t->softcap > 0) && !t->window;
}
HD_DEV void make_plain(hd_att *t) /* tells the compiler that neither is used */
{
	t->softcap = 0;
	t->window = 0;
}

/* The work of all blocks, in tiles of ROWS rows.  Blocks process `section` heads at a time, whose other sides stay
 * in the L2 cache.  The last section and every second one before it begin with the tiles that have most work; the
 * others end with them.  So neighbouring jobs differ little in work. */
struct jobs {
	int tiles, heads, all, section, sections; /* all: heads times batch */
};

static inline jobs jobs_of(int64_t rows, int64_t heads, int64_t batch, int64_t other_bytes)
{
	int64_t fit = SECTION_BYTES / (other_bytes > 0 ? other_bytes : 1), all = heads * batch;

	fit = fit < 32 ? 32 : fit < all ? fit : all;
	return jobs{ (int)((rows + ROWS - 1) / ROWS), (int)heads, (int)all, (int)fit, (int)((all + fit - 1) / fit) };
}

/* Returns the number of blocks: at most one per multiprocessor.  Each block goes on to further jobs. */
static inline unsigned blocks_of(const jobs &w)
{
	int n = w.tiles * w.all, most = hd_cuda_multiprocessors();

	return (unsigned)(n > most ? most : n);
}

#ifdef HD_HOPPER
/* Returns x, which must be the same in all lanes, and lets the compiler know.  Addresses derived from it then take
 * no registers of the threads. */
HD_DEV int uniform(int x)
{
	return __shfl_sync(~0u, x, 0);
}

/* A job: the ROWS rows that a block processes at a time.  The fetching warp finds the job and puts it into shared
 * memory.  The groups read it there, since they have no registers to spare.  A slot is reused only after the two
 * following jobs have begun. */
#define JOBS 4
struct job {
	int tile, head, b; /* tile: 0 has most work; -1: no more jobs */

	/* A block's jobs are a grid's width apart, in alternating directions, so that all blocks get about the same
	 * work.  Returns 0 if none is left. */
	HD_DEV int find(const jobs &w, int turn)
	{
		int wide = (int)gridDim.x, x = (int)blockIdx.x, at = turn * wide + (turn & 1 ? wide - 1 - x : x);
		int section = afresh(w.section), heads = afresh(w.heads), z = at / (section * w.tiles), size, all;

		tile = -1;
		if (at >= w.all * w.tiles)
			return 0;
		at -= z * section * w.tiles;
		size = w.all - z * section < section ? w.all - z * section : section;
		tile = at / size;
		all = z * section + at - tile * size;
		tile = (w.sections - z) & 1 ? tile : w.tiles - 1 - tile;
		b = all / heads;
		head = all - b * heads;
		return 1;
	}
};

/* Barriers for the block's own rows, and the jobs to which these rows belong. */
struct job_queue {
	uint64_t there[OWN], free[OWN];
	job jobs[JOBS];

	HD_DEV void make()
	{
		for (int i = 0; i < OWN; i++) {
			barrier_make(&there[i], 1);
			barrier_make(&free[i], 8); /* one lane of each warp that reads */
		}
	}
	/* Announces a job.  One thread calls this before it requests the job's rows, of this many bytes. */
	HD_DEV void announce(int turn, const job &j, int bytes)
	{
		barrier_wait(&free[turn % OWN], (turn / OWN & 1) ^ 1);
		jobs[turn % JOBS] = j;
		barrier_expect(&there[turn % OWN], bytes);
	}
	HD_DEV job receive(int turn)
	{
		barrier_wait(&there[turn % OWN], turn / OWN & 1);
		return job{ uniform(jobs[turn % JOBS].tile), uniform(jobs[turn % JOBS].head),
			    uniform(jobs[turn % JOBS].b) };
	}
};

HD_DEV void warp_arrive(uint64_t *free)
{
	if (threadIdx.x % 32 == 0)
		barrier_arrive(free);
}

/* Counts the tiles that a block has processed; they take N stages cyclically.  A single number, since registers are
 * scarce. */
template <int N> struct ring {
	unsigned n;

	HD_DEV ring() : n(0)
	{
	}
	HD_DEV int at() const
	{
		return (int)(n % N);
	}
	HD_DEV int before() const /* stage of the previous tile */
	{
		return (int)((n + N - 1) % N);
	}
	HD_DEV int parity() const
	{
		return (int)(n / N & 1);
	}
	HD_DEV int parity_before() const
	{
		return (int)((n - 1) / N & 1);
	}
};

/* The two groups issue the products of tile n alternately, so that the arithmetic of one overlaps with the products
 * of the other. */
HD_DEV void turn_wait(uint64_t *turn, int group, unsigned n)
{
	barrier_wait(&turn[group], (int)(n & 1) ^ !group);
}
HD_DEV void turn_pass(uint64_t *turn, int group)
{
	__syncwarp(); /* no lane is still waiting: two turns later the parity would be the same */
	warp_arrive(&turn[!group]);
}
#define TURN_ARRIVALS 4 /* one lane of each warp of the other group */

/* The tiles of N keys that queries i0 ... i0 + ROWS - 1 see: n tiles, from key `from` on. */
struct span {
	int from, n;
};

template <int N> HD_DEV span span_of(const hd_att &t, int64_t i0)
{
	int from = (int)t.window_begin(i0) / N * N, end = (int)t.seen(hd_least(i0 + ROWS, t.seq) - 1);

	return span{ from, end > from ? (end - from + N - 1) / N : 0 };
}

/* Returns the first of the warp's 16 rows, within the block's ROWS. */
HD_DEV int warp_row(void)
{
	return (afresh((int)threadIdx.x) - 128) / 32 * 16;
}

/* Fetches N rows of a head; they arrive at barrier `there`, which expects their bytes. */
template <int D, int N>
HD_DEV void fetch_rows(unsigned char *to, const hd_tensor_map *m, int head, int row, int b, uint64_t *there)
{
	for (int c = 0; c < D; c += 64)
		fetch_tile(to + c / 64 * N * HD_ROW_BYTES, m, c, head, row, b, there);
}

/* Returns the byte offset of column d in a tile of N rows. */
template <int N> HD_DEV int columns(int d)
{
	return d / 64 * N * HD_ROW_BYTES + d % 64 * 2;
}

/* Begins s (64 x N) = 64 of a's ROWS rows times the N rows of b. */
template <int D, int N> HD_DEV void begin_scores(float (*s)[4], const unsigned char *a, const unsigned char *b)
{
	uint64_t rows = hd_tile(a, 8 * HD_ROW_BYTES, 16), others = hd_tile(b, 8 * HD_ROW_BYTES, 16);

#pragma unroll
	for (int d = 0; d < D; d += 16)
		group_mma<N>(s, hd_tile_on(rows, columns<ROWS>(d)), hd_tile_on(others, columns<N>(d)), d > 0);
	group_commit();
}

/* The same for rows in registers, as fragments. */
template <int D, int N> HD_DEV void begin_scores_kept(float (*s)[4], uint32_t (*a)[4], const unsigned char *b)
{
	uint64_t others = hd_tile(b, 8 * HD_ROW_BYTES, 16);

#pragma unroll
	for (int d = 0; d < D; d += 16)
		group_mma_regs<N>(s, a[d / 16], hd_tile_on(others, columns<N>(d)), d > 0);
	group_commit();
}

/* Begins o (64 x D) = (add ? o : 0) + p (64 x N, in registers) times the N rows of v. */
template <int D, int N> HD_DEV void begin_sum(float (*o)[4], uint32_t (*p)[4], const unsigned char *v, int add = 1)
{
	uint64_t rows = hd_tile(v, 8 * HD_ROW_BYTES, N * HD_ROW_BYTES);

#pragma unroll
	for (int kk = 0; kk < N / 16; kk++)
		group_mma_regs_transposed<D>(o, p[kk], hd_tile_on(rows, kk * 16 * HD_ROW_BYTES), add || kk > 0);
	group_commit();
}

/* Packs scores as operands.  No product may still read those of the previous tile, which may be in the same
 * registers. */
template <int N> HD_DEV void pack_scores(uint32_t (*p)[4], float (*s)[4])
{
#pragma unroll
	for (int kk = 0; kk < N / 16; kk++)
		fragment_of_sums(p[kk], s, kk);
}

template <int N> HD_DEV void copy_scores(uint32_t (*to)[4], uint32_t (*p)[4])
{
#pragma unroll
	for (int kk = 0; kk < N / 16; kk++)
#pragma unroll
		for (int x = 0; x < 4; x++)
			to[kk][x] = p[kk][x];
}
#endif

#endif
