/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/base/hopper.h - features of compute capability 9.0a in addition to mma.h.
 *
 * Barriers in shared memory count arrivals and bytes (mbarrier).  The copy engine fetches tiles of a tensor and then
 * arrives at such a barrier, or writes tiles (cp.async.bulk.tensor).  Products of four warps read operands from shared
 * memory (wgmma).  Source: the PTX ISA, "mbarrier", "Tensors" and "Asynchronous warpgroup level matrix instructions".
 *
 * A tile in shared memory has rows of 64 bf16, 128 bytes; a wider tile is several of these, one after another.  A
 * tile begins at a multiple of 1024 bytes.  The 16-byte piece p of row r is at p ^ (r % 8), as the copy engine
 * stores it and a product reads it.
 */
#ifndef HD_KERNELS_CUDA_BASE_HOPPER_H
#define HD_KERNELS_CUDA_BASE_HOPPER_H
#include "kernels/cuda/base/mma.h"

#define HD_TILE_ALIGN 1024
#define HD_ROW_BYTES 128

#ifdef HD_SIM
#define HD_HOPPER 1
typedef hd_sim_tensor_map hd_tensor_map;
#else
#include <cuda.h>
typedef CUtensorMap hd_tensor_map;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HD_HOPPER 1
#endif
#endif

/* Returns 1 if kernels for Hopper are used: the module has code for sm_90a, the GPU can run it, and HEDDLE_WGMMA=0
 * is not set.  That variable is for comparisons. */
int hd_cuda_by_wgmma(void);
int hd_cuda_multiprocessors(void);
/* Describes a four-dim bf16 tensor to the copy engine.  The innermost dim is contiguous.  Tiles have 64 elements of
 * the innermost dim and `rows` of dim 2; elements outside the tensor read as zero.  Strides are in elements, from
 * dim 1 on.  Runs on the host. */
int hd_tensor_map_make(hd_tensor_map *m, const void *base, const int64_t *n, const int64_t *strides, int rows,
		       struct hd_err *err);

#ifdef HD_HOPPER
/* Returns wgmma's descriptor of a tile.  step: bytes from 8 rows to the next 8.  chunk: bytes from 64 columns to the
 * next 64, used if the rows lie along the depth (otherwise the address advances along the depth). */
HD_DEV uint64_t hd_tile(const void *tile, int step, int chunk)
{
#ifdef HD_SIM
	uint64_t at = hd_sim_shared_address(tile);
#else
	uint64_t at = __cvta_generic_to_shared(tile);
#endif

	return (at & 0x3ffff) >> 4 | (uint64_t)(chunk >> 4) << 16 | (uint64_t)(step >> 4) << 32 | 1ull << 62;
}

/* Returns the descriptor of the tile `bytes` further on.  Only the low word differs, so one addition suffices. */
HD_DEV uint64_t hd_tile_on(uint64_t tile, int bytes)
{
	return tile >> 32 << 32 | ((uint32_t)tile + (uint32_t)(bytes >> 4));
}

/* Returns the first address in the block's shared memory where a tile may begin. */
HD_DEV unsigned char *hd_first_tile(unsigned char *shared)
{
#ifdef HD_SIM
	uint64_t at = hd_sim_shared_address(shared);
#else
	uint64_t at = __cvta_generic_to_shared(shared);
#endif

	return shared + (HD_TILE_ALIGN - at % HD_TILE_ALIGN) % HD_TILE_ALIGN;
}
#endif

