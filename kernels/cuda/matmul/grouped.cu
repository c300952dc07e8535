/* SPDX-License-Identifier: Apache-2.0
 * grouped: the products of all experts in one launch.
 *
 * Only the device knows how many rows an expert has, and asking it would stall the queue.  So one block adds up the
 * counts, and each block of the product looks up which expert's tile it has.  The grid is for the maximum number of
 * tiles, and blocks beyond the last tile end at once.  An expert without rows has no tile (in a product of weights:
 * zeros, or nothing to add).
 *
 * bf16 runs on tensor cores, in tiles of 128 x 128 with copies two steps ahead.  Operands that are not bf16, or do
 * not begin at multiples of 16 bytes, use fp32 arithmetic in tiles of 64 x 64.  Sums are in fp32, in one order.
 */
#include "kernels/cuda/matmul/tile.h"
extern "C" {
#include "kernels/prepare/grouped.h"
}

#define PLAIN 64 /* rows and columns of a tile of the plain kernel */
#define PLAIN_DEEP 16

/* For each expert, c (m, n) = sum over d of a (m, d) b (d, n).  With `rows`, m counts the expert's rows; otherwise d
 * does. */
struct grouped {
	int64_t experts, samples, m, n, depth; /* the dim that counts an expert's rows is 0 */
	int32_t rows, a_turned, b_turned;      /* turned: a is stored as (d, m), b as (n, d) */
	int32_t acc;
};

/* Computes each expert's first row and first tile (of `tile` rows), and after the last expert the totals. */
__global__ void __launch_bounds__(HD_WARP) begin_of_rows(const int32_t *counts, int64_t experts, int64_t samples,
							 int64_t tile, int64_t *row, int64_t *first)
{
	int64_t rows = 0, tiles = 0;

	for (int64_t e = 0; e < experts; e++) {
		int64_t mine = 0;

		for (int64_t b = threadIdx.x; b < samples; b += HD_WARP)
			mine += counts[e * samples + b];
		mine = warp_sum(mine);
		if (!threadIdx.x) {
			row[e] = rows;
			first[e] = tiles;
		}
		rows += mine;
		tiles += (mine + tile - 1) / tile;
	}
	if (!threadIdx.x) {
		row[experts] = rows;
		first[experts] = tiles;
	}
}

/* What a block computes: the tile of expert e at row m0 and column n0 of its product. */
struct tile_piece {
	int64_t e, m0, n0, row, rows; /* row: the expert's first row; rows: their number */
};

/* Finds the tile of this block.  Returns 0 if it has none. */
HD_DEV int piece_of(const grouped &g, const int64_t *row, const int64_t *first, int64_t tile, tile_piece *p)
{
	int64_t low = 0, high = g.experts, q = blockIdx.x;

	p->n0 = (int64_t)blockIdx.y * tile;
	if (!g.rows) {
		int64_t across = (g.m + tile - 1) / tile;

		p->e = q / across;
		p->m0 = q % across * tile;
	} else {
		if (q >= first[g.experts])
			return 0;
		while (high - low > 1) { /* finds the last expert whose first tile is q or earlier; it has rows */
			int64_t mid = (low + high) / 2;

			if (first[mid] <= q)
				low = mid;
			else
				high = mid;
		}
		p->e = low;
		p->m0 = (q - first[low]) * tile;
	}
	p->row = row[p->e];
	p->rows = row[p->e + 1] - p->row;
	return 1;
}

/* -- tensor cores -------------------------------------------------------------------------------------------------- */
/* Starts to copy both operands for DEEP of the summed dim, from d on. */
template <int TA, int TB>
HD_DEV void fill_stage(bf16 *to, const grouped &g, const tile_piece &p, const bf16 *a, const bf16 *b, int64_t m,
		       int64_t depth, int64_t d)
{
	bf16 *tb = to + TILE * DEEP;

	if (TA)
		fill_part<TILE, DEEP>(to, a, g.m, d, p.m0, depth, m);
	else
		fill_part<DEEP, TILE>(to, a, g.depth, p.m0, d, m, depth);
	if (TB)
		fill_part<DEEP, TILE>(tb, b, g.depth, p.n0, d, g.n, depth);
	else
		fill_part<TILE, DEEP>(tb, b, g.n, d, p.n0, depth, g.n);
}

