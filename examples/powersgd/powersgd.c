/* SPDX-License-Identifier: Apache-2.0
 * powersgd: an axis of replicas that exchange low-rank gradients, with error feedback (Vogels et al., 1905.13727).
 *
 * A gradient is seen as a matrix M: its longest dim forms the columns, and all other dims the rows. e is the part that
 * a member has not sent so far. Q (columns x rank) is kept from step to step and begins as random normal numbers. With
 * n members:
 *
 *	M = x + e
 *	P = sum over the members of M Q,  then orthonormal columns (Gram-Schmidt)
 *	Q = sum over the members of M' P
 *	the sum of the gradients: P Q'       e = M - P Q' / n
 *
 * If the rank equals the number of rows or columns, P P' M = M, and the sums are exact. With any rank, a single rank
 * that uses the sum of all gradients as x computes the same, because M Q is linear. That is the serial definition
 * below, with which `heddle conform` compares.
 */
#include <heddle/strategy.h>
#include <math.h>
#include <string.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct hd_axis *axis;
	const struct hd_group *members;
	int64_t rank, smallest;
};

#define MAX_RANK 64
static const struct hd_option options[] = {
	{ "rank", HD_OPT_INT, 0, "4", "1..64",
	  "columns of the factors, at most as many as a matrix has rows or columns" },
	{ "smallest", HD_OPT_INT, 0, "1024", "4..", "tensors with fewer elements, and vectors, are summed exactly" },
};

static int power_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	s->rank = h->opt_int(p, "rank");
	s->smallest = h->opt_int(p, "smallest");
	*self = s;
	return HD_OK;
}

static int power_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->axis = hd_axis_new(s->h, p, NULL, size ? size : left);
	return s->h->status(p);
}

static int power_rules(struct hd_strategy *s, struct hd_plan *p)
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

/* Returns the index of the longest dim that is not sharded. */
static uint32_t columns_of(const struct hd_tensor *t)
{
	uint32_t at = t->ndim;

	for (uint32_t i = 0; i < t->ndim; i++)
		if (t->local[i] == t->dims[i]->n && (at == t->ndim || t->dims[i]->n > t->dims[at]->n))
			at = i;
	return at;
}

/* rows: the dims of P, which are the rows of x and then rank. columns: the dims of Q, which are column and rank. */
struct factors {
	const struct hd_dim *rows[HD_MAX_DIMS], *columns[2];
	uint32_t nrows;
	int64_t rank;
};

static void dims_of(struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *x, struct factors *f)
{
	uint32_t at = columns_of(x);
	int64_t rows = elements(x) / x->dims[at]->n, least = rows < x->dims[at]->n ? rows : x->dims[at]->n;
	char name[16] = "rank", *end = name + 4;

	f->rank = s->rank < least ? s->rank : least;
	for (int64_t n = f->rank; n; n /= 10)
		*end++ = (char)('0' + n % 10);
	f->nrows = 0;
	for (uint32_t i = 0; i < x->ndim; i++)
		if (i != at)
			f->rows[f->nrows++] = x->dims[i];
	f->rows[f->nrows++] = f->columns[1] = s->h->dim_new(p, name, f->rank);
	f->columns[0] = x->dims[at];
}

/* Returns x with orthonormal columns. From each column, its components along the earlier columns are subtracted, twice
 * because of rounding. */
static struct hd_tensor *orthonormal(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x,
				     const struct factors *f)
{
	const struct hd_graph_api *g = s->g;
	struct hd_tensor *c[MAX_RANK], *in[3];

	for (int64_t j = 0; j < f->rank; j++) {
		const struct hd_pos at = { .add = (int32_t)j };

		c[j] = g->chunk(p, x, f->columns[1], f->rank, &at);
		for (int64_t i = 0; i < 2 * j; i++) {
			in[0] = c[j], in[1] = c[i % j];
			in[2] = g->einsum(p, in, 2, NULL, 0);
			c[j] = g->map(p, in, 3, "a - b * c");
		}
		in[0] = in[1] = c[j];
		in[1] = g->einsum(p, in, 2, NULL, 0);
		c[j] = g->map(p, in, 2, "a / sqrt(b + 1e-30)");
	}
	return g->join(p, c, (uint32_t)f->rank, f->columns[1], NULL);
}