#ifdef HD_SIM
static inline void barrier_make(uint64_t *b, int arrivals)
{
	hd_sim_mbarrier(b, arrivals);
}
static inline void barriers_made(void)
{
	hd_sim_proxy_fence();
}
static inline void barrier_arrive(uint64_t *b)
{
	hd_sim_arrive(b, 0);
}
static inline void barrier_expect(uint64_t *b, int bytes)
{
	hd_sim_arrive(b, bytes);
}
static inline void barrier_wait(uint64_t *b, int parity)
{
	hd_sim_await(b, parity);
}
static inline void fetch_tile(void *to, const hd_tensor_map *m, int c0, int c1, int c2, int c3, uint64_t *b)
{
	int at[4] = { c0, c1, c2, c3 };

	hd_sim_fetch(to, m, at, b);
}
static inline void group_fence(void)
{
	hd_sim_group_fence();
}
static inline void group_commit(void)
{
	hd_sim_group_commit();
}
template <int LEFT> static inline void group_wait(void)
{
	hd_sim_group_wait(LEFT);
}
template <int N> static inline void hold(float (*)[4])
{
}
template <int N> static inline void hold_operands(uint32_t (*)[4])
{
}
template <int N> static inline void group_mma(float (*c)[4], uint64_t a, uint64_t b, int add)
{
	hd_sim_group_mma(c, N, a, NULL, b, 0, add);
}
template <int N> static inline void group_mma_b_transposed(float (*c)[4], uint64_t a, uint64_t b, int add)
{
	hd_sim_group_mma(c, N, a, NULL, b, 1, add);
}
template <int N> static inline void group_mma_regs_transposed(float (*c)[4], const uint32_t *a, uint64_t b, int add)
{
	hd_sim_group_mma(c, N, 0, a, b, 1, add);
}
template <int N> static inline void group_mma_regs(float (*c)[4], const uint32_t *a, uint64_t b, int add)
{
	hd_sim_group_mma(c, N, 0, a, b, 0, add);
}
static inline void put_tile(const hd_tensor_map *m, int c0, int c1, int c2, int c3, const void *from)
{
	int at[4] = { c0, c1, c2, c3 };

	hd_sim_put(m, at, from);
}
static inline void puts_commit(void)
{
	hd_sim_puts_commit();
}
template <int LEFT> static inline void puts_wait(void)
{
	hd_sim_puts_wait(LEFT);
}
static inline void stores_fence(void)
{
	hd_sim_proxy_fence();
}
HD_SIM_UNSEEN static inline void put_matrices(unsigned char *row, const uint32_t *x)
{
	hd_sim_put_matrices(row, x);
}
template <int N> static inline void fewer_registers(void)
{
	static_assert(N % 8 == 0 && N >= 24 && N <= 256, "registers of setmaxnreg");
}
template <int N> static inline void more_registers(void)
{
	fewer_registers<N>();
}
#elif defined(HD_HOPPER)
HD_DEV uint32_t hd_shared(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}
HD_DEV void barrier_make(uint64_t *b, int arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(hd_shared(b)), "r"(arrivals) : "memory");
}
/* Makes the new barriers visible to all threads and to the copy engine.  The thread that initialized them calls this
 * before the block's __syncthreads. */
HD_DEV void barriers_made(void)
{
	asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}
HD_DEV void barrier_arrive(uint64_t *b)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(hd_shared(b)) : "memory");
}
/* Arrives; the phase then also waits for this number of bytes. */
HD_DEV void barrier_expect(uint64_t *b, int bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(hd_shared(b)), "r"(bytes)
		     : "memory");
}
/* Waits until the phase of this parity has ended.  On a new barrier, parity 1 returns at once. */
HD_DEV void barrier_wait(uint64_t *b, int parity)
{
	asm volatile("{\n\t.reg .pred done;\n"
		     "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
		     "@done bra over;\n\tbra again;\nover:\n\t}" ::"r"(hd_shared(b)),
		     "r"(parity)
		     : "memory");
}
HD_DEV void fetch_tile(void *to, const hd_tensor_map *m, int c0, int c1, int c2, int c3, uint64_t *b)
{
	asm volatile(
		"cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::
			"r"(hd_shared(to)),
		"l"(m), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(hd_shared(b))
		: "memory");
}
/* Writes a tile to its place in the tensor; elements outside the tensor are not written. */
HD_DEV void put_tile(const hd_tensor_map *m, int c0, int c1, int c2, int c3, const void *from)
{
	asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
			     m),
		     "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(hd_shared(from))
		     : "memory");
}
HD_DEV void puts_commit(void)
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Waits until all but LEFT of this thread's groups of writes have read their source. */
template <int LEFT> HD_DEV void puts_wait(void)
{
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}
/* Orders this thread's stores to shared memory before reads by the copy engine. */
HD_DEV void stores_fence(void)
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Stores four 8x8 matrices, in registers as matrices() loads them, to rows whose addresses lanes 0-7, 8-15, ...
 * give. */
HD_DEV void put_matrices(unsigned char *row, const uint32_t *x)
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(hd_shared(row)), "r"(x[0]),
		     "r"(x[1]), "r"(x[2]), "r"(x[3])
		     : "memory");
}
HD_DEV void group_fence(void)
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
HD_DEV void group_commit(void)
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int LEFT> HD_DEV void group_wait(void)
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
/* Keeps the compiler from moving the sums of running products.  It is needed before the first of them and after the
 * wait. */
