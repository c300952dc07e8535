/* SPDX-License-Identifier: Apache-2.0
 * A state that takes a value of forward: an activation, which each micro-batch has anew, or with weights = 1 a copy of a parameter.
 */
#include <heddle/strategy.h>

static const struct hd_option options[] = {
	{ "weights", HD_OPT_INT, 0, "0", "0..1", "take a parameter instead" },
};

static int rewrite(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_host *h = hd_basic_of(self)->h;
	const struct hd_graph_api *g = h->graph;
	const struct hd_match gelus = { .size = sizeof(gelus), .kind = "gelu" };
	struct hd_node *n = g->node_next(p, NULL, &gelus);
	struct hd_tensor *x = n->ins[0], *state;

	hd_cursor(g, p, n, NULL);
	if (h->opt_int(p, "weights"))
		x = g->leaf_next(p, NULL, HD_TENSOR_PARAM);
	state = hd_state(g, p, "seen", x, x->dtype, HD_RESHARD_ZERO);
	if (state)
		g->assign(p, state, g->map(p, &x, 1, "a"));
	return h->status(p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops), .options = options, .noptions = 1, .option_size = sizeof(options[0]), .rewrite = rewrite
};
HD_PLUGIN("seen", "1.0", &ops)
