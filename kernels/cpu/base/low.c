/* SPDX-License-Identifier: Apache-2.0
 * Converts floats to bf16.
 */
#include <config.h>
#include "kernels/cpu/base/amx.h"
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/pairs.h"

HD_CLONES static void store_any(uint16_t *low, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		low[j] = hd_bf16_of(x[j]);
}

#if HD_AMX
#include <immintrin.h>
#pragma GCC push_options
HD_AMX_TARGET

/* Converts 32 elements at a time. Returns how many were stored. The instruction treats subnormal numbers as zero;
 * vectors with such numbers are converted by store_any(). past: stores go past the caches, to complete lines. */
static inline __attribute__((always_inline)) int64_t store_pairs(uint16_t *low, const float *x, int64_t n,
								 const int past)
{
	enum { subnormal = 0x20 }; /* of VFPCLASSPS; a constant even without optimization */
	int64_t j = 0;

	for (; j + 32 <= n; j += 32) {
		__m512 a = _mm512_loadu_ps(x + j), b = _mm512_loadu_ps(x + j + 16);

		if (_mm512_fpclass_ps_mask(a, subnormal) | _mm512_fpclass_ps_mask(b, subnormal))
			store_any(low + j, x + j, 32);
		else if (past)
			_mm512_stream_si512((__m512i *)(low + j), (__m512i)_mm512_cvtne2ps_pbh(b, a));
		else
			_mm512_storeu_si512(low + j, (__m512i)_mm512_cvtne2ps_pbh(b, a));
	}
	return j;
}

static int64_t store_near(uint16_t *low, const float *x, int64_t n)
{
	return store_pairs(low, x, n, 0);
}

static int64_t store_past(uint16_t *low, const float *x, int64_t n)
{
	int64_t done = store_pairs(low, x, n, 1);

	_mm_sfence();
	return done;
}
#pragma GCC pop_options

void hd_store_bf16(uint16_t *low, const float *x, int64_t n)
{
	int64_t done = n >= 32 && hd_pairs_here() ? store_near(low, x, n) : 0;

	if (done < n)
		store_any(low + done, x + done, n - done);
}

void hd_store_bf16_past(uint16_t *low, const float *x, int64_t n)
{
	int64_t done = n >= 32 && hd_pairs_here() && !((uintptr_t)low % 64) ? store_past(low, x, n) : 0;

	if (done < n)
		hd_store_bf16(low + done, x + done, n - done);
}
#else
void hd_store_bf16(uint16_t *low, const float *x, int64_t n)
{
	store_any(low, x, n);
}

void hd_store_bf16_past(uint16_t *low, const float *x, int64_t n)
{
	store_any(low, x, n);
}
#endif
