/* SPDX-License-Identifier: Apache-2.0
 * kernels/dropout_key.h - which elements dropout keeps: the same on every device and in every layout.
 */
#ifndef HD_KERNELS_DROPOUT_KEY_H
#define HD_KERNELS_DROPOUT_KEY_H
#include "engine/base/rng.h"

/* The step is hashed before it is combined with the site, so that (site, step) and (step, site) give different keys. */
static inline uint64_t hd_dropout_key(uint64_t seed, int64_t step, uint64_t site)
{
	return hd_key(seed, "dropout", hd_hash64((uint64_t)step) ^ site);
}

static inline int hd_dropout_keeps(uint64_t key, uint64_t index, double p)
{
	return hd_random_uniform(key, index) >= p;
}

/* The same test for vector loops, which a call would prevent. hd_random_bits is written out, and uniform >= p is
 * compared in integers. That is exact because p * 2^53 is. hd_dropout_mask() returns all bits set where the element is
 * dropped, else 0. */
static inline uint64_t hd_dropout_limit(double p)
{
	double limit = p * 0x1p53;
	uint64_t whole = (uint64_t)limit;

	return whole + ((double)whole < limit);
}

static inline uint64_t hd_dropout_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static inline uint32_t hd_dropout_mask(uint64_t key, uint64_t index, uint64_t limit)
{
	uint64_t bits = hd_dropout_mix(key + (index + 1) * 0x9e3779b97f4a7c15ull) ^ (key << 32 | key >> 32);

	return (uint32_t)((int64_t)((hd_dropout_mix(bits) >> 11) - limit) >> 63);
}

#endif
