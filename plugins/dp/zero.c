/* SPDX-License-Identifier: Apache-2.0
 * ZeRO (Rajbhandari et al. 2020): what replicas hold twice is cut along the axis instead.  Said as homes, and nothing else:
 * gradients are then reduce-scattered, each member updates its piece, and parameters are gathered, by the engine's rule.
 *
 *   zero = 1   optimizer states and masters; gradients are whole until the last micro-batch, parameters always
 *   zero = 2   and the gradients' accumulators: each micro-batch's gradients are reduce-scattered as they are made
 *   zero = 3   and parameters: gathered where a unit reads them, in forward and again in backward, and not kept
 */
#include "dp.h"
#include <string.h>

/* A dim of the parameter that n divides: one that no other axis cuts, if there is one; else inside the others' pieces. */
static int piece(const struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *w, struct hd_place *to)
{
	int found = 0;

	for (uint32_t i = w->ndim; i-- > 0;) {
		const struct hd_axis *a = NULL;
		int alone = 1;

		if (w->local[i] % s->n)
			continue;
		while ((a = s->h->axis_next(p, a))) {
			const struct hd_place *at = s->g->place(p, w, a);

			alone &= at->kind != HD_PLACE_SHARD || at->dim != w->dims[i];
		}
		if (!alone && found)
			continue;
		*to = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = w->dims[i], .level = alone ? 0 : INT32_MAX };
		found = 1 + alone;
	}
	return found;
}

/* What belongs to the parameter, and from which stage on it is cut. */
static int64_t since(const struct hd_tensor *t)
{
	switch (t->what) {
	case HD_TENSOR_STATE:
	case HD_TENSOR_MASTER: return 1;
	case HD_TENSOR_GRAD: return strcmp(t->node->kind, "sync") ? 2 : 1;
	default: return 3;
	}
}

/* Of the key that the user wrote: a server's pieces are those of zero = 1, which nobody need have asked for. */
static int nothing_divides(struct hd_strategy *s, struct hd_plan *p)
{
	long long n = (long long)s->n;

	if (s->h->opt_int(p, "zero"))
		return s->h->fail(p, HD_EDIVIDE, "zero: %lld members divide no dim of any parameter", n);
	return s->h->fail(p, HD_EDIVIDE,
			  "sync: server: %lld members divide no dim of any parameter, so there is no "
			  "piece to serve; ring and allreduce need none",
			  n);
}

int dp_storage(struct hd_strategy *s, struct hd_plan *p)
{
	static const uint32_t what[] = { HD_TENSOR_STATE, HD_TENSOR_MASTER, HD_TENSOR_GRAD, HD_TENSOR_PARAM };
	uint32_t cut = 0, all = 0;

	if (!s->zero || s->n == 1)
		return s->h->status(p);
	for (int i = 0; i < 4; i++)
		for (struct hd_tensor *t = NULL; (t = s->g->leaf_next(p, t, what[i]));) {
			const struct hd_tensor *w = t->of ? t->of : t;
			struct hd_place to;

			if (since(t) > s->zero || s->g->place(p, w, s->dp)->kind != HD_PLACE_REPLICATED)
				continue;
			all++;
			if (piece(s, p, w, &to) && ++cut)
				hd_storage(s->g, p, t, s->dp, &to);
		}
	if (all && !cut)
		return nothing_divides(s, p);
	return s->h->status(p);
}
