/* SPDX-License-Identifier: Apache-2.0
 * Assigns blocks to stages in contiguous pieces. The user may give the number of layers of each piece. By default the
 * heaviest piece is as light as possible, counting embedding and head, and the others are as even as possible. Piece v
 * is chunk v / p of stage v mod p.
 */
#include "pp.h"
#include <stdlib.h>
#include <string.h>

/* Returns how many pieces of at most `limit` the blocks need, in order. No single block may be heavier than `limit`. */
static int64_t pieces(const double *cost, int64_t n, double limit)
{
	int64_t k = 1;
	double sum = 0;

	for (int64_t i = 0; i < n; i++) {
		if (sum + cost[i] > limit)
			k++, sum = 0;
		sum += cost[i];
	}
	return k;
}

/* Returns the smallest weight of the heaviest piece when n blocks are cut in `want` pieces, found by bisection. */
static double lightest(const double *cost, int64_t n, int64_t want)
{
	double lo = 0, hi = 0;

	for (int64_t i = 0; i < n; i++) {
		hi += cost[i];
		lo = cost[i] > lo ? cost[i] : lo;
	}
	for (int i = 0; i < 60; i++) {
		double mid = (lo + hi) / 2;

		*(pieces(cost, n, mid) <= want ? &hi : &lo) = mid;
	}
	return hi * (1 + 1e-9);
}

static int place(struct hd_strategy *s, struct hd_plan *p, const struct hd_block *b, int64_t v)
{
	return hd_stage(s->h, p, b, s->pp, v % s->pp->n, v / s->pp->n);
}

/* Finds where each piece begins. Among all cuts with no piece heavier than `limit`, it takes the one with the smallest
 * sum of squares. So the other pieces are even too. Among equal cuts it gives the first stages less, because they keep
 * more micro-batches. best[v * (n + 1) + i] is the smallest sum for the first i blocks in v pieces. from[...] is where
 * the last of those pieces begins. */
static void cut(const double *cost, int64_t n, int64_t want, double limit, double *best, int64_t *from)
{
	int64_t w = n + 1;

	for (int64_t i = 0; i < (want + 1) * w; i++)
		best[i] = -1;
	best[0] = 0;
	for (int64_t v = 1; v <= want; v++)
		for (int64_t i = v; i <= n; i++) {
			double sum = 0;

			for (int64_t k = i - 1; k >= v - 1; k--) {
				double before = best[(v - 1) * w + k], all;

				sum += cost[k];
				if (sum > limit && k < i - 1)
					break;
				all = before + sum * sum;
				if (before >= 0 && (best[v * w + i] < 0 || all <= best[v * w + i] * (1 + 1e-12))) {
					best[v * w + i] = all;
					from[v * w + i] = k;
				}
			}
		}
}

static int balanced(struct hd_strategy *s, struct hd_plan *p, int64_t n, int64_t want)
{
	size_t cells = (size_t)((want + 1) * (n + 1));
	double *cost = s->h->alloc(p, (size_t)n * sizeof(*cost)), *best = s->h->alloc(p, cells * sizeof(*best));
	int64_t *from = s->h->alloc(p, cells * sizeof(*from)), *piece = s->h->alloc(p, (size_t)n * sizeof(*piece));
	const struct hd_block *b = NULL;
	int64_t i = 0;

	if (!cost || !best || !from || !piece)
		return HD_ENOMEM;
	while ((b = s->h->block_next(p, b)))
		cost[i++] = b->flops;
	cut(cost, n, want, lightest(cost, n, want), best, from);
	for (int64_t v = want; v > 0; v--)
		for (int64_t end = i, begin = from[v * (n + 1) + end]; i > begin; i--)
			piece[i - 1] = v - 1;
	for (i = 0; (b = s->h->block_next(p, b)); i++)
		place(s, p, b, piece[i]);
	return s->h->status(p);
}

static int is_layer(const struct hd_block *b)
{
	return !strncmp(b->name, "layer", 5);
}

/* Parses "4,5,5,4". Returns how many numbers it has, and stores the first `most` of them in n. Returns -1 if the text
 * has anything else. */
static int64_t numbers(const char *t, int64_t *n, int64_t most)
{
	for (int64_t k = 0;; t++) {
		char *end;
		int64_t v;

		t += strspn(t, " \t");
		if (*t < '0' || *t > '9')
			return -1;
		v = strtoll(t, &end, 10);
		if (k < most)
			n[k] = v;
		k++;
		t = end + strspn(end, " \t");
		if (!*t)
			return k;
		if (*t != ',')
			return -1;
	}
}

/* Blocks before the first layer go to the first piece, and blocks after the last layer go to the last. So these two
 * pieces may have no layer. */
static int as_given(struct hd_strategy *s, struct hd_plan *p, const char *text, int64_t want)
{
	int64_t *n = s->h->alloc(p, (size_t)want * sizeof(*n)), given, v = 0, total = 0, layers = 0;
	const struct hd_block *b = NULL;

	if (!n)
		return HD_ENOMEM;
	given = numbers(text, n, want);
	if (given < 0)
		return s->h->fail(p, HD_EINVAL, "split: '%s' is neither balanced nor a list of numbers of layers",
				  text);
	while ((b = s->h->block_next(p, b)))
		layers += is_layer(b);
	for (int64_t i = 0; i < want && i < given; i++)
		total += n[i] > layers ? layers + 1 : n[i];
	if (given != want)
		return s->h->fail(p, HD_EINVAL, "split: %s has %lld pieces; size x chunks is %lld", text,
				  (long long)given, (long long)want);
	if (total != layers)
		return s->h->fail(p, HD_EINVAL, "split: %s has %s%lld layers; the model has %lld", text,
				  total > layers ? "more than " : "", (long long)(total > layers ? layers : total),
				  (long long)layers);
	for (int64_t i = 1; i < want - 1; i++)
		if (!n[i])
			return s->h->fail(
				p, HD_EINVAL,
				"split: %s has a piece without a layer, and it is neither the first nor the last",
				text);
	while ((b = s->h->block_next(p, b))) {
		while (is_layer(b) && !n[v])
			v++;
		n[v] -= is_layer(b);
		layers -= is_layer(b);
		place(s, p, b, !layers && !is_layer(b) ? want - 1 : v);
	}
	return s->h->status(p);
}

int pp_rules(struct hd_strategy *s, struct hd_plan *p)
{
	int64_t n = 0, want = s->pp->n * s->chunks;
	const char *split = s->h->opt_str(p, "split");

	for (const struct hd_block *b = NULL; (b = s->h->block_next(p, b));)
		n++;
	if (n < want)
		return s->h->fail(
			p, HD_EINVAL,
			"size: %lld blocks (embedding, layers, head) for %lld stages x %lld chunks: at most %lld stages",
			(long long)n, (long long)s->pp->n, (long long)s->chunks, (long long)(n / s->chunks));
	return strcmp(split, "balanced") ? as_given(s, p, split, want) : balanced(s, p, n, want);
}
