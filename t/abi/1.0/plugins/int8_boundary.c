/* SPDX-License-Identifier: Apache-2.0
 * int8_boundary: activations go from stage to stage in 8 bits.  It claims no axis: it lowers the movements that another
 * strategy's stages need, of forward alone; gradients come back as they are.
 *
 * Each token's activations x go as the nearest of -127 to 127 times s / 127, where s is the largest |x| of the token, and s
 * with them.  What arrives is off by at most s / 254, and a gradient passes as if nothing had been rounded.
 *
 * With bits = 32 nothing is changed.
 */
#include <heddle/strategy.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct hd_dim *one;
	int64_t bits;
};

static const struct hd_option options[] = {
	{ "bits", HD_OPT_INT, 0, "8", "8..32", "8, or 32: as they are" },
};

static int int8_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	s->bits = h->opt_int(p, "bits");
	*self = s;
	return s->bits == 8 || s->bits == 32 ? HD_OK
					     : h->fail(p, HD_EINVAL, "bits: %lld, it is 8 or 32", (long long)s->bits);
}

/* The largest |x| of each token. */
static struct hd_tensor *scale_of(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x)
{
	struct hd_tensor *most = NULL, *index = NULL;

	if (!s->one)
		s->one = s->h->dim_new(p, "one", 1);
	s->g->topk(p, x, x->dims[x->ndim - 1], s->one, 1, &most, &index);
	if (!most)
		return NULL;
	most = s->g->einsum(p, &most, 1, x->dims, x->ndim - 1); /* without the dim of one entry */
	return most ? s->g->map(p, &most, 1, "max(abs(a), %.17g)", 1e-30) : NULL;
}

static struct hd_tensor *arrives(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *x,
				 uint32_t dtype)
{
	x = s->g->reshard(p, x, n->reshard->axis, &n->reshard->need);
	return x && x->dtype != dtype ? s->g->cast(p, x, dtype) : x;
}

static void quantise(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n)
{
	struct hd_tensor *x = n->ins[0], *y[2];
	uint32_t dtype = x->dtype;

	hd_cursor(s->g, p, x->node, NULL); /* where it is made: what the sender does */
	y[0] = x;
	y[1] = scale_of(s, p, x);
	if (!y[1])
		return;
	x = s->g->cast(p, s->g->map(p, y, 2, "a * 127 / b"), HD_DTYPE_I8);
	hd_cursor(s->g, p, n, NULL);
	y[0] = arrives(s, p, n, x, dtype);
	y[1] = arrives(s, p, n, y[1], dtype);
	s->g->replace(p, n->outs[0], s->g->map(p, y, 2, "a * b / 127"));
}

static int int8_lower(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match moves = { .size = sizeof(moves), .kind = "reshard", .phases = HD_UNIT_F };
	struct hd_node *n, *next;

	for (n = s->g->node_next(p, NULL, &moves); n && s->bits == 8; n = next) {
		next = s->g->node_next(p, n, &moves);
		if (n->reshard->have.kind == HD_PLACE_PINNED && n->reshard->need.kind == HD_PLACE_PINNED &&
		    n->ins[0]->node && n->ins[0]->what == HD_TENSOR_ACT && n->ins[0]->ndim > 1)
			quantise(s, p, n);
	}
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops),
					    .options = options,
					    .noptions = 1,
					    .option_size = sizeof(options[0]),
					    .open = int8_open,
					    .lower = int8_lower };
HD_PLUGIN_TABLES("int8_boundary", "1.0", .strategy = &ops, .approximate = "bits=32")