template <class C, int TA, int TB>
__global__ void __launch_bounds__(THREADS, 2)
	tiles(grouped g, C *c, const bf16 *a, const bf16 *b, const C *add, const int64_t *row, const int64_t *first)
{
	HD_DYNAMIC_SHARED(bf16, stages);
	int warp = (int)threadIdx.x / HD_WARP, lane = (int)threadIdx.x % HD_WARP;
	int wm = warp / 4 * 64, wn = warp % 4 * 32, turn = 0; /* a warp computes 64 x 32 */
	float sum[4][4][4];
	int64_t m, depth;
	tile_piece p;

	if (!piece_of(g, row, first, TILE, &p))
		return;
	m = g.rows ? p.rows : g.m;
	depth = g.rows ? g.depth : p.rows;
	a += p.row * (g.rows ? g.depth : g.m);
	b += g.rows ? p.e * g.depth * g.n : p.row * g.n;
	c += g.rows ? p.row * g.n : p.e * g.m * g.n;
	if (add)
		add += p.row * g.n;
#pragma unroll
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++)
			sum[i][j][0] = sum[i][j][1] = sum[i][j][2] = sum[i][j][3] = 0;
	for (int s = 0; s < STAGES - 1; s++) {
		if ((int64_t)s * DEEP < depth)
			fill_stage<TA, TB>(stages + s * STAGE, g, p, a, b, m, depth, (int64_t)s * DEEP);
		copies_commit();
	}
	for (int64_t d = 0; d < depth; d += DEEP, turn = turn + 1 == STAGES ? 0 : turn + 1) {
		bf16 *ta = stages + turn * STAGE, *tb = ta + TILE * DEEP;
		int64_t ahead = d + (STAGES - 1) * DEEP;

		copies_wait<STAGES - 2>();
		__syncthreads(); /* these copies have arrived, and no thread reads what the next ones overwrite */
		if (ahead < depth)
			fill_stage<TA, TB>(stages + (turn ? turn - 1 : STAGES - 1) * STAGE, g, p, a, b, m, depth,
					   ahead);
		copies_commit();
		add_products<TA, TB>(sum, ta, tb, wm, wn);
	}
	copies_wait<0>();
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int64_t at = p.m0 + wm + i * 16 + h * 8 + lane / 4;

#pragma unroll
			for (int j = 0; j < 4; j++) {
				int64_t col = p.n0 + wn + j * 8 + lane % 4 * 2;
				float x[2] = { sum[i][j][2 * h], sum[i][j][2 * h + 1] };

				if (at >= m || col >= g.n)
					continue;
				if (add)
					add_two(x, add + at * g.n + col);
				if (g.acc)
					add_two(x, c + at * g.n + col);
				put_two(c + at * g.n + col, x);
			}
		}
}

/* -- any other ----------------------------------------------------------------------------------------------------- */
template <class C, class T>
__global__ void __launch_bounds__(THREADS, 2)
	plain_tiles(grouped g, C *c, const T *a, const T *b, const C *add, const int64_t *row, const int64_t *first)
{
	HD_SHARED(float, ta, [PLAIN_DEEP][PLAIN + 4]);
	HD_SHARED(float, tb, [PLAIN_DEEP][PLAIN + 4]);
	int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
	float sum[4][4] = {};
	int64_t m, depth, a_m, a_d, b_d, b_n;
	tile_piece p;

	if (!piece_of(g, row, first, PLAIN, &p))
		return;
	m = g.rows ? p.rows : g.m;
	depth = g.rows ? g.depth : p.rows;
	a += p.row * (g.rows ? g.depth : g.m);
	b += g.rows ? p.e * g.depth * g.n : p.row * g.n;
	c += g.rows ? p.row * g.n : p.e * g.m * g.n;
	if (add)
		add += p.row * g.n;
	a_m = g.a_turned ? 1 : g.depth, a_d = g.a_turned ? g.m : 1;
	b_d = g.b_turned ? 1 : g.n, b_n = g.b_turned ? g.depth : 1;
	for (int64_t d = 0; d < depth; d += PLAIN_DEEP) {
		__syncthreads();
		for (int i = (int)threadIdx.x; i < PLAIN * PLAIN_DEEP; i += THREADS) {
			int am = g.a_turned ? i % PLAIN : i / PLAIN_DEEP, ad = g.a_turned ? i / PLAIN : i % PLAIN_DEEP;
			int bn = g.b_turned ? i / PLAIN_DEEP : i % PLAIN, bd = g.b_turned ? i % PLAIN_DEEP : i / PLAIN;

			ta[ad][am] =
				p.m0 + am < m && d + ad < depth ? to_float(a[(p.m0 + am) * a_m + (d + ad) * a_d]) : 0;
			tb[bd][bn] =
				p.n0 + bn < g.n && d + bd < depth ? to_float(b[(p.n0 + bn) * b_n + (d + bd) * b_d]) : 0;
		}
		__syncthreads();
#pragma unroll
		for (int k = 0; k < PLAIN_DEEP; k++)
			for (int i = 0; i < 4; i++)
				for (int j = 0; j < 4; j++)
					sum[i][j] += ta[k][y * 4 + i] * tb[k][x * 4 + j];
	}
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++) {
			int64_t at = (p.m0 + y * 4 + i) * g.n + p.n0 + x * 4 + j;

			if (p.m0 + y * 4 + i >= m || p.n0 + x * 4 + j >= g.n)
				continue;
			if (add)
				sum[i][j] += to_float(add[at]);
			if (g.acc)
				sum[i][j] += to_float(c[at]);
			from_float(&c[at], sum[i][j]);
		}
}

