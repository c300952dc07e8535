/* SPDX-License-Identifier: Apache-2.0
 * sparse_sums: an axis of replicas that exchange only the largest entries of each gradient, with error feedback.
 *
 * Each member has to send its own gradient x and the residual e, the part of earlier gradients not sent yet.
 * Along one dim of the tensor:
 *
 *	p = x + e	sent: the k largest |p| of each row, with their indices	e = p - what was sent
 *
 * The gradient is the sum over the members of what was sent. With keep = 1 everything is sent, and the sums are
 * exact.
 *
 * Stich et al., 1809.07599; Lin et al., 1712.01887 (without momentum correction).
 */
#include <heddle/strategy.h>
#include <math.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct hd_axis *axis;
	const struct hd_group *members;
	const struct hd_dim *member; /* a dim of our own with one entry per member */
	double keep;
	int64_t smallest;
};

static const struct hd_option options[] = {
	{ "keep", HD_OPT_NUM, 0, "0.01", "0..1", "share of the entries of each row that is sent, at least one" },
	{ "smallest", HD_OPT_INT, 0, "1024", "2..", "tensors with fewer elements are summed exactly" },
};

static int sparse_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	s->keep = h->opt_num(p, "keep");
	s->smallest = h->opt_int(p, "smallest");
	*self = s;
	return HD_OK;
}

static int sparse_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->axis = hd_axis_new(s->h, p, NULL, size ? size : left);
	return s->h->status(p);
}

static int sparse_rules(struct hd_strategy *s, struct hd_plan *p)
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

/* Returns the longest dim that is not sharded. Along it, the entries of a row are compared. */
static const struct hd_dim *row_of(const struct hd_tensor *t)
{
	const struct hd_dim *d = NULL;

	for (uint32_t i = 0; i < t->ndim; i++)
		if (t->local[i] == t->dims[i]->n && t->dims[i]->n > 1 && (!d || t->dims[i]->n > d->n))
			d = t->dims[i];
	return d;
}

static const struct hd_dim *kept(struct hd_strategy *s, struct hd_plan *p, const struct hd_dim *row)
{
	int64_t k = (int64_t)(s->keep * (double)row->n + 0.5);
	char name[32] = "kept", *at = name + 4;

	k = k < 1 ? 1 : k;
	for (int64_t n = row->n; n; n /= 10) /* the name contains the row length, so each length has its own dim */
		*at++ = (char)('0' + n % 10);
	return s->h->dim_new(p, name, k);
}

static struct hd_tensor *sparse_sum(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x)
{
	const struct hd_graph_api *g = s->g;
	const struct hd_dim *row = row_of(x), *few = kept(s, p, row);
	struct hd_tensor *late = hd_state(g, p, "residual", x, x->dtype, HD_RESHARD_SUM), *values, *index, *all;
	struct hd_tensor *in[2] = { x, late }, *owed = g->map(p, in, 2, "a + b");

	if (g->topk(p, owed, row, few, 1, &values, &index))
		return NULL;
	in[0] = owed;
	in[1] = g->scatter(p, values, index, few, row, 1);
	g->assign(p, late, g->map(p, in, 2, "a - b"));
	values = hd_comm(g, p, HD_COMM_ALL_GATHER, s->members, values, s->member, 0);
	index = hd_comm(g, p, HD_COMM_ALL_GATHER, s->members, index, s->member, 0);
	all = g->scatter(p, values, index, few, row, 1);
	return g->einsum(p, &all, 1, x->dims, x->ndim);
}

static int is_gradient_sum(const struct hd_strategy *s, const struct hd_node *n)
{
	const struct hd_reshard *r = n->reshard;

	return n->ins[0]->what == HD_TENSOR_GRAD && r->have.kind == HD_PLACE_PARTIAL &&
	       r->need.kind == HD_PLACE_REPLICATED && elements(n->ins[0]) >= s->smallest && row_of(n->ins[0]);
}

static int sparse_lower(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match ours = { .size = sizeof(ours), .kind = "reshard", .axis = s->axis };
	struct hd_node *n, *next;

	s->members = hd_group_of(s->h, p, &s->axis, 1);
	s->member = s->h->dim_new(p, "member", s->axis->n);
	for (n = s->g->node_next(p, NULL, &ours); n; n = next) {
		next = s->g->node_next(p, n, &ours);
		if (!is_gradient_sum(s, n))
			continue;
		hd_cursor(s->g, p, n, s->members);
		s->g->replace(p, n->outs[0], sparse_sum(s, p, n->ins[0]));
	}
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = sizeof(options) / sizeof(options[0]),
	.option_size = sizeof(options[0]),
	.open = sparse_open,
	.mesh = sparse_mesh,
	.rules = sparse_rules,
	.lower = sparse_lower,
};

/* -- the same for one parameter, in plain C, with which `heddle conform` compares ---------------------------------- */
#define KEEP 0.25
#define SMALLEST 50

/* Returns the column of the largest entry that has not been sent yet, or -1. */
static int64_t largest(const double *row, const double *sent, int64_t columns, int64_t stride)
{
	int64_t most = -1;

	for (int64_t c = 0; c < columns; c++)
		if (sent[c * stride] == 0 && (most < 0 || fabs(row[c * stride]) > fabs(row[most * stride])))
			most = c;
	return most;
}

/* Moves the k largest entries of one row from owed to sent. */
static void send_row(double *owed, double *sent, int64_t columns, int64_t stride)
{
	int64_t k = (int64_t)(KEEP * (double)columns + 0.5);

	for (k = k < 1 ? 1 : k; k; k--) {
		int64_t c = largest(owed, sent, columns, stride);

		if (c < 0)
			break;
		sent[c * stride] = owed[c * stride];
		owed[c * stride] = 0;
	}
}

/* Computes what one member sends, and leaves in `owed` what it then still owes. */
static void send(const struct hd_serial *s, double *owed, double *sent)
{
	int64_t stride = 1;
	uint32_t row = 0;

	for (uint32_t d = 1; d < s->ndim; d++)
		row = s->dims[d] > s->dims[row] ? d : row;
	for (uint32_t d = row + 1; d < s->ndim; d++)
		stride *= s->dims[d];
	for (int64_t i = 0; i < s->n; i++)
		sent[i] = 0;
	for (int64_t i = 0; i < s->n; i++)
		if (i / stride % s->dims[row] == 0)
			send_row(owed + i, sent + i, s->dims[row], stride);
}

static int serial_update(const struct hd_serial *s)
{
	double *owed = s->state(s, "owed", s->n * s->members), *sent = s->state(s, "sent", s->n);

	if (!owed || !sent)
		return HD_ENOMEM;
	for (uint32_t k = 0; k < s->members; k++) {
		double *mine = owed + s->n * k;

		for (int64_t i = 0; i < s->n; i++)
			mine[i] += s->gradients[k][i];
		if (s->n >= SMALLEST)
			send(s, mine, sent);
		for (int64_t i = 0; i < s->n; i++) {
			s->param[i] -= s->lr * (s->n >= SMALLEST ? sent[i] : mine[i]);
			mine[i] = s->n >= SMALLEST ? mine[i] : 0;
		}
	}
	for (uint32_t k = 0; k < s->members; k++)
		for (int64_t i = 0; i < s->n; i++)
			s->weights[k][i] = s->param[i];
	return HD_OK;
}

static const struct hd_serial_ops serial = { .size = sizeof(serial),
					     .keys = "keep=0.25 smallest=50",
					     .update = serial_update };
HD_PLUGIN_TABLES("sparse_sums", "1.1", .strategy = &ops, .approximate = "keep=1", .serial = &serial)
