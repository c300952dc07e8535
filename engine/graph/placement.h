/* SPDX-License-Identifier: Apache-2.0
 * engine/graph/placement.h - the algebra of placements: equality, the order of the axes that shard a dim, local sizes.
 * Also the sharding rules, and which of them a node follows.
 */
#ifndef HD_ENGINE_PLACEMENT_H
#define HD_ENGINE_PLACEMENT_H
#include "engine/graph/types.h"

/* -- placement.c -------------------------------------------------------------------------------------------------------- */
int hd_place_equal(const struct hd_place *a, const struct hd_place *b);
int hd_placement_equal(const struct hd_plan *p, const struct placement *a, const struct placement *b);
void hd_localize(struct hd_plan *p, struct tensor *t); /* sets the local extents from the placement */
/* Gives y, and the node that computes it, the placement of x.  If x is not placed yet, neither is y.  The caller sets
 * y's local extents. */
void hd_placed_like(struct tensor *y, const struct tensor *x);
/* Lists the axes that shard d, outermost first.  Returns how many. */
int hd_shard_order(const struct hd_plan *p, const struct placement *at, const struct hd_dim *d, int axes[HD_MAX_AXES]);
const char *hd_placement_text(struct hd_plan *p, const struct placement *at);
/* its coordinate on the stage axis, or -1: none */
int64_t hd_node_stage(const struct hd_plan *p, const struct node *n);
/* Returns its chunk on its stage, or p->chunks if it runs after all chunks. */
int64_t hd_node_chunk(const struct hd_plan *p, const struct node *n);
/* Returns each chunk's position in the model's order, by stage * p->chunks + chunk; -1: the stage does not hold it. The
 * caller frees it. */
int *hd_plan_part_of(const struct hd_plan *p);
/* Returns the global index of the rank's first element along a dim. */
int64_t hd_offset(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t rank);
/* Returns how many of a rank's local elements along a dim belong to the tensor.  The rest is padding, of the dim or of
 * a member's piece. */
int64_t hd_elements_here(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t rank);
/* Returns the place that slot storage gives a leaf on an axis.  If the number of members does not divide the dim, its
 * pieces are padded. */
struct hd_place hd_storage_place(const struct hd_plan *p, const struct tensor *t, const struct hd_place *to,
				 const struct axis *along);
/* Returns the length of a dim after `parts` members' pieces like t's are joined, without the padding of padded
 * pieces. */
int64_t hd_joined(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t parts);
/* Returns how many elements member m has, if n elements are divided into pieces of `piece` elements. */
static inline int64_t hd_piece_filled(int64_t n, int64_t piece, int64_t m)
{
	int64_t left = n - m * piece;

	return left < 0 ? 0 : left < piece ? left : piece;
}
static inline int64_t hd_piece(int64_t n, int64_t parts)
{
	return (n + parts - 1) / parts;
}
/* A rank's share of a dim: one piece, or two.  The second begins at local index fold, and its global indices are larger
 * by skip than if it followed the first directly.  Example: of 16 elements in zigzag order, member 1 of 4 has 2, 3 and
 * 12, 13: off is 2, fold 2, skip 8. */
struct hd_pieces {
	int64_t off, fold, skip;
};
struct hd_pieces hd_pieces_of(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t rank);
/* Copies those tokens of a sequence that data leaf t (batch, seq) holds on the rank. */
void hd_pieces_tokens(const struct hd_plan *p, const struct tensor *t, int64_t rank, const int32_t *ids, int32_t *out);
static inline int64_t hd_pieces_index(const struct hd_pieces *s, int64_t local) /* returns the global index */
{
	return s->off + local + (local >= s->fold ? s->skip : 0);
}

/* -- rules.c ------------------------------------------------------------------------------------------------------------ */
/* The calls of slot rules: shard a dim along an axis, distribute model.layers over an axis' members, assign one
 * block. */
/* Whether a rule for batch shards a micro-batch only if that divides.  Such a rule does not affect the size of the
 * batch. */
int hd_rule_is_conditional(uint32_t flags);
int hd_rule_add(struct hd_plan *p, const char *dim, struct axis *a, const char *kind, uint32_t flags);
int hd_assign_layers(struct hd_plan *p, struct axis *a);
int hd_assign_block(struct hd_plan *p, struct block *b, struct axis *a, int64_t coord, int64_t chunk);
int hd_is_unshardable(const struct node *n, const struct hd_dim *d); /* by its op's list */
const struct rule *hd_rule_for(const struct hd_plan *p, const struct node *n, const struct axis *a); /* or NULL */
/* Returns the dim that the rules shard along the axis in this node, or NULL. */
const struct hd_dim *hd_sharded_by_rules(const struct hd_plan *p, const struct node *n, const struct axis *a);
/* Returns whether a rule shards d along the axis in nodes of this kind, even if an earlier rule decides for the
 * node. */
int hd_dim_has_rule(const struct hd_plan *p, const struct node *n, const struct axis *a, const struct hd_dim *d);

/* A value of hd_place.order that only the engine uses: contiguous pieces of a dim that the members do not divide
 * evenly.  A piece has ceil(dim / members) elements.  Member i has those of the elements [i piece, (i + 1) piece) that
 * exist; the rest of its memory is zero. */
enum { HD_ORDER_PADDED = HD_ORDER_ZIGZAG + 1, HD_ORDER_LAST = HD_ORDER_PADDED };
/* Checks a place that a plugin passed, for an axis of this plan.  of: the tensor to be placed there, or NULL. */
int hd_place_check(struct hd_plan *p, const char *call, const struct hd_place *w, const struct hd_axis *axis,
		   const struct hd_tensor *of);

#endif
