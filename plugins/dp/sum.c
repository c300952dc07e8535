/* SPDX-License-Identifier: Apache-2.0
 * Gradients that every member reads whole: the bucket is summed as one flat tensor, by the way that `sync` says.
 */
#include "dp.h"

static int is_sum(const struct hd_strategy *s, const struct hd_node *n)
{
	const struct hd_reshard *r = n->reshard;

	(void)s;
	return n->ins[0]->what == HD_GRAD && r->have.kind == HD_PARTIAL && r->have.red == HD_SUM && r->need.kind == HD_WHOLE;
}

static int sum(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct dp_bucket *b)
{
	struct hd_tensor *flat;

	s->g->cursor(p, b->in[b->n - 1], g, 0);
	flat = s->g->pack(p, b->x, b->n, s->dp->n);
	flat = s->sync == DP_RING ? dp_ring(s, p, g, flat) : s->g->comm(p, HD_ALL_REDUCE, g, flat, NULL, 0);
	s->g->unpack(p, flat, b->x, b->n, b->x + b->n);
	for (uint32_t i = 0; i < b->n; i++)
		s->g->replace(p, b->in[i]->outs[0], b->x[b->n + i]);
	return s->h->status(p);
}

int dp_lower_sums(struct hd_strategy *s, struct hd_plan *p) { return dp_each_bucket(s, p, is_sum, sum); }
