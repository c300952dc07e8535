/* SPDX-License-Identifier: Apache-2.0
 * The serial definition of examples/int8-boundary, for t1108: what layer 2 reads of the layers before it is rounded as
 * activations between stages are there, in a model of one rank; gradients pass as if it were not.
 */
#include <heddle/strategy.h>

static int same(struct hd_strategy *s, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins, uint32_t nin,
		struct hd_shape *outs, uint32_t *nout)
{
	(void)s, (void)p, (void)attr, (void)nin;
	outs[0].dtype = ins[0]->dtype;
	outs[0].ndim = ins[0]->ndim;
	for (uint32_t i = 0; i < ins[0]->ndim; i++)
		outs[0].dims[i] = ins[0]->dims[i];
	*nout = 1;
	return HD_OK;
}

static int straight(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
		    uint64_t want, struct hd_tensor **din)
{
	(void)s, (void)p, (void)n, (void)want;
	din[0] = dout[0];
	return HD_OK;
}

static const struct hd_op rounded = { .size = sizeof(rounded), .name = "rounded", .shape = same, .vjp = straight };

static int rewrite(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_host *h = hd_basic_of(self)->h;
	const struct hd_graph_api *g = h->graph;
	const struct hd_match norms = { .size = sizeof(norms), .kind = "norm" };
	struct hd_match readers = { .size = sizeof(readers) };
	struct hd_node *n = g->node_next(p, NULL, &norms);
	struct hd_tensor *x, *y;

	for (int i = 0; n && i < 4; i++) /* two a layer: the first of layer 2 */
		n = g->node_next(p, n, &norms);
	if (!n)
		return h->fail(p, HD_EINVAL, "no third layer");
	x = n->ins[0];
	hd_cursor(g, p, n, NULL);
	y = g->node(p, &rounded, &x, 1, "%s", "")->outs[0];
	readers.reads = x;
	for (n = g->node_next(p, NULL, &readers); n; n = g->node_next(p, n, &readers))
		if (n->op != &rounded)
			g->replace_in(p, n, x, y);
	return h->status(p);
}

static int lower(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_host *h = hd_basic_of(self)->h;
	const struct hd_graph_api *g = h->graph;
	const struct hd_match mine = { .size = sizeof(mine), .op = &rounded };
	struct hd_node *n = g->node_next(p, NULL, &mine);
	struct hd_tensor *in[2], *index;

	if (!n)
		return h->status(p);
	hd_cursor(g, p, n, NULL);
	in[0] = n->ins[0];
	g->topk(p, in[0], in[0]->dims[in[0]->ndim - 1], h->dim_new(p, "one", 1), 1, &in[1], &index);
	in[1] = g->einsum(p, &in[1], 1, in[0]->dims, in[0]->ndim - 1);
	in[0] = g->map(p, in, 2, "round(a * 127 / abs(b))");
	g->replace(p, n->outs[0], g->map(p, in, 2, "a * abs(b) / 127"));
	return h->status(p);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rewrite = rewrite, .lower = lower };
HD_PLUGIN("boundary", "1.0", &ops)
