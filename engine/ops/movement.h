/* SPDX-License-Identifier: Apache-2.0
 * engine/ops/movement.h - builders of nodes that move elements (ops/movement.c, ops/pack.c, ops/numbers.c).
 */
#ifndef HD_ENGINE_MOVEMENT_H
#define HD_ENGINE_MOVEMENT_H
#include "engine/graph/graph.h"

/* Builds a node with one output of the given local shape.  In slot lower, its placement is that of the first input. */
struct tensor *hd_build_moved(struct hd_plan *p, const char *op, struct tensor *const *ins, uint32_t nin,
			      const char *attr, const struct hd_shape *shape);
void hd_shape_of(struct hd_shape *s, const struct tensor *t);
int hd_dim_index(const struct tensor *t, const struct hd_dim *d); /* -1: t does not have the dim */

/* Leading dim of a tensor that a collective splits or joins. */
const struct hd_dim *hd_member_dim(struct hd_plan *p, int64_t n);
/* Makes a term of a sum along the axis this member's own value. */
struct tensor *hd_build_local(struct hd_plan *p, struct tensor *x, const struct axis *a);
/* Sends each member's x to member mul * me + add, cyclically; mul must be invertible. */
struct tensor *hd_build_permute(struct hd_plan *p, struct group *g, struct tensor *x, int64_t mul, int64_t add);
struct tensor *hd_build_comm(struct hd_plan *p, uint32_t kind, struct group *g, struct tensor *x,
			     const struct hd_dim *dim, int64_t index);
/* Sets the dtype in which a sum in a stated order, built by hd_build_comm, is sent. */
void hd_comm_set_wire(struct hd_plan *p, struct tensor *sum, uint32_t wire);
struct tensor *hd_build_chunk(struct hd_plan *p, struct tensor *x, const struct hd_dim *dim, int64_t parts,
			      const struct hd_pos *at);
struct tensor *hd_build_join(struct hd_plan *p, struct tensor *const *xs, uint32_t n, const struct hd_dim *dim,
			     const struct hd_pos *at);
struct tensor *hd_build_either(struct hd_plan *p, const struct hd_members *who, struct tensor *yes, struct tensor *no);
struct tensor *hd_build_pick(struct hd_plan *p, struct tensor *const *xs, uint32_t n, const struct hd_pos *at);
struct tensor *hd_build_pack(struct hd_plan *p, struct tensor *const *xs, uint32_t n, int64_t multiple);
int hd_build_unpack(struct hd_plan *p, struct tensor *flat, struct tensor *const *like, uint32_t n,
		    struct tensor **out);
/* pack_pieces packs the pieces of each xs[i] along dims[i] into one flat tensor, member by member.  unpack_pieces is
 * the inverse: each like[i] is a piece, and each out[i] complete.  If `parts` does not divide a dim, its pieces are
 * padded with zeros. */
struct tensor *hd_build_pack_pieces(struct hd_plan *p, struct tensor *const *xs, const struct hd_dim *const *dims,
				    uint32_t n, int64_t parts);
int hd_build_unpack_pieces(struct hd_plan *p, struct tensor *flat, struct tensor *const *like,
			   const struct hd_dim *const *dims, uint32_t n, int64_t parts, struct tensor **out);
struct tensor *hd_build_block(struct hd_plan *p, struct tensor *x, const struct hd_dim *dim, int64_t n, int order);
/* whole: the length of the dim without padding; used only if the pieces are padded (HD_ORDER_PADDED). */
struct tensor *hd_build_unblock(struct hd_plan *p, struct tensor *x, const struct hd_dim *dim, int order,
				int64_t whole);
/* Returns this member's piece of x; order: HD_ORDER_CONTIGUOUS ... */
struct tensor *hd_build_member_chunk(struct hd_plan *p, struct tensor *x, const struct hd_dim *dim, struct group *g,
				     int order);
/* Moves the rows of a ragged tensor from batch-sharded to expert-sharded (to_experts), or back.  ins: x, and its row
 * counts before and after; like: the result. */
struct tensor *hd_build_comm_rows(struct hd_plan *p, struct group *g, struct tensor *const *ins,
				  const struct tensor *like, int to_experts);

/* numbers.c: hd_build_scalar gives a number of the run, as a tensor without dims. */
struct tensor *hd_build_scalar(struct hd_plan *p, uint32_t what, struct group *g);
/* op: constant (value=), iota (along=), uniform (key=, each_step=) */
struct tensor *hd_build_made(struct hd_plan *p, const char *op, const struct hd_dim *const *dims, uint32_t ndim,
			     const char *attr);
struct tensor *hd_build_rename(struct hd_plan *p, struct tensor *x, const struct hd_dim *from, const struct hd_dim *to);

/* hd_build_topk finds the k largest entries of x along a dim, in the order of their indices (outputs: values, indices).
 * gather and scatter move entries by index. */
struct node *hd_build_topk(struct hd_plan *p, struct tensor *x, const struct hd_dim *along, const struct hd_dim *k,
			   int magnitude);
struct tensor *hd_build_gather(struct hd_plan *p, struct tensor *x, struct tensor *index, const struct hd_dim *along);
struct tensor *hd_build_scatter(struct hd_plan *p, struct tensor *x, struct tensor *index, const struct hd_dim *from,
				const struct hd_dim *to, int unique);

#endif
