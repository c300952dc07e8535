/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/base/mma.h - tensor-core products of bf16 fragments, and moving fragments from global to shared
 * memory to registers.
 *
 * A tile in shared memory has rows of D elements (D a multiple of 64) in pieces of 16 bytes.  Piece p of row r is at
 * p ^ (r % 8), so that neither the rows of a fragment nor a copy cause bank conflicts.
 *
 * Fragments of mma.m16n8k16, where g = lane / 4 and t = lane % 4, two elements per register:
 * 	a0 (g, 2t) a1 (g + 8, 2t) a2 (g, 2t + 8) a3 (g + 8, 2t + 8)	b0 (2t, g) b1 (2t + 8, g)
 * 	c0 c1 (g, 2t) (g, 2t + 1)	c2 c3 (g + 8, 2t) (g + 8, 2t + 1)
 */
#ifndef HD_KERNELS_CUDA_BASE_MMA_H
#define HD_KERNELS_CUDA_BASE_MMA_H
#include "kernels/cuda/base/cuda.h"

template <int D> HD_DEV bf16 *tile_at(bf16 *tile, int row, int col)
{
	return tile + row * D + (((col >> 3) ^ (row & 7)) << 3) + (col & 7);
}

#ifdef HD_SIM
struct sim_mma {
	float *c;
	const uint32_t *a, *b;
};

HD_SIM_UNSEEN static inline void sim_mma_work(void **all)
{
	static float a[16][16], b[16][8];

	for (int lane = 0; lane < 32; lane++) {
		const sim_mma *m = (const sim_mma *)all[lane];
		int g = lane / 4, t = lane % 4;

		for (int i = 0; i < 4; i++)
			for (int h = 0; h < 2; h++) {
				bf16 x = { (uint16_t)(m->a[i] >> 16 * h) };

				a[g + i % 2 * 8][2 * t + i / 2 * 8 + h] = to_float(x);
			}
		for (int i = 0; i < 2; i++)
			for (int h = 0; h < 2; h++) {
				bf16 x = { (uint16_t)(m->b[i] >> 16 * h) };

				b[2 * t + i * 8 + h][g] = to_float(x);
			}
	}
	for (int lane = 0; lane < 32; lane++) {
		float *c = ((const sim_mma *)all[lane])->c;

		for (int i = 0; i < 4; i++)
			for (int k = 0; k < 16; k++)
				c[i] += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
	}
}

HD_SIM_UNSEEN static inline void mma(float *c, const uint32_t *a, const uint32_t *b)
{
	sim_mma m = { c, a, b };

	hd_sim_warp(&m, sim_mma_work);
}

struct sim_matrices {
	uint32_t *out;
	const uint16_t *row;
	int turned;
};

HD_SIM_UNSEEN static inline void sim_matrices_work(void **all)
{
	for (int lane = 0; lane < 32; lane++) {
		sim_matrices *m = (sim_matrices *)all[lane];

		for (int i = 0; i < 4; i++) {
			uint16_t half[2];

			for (int h = 0; h < 2; h++) {
				int r = m->turned ? lane % 4 * 2 + h : lane / 4,
				    c = m->turned ? lane / 4 : lane % 4 * 2 + h;

				half[h] = ((sim_matrices *)all[i * 8 + r])->row[c];
			}
			m->out[i] = (uint32_t)half[1] << 16 | half[0];
		}
	}
}

HD_SIM_UNSEEN static inline void matrices(uint32_t *out, const bf16 *row, int turned)
{
	sim_matrices m = { out, (const uint16_t *)(const void *)row, turned };

	hd_sim_aligned(row, 16, "a row of ldmatrix");
	hd_sim_touch(row, 16, HD_SIM_READ);
	hd_sim_warp(&m, sim_matrices_work);
}

