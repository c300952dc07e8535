/* SPDX-License-Identifier: Apache-2.0
 * Graphs that no model of the engine has, but that the headers allow.  Key what chooses one (t6153-graphs.sh).  Each
 * changes the residual stream x before the second norm by a term c: x + tanh(2 x + c) / 10.
 */
#include <heddle/strategy.h>
#include <stdio.h>
#include <string.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const char *what;
};

static const struct hd_option options[] = {
	{ "what", HD_OPT_CHOICE, 0, "none", "none|iota|noise|product|early|late|wrapped|statistics|pieces",
	  "the graph" },
};

static int open_it(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	*s = (struct hd_strategy){ h, h->graph, h->opt_str(p, "what") };
	*self = s;
	return HD_OK;
}

static struct hd_node *nth(struct hd_strategy *s, struct hd_plan *p, const char *kind, int k)
{
	const struct hd_match m = { .size = sizeof(m), .kind = kind };
	struct hd_node *n = s->g->node_next(p, NULL, &m);

	while (n && k--)
		n = s->g->node_next(p, n, &m);
	return n;
}

static int count(struct hd_strategy *s, struct hd_plan *p, const char *kind)
{
	int n = 0;

	while (nth(s, p, kind, n))
		n++;
	return n;
}

/* The product of two sums over heads, one of which other nodes read too: its parts must not be multiplied. */
static struct hd_tensor *product(struct hd_strategy *s, struct hd_plan *p, const struct hd_dim *const *bse)
{
	const struct hd_dim *all[] = { s->h->dim(p, "heads"), s->h->dim(p, "head_dim"), bse[2] };
	struct hd_tensor *in[2] = { s->g->iota(p, all, 3, bse[2]), s->g->iota(p, all, 3, all[0]) };

	in[1] = s->g->map(p, in, 2, "0.05 * a - 0.1 * b + 0.1");
	in[0] = nth(s, p, "attention", 0)->outs[0];
	in[0] = s->g->einsum(p, in, 2, bse, 3);
	in[1] = nth(s, p, "einsum", 3)->outs[0];
	return s->g->einsum(p, in, 2, bse, 2);
}

/* A node that computes in fp32, before or after a cast of what it reads. */
static void cast(struct hd_strategy *s, struct hd_plan *p, int early)
{
	struct hd_node *reader = nth(s, p, "einsum", 5), *n;
	struct hd_tensor *x = nth(s, p, "gelu", 0)->outs[0], *in[2] = { NULL, NULL };

	hd_cursor(s->g, p, reader, NULL);
	if (early)
		in[1] = s->g->cast(p, x, HD_DTYPE_F32);
	n = s->g->node(p, s->g->op(p, "gelu"), &x, 1, "fp32=1");
	if (!early)
		in[1] = s->g->cast(p, x, HD_DTYPE_F32);
	if (!n)
		return;
	in[0] = s->g->cast(p, n->outs[0], HD_DTYPE_F32);
	s->g->replace_in(p, reader, x, s->g->cast(p, s->g->map(p, in, 2, "a + 0.3 * b"), x->dtype));
}

/* Puts a node behind each gelu. The gelus still run, so a walk finds them. */
static void wrap(struct hd_strategy *s, struct hd_plan *p)
{
	int before = count(s, p, "gelu"), after;

	for (int i = 0; i < before; i++) {
		struct hd_node *n = nth(s, p, "gelu", i);
		const struct hd_match m = { .size = sizeof(m), .reads = n->outs[0] };

		hd_cursor(s->g, p, s->g->node_next(p, NULL, &m), NULL);
		s->g->replace(p, n->outs[0], s->g->map(p, n->outs, 1, "1.5 * a"));
	}
	after = count(s, p, "gelu");
	if (after != before)
		s->h->fail(p, HD_EBUG, "a walk finds %d gelus, and after they are wrapped %d", before, after);
}

static struct hd_tensor *term(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x)
{
	const struct hd_dim *const *bse = x->dims, *turned[] = { bse[1], bse[0] };
	const struct hd_pos first = { 0 };

	if (!strcmp(s->what, "iota"))
		return s->g->map(p, (struct hd_tensor *[]){ s->g->iota(p, bse, 3, bse[1]) }, 1, "a / 16 - 1");
	if (!strcmp(s->what, "noise"))
		return s->g->random(p, turned, 2, "noise", 1);
	if (!strcmp(s->what, "product"))
		return product(s, p, bse);
	if (!strcmp(s->what, "statistics"))
		return nth(s, p, "norm", 0)->outs[1];
	if (!strcmp(s->what, "pieces"))
		return s->g->chunk(p, x, bse[2], 1, &first);
	return NULL;
}

static int rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	struct hd_node *norm = nth(s, p, "norm", 1);
	struct hd_tensor *in[2] = { norm->ins[0], NULL };

	if (!strcmp(s->what, "early") || !strcmp(s->what, "late"))
		cast(s, p, !strcmp(s->what, "early"));
	if (!strcmp(s->what, "wrapped"))
		wrap(s, p);
	hd_cursor(s->g, p, norm, NULL);
	in[1] = term(s, p, in[0]);
	if (in[1])
		s->g->replace_in(p, norm, in[0], s->g->map(p, in, 2, "a + 0.1 * tanh(2 * a + b)"));
	return s->h->status(p);
}

/* SGD. A node of every second step is the first to read the gradient, and `every` is left at 2. */
static int update(struct hd_strategy *s, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value)
{
	struct hd_tensor *in[] = { u->param, u->gradient, u->factor, s->g->scalar(p, HD_SCALAR_LR, NULL) }, *half,
			 *seen;
	char name[200];

	s->g->every(p, 2);
	snprintf(name, sizeof(name), "seen.%s", u->name);
	seen = hd_state(s->g, p, name, u->param, u->param->dtype, HD_RESHARD_REFUSE);
	if (seen)
		s->g->assign(p, seen,
			     s->g->einsum(p, (struct hd_tensor *[]){ u->gradient, u->gradient }, 2, u->param->dims,
					  u->param->ndim));
	s->g->every(p, 1);
	*value = s->g->map(p, in, 4, "a - d * (b * c)");
	s->g->every(p, 2);
	snprintf(name, sizeof(name), "half.%s", u->name);
	half = hd_state(s->g, p, name, u->factor, u->factor->dtype, HD_RESHARD_REFUSE);
	if (half)
		s->g->assign(p, half, s->g->map(p, in + 2, 1, "a"));
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = sizeof(options) / sizeof(options[0]),
	.option_size = sizeof(options[0]),
	.open = open_it,
	.rewrite = rewrite,
};
static const struct hd_optimizer_ops optimizer = { .size = sizeof(optimizer), .update = update };
HD_PLUGIN_TABLES("graphs", "1.0", .strategy = &ops, .optimizer = &optimizer)
