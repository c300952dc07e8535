/* SPDX-License-Identifier: Apache-2.0
 * Sums of gradients that every member reads in full: a bucket is summed as one flat tensor, in the way that `sync`
 * names.
 */
#include "dp.h"

static int is_sum(const struct hd_strategy *s, const struct hd_node *n)
{
	const struct hd_reshard *r = n->reshard;

	(void)s;
	return n->ins[0]->what == HD_TENSOR_GRAD && r->have.kind == HD_PLACE_PARTIAL && r->have.red == HD_RED_SUM &&
	       r->need.kind == HD_PLACE_REPLICATED;
}

int dp_is_two_levels(const struct hd_strategy *s, const struct hd_node *n)
{
	const struct hd_node *first = s->sync == DP_HIERARCHICAL && s->inner ? n->ins[0]->node : NULL;

	return s->along == s->dp && first && first->reshard && first->reshard->axis == s->inner &&
	       first->reshard->need.kind == HD_PLACE_REPLICATED && n->reshard->need.kind == HD_PLACE_REPLICATED;
}

static struct hd_tensor *by_sync(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g,
				 struct hd_tensor *flat, int two_levels)
{
	struct hd_tensor *x;

	if (s->sync == DP_RING)
		return dp_ring(s, p, g, flat);
	if (two_levels)
		return dp_hierarchical(s, p, flat);
	if (s->sync != DP_SERVER)
		return dp_comm(s, p, HD_COMM_ALL_REDUCE, g, flat, 0);
	x = dp_to_wire(s, p, dp_push(s, p, g, flat));
	return x ? dp_from_wire(s, p, hd_comm(s->g, p, HD_COMM_ALL_GATHER, g, x, x->dims[0], 0), flat->dtype) : NULL;
}

static int sum(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct dp_bucket *b)
{
	hd_cursor(s->g, p, b->at, g);
	s->sums++;
	b->flat = s->g->pack(p, b->x, b->n, s->n);
	s->g->unpack(p, by_sync(s, p, g, b->flat, dp_is_two_levels(s, b->in[0])), b->x, b->n, b->x + b->n);
	for (uint32_t i = 0; i < b->n; i++)
		s->g->replace(p, b->in[i]->outs[0], b->x[b->n + i]);
	return s->h->status(p);
}

int dp_lower_sums(struct hd_strategy *s, struct hd_plan *p)
{
	s->along = s->dp;
	s->by_tree = s->sync == DP_ALLREDUCE || s->sync == DP_HIERARCHICAL;
	dp_each_bucket(s, p, is_sum, sum);
	s->by_tree = 0;
	return s->h->status(p);
}
