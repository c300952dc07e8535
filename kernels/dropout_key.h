/* SPDX-License-Identifier: Apache-2.0
 * kernels/dropout_key.h - which elements dropout keeps: the same on every device and in every layout.
 */
#ifndef HD_KERNELS_DROPOUT_KEY_H
#define HD_KERNELS_DROPOUT_KEY_H
#include "engine/rng.h"

/* The step is mixed before it meets the site, so that (site, step) and (step, site) are different keys. */
static inline uint64_t hd_dropout_key(uint64_t seed, int64_t step, uint64_t site)
{
	return hd_key(seed, "dropout", hd_hash64((uint64_t)step) ^ site);
}

static inline int hd_dropout_keeps(uint64_t key, uint64_t index, double p)
{
	return hd_random_uniform(key, index) >= p;
}

#endif
