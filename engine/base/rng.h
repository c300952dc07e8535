/* SPDX-License-Identifier: Apache-2.0
 * engine/base/rng.h - random numbers, each a pure function of a key and a global index: no state, no order, no libm.
 * The integer and float code is our own, so that every machine, layout and compiler computes the same numbers.
 */
#ifndef HD_ENGINE_RNG_H
#define HD_ENGINE_RNG_H
#include <stdint.h>

uint64_t hd_hash64(uint64_t x);                         /* a bijective mixer */
uint64_t hd_hash_text(const char *s);                   /* hash of a name */
uint64_t hd_random_bits(uint64_t key, uint64_t index);  /* 64 uniform bits */
double hd_random_uniform(uint64_t key, uint64_t index); /* [0, 1) */
float hd_random_normal(uint64_t key, uint64_t index);   /* mean 0, deviation 1 */
/* Stores in to[i] the normal number of index first + i, for i < n. */
void hd_random_normals(float *to, uint64_t key, uint64_t first, int64_t n);
uint64_t hd_key(uint64_t seed, const char *name, uint64_t number); /* the key of (seed, name, number) */
/* Returns the element at `position` of a random permutation of [0, n), which is not stored. */
uint64_t hd_permute(uint64_t key, uint64_t n, uint64_t position);

#endif
