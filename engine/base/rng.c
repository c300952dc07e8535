/* SPDX-License-Identifier: Apache-2.0
 * Counter-based randomness: number i of key k is a hash of (k, i). So any rank can compute any part of any tensor
 * alone, in any order.
 *
 * The mixer is splitmix64's finaliser with Stafford's constants ("mix13"). Two rounds, with the key mixed in between,
 * keep the streams of two keys from being shifted copies of each other. Normal numbers are computed by the inverse of
 * the distribution function. It is approximated by two rational functions fitted for this file, on our own logarithm.
 * Their relative error is 1e-9, where a float has 6e-8. Sums, products, quotients and square roots are exact to the bit
 * under IEEE 754. So every machine computes the same floats, provided that no compiler fuses or reorders them.
 */
#include <config.h>
#include "engine/base/rng.h"
#include "engine/base/hash.h"
#include <math.h>
#include <string.h>

#if defined(__FAST_MATH__)
#error "reordered sums would give each compiler weights of its own; build without -ffast-math"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF /* an explicit -ffp-contract=fast would override it */
#define EXACT
#else
#define EXACT __attribute__((optimize("fp-contract=off"))) /* GCC ignores the pragma */
#endif

/* Functions marked WIDE are compiled for several vector widths; the program selects one when it starts. Older versions
 * of clang select by the name of the processor, and so mostly the baseline. */
#define WIDE
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && \
	!defined(__SANITIZE_THREAD__)
#if defined(__clang__) ? __clang_major__ >= 19 : __GNUC__ >= 12
#undef WIDE
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#endif

#define GOLDEN 0x9e3779b97f4a7c15ull /* 2^64 / golden ratio, odd */

static inline uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static inline uint64_t bits(uint64_t key, uint64_t index)
{
	return mix(mix(key + (index + 1) * GOLDEN) ^ (key << 32 | key >> 32));
}

uint64_t hd_hash64(uint64_t x)
{
	return mix(x);
}

uint64_t hd_hash_text(const char *s)
{
	return mix(hd_hash_add_text(HD_HASH_START, s));
}

uint64_t hd_key(uint64_t seed, const char *name, uint64_t number)
{
	return mix(mix(mix(seed + GOLDEN) ^ hd_hash_text(name)) + (number + 1) * GOLDEN);
}

uint64_t hd_random_bits(uint64_t key, uint64_t index)
{
	return bits(key, index);
}

double hd_random_uniform(uint64_t key, uint64_t index)
{
	return (double)(bits(key, index) >> 11) * 0x1p-53;
}

/* -- the normal distribution ------------------------------------------------------------------- */

/* Returns (double)k for -2^52 <= k < 2^52, exactly. AVX2 and older instructions cannot convert numbers of 64 bits. So
 * the high half of k + 2^52 becomes the low bits of a double near 2^84, and its low half those of one near 2^52. */
EXACT static inline double to_double(int64_t k)
{
	uint64_t u = (uint64_t)k + (1ull << 52),
		 halves[2] = { 0x4530000000000000ull | u >> 32, 0x4330000000000000ull | (u & 0xffffffff) };
	double high, low;

	memcpy(&high, &halves[0], sizeof(high));
	memcpy(&low, &halves[1], sizeof(low));
	return (high - (0x1p84 + 0x1p53)) + low;
}

/* Returns number `index` of `key` as the middle of one of 2^53 cells of (-1/2, 1/2). The top 53 bits are a signed number.
 * They are shifted as an unsigned one, because AVX2 cannot shift a signed number. */
EXACT static inline double cell(uint64_t key, uint64_t index)
{
	int64_t k = (int64_t)((bits(key, index) ^ 1ull << 63) >> 11) - (1ll << 52);

	return (to_double(k) + 0.5) * 0x1p-53;
}

/* Returns log(p) of a normal positive number: p = 2^e * m with m around 1, then the series of atanh. */
EXACT static inline double natural_log(double p)
{
	uint64_t u;
	int64_t e;
	double m, s, t;

	memcpy(&u, &p, sizeof(u));
	e = (int64_t)((u - 0x3fe6a09e667f3bcdull) >> 52); /* sqrt(1/2) <= m < sqrt(2) */
	e = (e ^ 0x800) - 0x800;                          /* 12 bits, signed */
	u -= (uint64_t)e << 52;
	memcpy(&m, &u, sizeof(m));
	s = (m - 1) / (m + 1);
	t = s * s;
	return to_double(e) * 0.69314718055994530942 +
	       2 * s * (1 + t * (1. / 3 + t * (1. / 5 + t * (1. / 7 + t * (1. / 9 + t * (1. / 11))))));
}

