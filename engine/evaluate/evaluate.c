/* SPDX-License-Identifier: Apache-2.0
 * Evaluates given sequences. The forward program runs over them in the same layout, and shares the training program's
 * weights. It returns a loss for each token; their sum is computed in double. A last micro-batch that is not full is
 * filled up, and the filler is not counted, so every token counts once.
 *
 * With stages, a run of the program computes several micro-batches, so that the stages work at the same time. The last
 * run leaves out those that have no sequence.
 */
#include <config.h>
#include "engine/evaluate/evaluate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct feed {
	const struct hd_sequences *of;
	int64_t first;
	int32_t *ids;
	struct hd_err *err;
};

static int fill(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out)
{
	struct feed *f = ctx;
	int shift = !strcmp(t->v.name, "targets");
	int64_t s0 = f->first + micro * g->plan->batch + hd_offset(g->plan, t, 0, g->rank);

	for (int64_t i = 0; i < t->local[0]; i++) {
		int64_t at = s0 + i < f->of->n ? s0 + i : 0;

		HD_TRY(f->of->get(f->of->ctx, at, f->ids, f->err));
		hd_pieces_tokens(g->plan, t, g->rank, f->ids + shift, out + i * t->local[1]);
	}
	return HD_OK;
}

static void add_rows(const struct hd_program *g, const struct feed *f, int64_t micro)
{
	const struct tensor *nll = g->plan->nll;
	struct hd_pieces s = hd_pieces_of(g->plan, nll, 1, g->rank);
	int64_t s0 = f->first + micro * g->plan->batch + hd_offset(g->plan, nll, 0, g->rank);
	float *x;

	if (!hd_owns(g, nll))
		return;
	x = hd_program_map(g, nll, micro, HD_MAP_READ);
	for (int64_t i = 0; i < nll->local[0] && s0 + i < f->of->n; i++)
		for (int64_t q = 0; q < nll->local[1]; q++)
			f->of->add(f->of->ctx, s0 + i, hd_pieces_index(&s, q), x[i * nll->local[1] + q]);
	hd_program_unmap(g, nll, micro, x, HD_MAP_READ);
}

/* Shows the progress after a run of the program: on a terminal as one line that is rewritten, else as a line for each
 * tenth. Fewer than ten runs show nothing. batch: the sequences of a run. */
static void show(const struct hd_job *j, const struct hd_sequences *of, int64_t done, int64_t batch, double *shown)
{
	int terminal = isatty(2), last = done >= of->n;
	double now = hd_seconds();

	if (!of->shows || j->world.rank)
		return;
	if (terminal ? !last && now - *shown < 0.3
		     : of->n < 10 * batch || done * 10 / of->n == (done - batch) * 10 / of->n)
		return;
	*shown = now;
	fprintf(stderr, "%seval: %lld of %lld %s%s", terminal ? "\r" : "", (long long)(last ? of->n : done),
		(long long)of->n, of->what, terminal && !last ? "  " : "\n");
}

/* Returns whether to stop between two runs. All ranks stop if one of them is asked to end. */
static int should_stop(const struct hd_sequences *of, const struct feed *f, int64_t batch)
{
	if (!of->asked || f->first + batch >= of->n)
		return 0;
	return hd_comm_max((double)of->asked()) > 0;
}

/* Returns how many micro-batches of the next run have sequences. */
static int64_t micros_left(const struct hd_plan *p, int64_t sequences)
{
	int64_t n = (sequences + p->batch - 1) / p->batch;

	return n < p->micros ? n : p->micros;
}

