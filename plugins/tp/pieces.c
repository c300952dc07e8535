/* SPDX-License-Identifier: Apache-2.0
 * What divides, and parameters that live in pieces.
 */
#include "tp.h"

int tp_has(const struct hd_tensor *t, const struct hd_dim *d)
{
	for (uint32_t i = 0; i < t->ndim; i++)
		if (t->dims[i] == d)
			return 1;
	return 0;
}

int tp_divides(struct hd_strategy *s, struct hd_plan *p, int64_t n, const char *why, const char *section, const char *name)
{
	const struct hd_dim *d = s->h->dim(p, name);

	return !d || d->n % n == 0 ? HD_OK : s->h->fail(p, HD_EDIVIDE, "size: %s%lld does not divide %s.%s = %lld", why,
							(long long)n, section, name, (long long)d->n);
}

int tp_divides_all(struct hd_strategy *s, struct hd_plan *p, int64_t n, const char *why)
{
	static const char *const dims[] = { "heads", "kv_heads", "mlp", "embed" };

	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
		if (tp_divides(s, p, n, why, "model", dims[i]) < 0)
			break;
	return s->h->status(p);
}

/* -- homes ---------------------------------------------------------------------------------------------------------------------- */
/* In how many pieces t is cut along d; foreign: any axis of another section cuts it. */
static int64_t pieces_of(struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *t, const struct hd_dim *d, int *foreign)
{
	const struct hd_axis *a = NULL;
	int64_t n = 1;

	while ((a = s->h->axis_next(p, a))) {
		const struct hd_place *at = s->g->place(p, t, a);

		if (at->kind != HD_CUT || at->dim != d)
			continue;
		n *= a->n;
		*foreign |= !a->mine;
	}
	return n;
}

/* With the optimizer's state and the master, so that the update is made of pieces too. */
static void home(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *param, const struct hd_axis *axis,
		 const struct hd_place *place)
{
	static const uint32_t beside[] = { HD_STATE, HD_MASTER };

	s->g->home(p, param, axis, place);
	for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
		struct hd_tensor *t = NULL;

		while ((t = s->g->leaf_next(p, t, beside[i])))
			if (t->of == param)
				s->g->home(p, t, axis, place);
	}
}

/* The new axis is the innermost of those that cut the dim, so that it can leave it alone.  Where no dim can be cut once
 * more the parameter stays whole: that costs memory, and nothing else. */
int tp_home_in_pieces(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *param, const struct hd_axis *axis)
{
	for (uint32_t i = 0; i < param->ndim && s->g->place(p, param, axis)->kind == HD_WHOLE; i++) {
		int foreign = 0;
		int64_t pieces = pieces_of(s, p, param, param->dims[i], &foreign);
		const struct hd_place in_pieces = { .kind = HD_CUT, .dim = param->dims[i], .level = 1 };

		if (!foreign && param->dims[i]->n % (pieces * axis->n) == 0)
			home(s, p, param, axis, &in_pieces);
	}
	return s->h->status(p);
}
