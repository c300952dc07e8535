/* SPDX-License-Identifier: Apache-2.0
 * scatter_gather (PTD-P, Narayanan et al. 2104.04473): a tensor that crosses stages and is the same on all members of
 * another axis would be sent by each of them. Instead each member sends a piece, and the receivers gather. The bytes on
 * a link between stages are divided by the size of that axis. The gather runs on the faster links of that axis.
 *
 * This applies to every axis along which the tensor is replicated. Along an axis that already shards the tensor (a
 * sequence-parallel residual stream) nothing remains to be done.
 */
#include "pp.h"

/* Returns a level inside all axes that already shard this dim. */
static int32_t innermost_level(struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *x,
			       const struct hd_dim *d)
{
	int32_t level = 0;

	for (const struct hd_axis *a = NULL; (a = s->h->axis_next(p, a));) {
		const struct hd_place *at = s->g->place(p, x, a);

		if (at->kind == HD_PLACE_SHARD && at->dim == d && at->level >= level)
			level = at->level + 1;
	}
	return level;
}

/* Finds the first dim that divides, and sets *to. Returns 0 if no dim does. */
static int find_cut(struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *x, const struct hd_axis *a,
		    struct hd_place *to)
{
	for (uint32_t i = 0; i < x->ndim; i++)
		if (x->local[i] % a->n == 0 && x->local[i] >= a->n) {
			*to = (struct hd_place){ .kind = HD_PLACE_SHARD,
						 .dim = x->dims[i],
						 .level = innermost_level(s, p, x, x->dims[i]) };
			return 1;
		}
	return 0;
}

/* A tensor that is the same along an axis of several members, none of whose dims that axis divides. */
struct uncut {
	const struct hd_tensor *x;
	const struct hd_axis *a;
};

/* Sends the tensor of reshard n in pieces, and returns the number of axes along which it is cut. */
static uint32_t send_in_pieces(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct uncut *uncut)
{
	const struct hd_place whole = { .kind = HD_PLACE_REPLICATED };
	const struct hd_axis *by[HD_MAX_AXES];
	struct hd_tensor *x = n->ins[0];
	struct hd_place to;
	uint32_t k = 0, cuts;

	hd_cursor(s->g, p, n, NULL);
	for (const struct hd_axis *a = NULL; x && (a = s->h->axis_next(p, a));) {
		if (a == s->pp || a->n < 2 || s->g->place(p, x, a)->kind != HD_PLACE_REPLICATED)
			continue;
		if (find_cut(s, p, x, a, &to)) {
			x = s->g->reshard(p, x, a, &to);
			by[k++] = a;
		} else {
			*uncut = (struct uncut){ x, a };
		}
	}
	cuts = k;
	if (!cuts)
		return 0;
	x = s->g->reshard(p, x, s->pp, &n->reshard->need);
	while (x && k)
		x = s->g->reshard(p, x, by[--k], &whole);
	if (x)
		s->g->replace(p, n->outs[0], x);
	return cuts;
}

static void warn_without_effect(struct hd_strategy *s, struct hd_plan *p, const struct uncut *u)
{
	if (u->x)
		s->h->log(p, HD_LOG_WARN, __FILE__, __LINE__,
			  "scatter_gather = yes does nothing: no dim of (%s) on a rank is a multiple of %s = %lld",
			  u->x->spec, u->a->name, (long long)u->a->n);
	else
		s->h->log(p, HD_LOG_WARN, __FILE__, __LINE__,
			  "scatter_gather = yes does nothing without an axis that replicates what crosses stages");
}

int pp_lower(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match crossings = {
		.size = sizeof(crossings), .kind = "reshard", .axis = s->pp, .phases = HD_UNIT_F | HD_UNIT_B | HD_UNIT_W
	};
	struct hd_node *n = NULL;
	struct uncut uncut = { 0 };
	uint32_t cuts = 0;

	if (!s->scatter)
		return HD_OK;
	while ((n = s->g->node_next(p, n, &crossings)))
		if (n->reshard->have.kind == HD_PLACE_PINNED && n->reshard->need.kind == HD_PLACE_PINNED &&
		    n->ins[0]->what == HD_TENSOR_ACT)
			cuts += send_in_pieces(s, p, n, &uncut);
	if (!cuts && s->g->leaf_next(p, NULL, HD_TENSOR_GRAD))
		warn_without_effect(s, p, &uncut);
	return s->h->status(p);
}
