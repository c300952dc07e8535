/* SPDX-License-Identifier: Apache-2.0
 * A product of bf16 and its gelu, for compute capability 9.0a.
 *
 * While the library computes a tile's gelus, no products run.  Here a multiprocessor has one block for the whole
 * launch, with two groups of four warps, each with its own tiles.  While one group computes and writes gelus, the
 * products of the other run.  In a third group, one thread asks the copy engine for 64 of the depth of both
 * operands, some stages ahead.
 *
 * Results go through shared memory, in boxes of 16 rows by 64 columns.  The copy engine leaves out what is outside
 * the matrix.  Rows of b lie along the depth (TB, weights [out,in]), or along the columns (weights [in,out]).
 *
 * Compiled where CUDA_ARCH has 90a, and used on GPUs of that architecture where it is the fastest, unless
 * HEDDLE_WGMMA=0 is set.
 */
#include "kernels/cuda/matmul/product.h"
#include "kernels/cuda/base/hopper.h"

#define HIGH 128 /* rows of a tile */
#define WIDE 192
#define DEEP 64 /* depth of a stage */
#define STAGES 4
#define A_BYTES (HIGH * HD_ROW_BYTES)
#define STAGE_BYTES (A_BYTES + WIDE * HD_ROW_BYTES)
#define BOXES 4 /* boxes of results in shared memory, for each of the eight warps that compute */
#define BOX_ROWS 16
#define BOX_BYTES (BOX_ROWS * HD_ROW_BYTES)
#define BESIDE 16 /* rows of tiles that are computed at the same time */
#define THREADS 384
#define BYTES (HD_TILE_ALIGN + STAGES * STAGE_BYTES + 8 * BOXES * BOX_BYTES + (int)sizeof(gelu_signals))

#define LINEAR (-1.4426950408889634f * 1.5957691216f) /* factor in gelu's exponent, of 2 */
#define CUBIC 0.044715f

struct gelu_work {
	int32_t m, n, depth;
	int32_t high, wide; /* in tiles */
	int32_t keep;       /* gelu's input is also written */
	const bf16 *bias;   /* NULL: none */
};

struct gelu_maps {
	hd_tensor_map a, b, c, x; /* x: gelu's input */
};

struct gelu_signals {
	uint64_t there[STAGES], free[STAGES];
	uint64_t turn[2]; /* each group's turn to issue products */
};

#ifdef HD_HOPPER
/* The layout of the block's shared memory. */
struct gelu_room {
	unsigned char *tiles;

	HD_DEV explicit gelu_room(unsigned char *shared) : tiles(hd_first_tile(shared))
	{
	}
	HD_DEV unsigned char *a(int turn) const
	{
		return tiles + turn * STAGE_BYTES;
	}
	HD_DEV unsigned char *b(int turn) const
	{
		return a(turn) + A_BYTES;
	}
	HD_DEV unsigned char *box(int group, int warp, int i) const
	{
		return a(STAGES) + ((group * 4 + warp) * BOXES + i) * BOX_BYTES;
	}
	HD_DEV gelu_signals *s() const
	{
		return (gelu_signals *)(void *)box(2, 0, 0);
	}
};

/* A tile's first row and column.  Tiles that are computed at the same time share few rows and columns, so what they
 * read stays in L2. */
struct gelu_place {
	int m0, n0;

	HD_DEV gelu_place(const gelu_work &w, int i)
	{
		int row = i / (BESIDE * w.wide) * BESIDE, at = i % (BESIDE * w.wide),
		    high = w.high - row < BESIDE ? w.high - row : BESIDE;

		m0 = (row + at % high) * HIGH;
		n0 = at / high * WIDE;
	}
};

