/* SPDX-License-Identifier: Apache-2.0
 * Builders beyond what models have, each into a state that t1109 reads after each step.
 */
#include <heddle/strategy.h>

static struct hd_tensor *keep(const struct hd_graph_api *g, struct hd_plan *p, const char *name, struct hd_tensor *x)
{
	struct hd_tensor *s = hd_state(g, p, name, x, x->dtype, HD_RESHARD_ZERO);

	if (s)
		g->assign(p, s, g->map(p, &x, 1, "a"));
	return s;
}

static int lower(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_host *h = hd_basic_of(self)->h;
	const struct hd_graph_api *g = h->graph;
	const struct hd_match updates = { .size = sizeof(updates), .kind = "update" };
	const struct hd_axis *axis = h->axis_next(p, NULL);
	struct hd_node *n = g->node_next(p, NULL, &updates);
	struct hd_tensor *w = n->ins[0], *in[2], *s;
	const struct hd_dim *const *dims = w->dims;

	hd_cursor(g, p, n, NULL);
	keep(g, p, "lr", g->scalar(p, HD_SCALAR_LR, NULL));
	keep(g, p, "step", g->scalar(p, HD_SCALAR_STEP, NULL));
	keep(g, p, "samples", g->scalar(p, HD_SCALAR_SAMPLES, NULL));
	if (axis)
		keep(g, p, "member", g->scalar(p, HD_SCALAR_INDEX, hd_group_of(h, p, &axis, 1)));
	keep(g, p, "constant", g->constant(p, dims, w->ndim, 2.5));
	hd_state(g, p, "short", g->scalar(p, HD_SCALAR_STEP, NULL), HD_DTYPE_BF16, HD_RESHARD_ZERO);
	keep(g, p, "iota", g->iota(p, dims, w->ndim, dims[w->ndim - 1]));
	keep(g, p, "once", g->random(p, dims, w->ndim, "noise", 0));
	keep(g, p, "always", g->random(p, dims, w->ndim, "noise", 1));
	/* the sum of all steps' numbers so far, and that of every other step: 100 at first */
	in[0] = hd_state(g, p, "all", g->scalar(p, HD_SCALAR_STEP, NULL), w->dtype, HD_RESHARD_ZERO);
	in[1] = g->scalar(p, HD_SCALAR_STEP, NULL);
	g->assign(p, in[0], g->map(p, in, 2, "a + b"));
	g->every(p, 2);
	s = hd_state(g, p, "some", in[1], w->dtype, HD_RESHARD_ZERO);
	g->initial(p, s, HD_INITIAL_VALUE, 100);
	in[0] = s;
	in[1] = g->scalar(p, HD_SCALAR_STEP, NULL);
	g->assign(p, s, g->map(p, in, 2, "a + b"));
	s = hd_state(g, p, "snapshot", w, w->dtype, HD_RESHARD_ZERO);
	g->initial(p, s, HD_INITIAL_PARAMETER, 0);
	in[0] = g->updated(p, w);
	g->assign(p, s, g->map(p, in, 1, "a"));
	return h->status(p);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops), .lower = lower };
HD_PLUGIN("builders", "1.0", &ops)
