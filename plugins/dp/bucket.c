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
	const uint32_t once = HD_UNIT_G | HD_UNIT_S | HD_UNIT_U;

	return a->stage == b->stage && a->phase == b->phase && (a->phase & once || a->block == b->block);
}

static int fits(const struct hd_strategy *s, const struct dp_bucket *b, const struct hd_node *n)
{
	return !b->n ||
	       (b->bytes < s->bucket && same_unit(n, b->in[0]) && n->ins[0]->dtype == b->in[0]->ins[0]->dtype &&
		dp_is_two_levels(s, n) == dp_is_two_levels(s, b->in[0]));
}

/* Over two levels a sum is two reshards, of which the first is the node's. */
static struct hd_tensor *operand(const struct hd_strategy *s, const struct hd_node *n)
{
	return dp_is_two_levels(s, n) ? n->ins[0]->node->ins[0] : n->ins[0];
}

/* Sync that is not to begin before backward is over waits for all gradients of the stage, and stands behind them. */
static int is_late(const struct hd_strategy *s, const struct dp_bucket *b)
{
	return !s->overlap && b->in[0]->phase & HD_UNIT_S;
}

static struct hd_node *place_of(const struct hd_strategy *s, const struct dp_bucket *b, struct hd_node *const *all,
				uint32_t n)
{
	struct hd_node *at = b->in[b->n - 1];

	for (uint32_t i = 0; is_late(s, b) && i < n; i++)
		at = all[i]->stage == at->stage ? all[i] : at;
	return at;
}

static int flush(struct hd_strategy *s, struct hd_plan *p, struct dp_bucket *b, dp_move_fn *move,
		 struct hd_node *const *all, uint32_t n)
{
	const struct hd_group *g = hd_group_of(s->h, p, &s->along, 1);

	if (!b->n || !g)
		return s->h->status(p);
	for (uint32_t i = 0; i < b->n; i++)
		b->x[i] = operand(s, b->in[i]);
	b->at = place_of(s, b, all, n);
	b->flat = NULL;
	move(s, p, g, b);
	for (uint32_t i = 0; is_late(s, b) && i < n; i++)
		if (all[i]->stage == b->at->stage)
			s->g->after(p, b->flat, operand(s, all[i]));
	b->n = 0;
	b->bytes = 0;
	return s->h->status(p);
}

int dp_each_bucket(struct hd_strategy *s, struct hd_plan *p, dp_wanted_fn *wanted, dp_move_fn *move)
{
	const struct hd_match m = { .size = sizeof(m), .kind = "reshard", .axis = s->along };
	struct hd_node *n = NULL, **all;
	struct dp_bucket b = { 0 };
	uint32_t count = 0, k = 0;

	while ((n = s->g->node_next(p, n, &m)))
		count++;
	all = s->h->alloc(p, (count + 1) * sizeof(*all));
	b.in = s->h->alloc(p, (count + 1) * sizeof(*b.in));
	b.x = s->h->alloc(p, (2 * count + 1) * sizeof(*b.x));
	if (!all || !b.in || !b.x)
		return HD_ENOMEM;
	while ((n = s->g->node_next(p, n, &m)))
		if (wanted(s, n))
			all[k++] = n;
	for (uint32_t i = 0; i < k; i++) {
		if (!fits(s, &b, all[i]))
			flush(s, p, &b, move, all, k);
		b.in[b.n++] = all[i];
		b.bytes += dp_bytes(all[i]->ins[0]);
	}
	return flush(s, p, &b, move, all, k);
}
