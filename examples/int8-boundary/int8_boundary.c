/* SPDX-License-Identifier: Apache-2.0
 * int8_boundary: sends activations between stages in 8 bits. It claims no axis: it lowers movements between the stages
 * of another strategy. It does so only in forward; gradients return unchanged.
 *
 * Each token's activations x are sent as the nearest integers from -127 to 127, in units of s / 127. Here s is the
 * largest |x| of the token, which is sent too. The error is at most s / 254. The gradient ignores the rounding.
 *
 * With bits = 32 nothing is changed. With at = BLOCK one rank rounds what that block reads from earlier blocks, as two
 * stages with a boundary there do. This shows what 8 bits cost before a run has stages. It is also the serial
 * definition with which `heddle conform` compares.
 */
#include <heddle/strategy.h>
#include <string.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct hd_dim *one;
	int64_t bits;
	const char *at;
};

static const struct hd_option options[] = {
	{ "bits", HD_OPT_INT, 0, "8", "8..32", "8, or 32: as they are" },
	{ "at", HD_OPT_STR, 0, "none", NULL, "without stages: the number of a layer whose input is rounded in place" },
};

static int int8_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	s->bits = h->opt_int(p, "bits");
	s->at = h->opt_str(p, "at");
	*self = s;
	return s->bits == 8 || s->bits == 32 ? HD_OK
					     : h->fail(p, HD_EINVAL, "bits: %lld, it is 8 or 32", (long long)s->bits);
}

/* Returns the largest |x| of each token. */
static struct hd_tensor *scale_of(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x)
{
	struct hd_tensor *most = NULL, *index = NULL;

	if (!s->one)
		s->one = s->h->dim_new(p, "one", 1);
	s->g->topk(p, x, x->dims[x->ndim - 1], s->one, 1, &most, &index);
	if (!most)
		return NULL;
	most = s->g->einsum(p, &most, 1, x->dims, x->ndim - 1); /* removes the dim of one entry */
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

	hd_cursor(s->g, p, x->node, NULL); /* at the node that computes x, so the sender runs this part */
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

/* -- without stages ------------------------------------------------------------------------------------------------ */
static int same_shape(struct hd_strategy *s, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins,
		      uint32_t nin, struct hd_shape *outs, uint32_t *nout)
{
	(void)s, (void)p, (void)attr, (void)nin;
	outs[0].dtype = ins[0]->dtype;
	outs[0].ndim = ins[0]->ndim;
	for (uint32_t i = 0; i < ins[0]->ndim; i++)
		outs[0].dims[i] = ins[0]->dims[i];
	*nout = 1;
	return HD_OK;
}

static int straight_through(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
			    uint64_t want, struct hd_tensor **din)
{
	(void)s, (void)p, (void)n, (void)want;
	din[0] = dout[0];
	return HD_OK;
}

static const struct hd_op rounded = {
	.size = sizeof(rounded), .name = "rounded", .shape = same_shape, .vjp = straight_through
};

static int is_read_at(const struct hd_strategy *s, const struct hd_node *n, const struct hd_tensor *x)
{
	return !strncmp(n->block, "layer ", 6) && !strcmp(n->block + 6, s->at) && x->node &&
	       strcmp(x->node->block, n->block) && x->what == HD_TENSOR_ACT && x->ndim > 1;
}

static int int8_rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match all = { .size = sizeof(all) };
	struct hd_tensor *from = NULL, *to = NULL;

	if (!strcmp(s->at, "none") || s->bits != 8)
		return HD_OK;
	for (struct hd_node *n = s->g->node_next(p, NULL, &all); n; n = s->g->node_next(p, n, &all))
		for (uint32_t i = 0; i < n->nin; i++) {
			struct hd_tensor *x = n->ins[i];

			if (!is_read_at(s, n, x) || n->op == &rounded)
				continue;
			if (x != from) {
				hd_cursor(s->g, p, n, NULL);
				from = x;
				to = s->g->node(p, &rounded, &x, 1, "%s", "")->outs[0];
			}
			s->g->replace_in(p, n, from, to);
		}
	return from ? s->h->status(p) : s->h->fail(p, HD_EINVAL, "at: no layer %s reads what another one made", s->at);
}

static void round_here(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n)
{
	struct hd_tensor *y[2] = { n->ins[0], NULL };

	hd_cursor(s->g, p, n, NULL);
	y[1] = scale_of(s, p, y[0]);
	y[0] = s->g->map(p, y, 2, "round(a * 127 / b)");
	s->g->replace(p, n->outs[0], s->g->map(p, y, 2, "a * b / 127"));
}

static int int8_lower(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match moves = { .size = sizeof(moves), .kind = "reshard", .phases = HD_UNIT_F };
	const struct hd_match ours = { .size = sizeof(ours), .op = &rounded };
	struct hd_node *n, *next;

	for (n = s->g->node_next(p, NULL, &ours); n; n = next) {
		next = s->g->node_next(p, n, &ours);
		round_here(s, p, n);
	}
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
					    .noptions = sizeof(options) / sizeof(options[0]),
					    .option_size = sizeof(options[0]),
					    .open = int8_open,
					    .rewrite = int8_rewrite,
					    .lower = int8_lower };
static const struct hd_serial_ops serial = {
	.size = sizeof(serial), .keys = "bits=8", .beside = "pp size=2 split=2,2", .one = "bits=8 at=2"
};
HD_PLUGIN_TABLES("int8_boundary", "1.1", .strategy = &ops, .approximate = "bits=32", .serial = &serial)
