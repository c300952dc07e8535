/* SPDX-License-Identifier: Apache-2.0
 * The plans of one run (training, evaluation, generation) share the memory of their leaves, so they must store them
 * alike.
 */
#include <config.h>
#include "engine/graph/placement.h"
#include "engine/plan/plan.h"
#include <string.h>

static int is_shared(const struct tensor *t)
{
	return !t->v.node && t->v.what != HD_TENSOR_DATA && t->v.what != HD_TENSOR_ACT;
}

static struct tensor *leaf_like(const struct hd_plan *p, const struct tensor *like)
{
	for (size_t i = 0; i < p->ntensors; i++) {
		struct tensor *t = p->tensors[i];

		if (is_shared(t) && t->v.what == like->v.what && !strcmp(t->v.name, like->v.name))
			return t;
	}
	return NULL;
}

/* Returns t's placement in terms of the dims of the same leaf in another plan. */
static struct placement translated(const struct hd_plan *p, const struct tensor *t, const struct tensor *same)
{
	struct placement at = t->at;

	for (int a = 0; a < p->naxes; a++)
		for (uint32_t d = 0; d < t->v.ndim; d++)
			if (at.on[a].dim == t->v.dims[d])
				at.on[a].dim = same->v.dims[d];
	return at;
}

int hd_plans_store_alike(struct hd_plan *one, struct hd_plan *other, struct hd_err *err)
{
	for (size_t i = 0; i < other->ntensors; i++) {
		const struct tensor *t = other->tensors[i], *same = is_shared(t) ? leaf_like(one, t) : NULL;
		struct placement at;

		if (!same)
			continue;
		at = translated(other, t, same);
		if (!hd_placement_equal(one, &same->at, &at))
			return hd_err_set(err, HD_EINVAL,
					  "%s (%s): one program of the run stores it %s, another %s; slot storage must "
					  "choose the same place without states and gradients",
					  t->v.name, t->v.spec, hd_placement_text(one, &same->at),
					  hd_placement_text(other, &t->at));
	}
	return HD_OK;
}
