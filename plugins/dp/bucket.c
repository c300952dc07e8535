/* SPDX-License-Identifier: Apache-2.0
 * Buckets: tensors of one unit and dtype are packed and moved as one.  They are taken in program order, which for gradients
 * is the order in which backward completes them, so a bucket moves while backward goes on.
 */
#include "dp.h"

int64_t dp_bytes(const struct hd_tensor *t)
{
	int64_t bits = HD_BITS(t->dtype);

	for (uint32_t i = 0; i < t->ndim; i++)
		bits *= t->local[i];
	return (bits + 7) / 8;
}

static int same_unit(const struct hd_node *a, const struct hd_node *b)
{
	const uint32_t once = HD_G | HD_S | HD_U;

	return a->site == b->site && a->phase == b->phase && (a->phase & once || a->block == b->block);
}

static int fits(const struct hd_strategy *s, const struct dp_bucket *b, const struct hd_node *n)
{
	return !b->n || (b->bytes < s->bucket && same_unit(n, b->in[0]) && n->ins[0]->dtype == b->in[0]->ins[0]->dtype);
}

static int flush(struct hd_strategy *s, struct hd_plan *p, struct dp_bucket *b, dp_move_fn *move)
{
	const struct hd_group *g = s->h->group(p, &s->dp, 1, HD_CORE);

	if (!b->n || !g)
		return s->h->status(p);
	for (uint32_t i = 0; i < b->n; i++)
		b->x[i] = b->in[i]->ins[0];
	move(s, p, g, b);
	b->n = 0;
	b->bytes = 0;
	return s->h->status(p);
}

int dp_each_bucket(struct hd_strategy *s, struct hd_plan *p, dp_wanted_fn *wanted, dp_move_fn *move)
{
	const struct hd_match m = { .size = sizeof(m), .kind = "reshard", .axis = s->dp };
	struct hd_node *n = NULL;
	struct dp_bucket b = { 0 };
	uint32_t count = 0;

	while ((n = s->g->node_next(p, n, &m)))
		count++;
	b.in = s->h->alloc(p, (count + 1) * sizeof(*b.in));
	b.x = s->h->alloc(p, (2 * count + 1) * sizeof(*b.x));
	if (!b.in || !b.x)
		return HD_ENOMEM;
	while ((n = s->g->node_next(p, n, &m))) {
		if (!wanted(s, n))
			continue;
		if (!fits(s, &b, n))
			flush(s, p, &b, move);
		b.in[b.n++] = n;
		b.bytes += dp_bytes(n->ins[0]);
	}
	return flush(s, p, &b, move);
}
