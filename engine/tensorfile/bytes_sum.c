/* SPDX-License-Identifier: Apache-2.0
 * The sum of a file's bytes (bytes_sum.h).
 */
#include <config.h>
#include "engine/tensorfile/bytes_sum.h"
#include <string.h>

static uint64_t factor_of(uint64_t word)
{
	uint64_t x = (word + 1) * 0x9e3779b97f4a7c15u;

	return (x ^ x >> 32) | 1;
}

/* Returns the term of n bytes, at most 8, that begin at byte `from` of the word. */
static uint64_t part(const char *bytes, int64_t n, int64_t from, uint64_t word)
{
	uint64_t x = 0;

	for (int64_t i = 0; i < n; i++)
		x |= (uint64_t)(unsigned char)bytes[i] << 8 * (from + i);
	return x * factor_of(word);
}

uint64_t hd_bytes_sum(const char *bytes, int64_t n, int64_t at)
{
	int64_t head = (8 - at % 8) % 8 < n ? (8 - at % 8) % 8 : n, i;
	uint64_t sum = head ? part(bytes, head, at % 8, (uint64_t)at / 8) : 0, first = (uint64_t)(at + head) / 8, x;

	for (i = 0; head + 8 * i + 8 <= n; i++) {
		memcpy(&x, bytes + head + 8 * i, sizeof(x));
		sum += x * factor_of(first + (uint64_t)i);
	}
	return head + 8 * i < n ? sum + part(bytes + head + 8 * i, n - head - 8 * i, 0, first + (uint64_t)i) : sum;
}