/* -- the group that fetches ---------------------------------------------------------------------------------------- */
template <int TB> HD_DEV void produce(const gelu_work &w, const gelu_maps &m, const gelu_room &r)
{
	gelu_signals *s = r.s();
	int step = 0;

	for (int i = (int)blockIdx.x; i < w.high * w.wide; i += (int)gridDim.x) {
		gelu_place p(w, i);

		for (int d = 0; d < w.depth; d += DEEP, step++) {
			int turn = step % STAGES;
			uint64_t *there = &s->there[turn];

			barrier_wait(&s->free[turn], (step / STAGES & 1) ^ 1);
			barrier_expect(there, STAGE_BYTES);
			fetch_tile(r.a(turn), &m.a, d, 0, p.m0, 0, there);
#pragma unroll
			for (int n = 0; n < (TB ? 1 : WIDE / 64); n++)
				fetch_tile(r.b(turn) + n * DEEP * HD_ROW_BYTES, &m.b, TB ? d : p.n0 + n * 64, 0,
					   TB ? p.n0 : d, 0, there);
		}
	}
}

/* -- the groups that compute --------------------------------------------------------------------------------------- */
HD_DEV float gelu_of(float x)
{
	return x * hd_reciprocal(1 + hd_exp2(x * (LINEAR + LINEAR * CUBIC * x * x)));
}

/* Returns the address of this lane's row in 16 x 16 of a box, from column 8 j on, for put_matrices(). */
HD_DEV unsigned char *part_of(unsigned char *box, int j)
{
	int lane = (int)threadIdx.x % 32, row = lane % 16;

	return box + row * HD_ROW_BYTES + ((j + lane / 16) ^ (row & 7)) * 16;
}

/* Returns one of the two bf16 in a register. */
HD_DEV float half_of(uint32_t x, int high)
{
	return hd_bits_float(high ? x & 0xffff0000u : x << 16);
}

HD_DEV void put_sums(unsigned char *to, float (*c)[4])
{
	uint32_t x[4];

#pragma unroll
	for (int i = 0; i < 4; i++)
		x[i] = hd_bf16_pair(c[i / 2][i % 2 * 2], c[i / 2][i % 2 * 2 + 1]);
	put_matrices(to, x);
}

/* Begins sum (128 x 192) = (add ? sum : 0) + a stage's a times its b. */
template <int TB>
HD_DEV void begin_stage(float (*sum)[WIDE / 8][4], const unsigned char *a, const unsigned char *b, int add)
{
#pragma unroll
	for (int k = 0; k < DEEP; k += 16)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			uint64_t rows = hd_tile(a + i * 64 * HD_ROW_BYTES + k * 2, 8 * HD_ROW_BYTES, 16);

			if (TB)
				group_mma<WIDE>(sum[i], rows, hd_tile(b + k * 2, 8 * HD_ROW_BYTES, 16), k || add);
			else
				group_mma_b_transposed<WIDE>(sum[i], rows,
							     hd_tile(b + k * HD_ROW_BYTES, 8 * HD_ROW_BYTES,
								     DEEP * HD_ROW_BYTES),
							     k || add);
		}
	group_commit();
}

/* A warp of a group */
struct gelu_worker {
	const gelu_work &w;
	const gelu_maps &m;
	const gelu_room &r;
	int group, warp, lane;

	HD_DEV gelu_worker(const gelu_work &w_, const gelu_maps &m_, const gelu_room &r_) : w(w_), m(m_), r(r_)
	{
		group = (int)threadIdx.x / 128 - 1;
		warp = (int)threadIdx.x / 32 % 4;
		lane = (int)threadIdx.x % 32;
	}

	HD_DEV void arrive(uint64_t *b) const
	{
		if (lane == 0)
			barrier_arrive(b);
	}

	/* Runs the products of a tile's stages, from `step` on.  The other group may begin when all of these have
	 * been issued. */
	template <int TB> HD_DEV void products(float (*sum)[WIDE / 8][4], int step)
	{
		gelu_signals *s = r.s();

		for (int d = 0, last = -1; d < w.depth; d += DEEP, step++) {
			int turn = step % STAGES;

			barrier_wait(&s->there[turn], step / STAGES & 1);
			hold<WIDE>(sum[0]);
			hold<WIDE>(sum[1]);
			group_fence();
			begin_stage<TB>(sum, r.a(turn), r.b(turn), d);
			group_wait<1>(); /* the products of the previous stage */
			if (last >= 0)
				arrive(&s->free[last]);
			last = turn;
		}
		arrive(&s->turn[group ^ 1]);
		group_wait<0>();
		hold<WIDE>(sum[0]);
		hold<WIDE>(sum[1]);
		arrive(&s->free[(step - 1) % STAGES]);
	}

