/* SPDX-License-Identifier: Apache-2.0
 * engine/ops/movement.h - builders of nodes that move elements (ops/movement.c, ops/pack.c, ops/numbers.c).
 */
#ifndef HD_ENGINE_MOVEMENT_H
#define HD_ENGINE_MOVEMENT_H
#include "engine/graph/graph.h"

/* A node with one output of the given local shape; in slot lower its placement is the first input's. */
struct tensor *hd_build_moved(struct hd_plan *p, const char *op, struct tensor *const *ins, uint32_t nin,
			      const char *attr, const struct hd_shape *shape);
void hd_shape_of(struct hd_shape *s, const struct tensor *t);
int hd_dim_index(const struct tensor *t, const struct hd_dim *d); /* -1: it does not have the dim */

const struct hd_dim *hd_member_dim(struct hd_plan *p, int64_t n); /* leading dim of what a collective cuts or joins */
/* A term of a sum along the axis, as this member's own value. */
struct tensor *hd_build_local(struct hd_plan *p, struct tensor *x, const struct axis *a);
/* Each member's to member mul * me + add; mul is invertible. */
struct tensor *hd_build_permute(struct hd_plan *p, struct group *g, struct tensor *x, int64_t mul, int64_t add);
struct tensor *hd_build_comm(struct hd_plan *p, uint32_t kind, struct group *g, struct tensor *x,
			     const struct hd_dim *dim, int64_t index);
/* What a sum in a stated order, as hd_build_comm made it, sends. */
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
/* The pieces of each x along its dim, member by member, as one flat tensor; and the whole ones of like's, which are pieces.
 * Where a dim is no multiple of the parts, pieces are padded, with zeros. */
struct tensor *hd_build_pack_pieces(struct hd_plan *p, struct tensor *const *xs, const struct hd_dim *const *dims,
				    uint32_t n, int64_t parts);
int hd_build_unpack_pieces(struct hd_plan *p, struct tensor *flat, struct tensor *const *like,
			   const struct hd_dim *const *dims, uint32_t n, int64_t parts, struct tensor **out);
struct tensor *hd_build_block(struct hd_plan *p, struct tensor *x, const struct hd_dim *dim, int64_t n, int order);
/* whole: elements of the dim that the pieces are of, where they are padded (HD_ORDER_PADDED). */
struct tensor *hd_build_unblock(struct hd_plan *p, struct tensor *x, const struct hd_dim *dim, int order,
				int64_t whole);
/* This member's piece of x; order: HD_ORDER_CONTIGUOUS ... */
struct tensor *hd_build_member_chunk(struct hd_plan *p, struct tensor *x, const struct hd_dim *dim, struct group *g,
				     int order);
/* ins: x, whose rows are counted, and their numbers before and after; like: the result.  Cut batch to cut expert, or back. */
struct tensor *hd_build_comm_rows(struct hd_plan *p, struct group *g, struct tensor *const *ins,
				  const struct tensor *like, int to_experts);

/* numbers.c: a number of the run, without dims; and x with another dim in place of one. */
struct tensor *hd_build_scalar(struct hd_plan *p, uint32_t what, struct group *g);
/* op: constant (value=), iota (along=), uniform (key=, each_step=) */
struct tensor *hd_build_made(struct hd_plan *p, const char *op, const struct hd_dim *const *dims, uint32_t ndim,
			     const char *attr);
struct tensor *hd_build_rename(struct hd_plan *p, struct tensor *x, const struct hd_dim *from, const struct hd_dim *to);

/* The k largest of x along a dim, in the order of their indices (outputs: values, indices); entries by index. */
struct node *hd_build_topk(struct hd_plan *p, struct tensor *x, const struct hd_dim *along, const struct hd_dim *k,
			   int magnitude);
struct tensor *hd_build_gather(struct hd_plan *p, struct tensor *x, struct tensor *index, const struct hd_dim *along);
struct tensor *hd_build_scatter(struct hd_plan *p, struct tensor *x, struct tensor *index, const struct hd_dim *from,
				const struct hd_dim *to, int unique);

#endif