/* Along another axis that has terms or shards of x, each member computes a Q of its own. */
static void own_factor(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *q, const struct hd_tensor *x)
{
	for (const struct hd_axis *a = s->h->axis_next(p, NULL); a; a = s->h->axis_next(p, a)) {
		const struct hd_place *at = s->g->place(p, x, a);

		if (a != s->axis && at && (at->kind == HD_PLACE_PARTIAL || at->kind == HD_PLACE_SHARD))
			s->g->own(p, q, a, HD_RESHARD_ZERO);
	}
}

static struct hd_tensor *low_rank_sum(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x)
{
	const struct hd_graph_api *g = s->g;
	struct hd_tensor *late = hd_state(g, p, "residual", x, x->dtype, HD_RESHARD_SUM), *m, *q, *in[2], *sum;
	struct factors f;

	dims_of(s, p, x, &f);
	in[0] = x, in[1] = late;
	m = g->map(p, in, 2, "a + b");
	q = hd_state(g, p, x->of->name, g->constant(p, f.columns, 2, 0), x->dtype, HD_RESHARD_ZERO);
	own_factor(s, p, q, x);
	g->initial(p, q, HD_INITIAL_NORMAL, 1);
	in[0] = m, in[1] = q;
	in[1] = hd_comm(g, p, HD_COMM_ALL_REDUCE, s->members, g->einsum(p, in, 2, f.rows, f.nrows), NULL, 0);
	in[1] = orthonormal(s, p, in[1], &f);
	in[0] = hd_comm(g, p, HD_COMM_ALL_REDUCE, s->members, g->einsum(p, in, 2, f.columns, 2), NULL, 0);
	g->assign(p, q, in[0]);
	sum = g->einsum(p, in, 2, x->dims, x->ndim);
	in[0] = m, in[1] = sum;
	g->assign(p, late, g->map(p, in, 2, "a - b / %lld", (long long)s->axis->n));
	return sum;
}

static int is_gradient_sum(const struct hd_strategy *s, const struct hd_node *n)
{
	const struct hd_reshard *r = n->reshard;
	const struct hd_tensor *x = n->ins[0];

	return x->what == HD_TENSOR_GRAD && r->have.kind == HD_PLACE_PARTIAL && r->need.kind == HD_PLACE_REPLICATED &&
	       elements(x) >= s->smallest && x->of && x->ndim > 1 && columns_of(x) < x->ndim;
}

static int power_lower(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match ours = { .size = sizeof(ours), .kind = "reshard", .axis = s->axis };
	struct hd_node *n, *next;

	s->members = hd_group_of(s->h, p, &s->axis, 1);
	for (n = s->g->node_next(p, NULL, &ours); n; n = next) {
		next = s->g->node_next(p, n, &ours);
		if (!is_gradient_sum(s, n))
			continue;
		hd_cursor(s->g, p, n, s->members);
		s->g->replace(p, n->outs[0], low_rank_sum(s, p, n->ins[0]));
	}
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = sizeof(options) / sizeof(options[0]),
	.option_size = sizeof(options[0]),
	.open = power_open,
	.mesh = power_mesh,
	.rules = power_rules,
	.lower = power_lower,
};

/* -- the same for one parameter, in plain C ------------------------------------------------------------------------ */
#define RANK 2
#define SMALLEST 50

/* A tensor as a matrix: the longest dim is the column, and `inner` elements lie between adjacent columns. */
struct matrix {
	int64_t rows, columns, inner;
};

static struct matrix matrix_of(const struct hd_serial *s)
{
	struct matrix m = { .inner = 1 };
	uint32_t c = 0;

