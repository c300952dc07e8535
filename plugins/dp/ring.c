/* SPDX-License-Identifier: Apache-2.0
 * The ring: the bucket is cut in n chunks. In n - 1 turns each member sends a chunk to the right, and adds
 * what comes from the left to its own copy. Then chunk me + 1 is complete here. In n - 1 more turns the complete
 * chunks go round.  2 (n - 1) / n of the bucket is sent by each member, whatever n, and it is two nodes, whatever n.
 *
 * Where gradients are rounded on their way, a complete chunk is rounded once and goes round as it is: all members keep the
 * same bits.
 */
#include "dp.h"

struct hd_tensor *dp_ring(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct hd_tensor *flat)
{
	struct hd_tensor *x = dp_sum(s, p, HD_COMM_RING_REDUCE_SCATTER, g, flat);

	x = dp_to_wire(s, p, x);
	x = x && g->n > 1 ? hd_comm(s->g, p, HD_COMM_RING_ALL_GATHER, g, x, x->dims[0], 0) : x;
	return x ? dp_from_wire(s, p, x, flat->dtype) : NULL;
}
