/* SPDX-License-Identifier: Apache-2.0
 * Checks which sizes divide, and stores parameters in pieces.
 */
#include "tp.h"
#include <stdlib.h>

int tp_has(const struct hd_tensor *t, const struct hd_dim *d)
{
	for (uint32_t i = 0; i < t->ndim; i++)
		if (t->dims[i] == d)
			return 1;
	return 0;
}

int tp_divides(struct hd_strategy *s, struct hd_plan *p, int64_t n, const char *why, const char *section,
	       const char *name)
{
	const struct hd_dim *d = s->h->dim(p, name);

	return !d || d->n % n == 0 ? HD_OK
				   : s->h->fail(p, HD_EDIVIDE, "size: %s%lld does not divide %s.%s = %lld", why,
						(long long)n, section, name, (long long)d->n);
}

int tp_divides_all(struct hd_strategy *s, struct hd_plan *p, int64_t n, const char *why)
{
	static const char *const dims[] = { "heads", "kv_heads", "mlp", "expert_mlp", "embed" };

	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
		if (tp_divides(s, p, n, why, "model", dims[i]) < 0)
			break;
	return s->h->status(p);
}

void tp_rules_of_experts(struct hd_strategy *s, struct hd_plan *p, const struct hd_axis *axis)
{
	static const char *const wide[] = { "expert_mlp", "shared_mlp" };

	for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++)
		if (s->h->dim(p, wide[i]))
			hd_rule(s->h, p, wide[i], axis, NULL, 0);
}

/* -- storage in pieces --------------------------------------------------------------------------------------------- */
static int by_parameter(const void *a, const void *b)
{
	const struct hd_tensor *x = *(struct hd_tensor *const *)a, *y = *(struct hd_tensor *const *)b;

	return (x->of > y->of) - (x->of < y->of);
}

int tp_leaves_find(struct hd_strategy *s, struct hd_plan *p, struct tp_leaves *out)
{
	static const uint32_t what[] = { HD_TENSOR_STATE, HD_TENSOR_MASTER, HD_TENSOR_GRAD };
	struct hd_tensor *t = NULL;

	*out = (struct tp_leaves){ 0 };
	for (int k = 0; k < 3; k++)
		while ((t = s->g->leaf_next(p, t, what[k])))
			out->n++;
	out->t = s->h->alloc(p, (out->n + 1) * sizeof(struct hd_tensor *));
	if (!out->t)
		return s->h->status(p);
	out->n = 0;
	for (int k = 0; k < 3; k++)
		while ((t = s->g->leaf_next(p, t, what[k])))
			out->t[out->n++] = t;
	qsort(out->t, out->n, sizeof(struct hd_tensor *), by_parameter);
	return s->h->status(p);
}

/* Finds the leaves of a parameter: first to *end - 1. */
static size_t leaves_of(const struct tp_leaves *all, const struct hd_tensor *param, size_t *end)
{
	size_t from = 0, to = all->n;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (all->t[middle]->of < param)
			from = middle + 1;
		else
			to = middle;
	}
	for (*end = from; *end < all->n && all->t[*end]->of == param;)
		++*end;
	return from;
}

/* Tells whether dim i of t can be cut in n more pieces. n must divide what the plugin's other axes leave, and no other
 * section may cut the dim. */
static int can_be_cut(struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *t, uint32_t i, int64_t n)
{
	const struct hd_axis *a = NULL;

	while ((a = s->h->axis_next(p, a))) {
		const struct hd_place *at = s->g->place(p, t, a);

		if (at->kind != HD_PLACE_SHARD || at->dim != t->dims[i])
			continue;
		if (!a->mine)
			return 0;
		n *= a->n;
	}
	return t->dims[i]->n % n == 0;
}

/* The new axis is the innermost of those that cut the dim, so that the dim can be gathered along it alone. If no dim
 * can be cut once more, the parameter stays replicated, which only costs memory.
 *
 * The parameter alone decides where it is cut. Programs that only evaluate have no states and no gradients, and share
 * the memory of the parameters. Its optimizer states and master are stored in the same pieces, so that the update works
 * on pieces too. Gradients may have storage of their own, and the axis must be able to cut that as well. States that
 * cannot follow stay where they are: then the ranks of the axis compute the same update, and each keeps its piece. */
int tp_store_sharded(struct hd_strategy *s, struct hd_plan *p, const struct tp_leaves *all, struct hd_tensor *param,
		     const struct hd_axis *axis)
{
	size_t end, first = leaves_of(all, param, &end);

	for (uint32_t i = 0; i < param->ndim && s->g->place(p, param, axis)->kind == HD_PLACE_REPLICATED; i++) {
		const struct hd_place in_pieces = { .kind = HD_PLACE_SHARD, .dim = param->dims[i], .level = 1 };
		int together = 1;

		if (!can_be_cut(s, p, param, i, axis->n))
			continue;
		for (size_t k = first; k < end; k++)
			together &= can_be_cut(s, p, all->t[k], i, axis->n);
		hd_storage(s->g, p, param, axis, &in_pieces);
		for (size_t k = first; together && k < end; k++)
			if (all->t[k]->what != HD_TENSOR_GRAD)
				hd_storage(s->g, p, all->t[k], axis, &in_pieces);
	}
	return s->h->status(p);
}
