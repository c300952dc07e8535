/* SPDX-License-Identifier: Apache-2.0
 * Sums over two levels. A bucket is reduce-scattered within a node; the ranks that have the same piece sum it across
 * nodes; then it is gathered within the node. With m replicas per node, each rank sends 1 / m of the bytes between
 * nodes that an all-reduce over all replicas would send.
 */
#include "dp.h"

struct hd_tensor *dp_hierarchical(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *flat)
{
	const struct hd_group *node = hd_group_of(s->h, p, &s->inner, 1), *across = hd_group_of(s->h, p, &s->dp, 1);
	struct hd_tensor *x = dp_to_wire(s, p, flat);

	if (!node || !across || !x)
		return NULL;
	x = hd_comm(s->g, p, HD_COMM_REDUCE_SCATTER, node, x, x->dims[0], 0);
	x = hd_comm(s->g, p, HD_COMM_ALL_REDUCE, across, x, NULL, 0);
	x = x ? hd_comm(s->g, p, HD_COMM_ALL_GATHER, node, x, x->dims[0], 0) : NULL;
	return dp_from_wire(s, p, x, flat->dtype);
}
