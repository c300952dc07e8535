/* SPDX-License-Identifier: Apache-2.0
 * plugins/dp/dp.h - what the files of this plugin share.
 */
#ifndef DP_H
#define DP_H
#include <heddle/strategy.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct hd_axis *dp;
	int64_t bucket;
	int ring;
};

int dp_lower_buckets(struct hd_strategy *s, struct hd_plan *p);
/* flat: a bucket, of a multiple of n elements -> the sum over the members, on each of them. */
struct hd_tensor *dp_ring(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct hd_tensor *flat);

#endif
