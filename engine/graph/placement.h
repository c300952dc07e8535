/* SPDX-License-Identifier: Apache-2.0
 * engine/graph/placement.h - where a tensor is, as an algebra: equality, the order of axes that cut one dim, local sizes.
 * And the rules of a node.
 */
#ifndef HD_ENGINE_PLACEMENT_H
#define HD_ENGINE_PLACEMENT_H
#include "engine/graph/types.h"

/* -- placement.c -------------------------------------------------------------------------------------------------------- */
int hd_place_equal(const struct hd_place *a, const struct hd_place *b);
int hd_placement_equal(const struct hd_plan *p, const struct placement *a, const struct placement *b);
void hd_localize(struct hd_plan *p, struct tensor *t); /* local extents from the placement */
/* y is where x is, and so is its node; what is not placed yet leaves y so.  Its extents are the caller's affair. */
void hd_placed_like(struct tensor *y, const struct tensor *x);
/* Outer first. */
int hd_shard_order(const struct hd_plan *p, const struct placement *at, const struct hd_dim *d, int axes[HD_MAX_AXES]);
const char *hd_placement_text(struct hd_plan *p, const struct placement *at);
int64_t hd_node_stage(const struct hd_plan *p, const struct node *n); /* on the stage axis; -1: it has none */
int64_t hd_node_chunk(const struct hd_plan *p, const struct node *n); /* of its stage */
/* Global index of its first element. */
int64_t hd_offset(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t rank);
/* How many of a rank's local elements are the tensor's: what is behind them is padding, of a dim or of a member's piece. */
int64_t hd_elements_here(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t rank);
/* What slot storage says of a leaf along an axis: members that do not divide the dim have padded pieces of it. */
struct hd_place hd_storage_place(const struct hd_plan *p, const struct tensor *t, const struct hd_place *to,
				 const struct axis *along);
/* Elements of the dim where `parts` members' pieces like t's are put together: of padded pieces, without what pads them. */
int64_t hd_joined(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t parts);
/* As hd_elements_here, of member m where a dim of n elements is in pieces of `piece`. */
static inline int64_t hd_piece_filled(int64_t n, int64_t piece, int64_t m)
{
	int64_t left = n - m * piece;

	return left < 0 ? 0 : left < piece ? left : piece;
}
static inline int64_t hd_piece(int64_t n, int64_t parts)
{
	return (n + parts - 1) / parts;
}
/* What a rank has of a dim: one piece, or two, of which the second begins at local index fold, skip elements further on. */
struct hd_pieces {
	int64_t off, fold, skip;
};
struct hd_pieces hd_pieces_of(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t rank);
/* Of a sequence, those tokens that data leaf t (batch, seq) has on the rank. */
void hd_pieces_tokens(const struct hd_plan *p, const struct tensor *t, int64_t rank, const int32_t *ids, int32_t *out);
static inline int64_t hd_pieces_index(const struct hd_pieces *s, int64_t local) /* -> global */
{
	return s->off + local + (local >= s->fold ? s->skip : 0);
}

/* -- rules.c ------------------------------------------------------------------------------------------------------------ */
/* What slot rules says: a dim is cut along an axis; model.layers are dealt to its members; one block is. */
int hd_rule_is_conditional(uint32_t flags); /* of batch: shards a micro-batch that divides, and asks nothing of it */
int hd_rule_add(struct hd_plan *p, const char *dim, struct axis *a, const char *kind, uint32_t flags);
int hd_deal_layers(struct hd_plan *p, struct axis *a);
int hd_deal_block(struct hd_plan *p, struct block *b, struct axis *a, int64_t coord, int64_t chunk);
int hd_is_unshardable(const struct node *n, const struct hd_dim *d); /* the op says so */
const struct rule *hd_rule_for(const struct hd_plan *p, const struct node *n, const struct axis *a); /* or NULL */
/* Or NULL. */
const struct hd_dim *hd_sharded_by_rules(const struct hd_plan *p, const struct node *n, const struct axis *a);
/* Some rule shards d in such nodes, be it the first or not. */
int hd_dim_has_rule(const struct hd_plan *p, const struct node *n, const struct axis *a, const struct hd_dim *d);

/* hd_place.order of the engine: contiguous pieces of a dim that the members do not divide, the next whole number of elements
 * long.  Member i has elements [i piece, (i + 1) piece) of those that there are; the rest of its memory is zero. */
enum { HD_ORDER_PADDED = HD_ORDER_ZIGZAG + 1, HD_ORDER_LAST = HD_ORDER_PADDED };
/* A place that a plugin gave, on an axis of this plan; of: the tensor that is to be there, or NULL. */
int hd_place_check(struct hd_plan *p, const char *call, const struct hd_place *w, const struct hd_axis *axis,
		   const struct hd_tensor *of);

#endif
