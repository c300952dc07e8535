/* SPDX-License-Identifier: Apache-2.0
 * A loss of its own: what lies between the model's nll and the loss of a step is changed in slot rewrite.  -D says where
 * (t1304-conform-loss.sh).
 */
#include <heddle/strategy.h>

#ifndef K
#define K "2"
#endif

/* The next node of this kind, or that reads `reads`. */
static struct hd_node *find(const struct hd_graph_api *g, struct hd_plan *p, const char *kind,
			    const struct hd_tensor *reads)
{
	struct hd_match m = { .size = sizeof(m), .kind = kind, .reads = reads };

	return g->node_next(p, NULL, &m);
}

static int rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_host *h = hd_basic_of(s)->h;
	const struct hd_graph_api *g = h->graph;
	struct hd_node *xent = find(g, p, "xent", NULL), *nll = find(g, p, "nll", NULL), *sum;

	if (!xent || !nll)
		return HD_OK; /* a plan that generates has no loss */
	sum = find(g, p, NULL, nll->outs[0]);
	hd_cursor(g, p, sum, NULL);
#if defined W_SUM /* of the sum, not of its terms; this stands before what it reads */
	g->replace(p, sum->outs[0], g->map(p, sum->outs, 1, K " * a"));
#elif defined W_SQUARES /* and the mean square of all logits of a token */
	struct hd_tensor *in[] = { xent->ins[0], xent->ins[0] }, *both[] = { nll->outs[0], NULL };

	both[1] = g->einsum(p, in, 2, nll->outs[0]->dims, nll->outs[0]->ndim);
	g->replace_in(p, sum, nll->outs[0], g->map(p, both, 2, "a + " K " * b"));
#elif defined W_TARGET  /* a statistic, from which nll is made */
	hd_cursor(g, p, nll, NULL);
	g->replace_in(p, nll, xent->outs[2], g->map(p, &xent->outs[2], 1, K " * a"));
#elif defined W_LOGITS  /* of the statistics, and not those that nll names */
	hd_cursor(g, p, xent, NULL);
	g->replace_in(p, xent, xent->ins[0], g->map(p, xent->ins, 1, K " * a"));
#elif defined W_MAX     /* a statistic, beside nll */
	struct hd_tensor *both[] = { nll->outs[0], xent->outs[0] };

	g->replace_in(p, sum, nll->outs[0], g->map(p, both, 2, "a + " K " * b"));
#else                   /* of each token */
	g->replace_in(p, sum, nll->outs[0], g->map(p, nll->outs, 1, K " * a"));
#endif
	return h->status(p);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rewrite = rewrite };
HD_PLUGIN("loss", "1.0", &ops)
