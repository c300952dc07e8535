/* SPDX-License-Identifier: Apache-2.0
 * ZeRO (Rajbhandari et al. 2020): what replicas hold twice is cut along the axis instead.  Said as homes, and nothing else:
 * gradients are then reduce-scattered, each member updates its piece, and parameters are gathered, by the engine's rule.
 *
 *   zero = 1   optimizer states and masters; gradients are whole until the last micro-batch, parameters always
 *   zero = 2   and the gradients' accumulators: each micro-batch's gradients are reduce-scattered as they are made
 *   zero = 3   and parameters: gathered where a unit reads them, in forward and again in backward, and not kept
 *
 * A dim that the members do not divide is cut in pieces of the next whole number of elements, and the last ones are padded. So
 * everything is cut, whatever their number.
 */
#include "dp.h"
#include <string.h>

/* Members along an axis, of which each has a piece of this dim of the tensor; 0: the axis does not cut it.  An axis of one member
 * may: what it does not cut is still the better choice, for what moves along both then goes in more pieces. */
static int64_t pieces_along(const struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *t,
			    const struct hd_axis *a, const struct hd_dim *d)
{
	const struct hd_place *at = s->g->place(p, t, a);

	if (at->kind != HD_PLACE_SHARD || at->dim != d)
		return 0;
	return at->role == HD_ROLE_SPARE ? a->spare : a->n;
}

/* What other axes leave on a rank of dim i of t, which belongs to w.  Another section may have cut t alone.  *alone: none cuts it. */
static int64_t left(const struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *t,
		    const struct hd_tensor *w, uint32_t i, int *alone)
{
	int64_t length = w->local[i];

	*alone = 1;
	for (const struct hd_axis *a = NULL; (a = s->h->axis_next(p, a));) {
		int64_t n = pieces_along(s, p, t, a, w->dims[i]), had = pieces_along(s, p, w, a, w->dims[i]);

		*alone &= !n && !had;
		if (n && !had)
			length = (length + n - 1) / n;
	}
	return length;
}

/* What padding a dim of so many elements costs, as a part of it. */
static double padding(int64_t length, int64_t n)
{
	return (double)((length + n - 1) / n * n) / (double)length - 1;
}

/* The dim along which t is cut in n; t belongs to w.  One that n divides and no other axis cuts, if there is one. Else one
 * inside the others' pieces; else the one whose pieces are padded least.  0: it has no dims. */
static int piece(const struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *t, const struct hd_tensor *w,
		 int64_t n, struct hd_place *to)
{
	double least = 0, now;
	int found = 0, alone;

	for (uint32_t i = w->ndim; i-- > 0;) {
		now = padding(left(s, p, t, w, i, &alone), n);
		if (found && (now > least || (now == least && !alone)))
			continue;
		*to = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = w->dims[i], .level = alone ? 0 : INT32_MAX };
		found = 1 + alone;
		least = now;
	}
	return found;
}

static int divides(const struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *t, const struct hd_tensor *w,
		   const struct hd_place *to, int64_t n)
{
	int alone;

	for (uint32_t i = 0; i < w->ndim; i++)
		if (w->dims[i] == to->dim)
			return left(s, p, t, w, i, &alone) % n == 0;
	return 0;
}

/* With zero 3 the parameter decides, since programs that only evaluate must agree.  With zero 2 it does, too, so that gradients
 * and states are cut alike, whatever another section cuts of them; unless t is left in pieces that n does not divide. */
static int piece_of(const struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *t,
		    const struct hd_tensor *w, struct hd_place *to)
{
	if (s->zero == 1)
		return piece(s, p, t, w, s->zero_size, to);
	if (!piece(s, p, w, w, s->zero_size, to))
		return 0;
	return s->zero == 3 || divides(s, p, t, w, to, s->zero_size) || piece(s, p, t, w, s->zero_size, to);
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

/* Along one axis, or two that cut one dim, of which the inner is the outer one of the pieces. What is large moves along that
 * alone, since an axis enters a dim last and leaves it first where its pieces are the smallest. */
static void cut(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *t, const struct hd_tensor *w)
{
	const struct hd_axis *axes[2];
	int n = dp_cutting_axes(s, axes);
	struct hd_place to;

	for (int k = 0; k < n; k++)
		if (s->g->place(p, w, axes[k])->kind != HD_PLACE_REPLICATED)
			return;
	if (!n || !piece_of(s, p, t, w, &to))
		return;
	if (n > 1 && to.level)
		to.level--;
	for (int k = 0; k < n; k++) {
		hd_storage(s->g, p, t, axes[k], &to);
		to.level = INT32_MAX;
	}
}

int dp_offload(struct hd_strategy *s, struct hd_plan *p)
{
	static const uint32_t what[] = { HD_TENSOR_STATE, HD_TENSOR_MASTER };
	struct hd_storage_args a = { .size = sizeof(a), .axis = s->dp, .space = HD_SPACE_HOST };
	int found = 0;

	for (int i = 0; i < 2; i++)
		while ((a.leaf = s->g->leaf_next(p, a.leaf, what[i]))) {
			if (!a.leaf->of)
				continue;
			a.place = s->g->place(p, a.leaf, s->dp);
			s->g->storage(p, &a);
			found = 1;
		}
	if (!found && s->g->leaf_next(p, NULL, HD_TENSOR_GRAD))
		s->h->log(p, HD_LOG_WARN, __FILE__, __LINE__,
			  "offload = states does nothing: there are none, for sgd in fp32 keeps nothing");
	return s->h->status(p);
}

int dp_storage(struct hd_strategy *s, struct hd_plan *p)
{
	static const uint32_t what[] = { HD_TENSOR_STATE, HD_TENSOR_MASTER, HD_TENSOR_GRAD, HD_TENSOR_PARAM };

	if (!s->zero || s->n == 1)
		return s->h->status(p);
	for (int i = 0; i < 4; i++)
		for (struct hd_tensor *t = NULL; (t = s->g->leaf_next(p, t, what[i]));)
			if (since(t) <= s->zero)
				cut(s, p, t, t->of ? t->of : t);
	return s->h->status(p);
}