static inline void copy_piece(bf16 *to, const bf16 *from, int there)
{
	hd_sim_copy(to, there ? from : NULL, 16);
}
static inline void copy_float(float *to, const float *from, int there)
{
	hd_sim_copy(to, there ? from : NULL, 4);
}
static inline void copies_commit(void)
{
	hd_sim_copies_commit();
}
template <int LEFT> static inline void copies_wait(void)
{
	hd_sim_copies_wait(LEFT);
}
#else
HD_DEV void mma(float *c, const uint32_t *a, const uint32_t *b)
{
	asm volatile(
		"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Loads four 8x8 matrices, whose row addresses lanes 0-7, 8-15, ... give; turned: transposed. */
HD_DEV void matrices(uint32_t *out, const bf16 *row, int turned)
{
	uint32_t at = (uint32_t)__cvta_generic_to_shared(row);

	if (turned)
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
			     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
			     : "r"(at)
			     : "memory");
	else
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
			     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
			     : "r"(at)
			     : "memory");
}

/* Copies 16 bytes to shared memory, or zeros if the source does not exist (`from` may then be any valid address). */
HD_DEV void copy_piece(bf16 *to, const bf16 *from, int there)
{
	uint32_t at = (uint32_t)__cvta_generic_to_shared(to);

	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0)
		     : "memory");
}
/* The same for one float. */
HD_DEV void copy_float(float *to, const float *from, int there)
{
	uint32_t at = (uint32_t)__cvta_generic_to_shared(to);

	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(there ? 4 : 0)
		     : "memory");
}
HD_DEV void copies_commit(void)
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> HD_DEV void copies_wait(void)
{
	asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#endif

/* Loads rows `row` ... row + 15 and columns col ... col + 15 as an A fragment. */
template <int D> HD_DEV void fragment_a(uint32_t *a, bf16 *tile, int row, int col)
{
	int lane = (int)threadIdx.x & 31;

	matrices(a, tile_at<D>(tile, row + lane % 16, col + lane / 16 * 8), 0);
}
/* Loads B fragments of columns n = row ... row + 15 (b[0..1], b[2..3]) and k = col ... col + 15.  The tile's rows
 * are the columns of B. */
template <int D> HD_DEV void fragment_b(uint32_t *b, bf16 *tile, int row, int col)
{
	int lane = (int)threadIdx.x & 31;

	matrices(b, tile_at<D>(tile, row + lane / 16 * 8 + lane % 8, col + lane / 8 % 2 * 8), 0);
}
/* The same for k = row ... row + 15 and n = col ... col + 15, where the tile's rows are the rows of B. */
template <int D> HD_DEV void fragment_bt(uint32_t *b, bf16 *tile, int row, int col)
{
	int lane = (int)threadIdx.x & 31;

	matrices(b, tile_at<D>(tile, row + lane % 16, col + lane / 16 * 8), 1);
}
/* Converts columns 16 kk ... 16 kk + 15 of sums (tiles of 8 columns) to an A fragment. */
HD_DEV void fragment_of_sums(uint32_t *a, float (*c)[4], int kk)
{
	a[0] = hd_bf16_pair(c[2 * kk][0], c[2 * kk][1]);
	a[1] = hd_bf16_pair(c[2 * kk][2], c[2 * kk][3]);
	a[2] = hd_bf16_pair(c[2 * kk + 1][0], c[2 * kk + 1][1]);
	a[3] = hd_bf16_pair(c[2 * kk + 1][2], c[2 * kk + 1][3]);
}
/* Copies ROWS rows of D elements, `stride` apart in global memory, of which `have` exist.  A thread copies one piece
 * of several rows, a multiple of 8 apart, so that all addresses but the first are sums. */
template <int D, int ROWS, int THREADS>
HD_DEV void fill_tile(bf16 *tile, const bf16 *from, int64_t stride, int64_t have)
{
	const int PIECES = D / 8, STEP = THREADS / PIECES;
	int piece = (int)threadIdx.x % PIECES, row = (int)threadIdx.x / PIECES,
	    left = have < ROWS ? (int)have - row : ROWS;
	bf16 *to = tile_at<D>(tile, row, piece * 8);
	const bf16 *at = from + row * stride + piece * 8;

	static_assert(THREADS % PIECES == 0 && STEP % 8 == 0 && ROWS % STEP == 0, "a tile is whole rounds of copies");
#pragma unroll
	for (int k = 0; k < ROWS; k += STEP, at += STEP * stride)
		copy_piece(to + k * D, k < left ? at : from, k < left);
}

#endif
