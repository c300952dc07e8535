/* SPDX-License-Identifier: Apache-2.0
 * Replicas with weights of their own: each step averages with the neighbour on a ring.  The parameter is the mean.  Of two members each
 * average is the mean, so that it is exact there alone.
 */
#include <heddle/strategy.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct hd_axis *axis;
};

static int op_(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof *s);

	if (!s)
		return HD_ENOMEM;
	s->h = h, s->g = h->graph;
	*self = s;
	return HD_OK;
}

static int mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->axis = hd_axis_new(s->h, p, NULL, size ? size : left);
	return s->h->status(p);
}

static int rules(struct hd_strategy *s, struct hd_plan *p)
{
	return hd_rule(s->h, p, "batch", s->axis, NULL, 0);
}

/* A member takes its own term of each gradient. */
static void keep_terms(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_graph_api *g = s->g;
	const struct hd_match moves = { .size = sizeof moves, .kind = "reshard", .axis = s->axis };

	for (struct hd_node *next, *n = g->node_next(p, NULL, &moves); n; n = next) {
		struct hd_tensor *x = n->ins[0];

		next = g->node_next(p, n, &moves);
		if (x->what != HD_TENSOR_GRAD || n->reshard->have.kind != HD_PLACE_PARTIAL)
			continue;
		hd_cursor(g, p, n, NULL);
		x = g->map(p, &x, 1, "a * %lld", (long long)s->axis->n);
		g->replace(p, n->outs[0], g->local(p, x, s->axis));
	}
}

/* Weights and moments are members' own; behind the update each averages with its neighbour. */
static void average(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n)
{
	const struct hd_graph_api *g = s->g;
	const struct hd_group *m = hd_group_of(s->h, p, &s->axis, 1);
	struct hd_tensor *w = n->ins[0], *mine, *in[2], *ins[16];
	struct hd_node *u;

	hd_cursor(g, p, n, NULL);
	mine = hd_state(g, p, "local", w, w->dtype, HD_RESHARD_ZERO);
	g->initial(p, mine, HD_INITIAL_PARAMETER, 0);
	g->own(p, mine, s->axis, HD_RESHARD_ZERO);
	g->replace(p, w, mine);
	for (uint32_t i = 0; i < n->nin; i++) {
		ins[i] = n->ins[i];
		if (ins[i]->what == HD_TENSOR_STATE && ins[i] != mine)
			g->own(p, ins[i], s->axis, HD_RESHARD_ZERO);
	}
	u = g->node(p, n->op, ins, n->nin, "%s", n->attr);
	if (!u)
		return;
	for (uint32_t k = 1; k < n->nout; k++)
		g->replace(p, n->outs[k], u->outs[k]);
	in[0] = u->outs[0];
	in[1] = hd_comm(g, p, HD_COMM_SHIFT, m, in[0], NULL, 1);
	g->assign(p, mine, g->map(p, in, 2, "0.5 * a + 0.5 * b"));
	in[0] = hd_comm(g, p, HD_COMM_ALL_REDUCE, m, u->outs[0], NULL, 0);
	g->replace(p, n->outs[0], g->map(p, in, 1, "a / %lld", (long long)s->axis->n));
}

static int lower(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match ups = { .size = sizeof ups, .kind = "update" };

	if (s->h->opt_int(p, "exact"))
		return HD_OK;
	keep_terms(s, p);
	for (struct hd_node *next, *n = s->g->node_next(p, NULL, &ups); n && s->h->status(p) >= 0; n = next) {
		next = s->g->node_next(p, n, &ups);
		average(s, p, n);
	}
	return s->h->status(p);
}

static const struct hd_option options[] = { { "exact", HD_OPT_BOOL, 0, "no", NULL, "sum as dp" } };
static const struct hd_strategy_ops ops = { .options = options,
					    .noptions = 1,
					    .size = sizeof(ops),
					    .open = op_,
					    .mesh = mesh,
					    .rules = rules,
					    .lower = lower,
					    .option_size = sizeof(struct hd_option) };

static int ser(const struct hd_serial *s)
{
	double *t = s->state(s, "t", s->n * s->members);

	if (!t)
		return HD_ENOMEM;
	for (int64_t i = 0; i < s->n; i++) {
		double m = 0;

		for (uint32_t k = 0; k < s->members; k++) {
			t[k * s->n + i] = s->weights[k][i] - s->lr * s->members * s->gradients[k][i];
			m += t[k * s->n + i] / s->members;
		}
		for (uint32_t k = 0; k < s->members; k++)
			s->weights[k][i] =
				0.5 * t[k * s->n + i] + 0.5 * t[((k + s->members - 1) % s->members) * s->n + i];
		s->param[i] = m;
	}
	return HD_OK;
}

static const struct hd_serial_ops serial = { .size = sizeof serial, .keys = "exact=no", .update = ser };
HD_PLUGIN_TABLES("gossip", "1.0", .strategy = &ops, .approximate = "exact=yes", .serial = &serial)
