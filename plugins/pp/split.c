/* SPDX-License-Identifier: Apache-2.0
 * Blocks to stages: contiguous pieces, the heaviest as light as can be (embedding and head counted), or as many layers
 * each as the user says.  Piece v is chunk v / p of stage v mod p.
 */
#include "pp.h"
#include <stdlib.h>
#include <string.h>

/* How many pieces of at most `limit` the blocks need, in order. */
static int64_t pieces(const double *cost, int64_t n, double limit)
{
	int64_t k = 1;
	double sum = 0;

	for (int64_t i = 0; i < n; i++) {
		if (sum > 0 && sum + cost[i] > limit)
			k++, sum = 0;
		sum += cost[i];
	}
	return k;
}

static double lightest(const double *cost, int64_t n, int64_t want)
{
	double lo = 0, hi = 0;

	for (int64_t i = 0; i < n; i++)
		hi += cost[i];
	for (int i = 0; i < 60; i++) {
		double mid = (lo + hi) / 2;

		*(pieces(cost, n, mid) <= want ? &hi : &lo) = mid;
	}
	return hi * (1 + 1e-9);
}

static int place(struct hd_strategy *s, struct hd_plan *p, const struct hd_block *b, int64_t v)
{
	return s->h->stage(p, b, s->pp, v % s->pp->n, v / s->pp->n);
}

static int balanced(struct hd_strategy *s, struct hd_plan *p, int64_t n, int64_t want)
{
	double *cost = s->h->alloc(p, (size_t)n * sizeof(*cost)), sum = 0, limit;
	const struct hd_block *b = NULL;
	int64_t i = 0, v = 0;

	if (!cost)
		return HD_ENOMEM;
	while ((b = s->h->block_next(p, b)))
		cost[i++] = b->flops;
	limit = lightest(cost, n, want);
	for (i = 0; (b = s->h->block_next(p, b)); i++) {
		/* a new piece where this one is full, or where as many blocks are left as pieces must still come */
		if (i && v + 1 < want && ((sum > 0 && sum + cost[i] > limit) || n - i <= want - v - 1))
			v++, sum = 0;
		sum += cost[i];
		place(s, p, b, v);
	}
	return s->h->status(p);
}

static int is_layer(const struct hd_block *b) { return !strncmp(b->name, "layer", 5); }

/* "4,5,5,4": what stands before the first layer goes with it, what stands behind the last too. */
static int as_given(struct hd_strategy *s, struct hd_plan *p, const char *text, int64_t want)
{
	const struct hd_block *b = NULL;
	int64_t left, v = 0, total = 0, layers = 0, given = 0;
	char *end;

	left = strtoll(text, &end, 10);
	while ((b = s->h->block_next(p, b))) {
		layers += is_layer(b);
		while (is_layer(b) && left == 0 && *end == ',') {
			left = strtoll(end + 1, &end, 10);
			v++;
		}
		left -= is_layer(b);
		place(s, p, b, v);
	}
	for (const char *t = text; *t; t += strcspn(t, ","), t += *t == ',', given++)
		total += strtoll(t, NULL, 10);
	if (given != want || total != layers || left)
		return s->h->fail(p, HD_EINVAL, "split: %s is %lld layers in %lld pieces; there are %lld layers and %lld pieces",
				  text, (long long)total, (long long)given, (long long)layers, (long long)want);
	return s->h->status(p);
}

int pp_rules(struct hd_strategy *s, struct hd_plan *p)
{
	int64_t n = 0, want = s->pp->n * s->chunks;
	const char *split = s->h->opt_str(p, "split");

	for (const struct hd_block *b = NULL; (b = s->h->block_next(p, b));)
		n++;
	if (n < want)
		return s->h->fail(p, HD_EINVAL, "size: %lld blocks (embedding, layers, head) for %lld stages x %lld chunks",
				  (long long)n, (long long)s->pp->n, (long long)s->chunks);
	return strcmp(split, "balanced") ? as_given(s, p, split, want) : balanced(s, p, n, want);
}
