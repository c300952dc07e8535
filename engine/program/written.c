/* SPDX-License-Identifier: Apache-2.0
 * What of a rank goes into a checkpoint: of each slice one rank writes it.
 */
#include <config.h>
#include "engine/program/program.h"

/* One owner per slice: coordinate 0 on every axis that does not cut the tensor. */
int hd_owns(const struct hd_program *g, const struct tensor *t)
{
	return hd_speaks_for(g->plan, g->rank, &t->at, ~(uint32_t)0, 0);
}

/* What is stored of a parameter that has a master is the master. */
static const struct tensor *written_leaf(const struct hd_program *g, const struct tensor *t)
{
	const struct tensor *stored = t->master ? t->master : t;

	if (t->v.what == HD_TENSOR_PARAM)
		return hd_owns(g, stored) ? stored : NULL;
	/* One writer per slice and copy: the first along every axis on which they are the same. */
	return t->v.what == HD_TENSOR_STATE && hd_speaks_for(g->plan, g->rank, &t->at, ~t->own, 1) ? t : NULL;
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

/* What is written, each long range of it at a place like that in the blocks of its file (image.c of engine/tensorfile). At most
 * one block for each 256 KB, and half as much again for the list of ranges. */
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
