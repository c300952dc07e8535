/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/base/random.h - random numbers from a key and an index on the device, as engine/base/rng.c computes
 * them.  The arithmetic is integer only, so the bits are the same as on the host.
 */
#ifndef HD_KERNELS_CUDA_BASE_RANDOM_H
#define HD_KERNELS_CUDA_BASE_RANDOM_H
#include "kernels/cuda/base/cuda.h"

#define HD_GOLDEN 0x9e3779b97f4a7c15ull

HD_DEV uint64_t hd_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* Returns hd_key(seed, text, hd_hash64(step) ^ site), where `name` is hd_hash_text(text). */
HD_DEV uint64_t hd_step_key(const struct hd_cuda_step *s, uint64_t name, uint64_t site)
{
	uint64_t number = hd_mix((uint64_t)s->step) ^ site;

	return hd_mix(hd_mix(hd_mix(s->seed + HD_GOLDEN) ^ name) + (number + 1) * HD_GOLDEN);
}

/* Returns hd_random_bits >> 11; hd_random_uniform is this times 2^-53. */
HD_DEV uint64_t hd_random53(uint64_t key, uint64_t index)
{
	return hd_mix(hd_mix(key + (index + 1) * HD_GOLDEN) ^ (key << 32 | key >> 32)) >> 11;
}

#endif
