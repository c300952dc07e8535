/* SPDX-License-Identifier: Apache-2.0
 * The strategies of examples/ against their serial definitions, in double on the reference device, all ranks in this process.
 *
 *   powersgd      P Q' of the sum of all gradients and of what was late, computed here from one rank's gradient, over steps
 *   sparse_sums   what is sent and what is late add up to the gradient; each member sends the k largest of each row
 *   v_schedule    is one rank's, exactly
 *
 * What is approximate says with which options it is exact, and then is one rank's too.
 */
#include <config.h>
#include "t/lib/one_rank.h"
#include "engine/run/job.h"

#define R 3
static char dir[] = "/tmp/heddle-t1108.XXXXXX";

static int build(const char *folder, const char *name)
{
	char command[2000];

	snprintf(command, sizeof(command),
		 "${CC:-cc} -std=gnu11 -O1 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -Wl,-z,defs "
		 "-I '%s/include' -o '%s/%s.so' '%s/examples/%s/%s.c' -lm",
		 HD_TEST_SRC, dir, name, HD_TEST_SRC, folder, name);
	return system(command);
}

static struct hd_plan *plan(int ranks, const char *plugin, const char *keys)
{
	char ini[2000], section[400] = "";

	if (plugin)
		snprintf(section, sizeof(section), "[strategy x]\nplugin = %s/%s.so\nsize = %d\n%s", dir, plugin, ranks,
			 keys);
	snprintf(
		ini, sizeof(ini),
		"[model]\nfamily = gpt2\nlayers = 4\nheads = 2\nembed = 8\nmlp = 12\nvocab = 11\n[data]\ntrain = none\n"
		"[train]\nseq = 4\nglobal_batch = 12\nmicro_batch = 2\nsteps = 9\noptimizer = sgd\nclip = 0\n%s",
		section);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

/* Weights and states as a training begins. */
static struct gt_run *opened(struct hd_plan *p, int many)
{
	struct gt_run *r = p ? gt_open(p, many ? sim_members : NULL) : NULL;

	for (size_t i = 0; r && i < p->ntensors; i++)
		for (int k = 0; k < r->n; k++)
			if (p->tensors[i]->v.what == HD_TENSOR_STATE && !p->tensors[i]->v.node &&
			    hd_tensor_here(r->g[k], p->tensors[i]))
				memset(gt_address(r, p->tensors[i], k), 0, (size_t)hd_local_bytes(p->tensors[i]));
	for (int k = 0; r && k < r->n; k++)
		hd_init_weights(r->g[k], 3);
	if (!r)
		note("%s", gt_why());
	return r;
}

static struct tensor *state_of(const struct gt_run *r, const char *what, const char *param)
{
	for (size_t i = 0; i < r->plan->ntensors; i++) {
		struct tensor *t = r->plan->tensors[i];

		if (!t->v.node && t->v.what == HD_TENSOR_STATE && strstr(t->v.name, what) && strstr(t->v.name, param))
			return t;
	}
	return NULL;
}

static const char *const matrices[] = { "h.0.mlp.fc.weight", "h.3.attn.proj.weight", "wte.weight" };

static struct tensor *param_of(const struct gt_run *r, const char *name)
{
	for (size_t i = 0; i < r->plan->ntensors; i++) {
		struct tensor *t = r->plan->tensors[i];

		if (!t->v.node && t->v.what == HD_TENSOR_PARAM && !strcmp(t->v.name, name))
			return t;
	}
	return NULL;
}

/* -- powersgd -------------------------------------------------------------------------------------------------------------- */
struct matrix { /* element (row, column) of a tensor stands at at[row * columns + column] */
	int64_t rows, columns, *at;
};

static struct matrix matrix_of(const struct tensor *t)
{
	struct matrix m = { .columns = 0 };
	int64_t n = hd_local_count(t), *next;
	uint32_t c = 0;

