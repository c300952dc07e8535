/* SPDX-License-Identifier: Apache-2.0
 * plugins/dp/dp.h - what the files of this plugin share.
 */
#ifndef DP_H
#define DP_H
#include <heddle/strategy.h>

enum { DP_RING, DP_ALLREDUCE, DP_HIERARCHICAL, DP_SERVER };

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	/* Of replicas; in levels: of nodes, or of the groups that share what zero cuts, and `inner` of the replicas in one. */
	const struct hd_axis *dp, *inner;
	const struct hd_axis *along; /* slot lower: the one at hand */
	int64_t n;                   /* replicas */
	int64_t bucket, zero, node_size;
	int64_t zero_size;       /* replicas that share: s->n, or those of `inner` */
	int64_t servers, server; /* servers: coordinates behind the replicas; server: that at hand, -1: all of them */
	uint32_t wire;           /* dtype of gradients on their way */
	int64_t node;            /* sync = hierarchical: replicas of a node, where that makes two levels; else 0 */
	int64_t node_ranks;      /* and the ranks of a node, 0: unknown */
	int64_t sums;            /* buckets that the way of `sync` sums */
	int sync, overlap, offload;
};

/* Movements of one kind that are made together: the reshards, their operands, and room for as many results. */
struct dp_bucket {
	struct hd_node **in, *at; /* at: what is made stands here */
	struct hd_tensor **x;
	struct hd_tensor *flat; /* set by who moves: what all else begins with */
	uint32_t n;
	int64_t bytes;
};
typedef int dp_wanted_fn(const struct hd_strategy *s, const struct hd_node *n);
typedef int dp_move_fn(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct dp_bucket *b);

/* bucket.c: every reshard on the axis `along` that is wanted, in buckets in program order, is moved. */
int dp_each_bucket(struct hd_strategy *s, struct hd_plan *p, dp_wanted_fn *wanted, dp_move_fn *move);
int64_t dp_bytes(const struct hd_tensor *t);

/* mesh.c: the axis, or its two levels. */
int dp_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left);

/* groups.c: zero_size, and which axes cut what zero cuts: 0, 1 or 2 of them. */
int dp_check_groups(struct hd_strategy *s, struct hd_plan *p);
int dp_size_groups(struct hd_strategy *s, struct hd_plan *p, int64_t node); /* node: replicas of one, 0: no levels */
int dp_cutting_axes(const struct hd_strategy *s, const struct hd_axis **axes);

/* sum.c: partial sums that become whole.  The others, flat: a bucket, of a multiple of n elements. */
int dp_lower_sums(struct hd_strategy *s, struct hd_plan *p);
/* Both levels' sums are one movement: n is the second, on the axis across. */
int dp_is_two_levels(const struct hd_strategy *s, const struct hd_node *n);
struct hd_tensor *dp_ring(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct hd_tensor *flat);
struct hd_tensor *dp_hierarchical(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *flat);

/* zero.c, pieces.c: what lives cut along the axis, and how it is scattered and gathered. */
int dp_storage(struct hd_strategy *s, struct hd_plan *p);
int dp_offload(struct hd_strategy *s, struct hd_plan *p); /* states and masters in host memory, wherever they live */
int dp_lower_scatters(struct hd_strategy *s, struct hd_plan *p);
int dp_lower_gathers(struct hd_strategy *s, struct hd_plan *p);

/* server.c: this member's piece of the sum, made in member order; and all members' pieces, on each. */
struct hd_tensor *dp_push(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct hd_tensor *flat);

/* dedicated.c: servers of their own: which of them has what, and how it goes there and comes back. */
int dp_deal(struct hd_strategy *s, struct hd_plan *p);
int dp_lower_served(struct hd_strategy *s, struct hd_plan *p);

/* wire.c: a gradient as it travels, and as it was; a collective of such. */
struct hd_tensor *dp_to_wire(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x);
struct hd_tensor *dp_from_wire(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x, uint32_t dtype);
/* A sum in a stated order of what is rounded on its way, in pieces. */
struct hd_tensor *dp_sum(struct hd_strategy *s, struct hd_plan *p, uint32_t kind, const struct hd_group *g,
			 struct hd_tensor *flat);
struct hd_tensor *dp_comm(struct hd_strategy *s, struct hd_plan *p, uint32_t kind, const struct hd_group *g,
			  struct hd_tensor *flat, int64_t index);

#endif
