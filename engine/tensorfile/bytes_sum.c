/* SPDX-License-Identifier: Apache-2.0
 * The sum of a file's bytes (bytes_sum.h).
 *
 * A factor has 64 bits, and no two words have the same one. Modulo 2^64 the highest bit of a word would be multiplied by
 * the lowest bit of its factor alone, which all odd factors share. Modulo 2^128 it meets all bits of the factor. A sum
 * of mixed words would need complete words, but the ranks write pieces that end within a word.
 */
#include <config.h>
#include "engine/tensorfile/bytes_sum.h"
#include <string.h>

typedef uint64_t (*factor_fn)(uint64_t word);

/* Each step can be undone, so different words have different factors, and none is 0. */
static inline uint64_t factor_of(uint64_t word)
{
	uint64_t x = (word + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	return x ^ x >> 32;
}

static inline uint64_t factor_1_of(uint64_t word)
{
	uint64_t x = (word + 1) * 0x9e3779b97f4a7c15u;

	return (x ^ x >> 32) | 1;
}

/* Returns the n bytes, at most 8, as a part of a word in which they begin at byte `from`. */
static uint64_t part(const char *bytes, int64_t n, int64_t from)
{
	uint64_t x = 0;

	for (int64_t i = 0; i < n; i++)
		x |= (uint64_t)(unsigned char)bytes[i] << 8 * (from + i);
	return x;
}

static inline hd_sum128 sum_with(factor_fn factor, const char *bytes, int64_t n, int64_t at)
{
	int64_t head = (8 - at % 8) % 8 < n ? (8 - at % 8) % 8 : n, i;
	uint64_t first = (uint64_t)(at + head) / 8, x;
	hd_sum128 sum = head ? (hd_sum128)part(bytes, head, at % 8) * factor((uint64_t)at / 8) : 0;

	for (i = 0; head + 8 * i + 8 <= n; i++) {
		memcpy(&x, bytes + head + 8 * i, sizeof(x));
		sum += (hd_sum128)x * factor(first + (uint64_t)i);
	}
	x = part(bytes + head + 8 * i, n - head - 8 * i, 0);
	return sum + (hd_sum128)x * factor(first + (uint64_t)i);
}

hd_sum128 hd_bytes_sum(const char *bytes, int64_t n, int64_t at)
{
	return sum_with(factor_of, bytes, n, at);
}

uint64_t hd_bytes_sum_1(const char *bytes, int64_t n, int64_t at)
{
	return (uint64_t)sum_with(factor_1_of, bytes, n, at);
}