	/* Loads the bias of a box's columns; a lane has two of every eight. */
	HD_DEV void load_bias(uint32_t *x, int col) const
	{
#pragma unroll
		for (int n = 0; n < 8; n++) {
			int at = col + n * 8 + lane % 4 * 2;

			x[n] = w.bias && at < w.n ? *(const uint32_t *)(const void *)(w.bias + at) : 0;
		}
	}

	/* Stores a warp's sums of 16 rows by 64 columns: gelu's input in the first box, and gelu in the second. */
	HD_DEV void fill(unsigned char *const *to, float (*sum)[4], const uint32_t *bias) const
	{
#pragma unroll
		for (int j = 0; j < 8; j += 2) {
			float(*c)[4] = sum + j;

#pragma unroll
			for (int i = 0; i < 8; i++)
				c[i / 4][i % 4] += half_of(bias[j + i / 4], i % 2);
			put_sums(part_of(to[0], j), c);
#pragma unroll
			for (int i = 0; i < 8; i++)
				c[i / 4][i % 4] = gelu_of(c[i / 4][i % 4]);
			put_sums(part_of(to[1], j), c);
		}
	}

	/* Writes a tile's results, two boxes at a time.  While one pair is read, the other is filled. */
	HD_DEV void put_gelus(float (*sum)[WIDE / 8][4], const gelu_place &p) const
	{
#pragma unroll
		for (int part = 0; part < 2 * WIDE / 64; part++) {
			unsigned char *to[2] = { r.box(group, warp, part % 2 * 2),
						 r.box(group, warp, part % 2 * 2 + 1) };
			int half = part / (WIDE / 64), left = part % (WIDE / 64) * 64;
			int row = p.m0 + half * 64 + warp * 16, column = p.n0 + left;
			uint32_t bias[8];

			load_bias(bias, column);
			if (lane == 0)
				puts_wait<1>();
			__syncwarp();
			fill(to, sum[half] + left / 8, bias);
			stores_fence();
			__syncwarp();
			if (lane == 0) {
				if (w.keep)
					put_tile(&m.x, column, 0, row, 0, to[0]);
				put_tile(&m.c, column, 0, row, 0, to[1]);
				puts_commit();
			}
		}
	}

	template <int TB> HD_DEV void work()
	{
		int steps = (w.depth + DEEP - 1) / DEEP, by = (int)gridDim.x;
		float sum[2][WIDE / 8][4];

		for (int n = group; (int)blockIdx.x + n * by < w.high * w.wide; n += 2) {
			barrier_wait(&r.s()->turn[group], (n / 2 ^ group ^ 1) & 1);
			products<TB>(sum, n * steps);
			put_gelus(sum, gelu_place(w, (int)blockIdx.x + n * by));
		}
		if (lane == 0)
			puts_wait<0>();
	}
};

HD_DEV void make_signals(gelu_signals *s)
{
	for (int i = 0; i < STAGES; i++) {
		barrier_make(&s->there[i], 1);
		barrier_make(&s->free[i], 4); /* one lane of each warp that reads */
	}
	for (int i = 0; i < 2; i++)
		barrier_make(&s->turn[i], 4);
	barriers_made();
}
#endif

template <int TB>
__global__ void __launch_bounds__(THREADS, 1) gelu_by_groups(gelu_work w, const __grid_constant__ gelu_maps m)
{
#ifdef HD_HOPPER
	HD_DYNAMIC_SHARED(unsigned char, shared);
	gelu_room r(shared);

	if (threadIdx.x == 0)
		make_signals(r.s());
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<40>();
		if (threadIdx.x == 0)
			produce<TB>(w, m, r);
		__syncwarp();
	} else {
		more_registers<232>();
		gelu_worker(w, m, r).template work<TB>();
	}
#endif
}

/* -- host ---------------------------------------------------------------------------------------------------------- */
enum { M, N, K }; /* dims of a product without a batch */

