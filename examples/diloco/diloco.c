/* SPDX-License-Identifier: Apache-2.0
 * diloco: an axis of replicas that train separately for `every` steps and then agree on common weights (Douillard et
 * al., 2311.08105).
 *
 * Member k has weights w_k of its own. The run's optimizer, called the inner one, updates them with the gradient of the
 * member's own samples and with moments of its own. The model's parameter w is the value on which the members last
 * agreed; checkpoints, evaluation and generation use it. With n members, every H steps:
 *
 *	d = w - (sum over the members of w_k) / n        the outer gradient
 *	b = momentum * b + d                             Nesterov
 *	w = w - outer_lr * (d + momentum * b)            w_k = w
 *
 * With every = 1, outer_lr = 1, momentum = 0 and SGD this is data parallelism. The mean of the members' steps is the
 * step of the mean gradient. Parameters must be fp32 and replicated along the axis. At the end of this file is the
 * serial definition, with which `heddle conform` compares other settings.
 */
#include <heddle/strategy.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct hd_axis *axis;
	const struct hd_group *members;
	int64_t every;
	double outer_lr, momentum;
};

static const struct hd_option options[] = {
	{ "every", HD_OPT_INT, 0, "50", "1..", "steps between two that agree" },
	{ "outer_lr", HD_OPT_NUM, 0, "0.7", "", "learning rate of the outer optimizer" },
	{ "momentum", HD_OPT_NUM, 0, "0.9", "0..1", "of the outer optimizer, which is Nesterov's" },
};

static int diloco_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	s->every = h->opt_int(p, "every");
	s->outer_lr = h->opt_num(p, "outer_lr");
	s->momentum = h->opt_num(p, "momentum");
	*self = s;
	return HD_OK;
}

static int diloco_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->axis = hd_axis_new(s->h, p, NULL, size ? size : left);
	return s->h->status(p);
}

static int diloco_rules(struct hd_strategy *s, struct hd_plan *p)
{
	return hd_rule(s->h, p, "batch", s->axis, NULL, 0);
}

/* Turns each gradient into the mean over the member's own tokens, and keeps it on the member. */
static void keep_gradients(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match moves = { .size = sizeof(moves), .kind = "reshard", .axis = s->axis };
	struct hd_node *n, *next;

	for (n = s->g->node_next(p, NULL, &moves); n; n = next) {
		struct hd_tensor *x = n->ins[0];

		next = s->g->node_next(p, n, &moves);
		if (x->what != HD_TENSOR_GRAD || n->reshard->have.kind != HD_PLACE_PARTIAL)
			continue;
		if (n->reshard->need.kind != HD_PLACE_REPLICATED)
			s->h->fail(p, HD_ENOTSUP, "a gradient is sharded along %s: parameters are whole here",
				   s->axis->name);
		hd_cursor(s->g, p, n, NULL);
		x = s->g->map(p, &x, 1, "a * %lld", (long long)s->axis->n);
		s->g->replace(p, n->outs[0], s->g->local(p, x, s->axis));
	}
}

/* Runs every s->every steps. Returns the value on which the members agree, computed from each member's current
 * weights. */
static struct hd_tensor *outer(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *w, struct hd_tensor *mine)
{
	struct hd_tensor *d[2], *b[2], *step[2], *buffer;

	s->g->every(p, s->every);
	d[0] = w;
	d[1] = hd_comm(s->g, p, HD_COMM_ALL_REDUCE, s->members, mine, NULL, 0);
	d[0] = s->g->map(p, d, 2, "a - b / %lld", (long long)s->axis->n);
	if (s->momentum != 0) {
		buffer = hd_state(s->g, p, "outer", w, w->dtype, HD_RESHARD_REFUSE);
		b[0] = d[0];
		b[1] = buffer;
		b[0] = s->g->map(p, b, 2, "a + b * %.17g", s->momentum);
		s->g->assign(p, buffer, b[0]);
		d[1] = b[0];
		d[0] = s->g->map(p, d, 2, "a + b * %.17g", s->momentum);
	}
	step[0] = w;
	step[1] = d[0];
	return s->g->map(p, step, 2, "a - b * %.17g", s->outer_lr);
}

