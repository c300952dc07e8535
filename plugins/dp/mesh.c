/* SPDX-License-Identifier: Apache-2.0
 * Claims the axis of replicas. With sync = hierarchical it consists of two axes if a node holds more than one replica
 * and fewer than all. NAME.node has the members on one node, and NAME.across the nodes. The number of replicas per node
 * follows from the ranks per node and from the axes inside this one. With zero_size the two axes are NAME.shard, whose
 * members share, and NAME.across.
 */
#include "dp.h"

static int64_t inside(const struct hd_strategy *s, struct hd_plan *p)
{
	int64_t ranks = 1;

	for (const struct hd_axis *a = NULL; (a = s->h->axis_next(p, a));)
		ranks *= a->n + a->spare;
	return ranks;
}

static int64_t ranks_of_node(const struct hd_strategy *s, struct hd_plan *p)
{
	const int64_t *known = s->h->query(p, "heddle.node_size");

	return s->node_size && s->sync == DP_HIERARCHICAL ? s->node_size : known ? *known : 0;
}

int dp_between_nodes(const struct hd_strategy *s, struct hd_plan *p, int64_t replicas)
{
	int64_t node = ranks_of_node(s, p);

	return node && replicas * s->stride > node;
}

int dp_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	int64_t stride = inside(s, p), ranks = s->sync == DP_HIERARCHICAL ? ranks_of_node(s, p) : 0, m = ranks / stride;

	s->n = size ? size : left - s->servers;
	if (s->n < 1)
		return s->h->fail(p, HD_EINVAL, "servers: %lld, but there are %lld ranks for them and the workers",
				  (long long)s->servers, (long long)left);
	if (m > 1 && m < s->n && (s->n % m || ranks % stride))
		return s->h
			->fail(p, HD_EDIVIDE,
			       "node_size: a node of %lld ranks holds %lld.%lld of %lld replicas, which are %lld ranks "
			       "apart: they cannot be divided evenly",
			       (long long)ranks, (long long)m, (long long)(ranks % stride * 10 / stride),
			       (long long)s->n, (long long)stride);
	s->node_ranks = ranks;
	s->stride = stride;
	s->node = m > 1 && m < s->n ? m : 0;
	if (dp_size_groups(s, p, s->node) < 0)
		return s->h->status(p);
	if (s->node) {
		s->inner = hd_axis_new(s->h, p, "node", m);
		s->dp = hd_axis_new(s->h, p, "across", s->n / m);
	} else if (s->zero_size > 1 && s->zero_size < s->n) {
		s->inner = hd_axis_new(s->h, p, "shard", s->zero_size);
		s->dp = hd_axis_new(s->h, p, "across", s->n / s->zero_size);
	} else {
		s->dp = s->h->axis(p, &(struct hd_axis_args){ sizeof(struct hd_axis_args), NULL, s->n, s->servers });
	}
	return s->h->status(p);
}
