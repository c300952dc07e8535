/* SPDX-License-Identifier: Apache-2.0
 * plugins/dp/dp.h - declarations that the files of this plugin share.
 */
#ifndef DP_H
#define DP_H
#include <heddle/strategy.h>

enum { DP_RING, DP_ALLREDUCE, DP_HIERARCHICAL, DP_SERVER };

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	/* dp: the axis of replicas. With two levels, dp counts nodes, or the groups that share what zero cuts. `inner`
	 * then counts the replicas in a node or group; else it is NULL. */
	const struct hd_axis *dp, *inner;
	const struct hd_axis *along; /* slot lower: the axis of the current movement */
	int64_t n;                   /* number of replicas */
	int64_t bucket, zero, node_size;
	int64_t full;            /* slot lower: bytes from which a bucket is full */
	int64_t alone;           /* slot lower: bytes from which a reduce-scatter or gather moves a tensor alone */
	int by_tree;             /* slot lower: buckets may be summed by trees */
	int64_t zero_size;       /* replicas that share: s->n, or those along `inner` */
	int64_t servers, server; /* servers: coordinates after the replicas; server: the current one, -1: all */
	uint32_t wire;           /* dtype of gradients in transit */
	int64_t node;            /* sync = hierarchical: replicas per node, if that makes two levels; else 0 */
	int64_t node_ranks;      /* ranks per node, 0: unknown */
	int64_t stride;          /* ranks from a replica to the next */
	int64_t sums;            /* buckets that were summed in the way that `sync` names */
	int sync, overlap, offload;
};

/* Movements of one kind that are made together: the reshards, their operands, and room for as many results. */
struct dp_bucket {
	struct hd_node **in, *at; /* at: new nodes go before this one */
	struct hd_tensor **x;
	struct hd_tensor *flat; /* set by the move function: the packed tensor, from which everything else follows */
	uint32_t n;
	int64_t bytes;
};
typedef int dp_wanted_fn(const struct hd_strategy *s, const struct hd_node *n);
typedef int dp_move_fn(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct dp_bucket *b);

/* bucket.c: gathers all wanted reshards along the axis s->along into buckets, in program order, and calls move for
 * each. */
int dp_each_bucket(struct hd_strategy *s, struct hd_plan *p, dp_wanted_fn *wanted, dp_move_fn *move);
int64_t dp_bytes(const struct hd_tensor *t);

/* mesh.c: claims the axis, or its two levels. */
int dp_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left);
/* Tells whether neighbouring replicas, so many of them, are known to be on several nodes. */
int dp_between_nodes(const struct hd_strategy *s, struct hd_plan *p, int64_t replicas);

/* groups.c: check and set zero_size. dp_cutting_axes returns how many axes (0, 1 or 2) cut what zero cuts. */
int dp_check_groups(struct hd_strategy *s, struct hd_plan *p);
int dp_size_groups(struct hd_strategy *s, struct hd_plan *p, int64_t node); /* node: replicas per node, 0: no levels */
int dp_cutting_axes(const struct hd_strategy *s, const struct hd_axis **axes);

/* sum.c: replaces reshards of partial sums to replicated tensors. The next functions sum a flat bucket, whose length is
 * a multiple of n. */
int dp_lower_sums(struct hd_strategy *s, struct hd_plan *p);
/* Tells whether the sums of both levels are one movement; n is the second of the two, on the axis `across`. */
int dp_is_two_levels(const struct hd_strategy *s, const struct hd_node *n);
struct hd_tensor *dp_ring(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct hd_tensor *flat);
struct hd_tensor *dp_hierarchical(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *flat);

/* zero.c and pieces.c: which tensors are stored in pieces along the axis, and how they are scattered and gathered. */
int dp_storage(struct hd_strategy *s, struct hd_plan *p);
/* puts states and masters in host memory, at their current place */
int dp_offload(struct hd_strategy *s, struct hd_plan *p);
int dp_lower_scatters(struct hd_strategy *s, struct hd_plan *p);
int dp_lower_gathers(struct hd_strategy *s, struct hd_plan *p);

/* server.c: returns this member's piece of the sum, added in member order. */
struct hd_tensor *dp_push(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct hd_tensor *flat);

/* dedicated.c: dedicated servers. Deals the parameters to them, and lowers pushes and pulls. */
int dp_deal(struct hd_strategy *s, struct hd_plan *p);
int dp_lower_served(struct hd_strategy *s, struct hd_plan *p);

/* wire.c: converts a gradient to the dtype in transit and back. */
struct hd_tensor *dp_to_wire(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x);
struct hd_tensor *dp_from_wire(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x, uint32_t dtype);
/* A sum in a fixed order that leaves each member a piece, with rounding in transit; and any collective in that
 * dtype. */
struct hd_tensor *dp_sum(struct hd_strategy *s, struct hd_plan *p, uint32_t kind, const struct hd_group *g,
			 struct hd_tensor *flat);
struct hd_tensor *dp_comm(struct hd_strategy *s, struct hd_plan *p, uint32_t kind, const struct hd_group *g,
			  struct hd_tensor *flat, int64_t index);

#endif
