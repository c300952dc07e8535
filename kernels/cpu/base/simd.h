/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/simd.h - definitions that the vector loops of the cpu kernels share.
 *
 * HD_CLONES before a function compiles it for AVX-512, AVX2 and the baseline; one of them is chosen when the program
 * starts. The region of an `omp parallel` is compiled as a separate function, which would not inherit that. So a
 * kernel's run starts the threads, which call cloned functions on pieces. The sizes of pieces do not depend on the
 * number of threads.
 *
 * Functions here are plain scalar code without calls and branches, so that `omp simd` loops can inline them.
 */
#ifndef HD_KERNELS_CPU_BASE_SIMD_H
#define HD_KERNELS_CPU_BASE_SIMD_H
#include <stdint.h>
#include <string.h>
#include "engine/base/half.h"
#include "kernels/cpu/base/elementary.h"

/* Older versions of clang choose a clone by the name of the processor, and so mostly the baseline. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && \
	!defined(__SANITIZE_THREAD__)
#if defined(__clang__) ? __clang_major__ >= 19 : __GNUC__ >= 12
#define HD_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#endif
#ifndef HD_CLONES
#define HD_CLONES
#endif

#define HD_CHUNK 4096  /* elements of one piece of an elementwise kernel: its operands fit in L1 or L2 */
#define HD_SMALL 16384 /* with fewer elements, waking the threads costs more than they save */

static inline int64_t hd_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Returns the number of parts of at most `most` that make up n: n / most, rounded up. */
static inline int64_t hd_parts(int64_t n, int64_t most)
{
	return (n + most - 1) / most;
}

/* Returns n rounded up to a multiple of unit. */
static inline int64_t hd_up(int64_t n, int64_t unit)
{
	return hd_parts(n, unit) * unit;
}

/* Computes the columns of thread t of n: complete cache lines, so that no two threads write to the same one. */
static inline void hd_columns(int64_t cols, int t, int n, int64_t *from, int64_t *to)
{
	int64_t lines = (cols + 15) / 16;

	*from = hd_min(cols, lines * t / n * 16);
	*to = hd_min(cols, lines * (t + 1) / n * 16);
}

/* Clamps x; NaN stays NaN. */
static inline float hd_clamp(float x, float low, float high)
{
	x = x > high ? high : x;
	return x < low ? low : x;
}

#endif
