/* SPDX-License-Identifier: Apache-2.0
 * ZeRO (Rajbhandari et al. 2020): what replicas hold twice is cut along the axis instead.  Said as homes, and nothing else:
 * gradients are then reduce-scattered, each member updates its piece, and parameters are gathered, by the engine's rule.
 *
 *   zero = 1   optimizer states and masters; gradients are whole until the last micro-batch, parameters always
 *   zero = 2   and the gradients' accumulators: each micro-batch's gradients are reduce-scattered as they are made
 *   zero = 3   and parameters: gathered where a unit reads them, in forward and again in backward, and not kept
 *
 * A dim that the members do not divide is cut in pieces of the next whole number of elements, and the last ones are padded: so
 * everything is cut, whatever their number.
 */
#include "dp.h"
#include <string.h>

/* No other axis cuts this dim of the parameter. */
static int is_alone(const struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *w, const struct hd_dim *d)
{
	for (const struct hd_axis *a = NULL; (a = s->h->axis_next(p, a));) {
		const struct hd_place *at = s->g->place(p, w, a);

		if (at->kind == HD_PLACE_SHARD && at->dim == d)
			return 0;
	}
	return 1;
}

/* What padding a dim of so many elements costs, as a part of it. */
static double padding(int64_t length, int64_t n)
{
	return (double)((length + n - 1) / n * n) / (double)length - 1;
}

/* The dim of the parameter that is cut in n: one that n divides, and that no other axis cuts, if there is one; else one
 * inside the others' pieces; else the one whose pieces are padded least.  0: it has no dims. */
static int piece(const struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *w, struct hd_place *to)
{
	double least = 0, now;
	int found = 0, alone;

	for (uint32_t i = w->ndim; i-- > 0;) {
		now = padding(w->local[i], s->n);
		alone = is_alone(s, p, w, w->dims[i]);
		if (found && (now > least || (now == least && !alone)))
			continue;
		*to = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = w->dims[i], .level = alone ? 0 : INT32_MAX };
		found = 1 + alone;
		least = now;
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

int dp_storage(struct hd_strategy *s, struct hd_plan *p)
{
	static const uint32_t what[] = { HD_TENSOR_STATE, HD_TENSOR_MASTER, HD_TENSOR_GRAD, HD_TENSOR_PARAM };

	if (!s->zero || s->n == 1)
		return s->h->status(p);
	for (int i = 0; i < 4; i++)
		for (struct hd_tensor *t = NULL; (t = s->g->leaf_next(p, t, what[i]));) {
			const struct hd_tensor *w = t->of ? t->of : t;
			struct hd_place to;

			if (since(t) > s->zero || s->g->place(p, w, s->dp)->kind != HD_PLACE_REPLICATED)
				continue;
			if (piece(s, p, w, &to))
				hd_storage(s->g, p, t, s->dp, &to);
		}
	return s->h->status(p);
}
