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
	const struct hd_axis *dp;
	int64_t bucket, zero;
	int sync;
};

/* Movements of one kind that are made together: the reshards, their operands, and room for as many results. */
struct dp_bucket {
	struct hd_node **in;
	struct hd_tensor **x;
	uint32_t n;
	int64_t bytes;
};
typedef int dp_wanted_fn(const struct hd_strategy *s, const struct hd_node *n);
typedef int dp_move_fn(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct dp_bucket *b);

/* bucket.c: every reshard on the axis that is wanted, in buckets in program order, is moved. */
int dp_each_bucket(struct hd_strategy *s, struct hd_plan *p, dp_wanted_fn *wanted, dp_move_fn *move);
int64_t dp_bytes(const struct hd_tensor *t);

/* sum.c: partial sums that become whole.  flat: a bucket, of a multiple of n elements -> the sum, on each member. */
int dp_lower_sums(struct hd_strategy *s, struct hd_plan *p);
struct hd_tensor *dp_ring(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct hd_tensor *flat);

/* homes.c, pieces.c: what lives cut along the axis, and how it is scattered and gathered. */
int dp_homes(struct hd_strategy *s, struct hd_plan *p);
int dp_lower_pieces(struct hd_strategy *s, struct hd_plan *p);

#endif
