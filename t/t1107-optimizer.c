/* SPDX-License-Identifier: Apache-2.0
 * Optimizers of plugins: examples/muon.  Its nodes update every parameter as the definition says, in the test's own
 * arithmetic. Layouts that shard states, gradients, parameters and matrices, or have stages, end with the parameters of
 * one rank.  If this broke, a plugin's optimizer would train a different model in each layout.
 *
 * In double on the reference device, all ranks in this process.
 */
#include <config.h>
#include "t/lib/one_rank.h"

#define PLUGIN(name) "[strategy " name "]\nplugin = " HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\n"
#define DECAY 0.25
#define MU 0.875
#define BETA1 0.75
#define BETA2 0.9
#define EPS 0.01
#define LR 0.03125
#define CLIP 0.125
#define BATCH 18
#define SEQ 5
#define STEPS 3
#define ITERATIONS 5

static char so[] = "/tmp/heddle-t1107.XXXXXX/muon.so";

static int build(void)
{
	char *dir = hd_strdup(so), command[2000];
	int rc;

	*strrchr(dir, '/') = 0;
	if (!mkdtemp(dir))
		return -1;
	memcpy(so, dir, strlen(dir));
	snprintf(
		command, sizeof(command),
		"${CC:-cc} -std=gnu11 -O1 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -I '%s/include' -o '%s' "
		"'%s/examples/muon/muon.c' -lm",
		HD_TEST_SRC, so, HD_TEST_SRC);
	rc = system(command);
	free(dir);
	return rc;
}

static struct hd_plan *plan(const char *model, int ranks, const char *sections)
{
	char ini[2500];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 3\nheads = 3\nembed = 18\nmlp = 27\nvocab = 19\n%s\n[data]\ntrain = none\n"
		 "[train]\nseq = %d\nglobal_batch = %d\nmicro_batch = %d\nsteps = 3\noptimizer = muon\n"
		 "clip = %g\nweight_decay = %g\n[plugin muon]\nfile = %s\nmomentum = %g\nsteps = %d\n"
		 "beta1 = %g\nbeta2 = %g\neps = %g\n%s",
		 model, SEQ, BATCH, ranks == 1 ? 6 : 2, CLIP, DECAY, so, MU, ITERATIONS, BETA1, BETA2, EPS, sections);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

static struct gt_run *opened(struct hd_plan *p, int many)
{
	struct gt_run *r = p ? gt_open(p, many ? sim_members : NULL) : NULL;

	for (size_t i = 0; r && i < p->ntensors; i++)
		for (int k = 0; k < r->n; k++)
			if (p->tensors[i]->v.what == HD_TENSOR_STATE && !p->tensors[i]->v.node &&
			    hd_tensor_here(r->g[k], p->tensors[i]))
				memset(gt_address(r, p->tensors[i], k), 0, (size_t)hd_local_bytes(p->tensors[i]));
	if (r) {
		r->run.lr = LR;
		r->run.loss_scale = 1.0 / (BATCH * SEQ);
	}
	return r;
}

static int is_parameter(const struct tensor *t)
{
	return !t->v.node && t->v.what == HD_TENSOR_PARAM;
}

/* The gradient that the update reads, as it is stored in checkpoints. */
static const struct tensor *gradient_of(const struct tensor *param)
{
	for (size_t i = 0; i < one->plan->ntensors; i++) {
		const struct tensor *t = one->plan->tensors[i];

		if (t->v.node && t->v.what == HD_TENSOR_GRAD && t->v.of == &param->v &&
		    N(t->v.node)->is->role == OP_ROLE_SYNC)
			return t;
	}
	return NULL;
}

static int index_of(const struct tensor *t, const char *dim)
{
	for (uint32_t i = 0; i < t->v.ndim; i++)
		if (!strcmp(t->dims[i]->name, dim))
			return (int)i;
	return -1;
}

/* By definition, a matrix has two or more dims, one of them embed, is in a layer, and is not a router. */
static int is_matrix(const struct tensor *t)
{
	return t->v.ndim >= 2 && index_of(t, "embed") >= 0 && index_of(t, "vocab") < 0 && index_of(t, "position") < 0 &&
	       index_of(t, "router_expert") < 0 && !(t->v.ndim == 2 && index_of(t, "expert") >= 0);
}