static int aligned(int64_t x)
{
	return x > 0 && x % 8 == 0 && x < 1 << 24;
}

/* Returns whether the shape is a bf16 product with a gelu, whose rows are contiguous and consist of 16-byte pieces. */
static int fits(const struct hd_mm_shape *s)
{
	const int64_t *a = s->stride[HD_MM_A], *b = s->stride[HD_MM_B], *c = s->stride[HD_MM_C];
	int turned = b[K] == 1;

	if (s->ndim != 3 || (s->then != HD_MM_GELU && s->then != HD_MM_GELU_KEEP) ||
	    (s->dtype[HD_MM_BIAS] && s->dtype[HD_MM_BIAS] != HD_DTYPE_BF16))
		return 0;
	for (int o = 0; o < HD_MM_BIAS; o++)
		if (s->dtype[o] != HD_DTYPE_BF16)
			return 0;
	return s->n[M] > 1 && s->n[M] < 1 << 24 && aligned(s->n[N]) && aligned(s->n[K]) && a[K] == 1 && aligned(a[M]) &&
	       c[N] == 1 && aligned(c[M]) && b[turned ? K : N] == 1 && aligned(b[turned ? N : K]);
}

int hd_gelu_wgmma_has(const struct hd_mm_shape *s)
{
	const void *kernel =
		s->stride[HD_MM_B][K] == 1 ? (const void *)gelu_by_groups<1> : (const void *)gelu_by_groups<0>;
	struct hd_err none = {};

	return fits(s) && hd_cuda_by_wgmma() && hd_cuda_allow_shared("einsum_gelu", kernel, BYTES, &none) >= 0;
}

/* Describes a matrix to the copy engine in tiles of `high` rows by 64: dims 2 and 0 of a four-dim tensor. */
static int map_of(hd_tensor_map *m, const void *base, int64_t rows, int64_t columns, int64_t step, int high)
{
	int64_t n[4] = { columns, 1, rows, 1 }, strides[3] = { step, step, rows * step };
	struct hd_err none = {};

	return hd_tensor_map_make(m, base, n, strides, high, &none);
}

static int64_t most_blocks(void)
{
#ifdef HD_SIM
	return 2; /* few, so that a group has several tiles */
#else
	return hd_cuda_multiprocessors();
#endif
}

int hd_gelu_wgmma(const struct hd_mm_shape *s, const struct hd_run *r, void *c, const void *a, const void *b,
		  const void *bias, const void *aux)
{
	int64_t m = s->n[M], n = s->n[N], k = s->n[K], step = s->stride[HD_MM_C][M];
	int64_t high = (m + HIGH - 1) / HIGH, wide = (n + WIDE - 1) / WIDE;
	int turned = s->stride[HD_MM_B][K] == 1, keep = s->then == HD_MM_GELU_KEEP;
	gelu_work w = { (int32_t)m, (int32_t)n, (int32_t)k, (int32_t)high, (int32_t)wide, keep, (const bf16 *)bias };
	unsigned blocks = (unsigned)hd_least(most_blocks(), high * wide);
	gelu_maps maps;

	if (!hd_aligned(c) || !hd_aligned(a) || !hd_aligned(b) || !hd_aligned(bias) || !hd_aligned(aux))
		return HD_ENOTSUP;
	memset((void *)&maps, 0, sizeof(maps));
	HD_TRY(map_of(&maps.a, a, m, k, s->stride[HD_MM_A][M], HIGH));
	HD_TRY(turned ? map_of(&maps.b, b, n, k, s->stride[HD_MM_B][N], WIDE)
		      : map_of(&maps.b, b, k, n, s->stride[HD_MM_B][K], DEEP));
	HD_TRY(map_of(&maps.c, c, m, n, step, BOX_ROWS));
	if (keep)
		HD_TRY(map_of(&maps.x, aux, m, n, step, BOX_ROWS));
	if (turned)
		HD_LAUNCH(gelu_by_groups<1>, blocks, THREADS, BYTES, r, w, maps);
	else
		HD_LAUNCH(gelu_by_groups<0>, blocks, THREADS, BYTES, r, w, maps);
	return HD_OK;
}