/* Returns x with P(X < x) = 1/2 + q, |q| <= 0.425: an odd function of q. */
EXACT static inline double centre(double q)
{
	double u = q * q, p, d;

	p = 2.506628275360803 +
	    u * (-21.61272045888456 + u * (60.689419186648706 + u * (-58.946416720327576 + u * 11.08364815665866)));
	d = 1 + u * (-9.66942538654468 + u * (32.03445287831236 + u * (-41.04484348557735 + u * 15.297971313556625)));
	return q * p / d;
}

/* Returns -x with P(X < x) = p, 2^-54 <= p <= 0.075: a function of sqrt(-log p) from 1.6 to 6.13. */
EXACT static inline double tail(double p)
{
	double r = sqrt(-natural_log(p)) - 1.6, n, d;

	n = 1.4234371123441414 +
	    r * (3.194628558008094 + r * (2.1154766815755965 + r * (0.5098007861957756 + r * 0.036793704954558866)));
	d = 1 + r * (1.0445702021480938 + r * (0.31942286086451166 + r * 0.02600847925692592));
	return n / d;
}

EXACT float hd_random_normal(uint64_t key, uint64_t index)
{
	double q = cell(key, index), a = q < 0 ? -q : q, x;

	if (a <= 0.425)
		return (float)centre(q);
	x = tail(0.5 - a);
	return (float)(q < 0 ? -x : x);
}

/* Blocks are computed with vector instructions: the centre formula for all numbers, then the tail formula for those
 * that need it. Each number is computed by the same operations in the same order, so its bits equal those of
 * hd_random_normal. */
#define BLOCK 256

EXACT WIDE static void centres(double *q, float *to, uint64_t key, uint64_t first)
{
#pragma omp simd
	for (int i = 0; i < BLOCK; i++) {
		q[i] = cell(key, first + (uint64_t)i);
		to[i] = (float)centre(q[i]);
	}
}

EXACT WIDE static void tails(const double *p, double *x, int n)
{
#pragma omp simd
	for (int i = 0; i < n; i++)
		x[i] = tail(p[i]);
}

static void normal_block(float *to, uint64_t key, uint64_t first)
{
	double q[BLOCK], p[BLOCK], x[BLOCK];
	int at[BLOCK], n = 0;

	centres(q, to, key, first);
	for (int i = 0; i < BLOCK; i++) {
		at[n] = i;
		p[n] = 0.5 - fabs(q[i]);
		n += fabs(q[i]) > 0.425;
	}
	tails(p, x, n);
	for (int i = 0; i < n; i++)
		to[at[i]] = (float)copysign(x[i], q[at[i]]);
}

void hd_random_normals(float *to, uint64_t key, uint64_t first, int64_t n)
{
	float rest[BLOCK];

	for (; n >= BLOCK; n -= BLOCK, first += BLOCK, to += BLOCK)
		normal_block(to, key, first);
	if (n <= 0)
		return;
	normal_block(rest, key, first);
	memcpy(to, rest, (size_t)n * sizeof(*to));
}

/* -- permutations ------------------------------------------------------------------------------ */

/* A Feistel network permutes all numbers of `width` bits. Fewer than half of them are outside [0, n): such a result
 * is permuted again until it is inside. The result is a permutation of [0, n) (Black and Rogaway 2002). */
uint64_t hd_permute(uint64_t key, uint64_t n, uint64_t position)
{
	int width = n > 1 ? 64 - __builtin_clzll(n - 1) : 0, low = width / 2, high = width - low, round;
	uint64_t left, right, x = position;

	if (n < 2)
		return 0;
	do {
		left = x >> low;
		right = x & ((1ull << low) - 1);
		for (round = 0; round < 10; round += 2) {
			left ^= bits(key + (uint64_t)round, right) & ((1ull << high) - 1);
			right ^= bits(key + (uint64_t)round + 1, left) & ((1ull << low) - 1);
		}
		x = left << low | right;
	} while (x >= n);
	return x;
}
