/* SPDX-License-Identifier: Apache-2.0
 * engine/base/hash.h - FNV-1a: a hash that grows by one byte or word at a time.  Alone its high bits are poor: whoever takes
 * a part of it mixes it first (hd_hash64).
 */
#ifndef HD_ENGINE_BASE_HASH_H
#define HD_ENGINE_BASE_HASH_H
#include <stdint.h>

#define HD_HASH_START 0xcbf29ce484222325ull

static inline uint64_t hd_hash_add(uint64_t h, uint64_t word)
{
	return (h ^ word) * 0x100000001b3ull;
}

/* The bytes of s, without its end. */
static inline uint64_t hd_hash_add_text(uint64_t h, const char *s)
{
	for (; *s; s++)
		h = hd_hash_add(h, (unsigned char)*s);
	return h;
}

#endif
