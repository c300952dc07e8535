/* SPDX-License-Identifier: Apache-2.0
 * The strategies of examples/, compared with their serial definitions, in double on the reference device, all ranks in
 * this process.  If this broke, an example that readers copy would train a different model than it claims.
 *
 *   powersgd      P Q' of the sum of all gradients and residuals, computed here from one rank's gradient, over several
 * steps
 *   sparse_sums   the sent entries and the residual add up to the gradient; each member sends the k largest of each row
 *   diloco        each member's own weights and the agreed ones, from one rank's gradients of each member's samples,
 * over steps
 *   int8_boundary the model of one rank that rounds between layers (t/plugins/boundary.c)
 *   v_schedule    equals one rank exactly
 *
 * With the options that make an approximate strategy exact, it equals one rank too.
 */
#include <config.h>
#include "engine/base/rng.h"
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

static struct hd_plan *plan_of(int batch, int ranks, const char *plugin, const char *keys)
{
	char ini[2000], section[400] = "";

	if (plugin)
		snprintf(section, sizeof(section), "[strategy x]\nplugin = %s/%s.so\nsize = %d\n%s", dir, plugin, ranks,
			 keys);
	snprintf(
		ini, sizeof(ini),
		"[model]\nfamily = gpt2\nlayers = 4\nheads = 2\nembed = 8\nmlp = 12\nvocab = 11\n[data]\ntrain = none\n"
		"[train]\nseq = 4\nglobal_batch = %d\nmicro_batch = 2\nsteps = 9\noptimizer = sgd\nclip = 0\n%s",
		batch, section);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

static struct hd_plan *plan(int ranks, const char *plugin, const char *keys)
{
	return plan_of(12, ranks, plugin, keys);
}

static struct hd_plan *share_plan(void)
{
	return plan_of(12 / R, 1, NULL, "");
}

/* Opens a run with weights and states as at the start of training. */
static struct gt_run *opened(struct hd_plan *p, int many)
{
	struct gt_run *r = p ? gt_open(p, many ? sim_members : NULL) : NULL;

