/* SPDX-License-Identifier: Apache-2.0
 * Drawing a token, compared with the probabilities that the logits give.  If the temperature were ignored, or all
 * positions shared one draw, text would still be generated, and nobody would notice that it is not the model's.
 */
#include <config.h>
#include "engine/base/rng.h"
#include "engine/generate/generate.h"
#include <stdlib.h>
#include <string.h>
#include "t/lib/tap.h"

enum { DRAWS = 10000, LOGITS = 4 };
static const float logits[LOGITS] = { 0.5f, 2.0f, -1.0f, 1.0f };

/* Returns the value that chi-square exceeds once in a thousand cases, by degrees of freedom.  Since the seeds are
 * fixed, a test that passes once always passes. */
static double limit(int freedom)
{
	static const double once[] = { 0, 10.83, 13.82, 16.27 };

	return freedom == 15 ? 37.70 : once[freedom];
}

/* Softmax of the k largest logits (their ranks are 2, 0, 3, 1 by index), in double. */
static void expected(double *p, double temperature, int k)
{
	static const int rank[LOGITS] = { 2, 0, 3, 1 };
	double sum = 0;

	for (int i = 0; i < LOGITS; i++)
		sum += p[i] = rank[i] < k ? exp((double)logits[i] / temperature) : 0;
	for (int i = 0; i < LOGITS; i++)
		p[i] /= sum;
}

static double chi_square(const int *count, const double *p, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += p[i] > 0 ? pow(count[i] - DRAWS * p[i], 2) / (DRAWS * p[i]) : count[i] ? INFINITY : 0;
	return sum;
}

/* by_seed: draws at one position with many seeds; else at many positions with one seed. */
static void frequencies(double temperature, int k, int by_seed)
{
	struct hd_sampling s = { .temperature = temperature, .top_k = k, .seed = 7 };
	int count[LOGITS] = { 0 }, kinds = k ? k : LOGITS;
	double p[LOGITS], off;
	float scratch[LOGITS];

	expected(p, temperature, kinds);
	for (int i = 0; i < DRAWS; i++) {
		s.seed = by_seed ? i : 7;
		count[hd_draw(logits, LOGITS, &s, by_seed ? 3 : i, scratch)]++;
	}
	off = chi_square(count, p, LOGITS);
	if (!ok(off <= limit(kinds - 1), "temperature %g, top-k %d, %s: %d draws have the expected frequencies",
		temperature, k, by_seed ? "many seeds" : "many positions", DRAWS))
		note("%d %d %d %d: chi-square %.2f, limit %.2f", count[0], count[1], count[2], count[3], off,
		     limit(kinds - 1));
}

/* Neighbouring draws are independent: a pair is as frequent as the product of both frequencies. */
static void pairs(void)
{
	struct hd_sampling s = { .temperature = 2, .seed = 7 };
	int count[LOGITS * LOGITS] = { 0 };
	double one[LOGITS], p[LOGITS * LOGITS], off;
	float scratch[LOGITS];

	expected(one, 2, LOGITS);
	for (int i = 0; i < LOGITS * LOGITS; i++)
		p[i] = one[i / LOGITS] * one[i % LOGITS];
	for (int i = 0; i < DRAWS; i++)
		count[hd_draw(logits, LOGITS, &s, 2 * i, scratch) * LOGITS +
		      hd_draw(logits, LOGITS, &s, 2 * i + 1, scratch)]++;
	off = chi_square(count, p, LOGITS * LOGITS);
	if (!ok(off <= limit(LOGITS * LOGITS - 1), "neighbours are independent"))
		note("chi-square %.2f, limit %.2f", off, limit(LOGITS * LOGITS - 1));
}

static int always(double temperature, int k, int want)
{
	struct hd_sampling s = { .temperature = temperature, .top_k = k, .seed = 7 };
	float scratch[LOGITS];

	for (int i = 0; i < DRAWS; i++)
		if (hd_draw(logits, LOGITS, &s, i, scratch) != want)
			return 0;
	return 1;
}

/* exp(z / T) of logits as large as models have neither overflows nor becomes zero for all of them. */
static void large_logits(void)
{
	static const float z[LOGITS] = { 30000, 30001, -30000, 29999 };
	struct hd_sampling s = { .temperature = 1e-3, .seed = 7 };
	float scratch[LOGITS];
	int right = 0;

	for (int i = 0; i < 100; i++)
		right += hd_draw(z, LOGITS, &s, i, scratch) == 1;
	is_int(right, 100, "logits of 3e4 at temperature 1e-3 give the likeliest token");
}