	for (uint32_t d = 1; d < s->ndim; d++)
		c = s->dims[d] > s->dims[c] ? d : c;
	for (uint32_t d = c + 1; d < s->ndim; d++)
		m.inner *= s->dims[d];
	m.columns = s->dims[c];
	m.rows = s->n / m.columns;
	return m;
}

/* Returns the address of element (row, column). */
static double *at(double *x, const struct matrix *m, int64_t row, int64_t column)
{
	return x + (row / m->inner * m->columns + column) * m->inner + row % m->inner;
}

static double dot_columns(const double *p, int64_t rows, int64_t i, int64_t j)
{
	double sum = 0;

	for (int64_t r = 0; r < rows; r++)
		sum += p[r * RANK + i] * p[r * RANK + j];
	return sum;
}

/* Computes P = M Q with orthonormal columns. */
static void left_factor(const struct matrix *m, double *x, const double *q, double *p)
{
	memset(p, 0, (size_t)(m->rows * RANK) * sizeof(*p));
	for (int64_t r = 0; r < m->rows; r++)
		for (int64_t c = 0; c < m->columns; c++)
			for (int64_t j = 0; j < RANK; j++)
				p[r * RANK + j] += *at(x, m, r, c) * q[c * RANK + j];
	for (int64_t j = 0; j < RANK; j++) {
		double length;

		for (int64_t i = 0; i < 2 * j; i++) {
			double dot = dot_columns(p, m->rows, j, i % j);

			for (int64_t r = 0; r < m->rows; r++)
				p[r * RANK + j] -= dot * p[r * RANK + i % j];
		}
		length = sqrt(dot_columns(p, m->rows, j, j) + 1e-30);
		for (int64_t r = 0; r < m->rows; r++)
			p[r * RANK + j] /= length;
	}
}

/* Replaces M in x by the sum that all members get, and stores the rest of M in late. */
static void low_rank(const struct matrix *m, double *x, double *late, double *q, double *p)
{
	left_factor(m, x, q, p);
	memset(q, 0, (size_t)(m->columns * RANK) * sizeof(*q));
	for (int64_t r = 0; r < m->rows; r++)
		for (int64_t c = 0; c < m->columns; c++)
			for (int64_t j = 0; j < RANK; j++)
				q[c * RANK + j] += *at(x, m, r, c) * p[r * RANK + j];
	for (int64_t r = 0; r < m->rows; r++)
		for (int64_t c = 0; c < m->columns; c++) {
			double sum = 0;

			for (int64_t j = 0; j < RANK; j++)
				sum += p[r * RANK + j] * q[c * RANK + j];
			*at(late, m, r, c) = *at(x, m, r, c) - sum;
			*at(x, m, r, c) = sum;
		}
}

static int serial_update(const struct hd_serial *s)
{
	const struct matrix m = matrix_of(s);
	double *x = s->state(s, "sum", s->n), *late = s->state(s, "late", s->n);
	double *q = s->state(s, "q", m.columns * RANK), *p = s->state(s, "p", m.rows * RANK);
	int small = s->ndim < 2 || s->n < SMALLEST;

	if (!x || !late || !q || !p)
		return HD_ENOMEM;
	for (int64_t i = 0; i < s->n; i++) {
		x[i] = small ? 0 : late[i];
		for (uint32_t k = 0; k < s->members; k++)
			x[i] += s->gradients[k][i];
	}
	if (!small && s->step == 1 && s->initial(s, s->name, q, m.columns * RANK) < 0)
		return HD_EINVAL; /* the plugin's first Q is random */
	if (!small)
		low_rank(&m, x, late, q, p);
	for (int64_t i = 0; i < s->n; i++) {
		s->param[i] -= s->lr * x[i];
		for (uint32_t k = 0; k < s->members; k++)
			s->weights[k][i] = s->param[i];
	}
	return HD_OK;
}

static const struct hd_serial_ops serial = { .size = sizeof(serial),
					     .keys = "rank=2 smallest=50",
					     .update = serial_update };
HD_PLUGIN_TABLES("powersgd", "1.1", .strategy = &ops, .approximate = "rank=64", .serial = &serial)
