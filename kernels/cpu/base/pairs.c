/* SPDX-License-Identifier: Apache-2.0
 * Whether this processor multiplies pairs of bf16, and whether that is faster than fp32.
 */
#include <config.h>
#include "engine/base/err.h"
#include "kernels/cpu/base/amx.h"
#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/base/pairs.h"
#if HD_AMX
#include <immintrin.h>
#include <pthread.h>

static int has(void)
{
	__builtin_cpu_init();
	return hd_has_avx512() && hd_has_avx2() && __builtin_cpu_supports("avx512bf16") &&
	       __builtin_cpu_supports("bmi2");
}

int hd_pairs_here(void)
{
	static int known; /* has() plus 1, or 0: not known yet */
	int here = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (!here) {
		here = 1 + has();
		__atomic_store_n(&known, here, __ATOMIC_RELAXED);
	}
	return here - 1;
}

HD_AMX_TARGET

enum { SUMS = 12, TURNS = 200, TRIES = 20 };

/* Returns the seconds of TURNS * SUMS instructions, none of which waits for the one before. */
static double seconds(const int pairs)
{
	double from = hd_seconds();
	__m512 x[SUMS], by = _mm512_set1_ps(1);

	for (int i = 0; i < SUMS; i++)
		x[i] = by;
	for (int t = 0; t < TURNS; t++) {
#pragma GCC unroll 12
		for (int i = 0; i < SUMS; i++) {
			x[i] = pairs ? _mm512_dpbf16_ps(x[i], (__m512bh)by, (__m512bh)by)
				     : _mm512_fmadd_ps(by, by, x[i]);
			__asm__ volatile("" : "+v"(x[i]));
		}
	}
	return hd_seconds() - from;
}

static int fast;

/* Compares the shortest of several tries, because other processes run on this processor too. Some processors have
 * twice the rate of fp32, others at most the same, so the limit is between these. */
static void measure(void)
{
	double least[2] = { 1, 1 };

	for (int t = 0; t < TRIES; t++)
		for (int pairs = 0; pairs < 2; pairs++) {
			double s = seconds(pairs);

			least[pairs] = s < least[pairs] ? s : least[pairs];
		}
	fast = 2 * least[0] > 1.4 * least[1];
}

int hd_pairs_fast(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (!hd_pairs_here())
		return 0;
	pthread_once(&once, measure);
	return fast;
}
#else
int hd_pairs_here(void)
{
	return 0;
}

int hd_pairs_fast(void)
{
	return 0;
}
#endif
