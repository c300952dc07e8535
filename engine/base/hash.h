/* SPDX-License-Identifier: Apache-2.0
 * engine/base/hash.h - FNV-1a, a hash that is extended by one byte or word at a time. Its high bits are poorly mixed,
 * so pass it through hd_hash64 before using only a part of it.
 */
#ifndef HD_ENGINE_BASE_HASH_H
#define HD_ENGINE_BASE_HASH_H
#include <stdint.h>

#define HD_HASH_START 0xcbf29ce484222325ull

static inline uint64_t hd_hash_add(uint64_t h, uint64_t word)
{
	return (h ^ word) * 0x100000001b3ull;
}

/* Adds the bytes of s, without the terminating NUL. */
static inline uint64_t hd_hash_add_text(uint64_t h, const char *s)
{
	for (; *s; s++)
		h = hd_hash_add(h, (unsigned char)*s);
	return h;
}

/* Adds s and a mark of its end, so that texts one after another do not run together. */
static inline uint64_t hd_hash_add_field(uint64_t h, const char *s)
{
	return hd_hash_add(hd_hash_add_text(h, s), 0xff);
}

#endif
