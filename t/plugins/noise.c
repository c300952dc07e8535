/* SPDX-License-Identifier: Apache-2.0
 * Noise in forward: what gelu reads is multiplied by random numbers, new ones in each step.
 */
#include <heddle/strategy.h>
#include <stdio.h>

static int rewrite(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_host *h = hd_basic_of(self)->h;
	const struct hd_graph_api *g = h->graph;
	const struct hd_match gelus = { .size = sizeof(gelus), .kind = "gelu" };
	int count = 0;

	for (struct hd_node *n = g->node_next(p, NULL, &gelus), *made; n; n = g->node_next(p, n, &gelus)) {
		struct hd_tensor *in[2] = { n->ins[0] }, *noisy;
		char name[32];

		hd_cursor(g, p, n, NULL);
		snprintf(name, sizeof(name), "noise%d", count++);
		in[1] = g->random(p, in[0]->dims, in[0]->ndim, name, 1);
		noisy = g->map(p, in, 2, "a * (0.5 + b)");
		made = g->node(p, g->op(p, "gelu"), &noisy, 1, "%s", "");
		g->replace(p, n->outs[0], made ? made->outs[0] : NULL);
	}
	return h->status(p);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rewrite = rewrite };
HD_PLUGIN("noise", "1.0", &ops)
