/* SPDX-License-Identifier: Apache-2.0
 * Permutations of members, for t1227.  Forward: what each activation of gelu needs is brought to other members, and what it
 * makes is brought back, so the model is the same and its backward must follow the same ways.  Lowering: each gradient
 * goes the round of a permutation's powers, and comes back after as many as there are.
 */
#include <heddle/strategy.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_axis *axis;
	int64_t mul, add;
};
static const struct hd_option options[] = { { "mul", HD_OPT_INT, 0, "1", "", "" },
					    { "add", HD_OPT_INT, 0, "1", "", "" },
					    { "back", HD_OPT_INT, 0, "1", "", "of mul: the inverse" } };

static int permute_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	*self = h->alloc(p, sizeof(**self));
	if (!*self)
		return HD_ENOMEM;
	(*self)->h = h;
	(*self)->mul = h->opt_int(p, "mul");
	(*self)->add = h->opt_int(p, "add");
	return HD_OK;
}

static int permute_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->axis = hd_axis_new(s->h, p, NULL, size ? size : left);
	return s->h->status(p);
}

static int permute_rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_graph_api *g = s->h->graph;
	const struct hd_match gelus = { .size = sizeof(gelus), .kind = "gelu" };
	const struct hd_group *group = hd_group_of(s->h, p, &s->axis, 1);
	int64_t back = s->h->opt_int(p, "back");
	struct hd_node *n = NULL;

	while ((n = g->node_next(p, n, &gelus))) {
		struct hd_tensor *x;

		hd_cursor(g, p, n, NULL);
		x = hd_comm_permute(g, p, group, n->ins[0], s->mul, s->add);
		if (!x)
			break;
		x = g->node(p, n->op, &x, 1, "%s", n->attr)->outs[0];
		g->replace(p, n->outs[0], hd_comm_permute(g, p, group, x, back, -back * s->add));
	}
	return s->h->status(p);
}

static int permute_rules(struct hd_strategy *s, struct hd_plan *p)
{
	return hd_rule(s->h, p, "batch", s->axis, NULL, 0);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops),
					    .options = options,
					    .noptions = 3,
					    .option_size = sizeof(options[0]),
					    .open = permute_open,
					    .mesh = permute_mesh,
					    .rewrite = permute_rewrite,
					    .rules = permute_rules };
HD_PLUGIN("permute", "1.0", &ops)
