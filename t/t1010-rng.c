/* SPDX-License-Identifier: Apache-2.0
 * Random numbers.  The frozen values are the promise that a seed gives the same weights on every machine and in every
 * later version.  If they changed, the data order of every checkpoint and every recorded loss curve would be wrong.
 * Never update them to make this test pass.
 */
#include <config.h>
#include "engine/base/rng.h"
#include "t/lib/tap.h"

static void frozen(void)
{
	uint64_t h = 0;
	char text[200] = "";
	uint32_t u;
	float f;
	int i;

	is_str((sprintf(text, "%016llx", (unsigned long long)hd_hash64(1)), text), "5692161d100b05e5",
	       "frozen: hash64(1)");
	is_str((sprintf(text, "%016llx", (unsigned long long)hd_hash_text("wte")), text), "71c7087570da1494",
	       "frozen: hash_text");
	is_str((sprintf(text, "%016llx", (unsigned long long)hd_key(1, "wte", 2)), text), "a38a2b16c8f0a22d",
	       "frozen: key");
	is_str((sprintf(text, "%016llx", (unsigned long long)hd_random_bits(1, 0)), text), "958bc6556c2172b9",
	       "frozen: bits");
	is_str((sprintf(text, "%.17g", hd_random_uniform(1, 3)), text), "0.74371962155342419", "frozen: uniform");
	is_str((sprintf(text, "%.9g", hd_random_normal(1, 2)), text), "0.839675188", "frozen: normal");
	for (i = 0; i < 2000000; i++) {
		f = hd_random_normal(9, (uint64_t)i);
		memcpy(&u, &f, sizeof(u));
		h = hd_hash64(h ^ u);
	}
	is_str((sprintf(text, "%016llx", (unsigned long long)h), text), "ec3e0a8ace2d67e5",
	       "frozen: two million normals");
	for (i = 0, *text = 0; i < 10; i++)
		sprintf(text + 2 * i, "%d ", (int)hd_permute(5, 10, (uint64_t)i));
	is_str(text, "9 2 5 1 4 8 0 7 6 3 ", "frozen: a permutation");
}

/* Returns the chi-square of n counts: its distance from the expected value, in standard deviations. */
static double chi(const int *count, int n, double expected)
{
	double sum = 0;
	int i;

	for (i = 0; i < n; i++)
		sum += (count[i] - expected) * (count[i] - expected) / expected;
	return (sum - (n - 1)) / sqrt(2. * (n - 1));
}

static void uniformity(void)
{
	enum { N = 1 << 20 };
	static int count[4096];
	uint64_t key;
	int i, part, worst_key = 0;
	double z, worst = 0;

	for (key = 0; key < 8; key++)
		for (part = 0; part < 3; part++) { /* high, middle and low bits */
			memset(count, 0, sizeof(count));
			for (i = 0; i < N; i++)
				count[hd_random_bits(key, (uint64_t)i) >> 26 * part & 4095]++;
			z = chi(count, 4096, N / 4096.);
			if (fabs(z) > worst) {
				worst = fabs(z);
				worst_key = (int)key;
			}
		}
	ok(worst < 4.5, "any 12 bits are uniform (%.1f sigma, key %d)", worst, worst_key);
	memset(count, 0, sizeof(count));
	for (i = 0; i < N; i++) /* neighbours: six bits of index i, six of i + 1 */
		count[hd_random_bits(3, (uint64_t)i) >> 58 << 6 | hd_random_bits(3, (uint64_t)i + 1) >> 58]++;
	z = chi(count, 4096, N / 4096.);
	ok(fabs(z) < 4.5, "neighbours are independent (%.1f sigma)", z);
	memset(count, 0, sizeof(count));
	for (i = 0; i < N; i++) /* the same index of neighbouring keys, as of two tensors */
		count[hd_random_bits((uint64_t)i, 5) >> 58 << 6 | hd_random_bits((uint64_t)i + 1, 5) >> 58]++;
	z = chi(count, 4096, N / 4096.);
	ok(fabs(z) < 4.5, "neighbouring keys are independent (%.1f sigma)", z);
}

static void avalanche(void)
{
	double least = 1, most = 0, p;
	int bit, i, flips;

	for (bit = 0; bit < 128; bit++) {
		uint64_t in = bit < 64 ? 1ull << bit : 0, by = bit < 64 ? 0 : 1ull << (bit - 64);

		for (i = 0, flips = 0; i < 2000; i++)
			flips += __builtin_popcountll(hd_random_bits(77, (uint64_t)i) ^
						      hd_random_bits(77 ^ by, (uint64_t)i ^ in));
		p = flips / (2000. * 64);
		least = p < least ? p : least;
		most = p > most ? p : most;
	}
	ok(least > 0.49 && most < 0.51,
	   "flipping a bit of the key or the index flips half of the output bits (%.4f to %.4f)", least, most);
}

