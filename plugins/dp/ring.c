/* SPDX-License-Identifier: Apache-2.0
 * The ring all-reduce. The bucket is cut in n chunks. In each of n - 1 steps every member sends a chunk to the right,
 * and adds the chunk from the left to its own copy. Then chunk me + 1 is complete on member me. In n - 1 more steps the
 * complete chunks go round the ring. Each member sends 2 (n - 1) / n of the bucket. The ring is two nodes of the graph
 * for any n.
 *
 * If gradients are rounded in transit, a complete chunk is rounded once and goes round unchanged, so all members get
 * the same bits.
 */
#include "dp.h"

struct hd_tensor *dp_ring(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct hd_tensor *flat)
{
	struct hd_tensor *x = dp_sum(s, p, HD_COMM_RING_REDUCE_SCATTER, g, flat);

	x = dp_to_wire(s, p, x);
	x = x && g->n > 1 ? hd_comm(s->g, p, HD_COMM_RING_ALL_GATHER, g, x, x->dims[0], 0) : x;
	return x ? dp_from_wire(s, p, x, flat->dtype) : NULL;
}
