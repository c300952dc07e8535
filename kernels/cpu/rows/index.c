/* SPDX-License-Identifier: Apache-2.0
 * largest, take and put (top-k, gather and scatter): entries along one dim, by index.
 *
 * The k-th largest is found digit by digit, 256 counts per digit, on keys: whole numbers in the order of the floats.
 * Then one pass takes all larger entries and the first of the equal ones. So nothing is sorted, and the result is in
 * the order of the indices.
 */
#include <config.h>
#include "kernels/cpu/base/simd.h"
#include "kernels/prepare/index.h"

HD_PREPARE(prepare_topk, "largest", HD_DTYPE_F32, hd_prepare_topk(c, p))
HD_PREPARE(prepare_gather, "take", HD_DTYPE_F32, hd_prepare_gather(c, p))
HD_PREPARE(prepare_scatter, "put", HD_DTYPE_F32, hd_prepare_scatter(c, p))

/* Returns a key in the order of the floats. -0 has the key of 0. */
static inline uint32_t key_of(float x, int64_t magnitude)
{
	uint32_t bits = hd_bits_of(magnitude ? __builtin_fabsf(x) : x + 0.0f);

	return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Returns the k-th largest key. *equal: how many of the k largest entries have that key. */
static uint32_t threshold(const float *x, int64_t n, int64_t step, int64_t magnitude, int64_t k, int64_t *equal)
{
	uint32_t found = 0, mask = 0;

	for (int shift = 24; shift >= 0; shift -= 8) {
		int64_t count[256] = { 0 };
		int digit = 255;

		for (int64_t i = 0; i < n; i++) {
			uint32_t key = key_of(x[i * step], magnitude);

			count[key >> shift & 255] += (key & mask) == found;
		}
		for (; digit > 0 && count[digit] < k; digit--)
			k -= count[digit];
		found |= (uint32_t)digit << shift;
		mask |= 255u << shift;
	}
	*equal = k;
	return found;
}

static void topk_row(const struct hd_prep *p, const float *x, float *value, int32_t *index)
{
	int64_t inner = p->n[HD_INDEX_INNER], n = p->n[HD_INDEX_N], magnitude = p->n[HD_INDEX_FLAG], equal, at = 0;
	uint32_t least;

	if (!p->n[HD_INDEX_K])
		return;
	least = threshold(x, n, inner, magnitude, p->n[HD_INDEX_K], &equal);
	for (int64_t i = 0; i < n; i++) {
		uint32_t key = key_of(x[i * inner], magnitude);

		if (key < least || (key == least && equal-- <= 0))
			continue;
		value[at * inner] = x[i * inner];
		index[at++ * inner] = (int32_t)i;
	}
}

static void run_topk(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t inner = p->n[HD_INDEX_INNER], n = p->n[HD_INDEX_N] * inner, k = p->n[HD_INDEX_K] * inner;
	int64_t rows = p->n[HD_INDEX_OUTER] * inner;

	(void)r;
#pragma omp parallel for schedule(static) if (rows * p->n[HD_INDEX_N] >= HD_SMALL)
	for (int64_t i = 0; i < rows; i++)
		topk_row(p, (const float *)in[0] + i / inner * n + i % inner,
			 (float *)out[0] + i / inner * k + i % inner, (int32_t *)out[1] + i / inner * k + i % inner);
}

static void run_gather(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t inner = p->n[HD_INDEX_INNER], n = p->n[HD_INDEX_N], k = p->n[HD_INDEX_K];
	int64_t all = p->n[HD_INDEX_OUTER] * k * inner;
	const float *x = in[0];
	const int32_t *index = in[1];
	float *y = out[0];

	(void)r;
#pragma omp parallel for schedule(static) if (all >= HD_SMALL)
	for (int64_t i = 0; i < all; i++)
		y[i] = index[i] >= 0 && index[i] < n ? x[(i / (k * inner) * n + index[i]) * inner + i % inner] : 0;
}

/* Rows do not overlap, so threads take rows. Within a row, additions are in order. */
static void run_scatter(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t inner = p->n[HD_INDEX_INNER], n = p->n[HD_INDEX_N], k = p->n[HD_INDEX_K], outer = p->n[HD_INDEX_OUTER];

	(void)r;
#pragma omp parallel for schedule(static) if (outer * n * inner >= HD_SMALL)
	for (int64_t o = 0; o < outer; o++) {
		const float *x = (const float *)in[0] + o * k * inner;
		const int32_t *index = (const int32_t *)in[1] + o * k * inner;
		float *y = (float *)out[0] + o * n * inner;

		memset(y, 0, (size_t)(n * inner) * sizeof(*y));
		for (int64_t i = 0; i < k * inner; i++)
			if (index[i] >= 0 && index[i] < n)
				y[index[i] * inner + i % inner] += x[i];
	}
}

const struct hd_kernel hd_cpu_largest = { .name = "largest", .prepare = prepare_topk, .run = run_topk };
const struct hd_kernel hd_cpu_take = { .name = "take", .prepare = prepare_gather, .run = run_gather };
const struct hd_kernel hd_cpu_put = { .name = "put", .prepare = prepare_scatter, .run = run_scatter };