static void normals(void)
{
	enum { N = 1 << 22 };
	double m[5] = { 0 }, x, largest = 0, together = 0, before = 0;
	static int count[64];
	double z;
	int i, k;

	for (i = 0; i < N; i++) {
		x = hd_random_normal(11, (uint64_t)i);
		m[1] += x;
		m[2] += x * x;
		m[3] += x * x * x;
		m[4] += x * x * x * x;
		together += x * before;
		before = x;
		largest = fabs(x) > largest ? fabs(x) : largest;
		k = (int)(64 * 0.5 * erfc(-x / sqrt(2.)));
		count[k > 63 ? 63 : k]++;
	}
	near(m[1] / N, 0, 4.5 / sqrt(N), "the mean is 0");
	near(m[2] / N, 1, 4.5 * sqrt(2. / N), "the variance is 1");
	near(m[3] / N, 0, 4.5 * sqrt(15. / N), "the distribution has no skew");
	near(m[4] / N, 3, 4.5 * sqrt(96. / N), "the fourth moment is 3");
	near(together / N, 0, 4.5 / sqrt(N), "neighbouring values are uncorrelated");
	ok(largest > 4.5 && largest < 7, "the largest of %d is %.2f", N, largest);
	z = chi(count, 64, N / 64.);
	ok(fabs(z) < 4.5, "its distribution function is right (%.1f sigma)", z);
}

/* A batch of normals of any start and length equals the values drawn one at a time. */
static void several(void)
{
	static const int64_t lengths[] = { 0, 1, 2, 15, 255, 256, 257, 511, 513, 5000, 1 << 20 };
	static float x[(1 << 20) + 1];
	int other = 0, beyond = 0;

	for (size_t k = 0; k < sizeof(lengths) / sizeof(*lengths); k++) {
		uint64_t first = k * 0x123456789abull;

		x[lengths[k]] = 42;
		hd_random_normals(x, 17 + k, first, lengths[k]);
		for (int64_t i = 0; i < lengths[k]; i++)
			other += x[i] != hd_random_normal(17 + k, first + (uint64_t)i);
		beyond += x[lengths[k]] != 42;
	}
	is_int(other, 0, "a batch of normals has the same bits as the values drawn one at a time");
	is_int(beyond, 0, "... and writes no more values than were asked for");
}

/* Compares the inverse of the distribution function with the function itself: the relative error of a float. */
static void inverse(void)
{
	double worst = 0, slope, back, p, e;
	uint64_t i;

	for (i = 0; i < 1000000; i++) {
		double x = fabs((double)hd_random_normal(21, i));

		p = ((double)((int64_t)hd_random_bits(21, i) >> 11) + 0.5) * 0x1p-53;
		p = 0.5 - fabs(p);
		back = 0.5 * erfc(x / sqrt(2.));
		slope = exp(-x * x / 2) / sqrt(2 * 3.14159265358979323846);
		e = fabs(back - p) / slope / x;
		worst = e > worst ? e : worst;
	}
	ok(worst < 6.2e-8, "normals are exact except for rounding to float (%.3g)", worst);
}

static void permutations(void)
{
	static const int sizes[] = { 1, 2, 3, 5, 7, 8, 9, 64, 100, 1000, 65537 };
	static unsigned char seen[65537];
	static int count[49];
	size_t s;
	int i, bad = 0, fixed = 0;
	uint64_t key;

	for (s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		memset(seen, 0, sizeof(seen));
		for (i = 0; i < sizes[s]; i++) {
			uint64_t x = hd_permute(s, (uint64_t)sizes[s], (uint64_t)i);

			bad += x >= (uint64_t)sizes[s] || seen[x]++;
		}
	}
	is_int(bad, 0, "permutations of 1 to 65537 elements are bijections");
	for (key = 0; key < 70000; key++)
		for (i = 0; i < 7; i++)
			count[7 * i + (int)hd_permute(hd_hash64(key), 7, (uint64_t)i)]++;
	/* 36 degrees of freedom instead of 48: the sums of rows and columns are fixed */
	ok(fabs(chi(count, 49, 10000)) < 6, "each of 7 positions takes each element equally often");
	for (i = 0; i < 65537; i++)
		fixed += hd_permute(3, 65537, (uint64_t)i) == (uint64_t)i;
	ok(fixed < 8, "%d of 65537 elements stay in place, 1 is expected", fixed);
	ok(hd_permute(3, 1ull << 63, 12345) < 1ull << 63, "a permutation of 2^63 elements stays in its range");
}

int main(void)
{
	frozen();
	uniformity();
	avalanche();
	normals();
	several();
	inverse();
	permutations();
	return done();
}