/* -- the definition -------------------------------------------------------------------------------------------------------- */
struct matrix { /* of one expert; at: the index in the tensor of element (row, column) */
	int64_t rows, columns, experts, *at;
};

static struct matrix matrix_of(const struct tensor *t)
{
	int e = index_of(t, "embed"), x = t->v.ndim > 2 ? index_of(t, "expert") : -1;
	struct matrix m = { .rows = t->dims[e]->n, .experts = x < 0 ? 1 : t->dims[x]->n };
	int64_t n = hd_local_count(t), *seen;

	m.columns = n / m.rows / m.experts;
	m.at = hd_alloc((size_t)n * sizeof(*m.at));
	seen = hd_alloc((size_t)(m.rows * m.experts) * sizeof(*seen));
	for (int64_t i = 0; i < n; i++) {
		int64_t rest = i, row = 0, expert = 0, *next;

		for (int d = (int)t->v.ndim - 1; d >= 0; rest /= t->dims[d--]->n) {
			row = d == e ? rest % t->dims[d]->n : row;
			expert = d == x ? rest % t->dims[d]->n : expert;
		}
		next = &seen[expert * m.rows + row];
		m.at[(expert * m.rows + row) * m.columns + (*next)++] = i;
	}
	free(seen);
	return m;
}

/* X becomes a X + b A X + c A A X with A = X X^T. */
static void iterate(double *x, int64_t n, int64_t columns)
{
	double *a = hd_alloc((size_t)(n * n) * sizeof(*a)), *b = hd_alloc((size_t)(n * n) * sizeof(*b));
	double *y = hd_alloc((size_t)(n * columns) * sizeof(*y));

	for (int64_t i = 0; i < n; i++)
		for (int64_t j = 0; j < n; j++)
			for (int64_t k = 0; k < columns; k++)
				a[i * n + j] += x[i * columns + k] * x[j * columns + k];
	for (int64_t i = 0; i < n; i++)
		for (int64_t j = 0; j < n; j++) {
			for (int64_t k = 0; k < n; k++)
				b[i * n + j] += 2.0315 * a[i * n + k] * a[k * n + j];
			b[i * n + j] -= 4.775 * a[i * n + j];
		}
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k < columns; k++) {
			y[i * columns + k] = 3.4445 * x[i * columns + k];
			for (int64_t j = 0; j < n; j++)
				y[i * columns + k] += b[i * n + j] * x[j * columns + k];
		}
	memcpy(x, y, (size_t)(n * columns) * sizeof(*x));
	free(a), free(b), free(y);
}

/* u: the momentum's matrix with the gradient added once more; out: the new w.  *least: the smallest norm so far. */
static void muon(const struct tensor *t, const double *w, const double *u, double *out, double *least)
{
	struct matrix m = matrix_of(t);
	int64_t n = m.rows * m.columns;
	double *x = hd_alloc((size_t)n * sizeof(*x));
	double scale = 0.2 * sqrt((double)(m.rows > m.columns ? m.rows : m.columns));

	for (int64_t e = 0; e < m.experts; e++) {
		double norm = 0;

		for (int64_t i = 0; i < n; i++)
			norm += u[m.at[e * n + i]] * u[m.at[e * n + i]];
		norm = sqrt(norm);
		*least = norm < *least ? norm : *least;
		for (int64_t i = 0; i < n; i++)
			x[i] = u[m.at[e * n + i]] / (norm + 1e-30);
		for (int k = 0; k < ITERATIONS; k++)
			iterate(x, m.rows, m.columns);
		for (int64_t i = 0; i < n; i++)
			out[m.at[e * n + i]] = w[m.at[e * n + i]] * (1 - LR * DECAY) - LR * scale * x[i];
	}
	free(x), free(m.at);
}

struct moments {
	double *m, *v;
};

static void adamw(const struct tensor *t, const double *w, const double *g, int step, struct moments *s, double *out)
{
	double b1 = 1 - pow(BETA1, step), b2 = 1 - pow(BETA2, step), decay = t->decay ? DECAY : 0;

	for (int64_t i = 0; i < hd_local_count(t); i++) {
		s->m[i] += (1 - BETA1) * (g[i] - s->m[i]);
		s->v[i] += (1 - BETA2) * (g[i] * g[i] - s->v[i]);
		out[i] = w[i] * (1 - LR * decay) - LR * (s->m[i] / b1) / (EPS + sqrt(s->v[i] / b2));
	}
}

