/* SPDX-License-Identifier: Apache-2.0
 * muon: orthogonalised momentum (Jordan et al. 2024) for the weight matrices within layers; AdamW for everything else.
 *
 *	m = mu m + g,   u = g + mu m                          g: the clipped gradient, a matrix (embed x all other dims)
 *	X = u / |u|_F,  5 times X = a X + (b A + c A A) X     with A = X X^T: brings the singular values to about 1
 *	w = w - lr (0.2 sqrt(max(rows, columns)) X + decay w) the factor is Liu et al.'s (2025, arXiv 2502.16982): the
 *	                                                      step is as large as AdamW's, so lr and decay serve both
 *
 * Nothing here mentions ranks. If a matrix is sharded over its columns (tensor parallelism), A is a sum over the
 * members and the rest is local. If the momentum is sharded over replicas (zero), it is gathered for the products. Each
 * stage has its own parameters. Experts are orthogonalised one by one.
 */
#include <heddle/strategy.h>
#include <math.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	double mu, beta1, beta2, eps;
	int64_t steps;
};

static const struct hd_option options[] = {
	{ "momentum", HD_OPT_NUM, 0, "0.95", "0..0.999999", "of the matrices" },
	{ "steps", HD_OPT_INT, 0, "5", "1..20", "Newton-Schulz iterations" },
	{ "beta1", HD_OPT_NUM, 0, "0.9", "0..0.999999", "AdamW's, of all that is no matrix" },
	{ "beta2", HD_OPT_NUM, 0, "0.95", "0..0.999999", "AdamW's" },
	{ "eps", HD_OPT_NUM, 0, "1e-8", "1e-37..", "AdamW's" },
};

static int muon_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	s->mu = h->opt_num(p, "momentum");
	s->steps = h->opt_int(p, "steps");
	s->beta1 = h->opt_num(p, "beta1");
	s->beta2 = h->opt_num(p, "beta2");
	s->eps = h->opt_num(p, "eps");
	*self = s;
	return HD_OK;
}

/* -- everything else ----------------------------------------------------------------------------------------------- */
static int adamw(struct hd_strategy *s, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value)
{
	struct hd_tensor *m = hd_state(s->g, p, "m", u->param, u->param->dtype, HD_RESHARD_REFUSE);
	struct hd_tensor *v = hd_state(s->g, p, "v", u->param, u->param->dtype, HD_RESHARD_REFUSE);
	struct hd_tensor *in[] = { u->param, u->gradient, m, v, u->factor };
	struct hd_node *n = s->g->node(p, s->g->op(p, "adamw"), in, 5, "beta1=%.17g beta2=%.17g eps=%.17g decay=%.17g",
				       s->beta1, s->beta2, s->eps, u->weight_decay);

	if (!n)
		return s->h->status(p);
	s->g->assign(p, m, n->outs[1]);
	s->g->assign(p, v, n->outs[2]);
	*value = n->outs[0];
	return HD_OK;
}

/* -- matrices ------------------------------------------------------------------------------------------------------ */
static int has(const struct hd_tensor *t, const struct hd_dim *d)
{
	for (uint32_t i = 0; d && i < t->ndim; i++)
		if (t->dims[i] == d)
			return 1;
	return 0;
}

/* Tells whether w is a weight matrix within a layer. Tables of tokens and positions are only looked up in, and the head
 * is in no layer. */
static int is_matrix(struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *w)
{
	return w->ndim >= 2 && has(w, s->h->dim(p, "embed")) && !has(w, s->h->dim(p, "vocab")) &&
	       !has(w, s->h->dim(p, "position")) && !has(w, s->h->dim(p, "router_expert")) &&
	       !(w->ndim == 2 && has(w, s->h->dim(p, "expert")));
}

/* Returns the product of x and y, with the dims of `like`. */
static struct hd_tensor *product(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x, struct hd_tensor *y,
				 const struct hd_tensor *like)
{
	struct hd_tensor *in[] = { x, y };

	return s->g->einsum(p, in, 2, like->dims, like->ndim);
}

/* Returns X X^T, summed over all dims but embed and expert, with the dims (expert,) embed, row. y is x with row in
 * place of embed. */
static struct hd_tensor *gram(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x, struct hd_tensor *y,
			      const struct hd_dim *embed, const struct hd_dim *row)
{
	const struct hd_dim *expert = s->h->dim(p, "expert"), *dims[3] = { expert, embed, row };
	struct hd_tensor *in[] = { x, y };
	int each = has(x, expert);

	return s->g->einsum(p, in, 2, dims + !each, 2 + (uint32_t)each);
}

/* Returns u orthogonalised by the quintic Newton-Schulz iteration: p(x) = a x + b x^3 + c x^5 brings singular values
 * from (0, 1] to about 1. */
static struct hd_tensor *orthogonal(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *u)
{
	const struct hd_dim *embed = s->h->dim(p, "embed"), *row = s->h->dim_new(p, "row", embed->n);
	const struct hd_dim *expert = s->h->dim(p, "expert");
	struct hd_tensor *in[3] = { u, u }, *x;

	in[1] = s->g->einsum(p, in, 2, &expert, has(u, expert));
	x = s->g->map(p, in, 2, "a / (sqrt(b) + 1e-30)");
	for (int64_t i = 0; x && i < s->steps; i++) {
		struct hd_tensor *y = s->g->rename(p, x, embed, row), *a = gram(s, p, x, y, embed, row), *ax, *aax;

		ax = product(s, p, a, y, x);
		aax = product(s, p, a, s->g->rename(p, ax, embed, row), x);
		in[0] = x, in[1] = ax, in[2] = aax;
		x = s->g->map(p, in, 3, "3.4445 * a - 4.775 * b + 2.0315 * c");
	}
	return x;
}

/* Returns max(rows, columns) of one expert's matrix. */
static double longer_side(struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *w)
{
	const struct hd_dim *embed = s->h->dim(p, "embed"), *expert = s->h->dim(p, "expert");
	double columns = 1;

	for (uint32_t i = 0; i < w->ndim; i++)
		columns *= w->dims[i] == embed || w->dims[i] == expert ? 1 : (double)w->dims[i]->n;
	return columns > (double)embed->n ? columns : (double)embed->n;
}

static int matrix(struct hd_strategy *s, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value)
{
	struct hd_tensor *m = hd_state(s->g, p, "momentum", u->param, u->param->dtype, HD_RESHARD_REFUSE), *m1, *x;
	struct hd_tensor *in[3] = { m, u->gradient, u->factor };

	m1 = s->g->map(p, in, 3, "%.17g * a + b * c", s->mu);
	in[0] = m1;
	x = orthogonal(s, p, s->g->map(p, in, 3, "%.17g * a + b * c", s->mu));
	in[0] = u->param, in[1] = x, in[2] = s->g->scalar(p, HD_SCALAR_LR, NULL);
	*value = s->g->map(p, in, 3, "a - c * (%.17g * b + %.17g * a)", 0.2 * sqrt(longer_side(s, p, u->param)),
			   u->weight_decay);
	return s->g->assign(p, m, m1);
}

static int update(struct hd_strategy *s, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value)
{
	return is_matrix(s, p, u->param) ? matrix(s, p, u, value) : adamw(s, p, u, value);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = sizeof(options) / sizeof(options[0]),
	.option_size = sizeof(options[0]),
	.open = muon_open,
};
static const struct hd_optimizer_ops optimizer = { .size = sizeof(optimizer), .update = update };
HD_PLUGIN_TABLES("muon", "1.0", .strategy = &ops, .optimizer = &optimizer)