template <int N> HD_DEV void hold(float (*c)[4])
{
#pragma unroll
	for (int i = 0; i < N / 8; i++)
		asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])::"memory");
}
/* The same for operands in registers (N of the depth), after the wait.  The compiler assumes that a product has read
 * its operands once it is issued.  It would reuse their registers for values computed in the meantime. */
template <int N> HD_DEV void hold_operands(uint32_t (*a)[4])
{
#pragma unroll
	for (int i = 0; i < N / 16; i++)
		asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

#define HD_F4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define HD_F32(i) \
	HD_F4(i), HD_F4(i + 1), HD_F4(i + 2), HD_F4(i + 3), HD_F4(i + 4), HD_F4(i + 5), HD_F4(i + 6), HD_F4(i + 7)
#define HD_R32 \
	"%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define HD_R64 \
	HD_R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58," \
	       "%59,%60,%61,%62,%63"
#define HD_R96 \
	HD_R64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89," \
	       "%90,%91,%92,%93,%94,%95"

/* c (64 x N, sums as of mma) = (add ? c : 0) + a b.  The rows of both tiles lie along the depth; one call takes 16
 * of it. */
template <int N> HD_DEV void group_mma(float (*c)[4], uint64_t a, uint64_t b, int add)
{
	static_assert(N == 64 || N == 128 || N == 192, "columns");
	if (N == 192)
		asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %98, 0;\n\t"
			     "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" HD_R96
			     "}, %96, %97, p, 1, 1, 0, 0;\n\t}"
			     : HD_F32(0), HD_F32(8), HD_F32(16)
			     : "l"(a), "l"(b), "r"(add));
	else if (N == 64)
		asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
			     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" HD_R32
			     "}, %32, %33, p, 1, 1, 0, 0;\n\t}"
			     : HD_F32(0)
			     : "l"(a), "l"(b), "r"(add));
	else
		asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
			     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" HD_R64
			     "}, %64, %65, p, 1, 1, 0, 0;\n\t}"
			     : HD_F32(0), HD_F32(8)
			     : "l"(a), "l"(b), "r"(add));
}
/* The same for a transposed b, whose rows lie along the columns of c; one call takes 16 rows of the tile. */
template <int N> HD_DEV void group_mma_b_transposed(float (*c)[4], uint64_t a, uint64_t b, int add)
{
	static_assert(N == 128 || N == 192, "columns");
	if (N == 192)
		asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %98, 0;\n\t"
			     "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" HD_R96
			     "}, %96, %97, p, 1, 1, 0, 1;\n\t}"
			     : HD_F32(0), HD_F32(8), HD_F32(16)
			     : "l"(a), "l"(b), "r"(add));
	else
		asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
			     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" HD_R64
			     "}, %64, %65, p, 1, 1, 0, 1;\n\t}"
			     : HD_F32(0), HD_F32(8)
			     : "l"(a), "l"(b), "r"(add));
}
/* The same with a in registers, as fragments of mma.  With TRANSPOSED, b's rows lie along the columns, and a call takes
 * 16 rows of the tile. */
template <int N, int TRANSPOSED> HD_DEV void hd_group_mma_of(float (*c)[4], const uint32_t *a, uint64_t b, int add)
{
	static_assert(N == 64 || N == 128, "columns");
	if (N == 64)
		asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"
			     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" HD_R32
			     "}, {%32,%33,%34,%35}, %36, p, 1, 1, %38;\n\t}"
			     : HD_F32(0)
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TRANSPOSED));
	else
		asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %69, 0;\n\t"
			     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" HD_R64
			     "}, {%64,%65,%66,%67}, %68, p, 1, 1, %70;\n\t}"
			     : HD_F32(0), HD_F32(8)
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TRANSPOSED));
}
template <int N> HD_DEV void group_mma_regs(float (*c)[4], const uint32_t *a, uint64_t b, int add)
{
	hd_group_mma_of<N, 0>(c, a, b, add);
}
template <int N> HD_DEV void group_mma_regs_transposed(float (*c)[4], const uint32_t *a, uint64_t b, int add)
{
	hd_group_mma_of<N, 1>(c, a, b, add);
}
/* Set the number of registers per thread.  All four warps of a group must call them. */
template <int N> HD_DEV void fewer_registers(void)
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> HD_DEV void more_registers(void)
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
#endif

#endif