/* -- prepare and run ----------------------------------------------------------------------------------------------- */
template <class C> static int allow(struct hd_err *err)
{
	HD_TRY(hd_cuda_allow_shared("grouped", (const void *)tiles<C, 0, 0>, SHARED_BYTES, err));
	HD_TRY(hd_cuda_allow_shared("grouped", (const void *)tiles<C, 0, 1>, SHARED_BYTES, err));
	return hd_cuda_allow_shared("grouped", (const void *)tiles<C, 1, 0>, SHARED_BYTES, err);
}

HD_CUDA_PREPARE_TYPES(prepare_product, "grouped", "tt*", "u", hd_prepare_grouped(c, p))
HD_CUDA_PREPARE_TYPES(prepare_sum, "grouped", "ttu*", "u", hd_prepare_grouped(c, p))

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY((hd_attr_num(d->attr, "add", 0) != 0 ? prepare_sum : prepare_product)(d, p, err));
	hd_cuda_scratch_need((size_t)(2 * (p->n[0] + 1)) * sizeof(int64_t));
	if (p->n[14] != HD_DTYPE_BF16)
		return HD_OK;
	return p->n[15] == HD_DTYPE_BF16 ? allow<bf16>(err) : allow<float>(err);
}

/* Returns the grid.  For rows it has the maximum number of tiles that counts can require. */
static dim3 grid_of(const struct hd_prep *p, const grouped &g, int64_t tile)
{
	int64_t across = g.rows ? p->n[8] / tile + g.experts : g.experts * ((g.m + tile - 1) / tile);

	return dim3((unsigned)across, (unsigned)((g.n + tile - 1) / tile));
}

template <class C, class T>
static void plain(const struct hd_prep *p, const grouped &g, C *c, const T *a, const T *b, const C *add,
		  const int64_t *row, const int64_t *first, const struct hd_run *r)
{
	HD_LAUNCH((plain_tiles<C, T>), grid_of(p, g, PLAIN), THREADS, 0, r, g, c, a, b, add, row, first);
}

template <class C>
static void fast(const struct hd_prep *p, const grouped &g, C *c, const bf16 *a, const bf16 *b, const C *add,
		 const int64_t *row, const int64_t *first, const struct hd_run *r)
{
	if (g.a_turned)
		HD_LAUNCH((tiles<C, 1, 0>), grid_of(p, g, TILE), THREADS, SHARED_BYTES, r, g, c, a, b, add, row, first);
	else if (g.b_turned)
		HD_LAUNCH((tiles<C, 0, 1>), grid_of(p, g, TILE), THREADS, SHARED_BYTES, r, g, c, a, b, add, row, first);
	else
		HD_LAUNCH((tiles<C, 0, 0>), grid_of(p, g, TILE), THREADS, SHARED_BYTES, r, g, c, a, b, add, row, first);
}

static int whole_pieces(const grouped &g, const void *a, const void *b, const void *c, const void *add)
{
	return g.n % 8 == 0 && (g.rows ? g.depth : g.m) % 8 == 0 && hd_aligned(a) && hd_aligned(b) && hd_aligned(c) &&
	       hd_aligned(add);
}

template <class C>
static void launch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int swapped = p->n[4] && p->n[5]; /* weights are (n, k): computes the transposed product */
	const void *a = in[swapped ? 1 : 0], *b = in[swapped ? 0 : 1];
	C *c = (C *)out[0];
	const C *add = p->n[6] ? (const C *)in[p->n[6]] : NULL;
	int64_t *row = (int64_t *)hd_cuda_scratch(), *first = row + p->n[0] + 1;
	grouped g;
	int wide;

	memset(&g, 0, sizeof(g));
	g.experts = p->n[0];
	g.samples = p->n[1];
	g.rows = !p->n[4];
	g.acc = r->acc;
	g.n = p->n[swapped ? 2 : 3];
	g.m = g.rows ? 0 : p->n[swapped ? 3 : 2];
	g.depth = g.rows ? p->n[2] : 0;
	g.a_turned = !g.rows;
	g.b_turned = g.rows && p->n[5];
	if (!g.experts || !g.n || (!g.rows && !g.m))
		return;
	wide = p->n[14] == HD_DTYPE_BF16 && whole_pieces(g, a, b, c, add);
	HD_LAUNCH(begin_of_rows, 1, HD_WARP, 0, r, (const int32_t *)in[p->n[7]], g.experts, g.samples,
		  (int64_t)(wide ? TILE : PLAIN), row, first);
	if (wide)
		fast<C>(p, g, c, (const bf16 *)a, (const bf16 *)b, add, row, first, r);
	else if (p->n[14] == HD_DTYPE_BF16)
		plain<C, bf16>(p, g, c, (const bf16 *)a, (const bf16 *)b, add, row, first, r);
	else
		plain<C, float>(p, g, c, (const float *)a, (const float *)b, add, row, first, r);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[15] == HD_DTYPE_F32 ? launch<float>(p, out, in, r) : launch<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(grouped, "grouped", HD_K_ACC, prepare, run);
