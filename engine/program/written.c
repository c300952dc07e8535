/* SPDX-License-Identifier: Apache-2.0
 * Decides which tensors a rank writes into a checkpoint: exactly one rank writes each slice.
 */
#include <config.h>
#include "engine/program/program.h"

/* The owner of a slice has coordinate 0 on every axis that does not shard the tensor. */
int hd_owns(const struct hd_program *g, const struct tensor *t)
{
	return hd_is_representative(g->plan, g->rank, &t->at, ~(uint32_t)0, 0);
}

/* Returns the leaf to write for a parameter or a state. If a parameter has a master, that is the master. */
static const struct tensor *written_leaf(const struct hd_program *g, const struct tensor *t)
{
	const struct tensor *stored = t->master ? t->master : t;

	if (t->v.what == HD_TENSOR_PARAM)
		return hd_owns(g, stored) ? stored : NULL;
	/* A slice of a state is written once per distinct copy, by the first rank along every axis on which copies are
	 * equal. */
	return t->v.what == HD_TENSOR_STATE && hd_is_representative(g->plan, g->rank, &t->at, ~t->own, 1) ? t : NULL;
}

const struct tensor *hd_written(const struct hd_program *g, const struct tensor *t)
{
	if (!t->v.node)
		return written_leaf(g, t);
	return hd_is_gradient(t) && hd_owns(g, t) ? t : NULL;
}

int hd_is_gradient(const struct tensor *t)
{
	return t->v.node && t->v.what == HD_TENSOR_GRAD && t->v.of && N(t->v.node)->is->role == OP_ROLE_SYNC;
}

/* Returns the bytes of what is written, with each long range at the same offset within a block as in its file (image.c
 * of engine/tensorfile). That takes at most one block more for each 256 KB, and half as much again for the list of
 * ranges. */
int64_t hd_snapshot_bytes(const struct hd_program *g, int gradients)
{
	int64_t bytes = 0;

	for (size_t i = 0; i < g->plan->ntensors; i++) {
		const struct tensor *t = hd_written(g, g->plan->tensors[i]);

		if (t && (!t->v.node || gradients))
			bytes += hd_local_bytes(t);
	}
	return bytes + bytes / 32;
}