static double factor_of(double *largest)
{
	double sum = 0;

	for (size_t i = 0; i < one->plan->ntensors; i++) {
		const struct tensor *t = one->plan->tensors[i];
		const double *g = is_parameter(t) ? gt_address(one, gradient_of(t), 0) : NULL;

		for (int64_t e = 0; g && e < hd_local_count(t); e++) {
			sum += g[e] * g[e];
			*largest = fmax(*largest, fabs(g[e]));
		}
	}
	return sqrt(sum) > CLIP ? CLIP / sqrt(sum) : 1;
}

/* Returns the new value of parameter i by the definition, allocated. */
static double *by_hand(size_t i, int step, double factor, struct moments *s, double *least, int *matrices)
{
	const struct tensor *t = one->plan->tensors[i];
	int64_t n = hd_local_count(t);
	double *g = hd_alloc((size_t)n * sizeof(*g)), *out = hd_alloc((size_t)n * sizeof(*out));
	const double *raw = gt_address(one, gradient_of(t), 0), *w = gt_address(one, t, 0);

	if (!s->m) {
		s->m = hd_alloc((size_t)n * sizeof(double));
		s->v = hd_alloc((size_t)n * sizeof(double));
	}
	for (int64_t e = 0; e < n; e++)
		g[e] = factor * raw[e];
	if (is_matrix(t)) {
		*matrices += 1;
		for (int64_t e = 0; e < n; e++) {
			s->m[e] = MU * s->m[e] + g[e];
			g[e] += MU * s->m[e];
		}
		muon(t, w, g, out, least);
	} else {
		adamw(t, w, g, step, s, out);
	}
	free(g);
	return out;
}

/* Makes a step of `one`.  Returns the largest difference from the definition. */
static double step(int number, struct moments *states, double *largest, double *least, int *matrices)
{
	double **want = hd_alloc(one->plan->ntensors * sizeof(*want)), worst = 0, factor;

	one->run.step = number;
	if (!(gt_compute(one) > 0))
		return NAN;
	factor = factor_of(largest);
	*matrices = 0;
	for (size_t i = 0; i < one->plan->ntensors; i++)
		if (is_parameter(one->plan->tensors[i]))
			want[i] = by_hand(i, number, factor, &states[i], least, matrices);
	hd_program_update(one->g[0], &one->run);
	for (size_t i = 0; i < one->plan->ntensors; i++) {
		const double *w = want[i] ? gt_address(one, one->plan->tensors[i], 0) : NULL;

		for (int64_t e = 0; w && e < hd_local_count(one->plan->tensors[i]); e++) {
			double off = fabs(w[e] - want[i][e]);

			if (!(off <= worst))
				worst = off;
		}
		free(want[i]);
	}
	free(want);
	return worst;
}

/* -- layouts --------------------------------------------------------------------------------------------------------------- */
static const struct layout {
	const char *name, *sections;
	int ranks, experts;
} layouts[] = {
	{ "dp 3", PLUGIN("dp") "size = 3\nbucket = 1K\n", 3, 0 },
	{ "dp 3, states sharded", PLUGIN("dp") "size = 3\nzero = 1\n", 3, 0 },
	{ "dp 3, gradients sharded", PLUGIN("dp") "size = 3\nzero = 2\n", 3, 0 },
	{ "dp 3, parameters sharded", PLUGIN("dp") "size = 3\nzero = 3\n", 3, 0 },
	{ "dp 3, servers", PLUGIN("dp") "size = 3\nsync = server\n", 3, 0 },
	{ "tp 3", PLUGIN("tp") "size = 3\n", 3, 0 },
	{ "pp 3", PLUGIN("pp") "size = 3\n", 3, 0 },
	{ "tp 3 x dp 3, gradients sharded", PLUGIN("tp") "size = 3\n" PLUGIN("dp") "size = 3\nzero = 2\n", 9, 0 },
	{ "ep 3 x dp 3, parameters sharded", PLUGIN("ep") "size = 3\n" PLUGIN("dp") "size = 3\nzero = 3\n", 9, 1 },
};