	for (size_t i = 0; r && i < p->ntensors; i++)
		for (int k = 0; k < r->n; k++)
			if (p->tensors[i]->v.what == HD_TENSOR_STATE && !p->tensors[i]->v.node &&
			    hd_tensor_here(r->g[k], p->tensors[i]))
				memset(gt_address(r, p->tensors[i], k), 0, (size_t)hd_local_bytes(p->tensors[i]));
	for (int k = 0; r && k < r->n; k++)
		hd_init_weights(r->g[k], 3, NULL);
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
struct matrix { /* at[row * columns + column] is the index of element (row, column) in the tensor */
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

/* x: the gradient plus the residual; becomes the new residual.  out: the sum that all members get. */
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

/* Checks one parameter over three steps without a change of weights (lr is 0). */
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
	if (!ok(w && mine && q0 && hd_local_count(q0) == m.columns * rank, "%s has its factor Q", name))
		return;
	q = hd_alloc((size_t)(m.columns * rank) * sizeof(*q));
	memcpy(q, gt_address(r, q0, 0), (size_t)(m.columns * rank) * sizeof(*q));
	for (int64_t i = 0; i < m.columns * rank; i++)
		moved += q[i] * q[i];
	ok(fabs(moved / (double)(m.columns * rank) - 1) < 4 * sqrt(2.0 / (double)(m.columns * rank)),
	   "... which begins with normal random numbers (mean square %g)", moved / (double)(m.columns * rank));
	for (int s = 1; s <= 3; s++) {
		const double *g, *got;

		r->run.step = one->run.step = s;
		gt_compute(one);
		if (!ok(!sim_compute(r) && !sim_update(r), "step %d runs", s))
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
	/* Gradients agree to 1e-12 (t/lib/one_rank.h); Gram-Schmidt divides by the rest of a column, about 1e-3 of it
	 * here. */
	if (!ok(worst <= 1e-9 * scale, "the sum of %s has rank %lld, and the residual is added in the next step", name,
		(long long)rank))
		note("off by %g of %g", worst, scale);
	free(late), free(out), free(q), free(m.at);
}

static void powersgd(void)
{
	for (size_t i = 0; i < HD_LEN(matrices); i++) {
		struct gt_run *r = opened(plan(R, "powersgd", "rank = 2\nsmallest = 50\n"), 1);

		if (!ok(r != NULL, "powersgd is planned"))
			continue;
		powersgd_of(r, matrices[i], 2);
		sim_close(r);
	}
	gt_compute(one);
	like_one_rank(opened(plan(R, "powersgd", "rank = 64\nsmallest = 50\n"), 1), "of full rank", "powersgd");
}

/* -- sparse_sums ----------------------------------------------------------------------------------------------------------- */
/* Returns the least number of zeros in any row of a member's residual: a zero is an entry that was sent. */
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

/* If only one member has sent an entry, the sum is that entry, and the member keeps none that is larger in this row.
 * Returns how many are. */
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
		if (!ok(!sim_compute(r) && !sim_update(r), "step %d runs", s))
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
	ok(late && worst <= 1e-11 * scale, "%s: the sent entries and the residual add up to the gradient", name);
	is_int(larger, 0, "no entry that is kept is larger than one that is sent");
	ok(sent == k, "each member sends %lld entries of a row of %lld", (long long)k, (long long)m.columns);
	free(was), free(m.at);
}

static void sparse(void)
{
	for (size_t i = 0; i < HD_LEN(matrices); i++) {
		struct gt_run *r = opened(plan(R, "sparse_sums", "keep = 0.25\nsmallest = 50\n"), 1);
		const struct tensor *w = param_of(one, matrices[i]);
		struct matrix m = matrix_of(w);

		if (ok(r != NULL, "sparse_sums is planned"))
			sparse_of(r, matrices[i], (int64_t)(0.25 * (double)m.columns + 0.5));
		free(m.at);
		sim_close(r);
	}
	gt_compute(one);
	like_one_rank(opened(plan(R, "sparse_sums", "keep = 1\nsmallest = 50\n"), 1), "sending all", "sparse_sums");
}

/* -- diloco ---------------------------------------------------------------------------------------------------------------- */
#define LR 0.25
#define OUTER 0.7
#define MOMENTUM 0.9
#define EVERY 2
#define DECAY 0.1
#define TOKENS (12 * 4) /* per step */

static int64_t serial_member;
/* Fills in the samples of one member, its share of each micro-batch of all, for a model of its own. */
static int fill_share(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out)
{
	const struct gt_run *r = ctx;
	int64_t n = g->plan->batch, s0 = (micro * R + serial_member) * n, shift = !strcmp(t->v.name, "targets");

	for (int64_t i = 0; i < t->local[0]; i++)
		for (int64_t k = 0; k < t->local[1]; k++)
			out[i * t->local[1] + k] =
				(int32_t)(hd_hash64((uint64_t)((s0 + i) * 1000 + shift + k)) % (uint64_t)r->vocab);
	return HD_OK;
}

struct serial { /* the serial definition's copies of one parameter */
	const struct tensor *w;
	int64_t n;
	double *agreed, *outer, *mine[R];
};

static void serial_inner(struct gt_run *alone, struct serial *all, int64_t many)
{
	for (serial_member = 0; serial_member < R; serial_member++) {
		for (int64_t i = 0; i < many; i++)
			memcpy(gt_address(alone, all[i].w, 0), all[i].mine[serial_member],
			       (size_t)all[i].n * sizeof(double));
		gt_poison(alone);
		hd_program_compute(alone->g[0], &alone->run, fill_share, alone);
		for (int64_t i = 0; i < many; i++) {
			const double *g = gt_address(alone, gt_gradient_of(alone->plan, all[i].w), 0);
			double *w = all[i].mine[serial_member];

			for (int64_t k = 0; k < all[i].n; k++)
				w[k] -= LR * (g[k] + (all[i].w->decay ? DECAY * w[k] : 0));
		}
	}
}

static void serial_outer(struct serial *x)
{
	for (int64_t k = 0; k < x->n; k++) {
		double d = x->agreed[k];

		for (int a = 0; a < R; a++)
			d -= x->mine[a][k] / R;
		x->outer[k] = MOMENTUM * x->outer[k] + d;
		x->agreed[k] -= OUTER * (d + MOMENTUM * x->outer[k]);
		for (int a = 0; a < R; a++)
			x->mine[a][k] = x->agreed[k];
	}
}

static double worst_of(const double *a, const double *b, int64_t n)
{
	double worst = 0;

	for (int64_t k = 0; k < n; k++)
		worst = fabs(a[k] - b[k]) <= worst ? worst : fabs(a[k] - b[k]);
	return worst;
}

static int64_t serials(struct gt_run *alone, struct serial *all)
{
	int64_t many = 0;

	for (size_t i = 0; i < alone->plan->ntensors; i++) {
		const struct tensor *t = alone->plan->tensors[i];
		struct serial *x = &all[many];
		size_t bytes;

		if (t->v.node || t->v.what != HD_TENSOR_PARAM)
			continue;
		many++;
		*x = (struct serial){ .w = t, .n = hd_local_count(t) };
		bytes = (size_t)x->n * sizeof(double);
		x->agreed = memcpy(hd_alloc(bytes), gt_address(alone, t, 0), bytes);
		x->outer = hd_alloc(bytes);
		for (int a = 0; a < R; a++)
			x->mine[a] = memcpy(hd_alloc(bytes), x->agreed, bytes);
	}
	return many;
}

/* Weights are of order 1, and gradients agree to 1e-12 of the largest; over five steps the difference is a few times
 * that. */
#define CLOSE 1e-11

static void diloco_steps(struct gt_run *r, struct gt_run *alone)
{
	struct serial all[100];
	int64_t many = serials(alone, all);

	for (int s = 1; s <= 5; s++) {
		double own = 0, agreed = 0, apart = 0;

		r->run.step = alone->run.step = s;
		r->run.lr = alone->run.lr = LR;
		r->run.loss_scale = 1. / TOKENS, alone->run.loss_scale = R * r->run.loss_scale;
		if (!ok(!sim_compute(r) && !sim_update(r), "diloco: step %d runs", s))
			return;
		serial_inner(alone, all, many);
		for (int64_t i = 0; s % EVERY == 0 && i < many; i++)
			serial_outer(&all[i]);
		for (int64_t i = 0; i < many; i++) {
			const struct tensor *w = param_of(r, all[i].w->v.name),
					    *mine = state_of(r, ".local.", w->v.name);

			for (int a = 0; a < R; a++) {
				own = fmax(own, worst_of(gt_address(r, mine, a), all[i].mine[a], all[i].n));
				agreed = fmax(agreed, worst_of(gt_address(r, w, a), all[i].agreed, all[i].n));
				apart = fmax(apart, worst_of(gt_address(r, mine, a), gt_address(r, mine, 0), all[i].n));
			}
		}
		ok(own < CLOSE, "each member's own weights equal those of its own training (%.1e)", own);
		ok(agreed < CLOSE, "the parameters are the values last agreed on (%.1e)", agreed);
		ok(s % EVERY ? apart > 1e-6 : apart == 0, "the members' weights are %s",
		   s % EVERY ? "different" : "equal");
	}
}

static void diloco(void)
{
	static const char keys[] = "every = 2\nouter_lr = 0.7\nmomentum = 0.9\n";
	struct gt_run *r = opened(plan(R, "diloco", keys), 1), *alone = opened(share_plan(), 0);

	if (ok(r && alone, "diloco is planned"))
		diloco_steps(r, alone);
	sim_close(r);
}

/* With agreement on the mean in every step: the mean of the members' SGD steps is the step of the mean gradient. */
static void diloco_is_dp(void)
{
	struct gt_run *r = opened(plan(R, "diloco", "every = 1\nouter_lr = 1\nmomentum = 0\n"), 1),
		      *alone = opened(plan(1, NULL, ""), 0);
	double worst = 0, moved = 0;

	for (int s = 1; s <= 3 && r && alone; s++) {
		r->run.step = alone->run.step = s;
		r->run.lr = alone->run.lr = LR;
		r->run.loss_scale = alone->run.loss_scale = 1. / TOKENS;
		gt_compute(alone);
		hd_program_update(alone->g[0], &alone->run);
		if (!ok(!sim_compute(r) && !sim_update(r), "step %d runs", s))
			return;
	}
	for (size_t i = 0; r && alone && i < alone->plan->ntensors; i++) {
		const struct tensor *t = alone->plan->tensors[i];

		if (t->v.node || t->v.what != HD_TENSOR_PARAM)
			continue;
		worst = fmax(worst, worst_of(gt_address(alone, t, 0), gt_address(r, param_of(r, t->v.name), 1),
					     hd_local_count(t)));
		moved = fmax(moved, worst_of(gt_address(alone, t, 0), gt_address(one, param_of(one, t->v.name), 0),
					     hd_local_count(t)));
	}
	ok(r && worst < CLOSE && moved > 1e-3, "agreement in every step is data parallelism (%.1e, weights moved %.1e)",
	   worst, moved);
	sim_close(r);
}

/* -- int8_boundary ------------------------------------------------------------------------------------------------------- */
static struct hd_plan *boundary_plan(int ranks, const char *plugin, const char *keys)
{
	char ini[2000], stages[300] = "";

