/* SPDX-License-Identifier: Apache-2.0
 * The ring: the bucket is cut in n chunks; in n - 1 steps each member sends a chunk to the right and adds what comes from
 * the left to its own copy of that chunk, after which chunk me + 1 is complete here; in n - 1 more steps the complete
 * chunks go round.  2 (n - 1) / n of the bucket is sent by each member, whatever n.
 *
 * Where gradients are rounded on their way, a complete chunk is rounded once and goes round as it is: all members keep the
 * same bits.
 */
#include "dp.h"

struct hd_tensor *dp_ring(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct hd_tensor *flat)
{
	const struct hd_dim *dim = flat ? flat->dims[0] : NULL;
	int32_t n = (int32_t)g->n;
	struct hd_tensor **got = s->h->alloc(p, (size_t)(n + 1) * sizeof(*got)), *sum[2], *all;

	if (!got || !flat)
		return NULL;
	sum[0] = s->g->chunk(p, flat, dim, n, &(struct hd_pos){ .group = g, .mul = 1 });
	for (int32_t i = 1; i < n; i++) {
		sum[1] = dp_comm(s, p, HD_COMM_SHIFT, g, sum[0], 1);
		sum[0] = s->g->chunk(p, flat, dim, n, &(struct hd_pos){ .group = g, .mul = 1, .add = -i });
		sum[0] = s->g->map(p, sum, 2, "a + b"); /* into my copy of the chunk */
	}
	got[0] = dp_to_wire(s, p, sum[0]);
	for (int32_t i = 1; i < n; i++)
		got[i] = hd_comm(s->g, p, HD_COMM_SHIFT, g, got[i - 1], NULL, 1);
	all = s->g->join(p, got, (uint32_t)n, dim, &(struct hd_pos){ .group = g, .mul = 1, .add = 1, .step = -1 });
	return dp_from_wire(s, p, all, flat->dtype);
}
