/* SPDX-License-Identifier: Apache-2.0
 * ema_server: replicas, and one additional rank that holds no model and keeps a running mean of the weights.
 *
 *	mean = keep * mean + (1 - keep) * weights         in each step, of the weights with which it begins
 *
 * Replicas add up gradients as in data parallelism. Meanwhile they send their weights to the server, which divides the
 * sum by the number of replicas. So no replica spends memory on the mean. The mean is a state, which checkpoints store
 * as SECTION.mean.PARAMETER. It begins at 0, so divide it by 1 - keep^steps.
 */
#include <heddle/strategy.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct hd_axis *axis;
	double keep;
};

static const struct hd_option options[] = {
	{ "keep", HD_OPT_NUM, 0, "0.99", "0..1", "share of the mean that stays in each step" },
};

static int ema_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	s->keep = h->opt_num(p, "keep");
	*self = s;
	return h->status(p);
}

/* Claims all ranks of the section; one of them is the server. */
static int ema_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	struct hd_axis_args x = { .size = sizeof(x), .n = (size ? size : left) - 1, .spare = 1 };

	if (x.n < 1)
		return s->h->fail(p, HD_EINVAL, "size: %lld ranks, and one of them is the server", (long long)x.n + 1);
	s->axis = s->h->axis(p, &x);
	return s->h->status(p);
}

static int ema_rules(struct hd_strategy *s, struct hd_plan *p)
{
	return hd_rule(s->h, p, "batch", s->axis, NULL, 0);
}

static void keep_mean(struct hd_strategy *s, struct hd_plan *p, struct hd_node *update, const struct hd_group *all)
{
	struct hd_comm_args push = { .size = sizeof(push), .group = all, .kind = HD_COMM_PUSH };
	struct hd_node *sync = update->ins[1]->node;
	struct hd_tensor *x[2];

	hd_cursor(s->g, p, sync, all);
	push.x = update->ins[0]; /* the parameter, or its fp32 master */
	x[0] = s->g->comm(p, &push);
	if (!x[0])
		return;
	x[1] = hd_state(s->g, p, "mean", x[0], x[0]->dtype, HD_RESHARD_ZERO);
	s->g->assign(p, x[1], s->g->map(p, x, 2, "%.17g * a + %.17g * b", (1 - s->keep) / (double)s->axis->n, s->keep));
}

static int ema_lower(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match updates = { .size = sizeof(updates), .kind = "update" };
	const struct hd_group_args both = { sizeof(both), &s->axis, 1, HD_ROLE_ALL };
	const struct hd_group *all = s->h->group(p, &both);

	for (struct hd_node *n = s->g->node_next(p, NULL, &updates); n; n = s->g->node_next(p, n, &updates))
		keep_mean(s, p, n, all);
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops),
					    .options = options,
					    .noptions = 1,
					    .option_size = sizeof(options[0]),
					    .open = ema_open,
					    .mesh = ema_mesh,
					    .rules = ema_rules,
					    .lower = ema_lower };
HD_PLUGIN("ema_server", "1.0", &ops)
