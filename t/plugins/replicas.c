/* SPDX-License-Identifier: Apache-2.0
 * Replicas that sum their gradients themselves, with an op of their own in place of gelu; and with -D all that such a plugin
 * can have wrong without a word of the engine (t1300-conform.sh builds it so, one fault at a time).
 */
#include <heddle/strategy.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_axis *axis;
};

/* -- the op ---------------------------------------------------------------------------------------- */
static int act_shape(struct hd_strategy *s, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins,
		     uint32_t nin, struct hd_shape *outs, uint32_t *nout)
{
	(void)s, (void)p, (void)attr, (void)nin;
	*nout = 1;
	outs[0].dtype = ins[0]->dtype;
	outs[0].ndim = ins[0]->ndim;
	for (uint32_t i = 0; i < ins[0]->ndim; i++)
		outs[0].dims[i] = ins[0]->dims[i];
	return HD_OK;
}

static int act_vjp(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
		   uint64_t want, struct hd_tensor **din)
{
	const struct hd_graph_api *g = s->h->graph;
	struct hd_tensor *ins[] = { n->ins[0], dout[0] };
	struct hd_node *d = want & 1 ? g->node(p, g->op(p, "gelu_d"), ins, 2, "%s", "") : NULL;

	din[0] = d ? d->outs[0] : NULL;
#ifdef W_NO_VJP
	din[0] = NULL;
#endif
#ifdef W_VJP
	din[0] = g->map(p, din, 1, "a * " W_VJP);
#endif
	return s->h->status(p);
}

static int act_record(struct hd_strategy *s, struct hd_record *r, const struct hd_node *n)
{
#ifdef W_RECORD_CRASH
	*(volatile int *)0 = 1;
#endif
	return s->h->record->launch(r, "gelu", n->ins, 1, n->outs, 1, "%s", "");
}

static const struct hd_op act = {
	.size = sizeof(act), .name = "act", .shape = act_shape, .vjp = act_vjp, .record = act_record
};

static int rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_graph_api *g = s->h->graph;
	const struct hd_match gelus = { .size = sizeof(gelus), .kind = "gelu" };

	for (struct hd_node *n = NULL; (n = g->node_next(p, n, &gelus));) {
		struct hd_node *mine;

		hd_cursor(g, p, n, NULL);
		mine = g->node(p, &act, n->ins, 1, "%s", "");
		g->replace(p, n->outs[0], mine ? mine->outs[0] : NULL);
	}
	return s->h->status(p);
}

/* -- the sums ---------------------------------------------------------------------------------------- */
static int open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	*self = h->alloc(p, sizeof(**self));
	(*self)->h = h;
	return HD_OK;
}

static int mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
#ifdef W_REFUSE
	return s->h->fail(p, HD_EINVAL, "%s", "size: " W_REFUSE);
#endif
#ifdef W_REFUSE_SIZE
	if (size == W_REFUSE_SIZE)
		return s->h->fail(p, HD_ENOTSUP, "size: not %lld", (long long)size);
#endif
	s->axis = hd_axis_new(s->h, p, NULL, size ? size : left);
	return s->h->status(p);
}

#ifndef W_DIM
#define W_DIM "batch"
#endif
#ifndef W_FLAGS
#define W_FLAGS 0
#endif
static int rules(struct hd_strategy *s, struct hd_plan *p)
{
#ifdef W_CRASH
	if (s->axis->n == 4)
		*(volatile int *)0 = 1;
#endif
#ifdef W_EXIT
	if (s->axis->n == 4)
		W_EXIT;
#endif
#ifdef W_LOOP
	for (volatile int i = 0; s->axis->n == 4; i++)
		continue;
#endif
#ifdef W_RULES
	W_RULES;
#endif
#ifdef W_KIND
	hd_rule(s->h, p, "batch", s->axis, W_KIND, 0);
#endif
	return hd_rule(s->h, p, W_DIM, s->axis, NULL, W_FLAGS);
}