/* Gradients agree to 1e-12 of the largest entry (t/lib/one_rank.h).  Adam enlarges that at most by 1 / eps.  For a
 * matrix it is divided by the norm, and each iteration enlarges it at most by 3.4445: the polynomial's slope is largest
 * at 0. */
static double bound(double largest, double least)
{
	double moves = 0.2 * sqrt(27) * pow(3.4445, ITERATIONS) / least + 1 / EPS;

	return STEPS * (LR * moves * 1e-12 * largest + 4 * DBL_EPSILON);
}

static void in_layout(const struct layout *l, const char *model, double largest, double least)
{
	struct gt_run *r = opened(plan(model, l->ranks, l->sections), 1);
	const char *why = r ? NULL : gt_why(), *where = "";
	double worst = 0;

	for (int s = 1; s <= STEPS && !why; s++) {
		r->run.step = s;
		why = sim_compute(r);
		why = why ? why : sim_update(r);
	}
	for (size_t i = 0; i < one->plan->ntensors && !why; i++) {
		const struct tensor *t = one->plan->tensors[i],
				    *w = is_parameter(t) ? gt_param_named(r->plan, t->v.name) : NULL;
		double off = w ? compare(r, w, t) : is_parameter(t) ? NAN : 0;

		if (!(off <= worst))
			worst = off, where = t->v.name;
	}
	if (!ok(!why && worst <= bound(largest, least), "%s: after %d steps the parameters equal those of one rank",
		l->name, STEPS))
		note("%s: off by %g, of %g (%s)", why ? why : "it ran", worst, bound(largest, least), where);
	sim_close(r);
}

static void steps(const char *model, const char *what, int has_experts, int matrices)
{
	double worst = 0, largest = 0, least = INFINITY;
	struct moments *states;
	int found = 0;

	one = opened(plan(model, 1, ""), 0);
	if (!ok(one != NULL, "%s: one rank is planned", what)) {
		note("%s", gt_why());
		return;
	}
	states = hd_alloc(one->plan->ntensors * sizeof(*states));
	for (int s = 1; s <= STEPS; s++) {
		double off = step(s, states, &largest, &least, &found);

		worst = off <= worst ? worst : off;
	}
	is_int(found, matrices, "all matrices are found");
	/* The rounding of products of 27 terms passes through the iterations; weights are up to 3. */
	if (!ok(worst <= bound(27 * DBL_EPSILON / 1e-12, 1) + 12 * DBL_EPSILON * 3,
		"%d steps equal those of the definition", STEPS))
		note("off by %g", worst);
	for (size_t k = 0; k < one->plan->ntensors; k++) {
		free(states[k].m);
		free(states[k].v);
	}
	free(states);
	for (size_t k = 0; k < HD_LEN(layouts); k++)
		if (layouts[k].experts == has_experts)
			in_layout(&layouts[k], model, largest, least);
	gt_close(one);
}

/* -- refusals -------------------------------------------------------------------------------------------------- */
static void refuses(const char *sections, const char *optimizer, const char *text)
{
	char ini[1000];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 1\nheads = 1\nembed = 4\nvocab = 5\n[data]\ntrain = none\n[train]\nseq = 2\n"
		 "global_batch = 1\nsteps = 1\noptimizer = %s\n%s",
		 optimizer, sections);
	ok(!gt_plan_of(ini, 1, HD_DTYPE_F64), "%s is refused", optimizer);
	if (!ok(strstr(gt_why(), text) != NULL, "... with its reason"))
		note("got %s", gt_why());
}

int main(void)
{
	char section[300];

	if (!ok(!build(), "the example is built with only the public headers"))
		return done();
	steps("dropout = 0.1", "gpt2, dropout", 0, 3 * 6);
	steps("family = mixtral\nkv_heads = 3\nexperts = 3", "mixtral", 1, 3 * 7);
	snprintf(section, sizeof(section), "[plugin muon]\nfile = %s\n", so);
	refuses("", "adam", "[train] optimizer: 'adam' is not a choice");
	refuses(section, "moun", "moun' is not a choice; did you mean muon");
	refuses(PLUGIN("dp"), "dp", "[train] optimizer: dp: the plugin dp brings no optimizer");
	return done();
}