/* Of 50,000 equal logits all are drawn: the mean of the ids is that of a uniform distribution, within four standard
 * deviations. */
static void large_vocabulary(void)
{
	enum { VOCAB = 50000 };
	static float z[VOCAB], scratch[VOCAB];
	struct hd_sampling s = { .temperature = 1, .seed = 7 };
	double sum = 0;

	for (int i = 0; i < 1000; i++)
		sum += hd_draw(z, VOCAB, &s, i, scratch);
	near(sum / 1000, (VOCAB - 1) / 2., 4 * VOCAB / sqrt(12. * 1000), "50,000 equal logits are drawn uniformly");
}

static int descending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x < y) - (x > y);
}

/* Makes the same draw from all logits, fully sorted. */
static int plain_draw(const float *z, int n, const struct hd_sampling *s, int64_t position, float *sorted)
{
	double sum = 0, part = 0, u, p = s->top_p > 0 ? s->top_p : 1;
	int k = s->top_k ? (int)s->top_k : n, i;

	memcpy(sorted, z, (size_t)n * sizeof(*z));
	qsort(sorted, (size_t)n, sizeof(*z), descending);
	for (i = 0; i < k; i++)
		sum += exp((sorted[i] - sorted[0]) / s->temperature);
	for (i = 0; i < k - 1 && (part += exp((sorted[i] - sorted[0]) / s->temperature)) < p * sum; i++)
		;
	sum = 0;
	for (int j = 0; j < n; j++)
		sum += z[j] >= sorted[i] ? exp((z[j] - sorted[0]) / s->temperature) : 0;
	u = hd_random_uniform(hd_key((uint64_t)s->seed, "generate", 0), (uint64_t)position) * sum;
	for (int j = 0; j < n; j++)
		if (z[j] >= sorted[i] && (u -= exp((z[j] - sorted[0]) / s->temperature)) < 0)
			return j;
	return -1;
}

/* In a large vocabulary the largest logits are selected instead of sorting all, and the draw is made in parts. */
static void of_many(void)
{
	enum { VOCAB = 20011 };
	static const struct hd_sampling all[] = {
		{ .temperature = 1 },
		{ .temperature = 0.8, .top_k = 40 },
		{ .temperature = 2, .top_k = 1 },
		{ .temperature = 1, .top_k = VOCAB - 1 },
		{ .temperature = 0.1, .top_p = 0.3 },
		{ .temperature = 1, .top_p = 0.5 },
		{ .temperature = 5, .top_p = 0.999 },
		{ .temperature = 1, .top_k = 300, .top_p = 0.9 },
	};
	static float z[VOCAB], scratch[VOCAB];

	for (int i = 0; i < VOCAB; i++) /* some of them equal */
		z[i] = (float)(hd_random_uniform(3, (uint64_t)i) * 4000 - 2000) / 256;
	for (int i = 0; i < VOCAB; i += 7)
		z[i] = (float)(int)z[i];
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		struct hd_sampling s = all[i];
		int same = 0;

		s.seed = 7;
		for (int at = 0; at < 100; at++)
			same += hd_draw(z, VOCAB, &s, at, scratch) == plain_draw(z, VOCAB, &s, at, scratch);
		ok(same == 100,
		   "%d logits, temperature %g, top-k %d, top-p %g: draws equal those from all logits, sorted", VOCAB,
		   s.temperature, (int)s.top_k, s.top_p);
	}
}

int main(void)
{
	static const double temperatures[] = { 0.5, 1, 2, 100 };

	for (size_t i = 0; i < sizeof(temperatures) / sizeof(*temperatures); i++) {
		frequencies(temperatures[i], 0, 0);
		frequencies(temperatures[i], 0, 1);
	}
	frequencies(1, 2, 0);
	frequencies(2, 3, 1);
	pairs();
	ok(always(0, 0, 1), "temperature 0 always gives the likeliest token");
	ok(always(0.01, 0, 1), "... as does 0.01 if logits are 1 apart");
	ok(always(100, 1, 1), "top-k 1 always gives the likeliest token, at any temperature");
	large_logits();
	large_vocabulary();
	of_many();
	return done();
}
