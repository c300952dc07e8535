/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/vectors.h - sums of a row in several vectors at once. With a single vector of sums, each addition
 * waits for the one before; HD_SUMS vectors keep the adders busy. The order of additions is the same on every
 * processor.
 */
#ifndef HD_KERNELS_CPU_BASE_VECTORS_H
#define HD_KERNELS_CPU_BASE_VECTORS_H
#include "kernels/cpu/base/low.h"

#define HD_LANES 16
#define HD_SUMS 4
#define HD_STRIDE (HD_LANES * HD_SUMS)
#define HD_TWO (2 * HD_LANES)
#define HD_STRIP 8 /* rows whose columns are summed in registers while the next HD_STRIP rows are prefetched */
#define HD_INLINE static inline __attribute__((always_inline, unused))

typedef float hd_floats __attribute__((vector_size(4 * HD_LANES)));

/* Selects lanes of a and b by number; those of b count from HD_LANES on. Of the two forms, clang knows only the first,
 * and gcc knows it only from 12 on. */
#ifdef __clang__
#define HD_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef uint32_t hd_lane_numbers __attribute__((vector_size(4 * HD_LANES)));
#define HD_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (hd_lane_numbers){ __VA_ARGS__ })
#endif

/* Reads elements j to j + 15 of x, which is bf16 if low (a constant). */
HD_INLINE void hd_get_floats(hd_floats *v, const void *x, const int low, int64_t j)
{
	typedef uint16_t halves __attribute__((vector_size(2 * HD_LANES)));
	typedef uint32_t words __attribute__((vector_size(4 * HD_LANES)));
	halves h;
	words w;

	if (!low) {
		memcpy(v, (const float *)x + j, sizeof(*v));
		return;
	}
	memcpy(&h, (const uint16_t *)x + j, sizeof(h));
	w = __builtin_convertvector(h, words) << 16;
	memcpy(v, &w, sizeof(*v));
}

/* Reads elements j to j + 31 of x, bf16 if low: in order, or with `split` the even ones and then the odd ones.
 * Splitting bf16 takes one instruction per vector, since the even element is the low half of a word of 32 bits. Sums
 * may use either order if all their operands do. */
HD_INLINE void hd_get_two(hd_floats v[2], const void *x, const int low, const int split, int64_t j)
{
	typedef uint32_t words __attribute__((vector_size(4 * HD_LANES)));
	hd_floats a, b;
	words w, half;

	if (low && split) {
		memcpy(&w, (const uint16_t *)x + j, sizeof(w));
		half = w << 16;
		memcpy(&v[0], &half, sizeof(half));
		half = w & 0xffff0000;
		memcpy(&v[1], &half, sizeof(half));
		return;
	}
	hd_get_floats(&a, x, low, j);
	hd_get_floats(&b, x, low, j + HD_LANES);
	v[0] = split ? HD_SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) : a;
	v[1] = split ? HD_SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31) : b;
}

/* Prefetches elements j to j + 31 of x to L1; they may be beyond its end. It pays where x is not read in the order of
 * memory, or three or more operands are read at once. The hardware prefetcher does not foresee these. */
HD_INLINE void hd_fetch_two(const void *x, const int low, int64_t j)
{
	uintptr_t at = (uintptr_t)x + (uintptr_t)j * (low ? 2 : 4);

	__builtin_prefetch((const void *)at);
	if (!low)
		__builtin_prefetch((const void *)(at + 64));
}

/* Writes v to the elements from which hd_get_two() with the same `low` and split = low read them, rounded if low. v
 * becomes what was written. */
HD_INLINE void hd_put_two(void *x, const int low, int64_t j, hd_floats v[2])
{
	typedef uint32_t words __attribute__((vector_size(4 * HD_LANES)));
	words u[2], nan;

	if (!low) {
		memcpy((float *)x + j, v, 2 * sizeof(*v));
		return;
	}
	for (int i = 0; i < 2; i++) {
		memcpy(&u[i], &v[i], sizeof(u[i]));
		nan = (words)(v[i] != v[i]);
		u[i] = (((u[i] + 0x7fff + (u[i] >> 16 & 1)) & ~nan) | ((u[i] | 0x400000) & nan)) & 0xffff0000;
		memcpy(&v[i], &u[i], sizeof(u[i]));
	}
	u[1] |= u[0] >> 16;
	memcpy((uint16_t *)x + j, &u[1], sizeof(u[1]));
}

/* Adds v, split or in order, to sums[0..31]. */
HD_INLINE void hd_add_two(float *sums, const hd_floats v[2], const int split)
{
	hd_floats by[2], s[2];

	by[0] = split ? HD_SHUFFLE(v[0], v[1], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23) : v[0];
	by[1] = split ? HD_SHUFFLE(v[0], v[1], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31) : v[1];
	memcpy(s, sums, sizeof(s));
	s[0] += by[0];
	s[1] += by[1];
	memcpy(sums, s, sizeof(s));
}

/* Returns the sum of all lanes: adds the upper half to the lower, and so on. */
HD_INLINE float hd_sum_floats(const hd_floats v[HD_SUMS])
{
	typedef float eight __attribute__((vector_size(32)));
	typedef float four __attribute__((vector_size(16)));
	hd_floats all = (v[0] + v[1]) + (v[2] + v[3]);
	eight e[2];
	four f[2];

	memcpy(e, &all, sizeof(e));
	e[0] += e[1];
	memcpy(f, e, sizeof(f));
	f[0] += f[1];
	return (f[0][0] + f[0][2]) + (f[0][1] + f[0][3]);
}

#endif