	if (ranks > 1)
		snprintf(stages, sizeof(stages),
			 "[strategy p]\nplugin = " HD_TEST_BUILD "/plugins/pp/.libs/pp.so\nsize = 2\nsplit = 2,2\n");
	snprintf(
		ini, sizeof(ini),
		"[model]\nfamily = gpt2\nlayers = 4\nheads = 2\nembed = 8\nmlp = 12\nvocab = 11\n[data]\ntrain = none\n"
		"[train]\nseq = 4\nglobal_batch = 12\nmicro_batch = 2\nsteps = 9\noptimizer = sgd\nclip = 0\n%s"
		"[plugin b]\nfile = %s\n%s",
		stages, plugin, keys);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

static int int8_boundary(void)
{
	struct gt_run *exact = one;
	char so[300];
	double loss, rounded;

	snprintf(so, sizeof(so), "%s/int8_boundary.so", dir);
	gt_compute(one);
	loss = *gt_address(one, one->plan->loss, 0);
	like_one_rank(opened(boundary_plan(2, so, "bits = 32\n"), 1), "two stages, without rounding", "int8_boundary");
	one = opened(boundary_plan(1, HD_TEST_BUILD "/t/plugins/.libs/boundary.so", ""), 0);
	if (!ok(one && gt_compute(one) > 0, "a model that rounds between layers is planned"))
		return 0;
	rounded = *gt_address(one, one->plan->loss, 0);
	ok(rounded != loss, "... and has a different loss than one that does not round (%g, %g)", rounded,
	   loss); /* by how much: t1115 */
	like_one_rank(opened(boundary_plan(2, so, ""), 1), "two stages, in 8 bits", "int8_boundary");
	one = exact;
	return 1;
}

static void v_schedule(void)
{
	gt_compute(one);
	like_one_rank(opened(plan(2, "v_schedule", ""), 1), "two stages", "v_schedule");
	like_one_rank(opened(plan(3, "v_schedule", "group = 2\n"), 1), "three stages, two at a time", "v_schedule");
	like_one_rank(opened(plan(3, "v_schedule", "group = 4\n"), 1), "three stages, four at a time", "v_schedule");
	ok(!plan(4, "v_schedule", "") &&
		   strstr(gt_why(), "size: 4 stages have 8 pieces of a V, and the model has 6 blocks"),
	   "too many stages are refused: %s", gt_why());
}

int main(void)
{
	if (!ok(mkdtemp(dir) && !build("powersgd", "powersgd") && !build("sparse-sums", "sparse_sums") &&
			!build("v-schedule", "v_schedule") && !build("diloco", "diloco") &&
			!build("int8-boundary", "int8_boundary"),
		"the examples are built with only the public headers"))
		return done();
	one = opened(plan(1, NULL, ""), 0);
	if (!ok(one != NULL, "one rank is planned"))
		return done();
	powersgd();
	sparse();
	v_schedule();
	int8_boundary();
	diloco();
	diloco_is_dp();
	return done();
}
