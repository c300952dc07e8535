/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/base/hopper.h - what compute capability 9.0a has beside mma.h: barriers in shared memory that count arrivals and
 * bytes (mbarrier), the copy engine that fetches tiles of a tensor and arrives there, or writes them (cp.async.bulk.tensor), and
 * products of four warps whose operands stay in shared memory (wgmma).  After the PTX ISA, "mbarrier", "Tensors" and "Asynchronous warpgroup level
 * matrix instructions".
 *
 * A tile in shared memory has rows of 64 bf16, 128 bytes: wider ones are several such, one behind the other.  It begins at a multiple
 * of 1024 bytes; piece p (16 bytes) of row r lies at p ^ (r % 8), as the copy engine puts it and a product reads it.
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

/* Whether kernels for Hopper are taken: the module has code of sm_90a, this is a GPU that runs it, and HEDDLE_WGMMA=0, which is for
 * comparisons, is not set. */
int hd_cuda_by_wgmma(void);
int hd_cuda_multiprocessors(void);
/* A tensor of bf16 with four dims, the innermost contiguous, whose tiles have 64 of the innermost and `rows` of dim 2; what lies
 * outside of it is zero.  Strides in elements, from dim 1 on.  Host. */
int hd_tensor_map_make(hd_tensor_map *m, const void *base, const int64_t *n, const int64_t *strides, int rows,
		       struct hd_err *err);

#ifdef HD_HOPPER
/* A descriptor of a tile for wgmma.  step: bytes from 8 rows to the next 8; chunk: from 64 columns to the next 64, where the rows are
 * those of the depth (else the depth goes on by addresses). */
HD_DEV uint64_t hd_tile(const void *tile, int step, int chunk)
{
#ifdef HD_SIM
	uint64_t at = hd_sim_shared_address(tile);
#else
	uint64_t at = __cvta_generic_to_shared(tile);
#endif

	return (at & 0x3ffff) >> 4 | (uint64_t)(chunk >> 4) << 16 | (uint64_t)(step >> 4) << 32 | 1ull << 62;
}

/* The same tile so many bytes on: only the low word differs, and one addition makes it. */
HD_DEV uint64_t hd_tile_on(uint64_t tile, int bytes)
{
	return tile >> 32 << 32 | ((uint32_t)tile + (uint32_t)(bytes >> 4));
}

/* The first place in the block's shared memory where a tile may begin. */
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
template <int N> static inline void group_mma_turned(float (*c)[4], uint64_t a, uint64_t b, int add)
{
	hd_sim_group_mma(c, N, a, NULL, b, 1, add);
}
template <int N> static inline void group_mma_t(float (*c)[4], const uint32_t *a, uint64_t b, int add)
{
	hd_sim_group_mma(c, N, 0, a, b, 1, add);
}
template <int N> static inline void group_mma_kept(float (*c)[4], const uint32_t *a, uint64_t b, int add)
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
/* By the thread that made them, before the block's barrier: then all threads and the copy engine see them. */
HD_DEV void barriers_made(void)
{
	asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}
HD_DEV void barrier_arrive(uint64_t *b)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(hd_shared(b)) : "memory");
}
/* Arrives, and the phase does not end before so many bytes have come. */
HD_DEV void barrier_expect(uint64_t *b, int bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(hd_shared(b)), "r"(bytes)
		     : "memory");
}
/* Until the phase of this parity has ended; 1 of a new barrier: at once. */
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
/* A tile to where it belongs in the tensor; what lies outside of that is not written. */
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
/* Until all but LEFT of this thread's groups have read what they write. */
template <int LEFT> HD_DEV void puts_wait(void)
{
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}
/* This thread's stores to shared memory come before what the copy engine reads. */
HD_DEV void stores_fence(void)
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Four 8x8 matrices in registers as of matrices() go to rows that the lanes 0-7, 8-15, ... point to. */
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
/* Sums of products under way must not be moved by the compiler: before the first of them, and behind the wait. */
template <int N> HD_DEV void hold(float (*c)[4])
{
#pragma unroll
	for (int i = 0; i < N / 8; i++)
		asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])::"memory");
}
/* Likewise operands in registers, N of the depth, behind the wait: the compiler takes a product for done with them where it begins, and
 * would put what is computed beside it in their places. */
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

/* c (64 x N, sums as of mma) = (add ? c : 0) + a b: rows of both tiles lie along the depth, of which this is 16. */
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
/* The same of a b whose rows lie along the columns: 16 rows of the tile. */
template <int N> HD_DEV void group_mma_turned(float (*c)[4], uint64_t a, uint64_t b, int add)
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
/* The same of a in registers, fragments as of mma; TURNED: of a b whose rows lie along the columns, 16 rows of the tile. */
template <int N, int TURNED> HD_DEV void hd_group_mma_of(float (*c)[4], const uint32_t *a, uint64_t b, int add)
{
	static_assert(N == 64 || N == 128, "columns");
	if (N == 64)
		asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"
			     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" HD_R32
			     "}, {%32,%33,%34,%35}, %36, p, 1, 1, %38;\n\t}"
			     : HD_F32(0)
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TURNED));
	else
		asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %69, 0;\n\t"
			     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" HD_R64
			     "}, {%64,%65,%66,%67}, %68, p, 1, 1, %70;\n\t}"
			     : HD_F32(0), HD_F32(8)
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TURNED));
}
template <int N> HD_DEV void group_mma_kept(float (*c)[4], const uint32_t *a, uint64_t b, int add)
{
	hd_group_mma_of<N, 0>(c, a, b, add);
}
template <int N> HD_DEV void group_mma_t(float (*c)[4], const uint32_t *a, uint64_t b, int add)
{
	hd_group_mma_of<N, 1>(c, a, b, add);
}
/* Of four warps, all at once: registers a thread. */
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
