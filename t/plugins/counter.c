/* SPDX-License-Identifier: Apache-2.0
 * An optimizer that is plain descent by way of a state: it begins as 0 and grows by 1 a step, so the sum of what it becomes less the
 * sum of what it was is the number of its elements. -DOLD_FIRST makes the sum of the old value before the node of the new one.
 */
#include <heddle/strategy.h>

static double elements(const struct hd_tensor *t)
{
	double n = 1;

	for (uint32_t i = 0; i < t->ndim; i++)
		n *= (double)t->dims[i]->n;
	return n;
}

static int update(struct hd_strategy *s, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value)
{
	const struct hd_graph_api *g = u->h->graph;
	struct hd_tensor *was = hd_state(g, p, "count", u->param, u->param->dtype, HD_RESHARD_REFUSE);
#ifdef OLD_FIRST
	struct hd_tensor *old = g->einsum(p, &was, 1, NULL, 0), *is = g->map(p, &was, 1, "a + 1");
#else
	struct hd_tensor *is = g->map(p, &was, 1, "a + 1"), *old = g->einsum(p, &was, 1, NULL, 0);
#endif
	struct hd_tensor *in[] = {
		u->param, u->gradient, u->factor, g->scalar(p, HD_SCALAR_LR, NULL), g->einsum(p, &is, 1, NULL, 0), old
	};

	(void)s;
	g->assign(p, was, is);
	*value = g->map(p, in, 6, "a - d * b * c * (e - f) / %.17g", elements(u->param));
	return u->h->status(p);
}

static const struct hd_optimizer_ops optimizer = { .size = sizeof(optimizer), .update = update };
HD_PLUGIN_TABLES("counter", "1.0", .optimizer = &optimizer)
