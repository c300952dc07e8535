/* SPDX-License-Identifier: Apache-2.0
 * Reduce-scatters and all-gathers in buckets: a bucket of gradients is reduce-scattered, and a bucket of parameters
 * gathered, as one flat tensor. The flat tensor is laid out by member; for each member it contains the member's pieces
 * of all tensors. So packing copies. Large tensors move alone, as the engine does it, where one more message costs less
 * than a copy (alone_from in bucket.c).
 */
#include "dp.h"
#include <string.h>

static int is_small(const struct hd_strategy *s, const struct hd_tensor *whole)
{
	return dp_bytes(whole) < s->alone;
}

/* Tells whether both levels cut. The engine would then move along both at once, and each rank would send as much
 * between nodes as within its node. */
static int in_levels(const struct hd_strategy *s)
{
	const struct hd_axis *axes[2];

	return dp_cutting_axes(s, axes) == 2;
}

/* Tells whether a scatter differs from the engine's: by its dtype in transit, its member order, its late start, or its
 * two levels. */
static int is_special(const struct hd_strategy *s)
{
	return s->wire != HD_DTYPE_F32 || s->sync == DP_SERVER || !s->overlap || in_levels(s);
}

static int is_scatter(const struct hd_strategy *s, const struct hd_node *n)
{
	const struct hd_reshard *r = n->reshard;

	return r->have.kind == HD_PLACE_PARTIAL && r->have.red == HD_RED_SUM && r->need.kind == HD_PLACE_SHARD &&
	       (is_small(s, n->ins[0]) || is_special(s));
}

/* Tells whether this tensor may be gathered in a bucket. It must be a parameter, its new value (of a master, or perhaps
 * from host memory), or a piece that was gathered across nodes. Other tensors that are gathered within the update may
 * be computed from one another. */
static int may_gather(const struct hd_strategy *s, const struct hd_node *n)
{
	const struct hd_tensor *x = n->ins[0];

	if (x->what == HD_TENSOR_PARAM || !x->node)
		return x->what == HD_TENSOR_PARAM;
	if (s->along == s->inner && in_levels(s) && !strcmp(x->node->kind, "unpack"))
		return 1;
	if (n->phase & HD_UNIT_G)
		return !strcmp(x->node->kind, "served");
	return n->phase & HD_UNIT_U && (!strcmp(x->node->kind, "update") || !strcmp(x->node->kind, "to_device"));
}

static int is_gather(const struct hd_strategy *s, const struct hd_node *n)
{
	const struct hd_reshard *r = n->reshard;

	return r->have.kind == HD_PLACE_SHARD && r->need.kind == HD_PLACE_REPLICATED &&
	       (is_small(s, n->outs[0]) || in_levels(s)) && may_gather(s, n);
}

/* Returns the sharded dim of each reshard in the bucket. */
static const struct hd_dim **dims_of(struct hd_strategy *s, struct hd_plan *p, const struct dp_bucket *b, int scattered)
{
	const struct hd_dim **dims = s->h->alloc(p, (b->n + 1) * sizeof(*dims));

	for (uint32_t i = 0; dims && i < b->n; i++)
		dims[i] = scattered ? b->in[i]->reshard->need.dim : b->in[i]->reshard->have.dim;
	return dims;
}

static int scatter(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct dp_bucket *b)
{
	const struct hd_dim **dims = dims_of(s, p, b, 1);
	struct hd_tensor **like = s->h->alloc(p, (b->n + 1) * sizeof(*like)), *mine;

	if (!dims || !like)
		return HD_ENOMEM;
	hd_cursor(s->g, p, b->at, g);
	for (uint32_t i = 0; i < b->n; i++)
		like[i] = b->in[i]->outs[0];
	b->flat = s->g->pack_pieces(p, b->x, dims, b->n, g->n);
	mine = s->sync == DP_SERVER ? dp_push(s, p, g, b->flat) : dp_comm(s, p, HD_COMM_REDUCE_SCATTER, g, b->flat, 0);
	s->g->unpack(p, mine, like, b->n, b->x + b->n);
	for (uint32_t i = 0; i < b->n; i++)
		s->g->replace(p, b->in[i]->outs[0], b->x[b->n + i]);
	return s->h->status(p);
}

static int gather(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct dp_bucket *b)
{
	const struct hd_dim **dims = dims_of(s, p, b, 0);
	struct hd_tensor *flat;

	if (!dims)
		return HD_ENOMEM;
	hd_cursor(s->g, p, b->in[0]->phase & HD_UNIT_U ? b->at : b->in[0],
		  g); /* in the update the last new value decides, elsewhere the first reader */
	flat = s->g->pack(p, b->x, b->n, 1);
	flat = flat ? hd_comm(s->g, p, HD_COMM_ALL_GATHER, g, flat, flat->dims[0], 0) : NULL;
	s->g->unpack_pieces(p, flat, b->x, dims, b->n, g->n, b->x + b->n);
	for (uint32_t i = 0; i < b->n; i++)
		s->g->replace(p, b->in[i]->outs[0], b->x[b->n + i]);
	return s->h->status(p);
}

/* Scatters go from the inner axis to the outer one, and gathers the other way. */
int dp_lower_scatters(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_axis *axes[] = { s->inner, s->dp };

	for (int k = 0; k < 2; k++)
		if ((s->along = axes[k]))
			dp_each_bucket(s, p, is_scatter, scatter);
	return s->h->status(p);
}

int dp_lower_gathers(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_axis *axes[] = { s->dp, s->inner };

	for (int k = 0; k < 2; k++)
		if ((s->along = axes[k]))
			dp_each_bucket(s, p, is_gather, gather);
	return s->h->status(p);
}