static const struct hd_group *members(struct hd_strategy *s, struct hd_plan *p)
{
#ifdef W_GROUP
	const struct hd_axis *all[HD_MAX_AXES];
	uint32_t n = 0;

	for (const struct hd_axis *a = s->h->axis_next(p, NULL); a; a = s->h->axis_next(p, a))
		all[n++] = a;
	return hd_group_of(s->h, p, all, n);
#else
	return hd_group_of(s->h, p, &s->axis, 1);
#endif
}

#ifdef W_MICRO
/* A number of an activation: of which micro-batch? */
static struct hd_tensor *stray(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_graph_api *g = s->h->graph;
	const struct hd_match forward = { .size = sizeof(forward), .kind = "attention" };
	struct hd_node *n = g->node_next(p, NULL, &forward);

	return g->einsum(p, n->ins, 1, NULL, 0);
}
#endif

static int lower(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_graph_api *g = s->h->graph;
	const struct hd_match ours = { .size = sizeof(ours),
				       .kind = "reshard",
#ifndef W_NEIGHBOUR
				       .axis = s->axis
#endif
	};
	const struct hd_group *group = members(s, p);

	for (struct hd_node *n = g->node_next(p, NULL, &ours), *next; n; n = next) {
		struct hd_tensor *x = n->ins[0];

		next = g->node_next(p, n, &ours);
		if (x->what != HD_TENSOR_GRAD || n->reshard->have.kind != HD_PLACE_PARTIAL ||
		    n->reshard->need.kind != HD_PLACE_REPLICATED)
			continue;
		hd_cursor(g, p, n, group);
#if defined(W_MISSING)
		x = hd_comm(g, p, HD_COMM_SHIFT, group, x, NULL, 0);
#elif defined(W_ORDER)
		struct hd_tensor *sum = x;

		for (int i = 1; i < s->axis->n; i++)
			sum = g->map(p, (struct hd_tensor *[]){ sum, hd_comm(g, p, HD_COMM_SHIFT, group, x, NULL, i) },
				     2, "a + b");
		x = sum;
#elif defined(W_MAX)
		x = hd_comm(g, p, HD_COMM_ALL_MAX, group, x, NULL, 0);
#else
		x = hd_comm(g, p, HD_COMM_ALL_REDUCE, group, x, NULL, 0);
#endif
#ifdef W_TWICE
		x = hd_comm(g, p, HD_COMM_ALL_REDUCE, group, x, NULL, 0);
#endif
#ifdef W_THIRD
		if (s->axis->n == 3)
			x = g->map(p, &x, 1, "a * 2");
#endif
#ifdef W_OWN
		struct hd_tensor *mine = hd_state(g, p, "mine", n->outs[0], x->dtype, HD_RESHARD_ZERO);

		g->assign(p, mine, g->local(p, n->ins[0], s->axis));
		x = g->map(p, (struct hd_tensor *[]){ x, mine }, 2, "a + 0 * b");
#endif
#ifdef W_LATE
		struct hd_tensor *late = hd_state(g, p, "late", n->outs[0], x->dtype, HD_RESHARD_ZERO);

		if (*W_LATE)
			g->assign(p, late, x);
		x = g->map(p, (struct hd_tensor *[]){ x, late }, 2, "a + b * 0.01");
#endif
#ifdef W_AFTER
		g->after(p, x, x);
#endif
#ifdef W_MICRO
		struct hd_tensor *in[] = { x, hd_comm(g, p, HD_COMM_ALL_REDUCE, group, stray(s, p), NULL, 0) };

		x = g->map(p, in, 2, "a + b * 1e-6");
#endif
		g->replace(p, n->outs[0], x);
	}
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops), .open = open, .mesh = mesh, .rewrite = rewrite, .rules = rules, .lower = lower
};
HD_PLUGIN("replicas", "1.0", &ops)
