/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/amx.h - the matrix units of x86-64 processors, Intel AMX: whether this process may use them, and
 * their instructions for bf16. See the Architecture Instruction Set Extensions Programming Reference, chapter 3.
 *
 * A thread has eight tiles of 16 rows x 64 bytes. HD_TILE_DPBF16(c, a, b): c (16 x 16 fp32) += a b, summed over 32
 * terms. a has rows of 32 bf16. b has rows of pairs: row r holds, for each of 16 columns, the terms 2r and 2r + 1.
 * Subnormal numbers count as zero, and products are not rounded before the sum.
 *
 * Use tiles only where hd_amx_allowed() returns 1, between hd_amx_begin() and hd_amx_end() of the same thread. In a
 * parallel region each thread must call both. Tile numbers are literals. The compiler neither knows nor uses the
 * tiles: their contents survive calls of functions, unless these use tiles too.
 */
#ifndef HD_KERNELS_CPU_BASE_AMX_H
#define HD_KERNELS_CPU_BASE_AMX_H
#include <stdint.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define HD_AMX 1 /* else no code for AMX is compiled, and hd_amx_allowed() returns 0 */
#else
#define HD_AMX 0
#endif

/* Returns 1 if the processor has AMX with bf16 and the vector instructions of HD_AMX_TARGET, and the kernel lets this
 * process use them. Asks for that permission at the first call. May be called from any thread. */
int hd_amx_allowed(void);

#if HD_AMX
/* A line of its own in files that use tiles and vectors: what follows it is compiled for processors that have both. It
 * must come after all includes of headers that others share. */
#define HD_AMX_TARGET \
	_Pragma("GCC target(\"avx512f,avx512dq,avx512vl,avx512bw,avx512bf16,avx2,fma,bmi2,prefer-vector-width=512\")")

/* A tile configuration as the instruction reads it; fields are zero unless stated otherwise. */
struct hd_amx_shape {
	uint8_t palette; /* 1 */
	uint8_t start, reserved[14];
	uint16_t bytes[16]; /* per row, for tiles 0 to 7; at most 64 */
	uint8_t rows[16];   /* at most 16 */
} __attribute__((aligned(64)));

#define HD_AMX_WHOLE \
	{ \
		.palette = 1, .bytes = { 64, 64, 64, 64, 64, 64, 64, 64 }, .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } \
	}

/* Sets the shapes of the tiles, and zeroes them. */
static inline void hd_amx_reshape(const struct hd_amx_shape *s)
{
	__asm__ volatile("ldtilecfg %0" ::"m"(*s));
}

/* Sets all eight tiles to their full size. */
static inline void hd_amx_begin(void)
{
	static const struct hd_amx_shape whole = HD_AMX_WHOLE;

	hd_amx_reshape(&whole);
}

static inline void hd_amx_end(void)
{
	__asm__ volatile("tilerelease");
}

/* stride: bytes from row to row in memory */
#define HD_TILE_LOAD(t, from, stride) \
	__asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"((const void *)(from)), "r"((int64_t)(stride)) : "memory")
#define HD_TILE_STORE(t, to, stride) \
	__asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"((void *)(to)), "r"((int64_t)(stride)) : "memory")
#define HD_TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::)
#define HD_TILE_DPBF16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

/* -- amx_pack.c -- */
#define HD_AMX_SIDE 32                           /* rows and columns of a block of c, and k of a tile */
#define HD_AMX_PANEL (HD_AMX_SIDE * HD_AMX_SIDE) /* elements of a or b that one such block takes at once: two tiles */
/* Packs n rows of a (n at most 32), or n columns of b, `step` apart, each of k elements, `k_step` apart. One of the
 * steps is 1. Writes ceil(k / 32) pairs of tiles. pairs: in the layout of b's tiles. */
void hd_amx_pack(uint16_t *to, const uint16_t *from, int64_t step, int64_t k_step, int64_t n, int64_t k, int pairs);
#endif

#endif
