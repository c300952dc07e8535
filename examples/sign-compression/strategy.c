/* SPDX-License-Identifier: Apache-2.0
 * An axis of replicas that exchange one bit for each element of a gradient.
 *
 * Each member has to send its own gradient x and the residual e, the part of earlier gradients not sent yet:
 *
 *	p = x + e	sent: sign(p), one bit per element, and m = mean |p|	e = p - m sign(p)
 *
 * The gradient is the sum over the members of m sign(p). No part of a gradient is lost: it only arrives later. That is
 * why this converges where plain signs do not.
 *
 * Seide et al., 1-Bit Stochastic Gradient Descent, 2014; Karimireddy et al., 1901.09847.
 */
#include <heddle/serial.h>
#include <heddle/strategy.h>

#define SMALLEST 50 /* for the serial definition */

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct hd_axis *axis;
	const struct hd_group *members;
	const struct hd_dim *member; /* a dim of our own with one entry per member */
	int64_t smallest;
};

static const struct hd_option options[] = {
	{ "smallest", HD_OPT_INT, 0, "4096", "1..", "tensors with fewer elements are summed exactly" },
};

static int sign_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	s->smallest = h->opt_int(p, "smallest");
	*self = s;
	return HD_OK;
}

static int sign_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->axis = hd_axis_new(s->h, p, NULL, size ? size : left);
	return s->h->status(p);
}

/* This alone is data parallelism: samples are sharded, so gradients are partial sums along the axis. */
static int sign_rules(struct hd_strategy *s, struct hd_plan *p)
{
	return hd_rule(s->h, p, "batch", s->axis, NULL, 0);
}

static int64_t elements(const struct hd_tensor *t)
{
	int64_t n = 1;

	for (uint32_t i = 0; i < t->ndim; i++)
		n *= t->local[i];
	return n;
}

/* Returns mean |p|. With this m, m sign(p) is the best approximation of p by signs and one number. */
static struct hd_tensor *mean_size(const struct hd_graph_api *g, struct hd_plan *p, struct hd_tensor *owed)
{
	int64_t n = elements(owed);
	struct hd_tensor *size = g->map(p, &owed, 1, "abs(a)");
	struct hd_tensor *sum = g->einsum(p, &size, 1, NULL, 0);

	return g->map(p, &sum, 1, "a / %lld", (long long)n);
}

/* Returns the sum over the members, added in member order, so that every member gets the same bits. */
static struct hd_tensor *gather_and_sum(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *bits,
					struct hd_tensor *mean, const struct hd_tensor *like)
{
	const struct hd_graph_api *g = s->g;
	struct hd_tensor *all[2];

	all[0] = g->cast(p, hd_comm(g, p, HD_COMM_ALL_GATHER, s->members, bits, s->member, 0), like->dtype);
	all[1] = hd_comm(g, p, HD_COMM_ALL_GATHER, s->members, mean, s->member, 0);
	return g->einsum(p, all, 2, like->dims, like->ndim);
}

static struct hd_tensor *compressed_sum(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x)
{
	const struct hd_graph_api *g = s->g;
	/* Partial like x: its sum over the members is what the replicas together still owe. With another number of
	 * members, this sum must be kept. */
	struct hd_tensor *late = hd_state(g, p, "residual", x, x->dtype, HD_RESHARD_SUM);
	struct hd_tensor *in[3] = { x, late }, *owed, *bits, *mean;

	owed = g->map(p, in, 2, "a + b");
	mean = mean_size(g, p, owed);
	bits = g->cast(p, owed, HD_DTYPE_B1);
	in[0] = owed;
	in[1] = g->cast(p, bits, x->dtype); /* +1 and -1, as the other members will receive them */
	in[2] = mean;
	g->assign(p, late, g->map(p, in, 3, "a - b * c"));
	return gather_and_sum(s, p, bits, mean, x);
}

/* Tells whether n is a sum that we replace: that of a gradient over the axis, once per step. Losses and norms stay
 * exact. */
static int is_gradient_sum(const struct hd_strategy *s, const struct hd_node *n)
{
	const struct hd_reshard *r = n->reshard;

	return n->ins[0]->what == HD_TENSOR_GRAD && r->have.kind == HD_PLACE_PARTIAL &&
	       r->need.kind == HD_PLACE_REPLICATED && elements(n->ins[0]) >= s->smallest;
}

static int sign_lower(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match ours = { .size = sizeof(ours), .kind = "reshard", .axis = s->axis };
	struct hd_node *n, *next;

	s->members = hd_group_of(s->h, p, &s->axis, 1);
	s->member = s->h->dim_new(p, "member", s->axis->n);
	for (n = s->g->node_next(p, NULL, &ours); n; n = next) {
		next = s->g->node_next(p, n, &ours);
		if (!is_gradient_sum(s, n))
			continue;
		/* In the unit of the reshard, and on the group's queue, so that it runs during the backward pass. */
		hd_cursor(s->g, p, n, s->members);
		s->g->replace(p, n->outs[0], compressed_sum(s, p, n->ins[0]));
	}
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = sizeof(options) / sizeof(options[0]),
	.option_size = sizeof(options[0]),
	.open = sign_open,
	.mesh = sign_mesh,
	.rules = sign_rules,
	.lower = sign_lower,
};

/* The same in plain C: computes a step of SGD from the gradients of all members. */
static int sign_serial(const struct hd_serial *s)
{
	double *late = s->state(s, "late", s->n * s->members), *sum = s->state(s, "sum", s->n);

	if (!late || !sum)
		return HD_ENOMEM;
	for (uint32_t k = 0; k < s->members; k++) {
		double *owed = late + s->n * k, mean = 0;

		for (int64_t i = 0; i < s->n; i++) {
			owed[i] += s->gradients[k][i];
			mean += (owed[i] < 0 ? -owed[i] : owed[i]) / (double)s->n;
		}
		for (int64_t i = 0; i < s->n; i++) {
			double sent = s->n < SMALLEST ? owed[i] : owed[i] < 0 ? -mean : mean;

			sum[i] = (k ? sum[i] : 0) + sent;
			owed[i] -= sent;
		}
	}
	for (int64_t i = 0; i < s->n; i++) {
		s->param[i] -= s->lr * sum[i];
		for (uint32_t k = 0; k < s->members; k++)
			s->weights[k][i] = s->param[i];
	}
	return HD_OK;
}

static const struct hd_serial_ops serial = { .size = sizeof(serial), .keys = "smallest=50", .update = sign_serial };

HD_PLUGIN_TABLES("sign_compression", "1.1", .strategy = &ops, .approximate = "smallest=1000000000", .serial = &serial)
