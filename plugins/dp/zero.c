/* SPDX-License-Identifier: Apache-2.0
 * ZeRO (Rajbhandari et al. 2020): tensors that each replica would store are sharded along the axis instead. The plugin
 * only sets where they are stored. The engine's rules then reduce-scatter gradients, let each member update its piece,
 * and gather parameters.
 *
 *   zero = 1   optimizer states and masters; gradients are complete until the last micro-batch, parameters always
 *   zero = 2   also the gradients' accumulators: each micro-batch's gradients are reduce-scattered as they are computed
 *   zero = 3   also parameters: gathered where a unit reads them, in forward and again in backward, and not kept.
 *              Between nodes small ones, such as norms and biases, stay complete, as with zero = 2
 *
 * A dim that the number of members does not divide is cut in pieces of the size rounded up, and the last pieces are
 * padded. So every tensor is sharded, with any number of members.
 */
#include "dp.h"
#include <math.h>
#include <string.h>

/* Returns the number of pieces in which an axis cuts dim d of the tensor, or 0 if it does not cut it. An axis of one
 * member may cut a dim too. A dim that this axis does not cut is still the better choice. A tensor that moves along
 * both axes then moves in more pieces. */
static int64_t pieces_along(const struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *t,
			    const struct hd_axis *a, const struct hd_dim *d)
{
	const struct hd_place *at = s->g->place(p, t, a);

	if (at->kind != HD_PLACE_SHARD || at->dim != d)
		return 0;
	return at->role == HD_ROLE_SPARE ? a->spare : a->n;
}

/* Returns the length of dim i of t on a rank, after the cuts of the other axes. t belongs to parameter w, but another
 * section may have cut t alone. Sets *alone if no axis cuts the dim. */
static int64_t length_left(const struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *t,
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

/* Returns the relative cost of padding a dim of this length to a multiple of n: 0 if n divides it. */
static double padding(int64_t length, int64_t n)
{
	return (double)((length + n - 1) / n * n) / (double)length - 1;
}

/* Chooses the dim along which to cut t, which belongs to w, in n pieces. The first choice is a dim that n divides and
 * no other axis cuts. The second is one inside the pieces of other axes, and the last is the dim with the least
 * padding. Returns 0 if t has no dims. */
static int choose_dim(const struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *t,
		      const struct hd_tensor *w, int64_t n, struct hd_place *to)
{
	double least = 0, now;
	int found = 0, alone;

	for (uint32_t i = w->ndim; i-- > 0;) {
		now = padding(length_left(s, p, t, w, i, &alone), n);
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
			return length_left(s, p, t, w, i, &alone) % n == 0;
	return 0;
}

/* Chooses where to cut t. With zero = 3 the parameter decides, because programs that only evaluate must agree. With
 * zero = 2 the parameter decides too, so that gradients and states are cut alike, whatever another section cuts of
 * them. The exception is a t whose pieces on a rank n does not divide. */
static int choose_dim_for(const struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *t,
			  const struct hd_tensor *w, struct hd_place *to)
{
	if (s->zero == 1)
		return choose_dim(s, p, t, w, s->zero_size, to);
	if (!choose_dim(s, p, w, w, s->zero_size, to))
		return 0;
	return s->zero == 3 || divides(s, p, t, w, to, s->zero_size) || choose_dim(s, p, t, w, s->zero_size, to);
}

/* Returns the lowest value of `zero` that shards this tensor. */
static int64_t lowest_zero(const struct hd_tensor *t)
{
	switch (t->what) {
	case HD_TENSOR_STATE:
	case HD_TENSOR_MASTER: return 1;
	case HD_TENSOR_GRAD: return strcmp(t->node->kind, "sync") ? 2 : 1;
	default: return 3;
	}
}

/* Cuts t along one axis, or along two that cut the same dim. In the latter case the inner axis makes the outer pieces.
 * A gather leaves the axis with the smallest pieces first, and a scatter enters it last. So large tensors move along
 * the inner axis only. */
static void cut(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *t, const struct hd_tensor *w)
{
	const struct hd_axis *axes[2];
	int n = dp_cutting_axes(s, axes);
	struct hd_place to;

	for (int k = 0; k < n; k++)
		if (s->g->place(p, w, axes[k])->kind != HD_PLACE_REPLICATED)
			return;
	if (!n || !choose_dim_for(s, p, t, w, &to))
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
			  "offload = states does nothing: sgd in fp32 keeps no states");
	return s->h->status(p);
}

static double elements(const struct hd_tensor *w)
{
	double n = 1;

	for (uint32_t i = 0; i < w->ndim; i++)
		n *= (double)w->dims[i]->n;
	return n;
}

/* Returns the most elements of a parameter that zero = 3 leaves complete. Between nodes, gathers of norms and biases take
 * as long as the latencies of all members, and sharding them saves next to nothing. Their size is about the square root
 * of that of the largest matrix; biases of the mlp have twice as many elements. */
static double most_left_complete(const struct hd_strategy *s, struct hd_plan *p)
{
	double largest = 0;

	if (s->zero < 3 || !dp_between_nodes(s, p, s->zero_size))
		return 0;
	for (struct hd_tensor *w = NULL; (w = s->g->leaf_next(p, w, HD_TENSOR_PARAM));)
		largest = fmax(largest, elements(w));
	return 2 * sqrt(largest);
}

int dp_storage(struct hd_strategy *s, struct hd_plan *p)
{
	static const uint32_t what[] = { HD_TENSOR_STATE, HD_TENSOR_MASTER, HD_TENSOR_GRAD, HD_TENSOR_PARAM };
	double small;

	if (!s->zero || s->n == 1)
		return s->h->status(p);
	small = most_left_complete(s, p);
	for (int i = 0; i < 4; i++)
		for (struct hd_tensor *t = NULL; (t = s->g->leaf_next(p, t, what[i]));)
			if (lowest_zero(t) <= s->zero && (t->what != HD_TENSOR_PARAM || elements(t) > small))
				cut(s, p, t, t->of ? t->of : t);
	return s->h->status(p);
}
