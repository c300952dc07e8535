/* SPDX-License-Identifier: Apache-2.0
 * The synchronous parameter server (Li et al. 2014), run by the workers: each owns a piece of every parameter with its
 * optimizer state. A worker sends each owner its piece of the gradient. The owner adds the pieces in the order of the
 * workers, whichever arrives first. It then updates its piece, and all workers pull the new piece. The number of bytes
 * is that of a ring.
 */
#include "dp.h"

struct hd_tensor *dp_push(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct hd_tensor *flat)
{
	return dp_sum(s, p, HD_COMM_ORDERED_REDUCE_SCATTER, g, flat);
}