/* Makes the update of one parameter work on the member's own weights, and assigns the agreed value to the parameter. */
static void keep_weights(struct hd_strategy *s, struct hd_plan *p, struct hd_node *update)
{
	struct hd_tensor *w = update->ins[0], *mine, *agreed, *ins[HD_MAX_INS];
	struct hd_node *inner;

	if (w->what != HD_TENSOR_PARAM || HD_BITS(w->dtype) < 32) {
		s->h->fail(p, HD_ENOTSUP, "%s is updated in other numbers than fp32: train.precision = fp32", w->name);
		return;
	}
	hd_cursor(s->g, p, update, NULL);
	mine = hd_state(s->g, p, "local", w, w->dtype, HD_RESHARD_ZERO);
	s->g->initial(p, mine, HD_INITIAL_PARAMETER, 0);
	s->g->own(p, mine, s->axis, HD_RESHARD_ZERO);
	s->g->replace(p, w, mine);
	for (uint32_t i = 0; i < update->nin; i++) {
		ins[i] = update->ins[i];
		if (ins[i]->what == HD_TENSOR_STATE && ins[i] != mine)
			s->g->own(p, ins[i], s->axis, HD_RESHARD_ZERO);
	}
	inner = s->g->node(p, update->op, ins, update->nin, "%s", update->attr);
	if (!inner)
		return;
	if (s->every > 1) /* in the other steps, the member keeps its own result */
		s->g->assign(p, mine, inner->outs[0]);
	for (uint32_t k = 1; k < update->nout; k++)
		s->g->replace(p, update->outs[k], inner->outs[k]);
	agreed = outer(s, p, w, inner->outs[0]);
	s->g->assign(p, mine, agreed);
	s->g->replace(p, update->outs[0], agreed);
}

static int diloco_lower(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match updates = { .size = sizeof(updates), .kind = "update" };
	struct hd_node *n, *next;

	s->members = hd_group_of(s->h, p, &s->axis, 1);
	keep_gradients(s, p);
	for (n = s->g->node_next(p, NULL, &updates); n && s->h->status(p) >= 0; n = next) {
		next = s->g->node_next(p, n, &updates);
		keep_weights(s, p, n);
	}
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops),
					    .options = options,
					    .noptions = sizeof(options) / sizeof(options[0]),
					    .option_size = sizeof(options[0]),
					    .open = diloco_open,
					    .mesh = diloco_mesh,
					    .rules = diloco_rules,
					    .lower = diloco_lower };

/* -- the same for one parameter, in plain C ------------------------------------------------------------------------ */
#define EVERY 2
#define OUTER_LR 0.7
#define MOMENTUM 0.9

static int serial_update(const struct hd_serial *s)
{
	double *b = s->state(s, "outer", s->n);

	if (!b)
		return HD_ENOMEM;
	for (uint32_t k = 0; k < s->members; k++) /* a member's loss is the mean over its own tokens */
		for (int64_t i = 0; i < s->n; i++)
			s->weights[k][i] -= s->lr * s->members * s->gradients[k][i];
	for (int64_t i = 0; i < s->n && s->step % EVERY == 0; i++) {
		double d = s->param[i];

		for (uint32_t k = 0; k < s->members; k++)
			d -= s->weights[k][i] / s->members;
		b[i] = MOMENTUM * b[i] + d;
		s->param[i] -= OUTER_LR * (d + MOMENTUM * b[i]);
		for (uint32_t k = 0; k < s->members; k++)
			s->weights[k][i] = s->param[i];
	}
	return HD_OK;
}

static const struct hd_serial_ops serial = { .size = sizeof(serial),
					     .keys = "every=2 outer_lr=0.7 momentum=0.9",
					     .update = serial_update };
HD_PLUGIN_TABLES("diloco", "1.1", .strategy = &ops, .approximate = "every=1 outer_lr=1 momentum=0", .serial = &serial)