int hd_sequences_score(struct hd_job *j, const struct hd_sequences *of, struct hd_err *err)
{
	struct hd_program *g = j->program[HD_JOB_EVAL];
	int64_t batch = g->plan->batch * g->plan->micros;
	struct feed f = { .of = of, .err = err };
	struct hd_run run = { .seed = (uint64_t)j->train.seed };
	double shown = hd_seconds();
	int rc = HD_OK, stopped = 0;

	f.ids = hd_alloc((size_t)(g->plan->model.seq + 1) * sizeof(*f.ids));
	for (; f.first < of->n && !stopped; f.first += batch) {
		run.micros = micros_left(g->plan, of->n - f.first);
		rc = hd_program_compute(g, &run, fill, &f);
		if (rc < 0) {
			hd_program_failed(g, rc, "evaluation", err);
			break;
		}
		for (int64_t m = 0; m < run.micros; m++)
			add_rows(g, &f, m);
		show(j, of, f.first + batch, batch, &shown);
		stopped = should_stop(of, &f, batch);
		run.again = 1;
	}
	free(f.ids);
	HD_TRY(rc);
	return stopped ? HD_SCORE_STOPPED : HD_OK;
}

/* -- the validation data ----------------------------------------------------------------------- */
struct valid {
	const struct hd_data *data;
	int64_t set, whole, rest; /* number of complete sequences; targets of an incomplete one after them */
	int shows;
	int (*asked)(void);
	double sum;
};

static int get(void *ctx, int64_t i, int32_t *ids, struct hd_err *err)
{
	const struct valid *v = ctx;

	return hd_data_valid_sample(v->data, v->set, i, ids, err);
}

static void add(void *ctx, int64_t i, int64_t position, double loss)
{
	struct valid *v = ctx;

	if (i < v->whole || position < v->rest)
		v->sum += loss;
}

static int score_valid(struct hd_job *j, struct valid *v, double *loss, int64_t *tokens, struct hd_err *err)
{
	struct hd_sequences all = { .n = v->whole + (v->rest > 0),
				    .what = "sequences",
				    .get = get,
				    .add = add,
				    .ctx = v,
				    .shows = v->shows,
				    .asked = v->asked };
	int rc = hd_sequences_score(j, &all, err);

	if (rc == HD_SCORE_STOPPED)
		return rc;
	*tokens = v->whole * j->program[HD_JOB_EVAL]->plan->model.seq + v->rest;
	*loss = hd_comm_sum(v->sum) / (double)(*tokens ? *tokens : 1);
	return rc;
}

int hd_evaluate(struct hd_job *j, int64_t set, int64_t batches, int (*asked)(void), double *loss, int64_t *tokens,
		struct hd_err *err)
{
	struct valid v = { .data = j->data, .set = set, .whole = hd_data_valid_samples(j->data, set), .asked = asked };

	if (batches && batches * j->train.batch.full < v.whole)
		v.whole = batches * j->train.batch.full;
	return score_valid(j, &v, loss, tokens, err);
}

/* Refuses an incomplete sequence that would be evaluated wrongly. A file without a complete
 * sequence is filled up. Attention is causal, so no token sees the filler. But experts with a
 * capacity limit would take filler in place of tokens. */
static int check_rest(const struct hd_model *m, const struct valid *v, struct hd_err *err)
{
	if (v->whole || !m->experts || m->capacity_factor <= 0)
		return HD_OK;
	hd_err_set(err, HD_EINVAL,
		   "eval: %lld tokens; experts with a limit (model.capacity_factor = %g) need train.seq + 1 = %lld",
		   (long long)hd_data_tokens(v->data, 1), m->capacity_factor, (long long)m->seq + 1);
	return hd_comm_agree(err);
}

int hd_evaluate_file(struct hd_job *j, double *loss, int64_t *tokens, int64_t *left, struct hd_err *err)
{
	struct valid v = { .data = j->data,
			   .whole = hd_data_valid_samples(j->data, 0),
			   .rest = hd_data_valid_rest(j->data, 0),
			   .shows = 1 };

	HD_TRY(check_rest(&j->program[HD_JOB_EVAL]->plan->model, &v, err));
	*left = v.whole ? v.rest : 0;
	v.rest -= *left;
	return score_valid(j, &v, loss, tokens, err);
}