	for (uint32_t d = 1; d < t->v.ndim; d++)
		c = t->dims[d]->n > t->dims[c]->n ? d : c;
	m.columns = t->dims[c]->n;
	m.rows = n / m.columns;
	m.at = hd_alloc((size_t)n * sizeof(*m.at));
	next = hd_alloc((size_t)m.columns * sizeof(*next));
	for (int64_t i = 0; i < n; i++) {
		int64_t rest = i, column = 0;

		for (int d = (int)t->v.ndim - 1; d >= 0; rest /= t->dims[d--]->n)
			column = d == (int)c ? rest % t->dims[d]->n : column;
		m.at[next[column]++ * m.columns + column] = i;
	}
	free(next);
	return m;
}

/* x: the gradient and what was late; it becomes what is late now, and out the sum that all get. */
static void power(const struct matrix *m, int64_t rank, double *x, double *q, double *out)
{
	double *p = hd_alloc((size_t)(m->rows * rank) * sizeof(*p));

	for (int64_t j = 0; j < rank; j++) {
		double norm = 0;

		for (int64_t r = 0; r < m->rows; r++)
			for (int64_t c = 0; c < m->columns; c++)
				p[r * rank + j] += x[m->at[r * m->columns + c]] * q[c * rank + j];
		for (int64_t i = 0; i < 2 * j; i++) {
			double dot = 0;

			for (int64_t r = 0; r < m->rows; r++)
				dot += p[r * rank + j] * p[r * rank + i % j];
			for (int64_t r = 0; r < m->rows; r++)
				p[r * rank + j] -= dot * p[r * rank + i % j];
		}
		for (int64_t r = 0; r < m->rows; r++)
			norm += p[r * rank + j] * p[r * rank + j];
		for (int64_t r = 0; r < m->rows; r++)
			p[r * rank + j] /= sqrt(norm + 1e-30);
	}
	memset(q, 0, (size_t)(m->columns * rank) * sizeof(*q));
	for (int64_t r = 0; r < m->rows; r++)
		for (int64_t c = 0; c < m->columns; c++)
			for (int64_t j = 0; j < rank; j++)
				q[c * rank + j] += x[m->at[r * m->columns + c]] * p[r * rank + j];
	for (int64_t r = 0; r < m->rows; r++)
		for (int64_t c = 0; c < m->columns; c++) {
			int64_t at = m->at[r * m->columns + c];

			out[at] = 0;
			for (int64_t j = 0; j < rank; j++)
				out[at] += p[r * rank + j] * q[c * rank + j];
			x[at] -= out[at];
		}
	free(p);
}

/* One parameter over three steps whose weights stay (lr is 0). */
static void powersgd_of(struct gt_run *r, const char *name, int64_t rank)
{
	const struct tensor *w = param_of(one, name), *mine = param_of(r, name);
	const struct tensor *q0 = NULL;
	int64_t n = hd_local_count(w);
	struct matrix m = matrix_of(w);
	double *late = hd_alloc((size_t)n * sizeof(*late)), *out = hd_alloc((size_t)n * sizeof(*out)), *q;
	double worst = 0, scale = 0, moved = 0;

	for (size_t i = 0; i < r->plan->ntensors; i++) /* not the residual */
		if (!r->plan->tensors[i]->v.node && r->plan->tensors[i]->v.what == HD_TENSOR_STATE &&
		    strstr(r->plan->tensors[i]->v.name, name) && !strstr(r->plan->tensors[i]->v.name, "residual"))
			q0 = r->plan->tensors[i];
	if (!ok(w && mine && q0 && hd_local_count(q0) == m.columns * rank, "%s has its factor", name))
		return;
	q = hd_alloc((size_t)(m.columns * rank) * sizeof(*q));
	memcpy(q, gt_address(r, q0, 0), (size_t)(m.columns * rank) * sizeof(*q));
	for (int64_t i = 0; i < m.columns * rank; i++)
		moved += q[i] * q[i];
	ok(fabs(moved / (double)(m.columns * rank) - 1) < 4 * sqrt(2.0 / (double)(m.columns * rank)),
	   "which begins normal (mean square %g)", moved / (double)(m.columns * rank));
	for (int s = 1; s <= 3; s++) {
		const double *g, *got;

		r->run.step = one->run.step = s;
		gt_compute(one);
		if (!ok(!sim_compute(r) && !sim_update(r), "step %d", s))
			return;
		g = gt_address(one, gt_gradient_of(one->plan, w), 0);
		for (int64_t i = 0; i < n; i++) {
			late[i] += g[i];
			scale = fmax(scale, fabs(g[i]));
		}
		power(&m, rank, late, q, out);
		got = gt_address(r, gt_gradient_of(r->plan, mine), 1);
		for (int64_t i = 0; i < n; i++)
			worst = fmax(worst, fabs(got[i] - out[i]));
	}
	/* Gradients agree to 1e-12 (t/lib/one_rank.h); Gram-Schmidt divides by what is left of a column, some 1e-3 of it here */
	if (!ok(worst <= 1e-9 * scale, "%s is of rank %lld, and what was late comes later", name, (long long)rank))
		note("off by %g of %g", worst, scale);
	free(late), free(out), free(q), free(m.at);
}

static void powersgd(void)
{
	for (size_t i = 0; i < HD_LEN(matrices); i++) {
		struct gt_run *r = opened(plan(R, "powersgd", "rank = 2\nsmallest = 50\n"), 1);

		if (!ok(r != NULL, "powersgd"))
			continue;
		powersgd_of(r, matrices[i], 2);
		sim_close(r);
	}
	gt_compute(one);
	like_one_rank(opened(plan(R, "powersgd", "rank = 64\nsmallest = 50\n"), 1), "of full rank", "powersgd");
}

/* -- sparse_sums ----------------------------------------------------------------------------------------------------------- */
/* Entries of each row of a member's residual that are 0: those that were sent. */
static int64_t least_sent(const struct matrix *m, const double *late)
{
	int64_t least = m->columns;

	for (int64_t r = 0; r < m->rows; r++) {
		int64_t k = 0;

		for (int64_t c = 0; c < m->columns; c++)
			k += late[m->at[r * m->columns + c]] == 0;
		least = k < least ? k : least;
	}
	return least;
}

/* Where one member alone has sent, the sum is its entry: none that it keeps in this row is larger.  -> how many are. */
static int64_t larger_kept(struct gt_run *r, const struct matrix *m, const struct tensor *late, const double *got)
{
	int64_t wrong = 0;

	for (int64_t i = 0; i < m->rows * m->columns; i++) {
		int who = -1, n = 0;

		for (int a = 0; a < R; a++)
			if (gt_address(r, late, a)[m->at[i]] == 0)
				who = a, n++;
		for (int64_t c = 0; n == 1 && c < m->columns; c++)
			wrong += fabs(gt_address(r, late, who)[m->at[i / m->columns * m->columns + c]]) >
				 fabs(got[m->at[i]]);
	}
	return wrong;
}

static void sparse_of(struct gt_run *r, const char *name, int64_t k)
{
	const struct tensor *w = param_of(one, name), *late = state_of(r, "residual", name);
	struct matrix m = matrix_of(w);
	int64_t n = hd_local_count(w), sent = m.columns, larger = 0;
	double *was = hd_alloc((size_t)n * sizeof(*was)), worst = 0, scale = 0;

	for (int s = 1; s <= 3 && late; s++) {
		const double *g, *got;

		r->run.step = one->run.step = s;
		gt_compute(one);
		if (!ok(!sim_compute(r) && !sim_update(r), "step %d", s))
			return;
		g = gt_address(one, gt_gradient_of(one->plan, w), 0);
		got = gt_address(r, gt_gradient_of(r->plan, param_of(r, name)), 1);
		for (int64_t i = 0; i < n; i++) {
			double now = 0;

			for (int a = 0; a < R; a++)
				now += gt_address(r, late, a)[i];
			worst = fmax(worst, fabs(got[i] + now - g[i] - was[i]));
			scale = fmax(scale, fabs(g[i]));
			was[i] = now;
		}
		for (int a = 0; a < R; a++) {
			int64_t some = least_sent(&m, gt_address(r, late, a));

			sent = some < sent ? some : sent;
		}
		larger += larger_kept(r, &m, late, got);
	}
	ok(late && worst <= 1e-11 * scale, "%s: what is sent and what is late are the gradient", name);
	is_int(larger, 0, "entries that are kept and larger than one that is sent");
	ok(sent == k, "each member sends %lld of a row of %lld", (long long)k, (long long)m.columns);
	free(was), free(m.at);
}

static void sparse(void)
{
	for (size_t i = 0; i < HD_LEN(matrices); i++) {
		struct gt_run *r = opened(plan(R, "sparse_sums", "keep = 0.25\nsmallest = 50\n"), 1);
		const struct tensor *w = param_of(one, matrices[i]);
		struct matrix m = matrix_of(w);

		if (ok(r != NULL, "sparse_sums"))
			sparse_of(r, matrices[i], (int64_t)(0.25 * (double)m.columns + 0.5));
		free(m.at);
		sim_close(r);
	}
	gt_compute(one);
	like_one_rank(opened(plan(R, "sparse_sums", "keep = 1\nsmallest = 50\n"), 1), "sending all", "sparse_sums");
}

static void v_schedule(void)
{
	gt_compute(one);
	like_one_rank(opened(plan(2, "v_schedule", ""), 1), "two stages", "v_schedule");
	like_one_rank(opened(plan(3, "v_schedule", "group = 2\n"), 1), "three stages, two at a time", "v_schedule");
	like_one_rank(opened(plan(3, "v_schedule", "group = 4\n"), 1), "three stages, four at a time", "v_schedule");
	ok(!plan(4, "v_schedule", "") &&
		   strstr(gt_why(), "size: 4 stages have 8 pieces of a V, and the model has 6 blocks"),
	   "too many stages: %s", gt_why());
}

int main(void)
{
	if (!ok(mkdtemp(dir) && !build("powersgd", "powersgd") && !build("sparse-sums", "sparse_sums") &&
			!build("v-schedule", "v_schedule"),
		"the examples are built with the public headers alone"))
		return done();
	one = opened(plan(1, NULL, ""), 0);
	if (!ok(one != NULL, "one rank"))
		return done();
	powersgd();
	sparse();
	v_schedule();
	return done();
}
