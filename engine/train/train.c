/* SPDX-License-Identifier: Apache-2.0
 * The training loop: a step, its numbers, evaluations, checkpoints, and the end of the run.
 */
#include <config.h>
#include "engine/train/train_impl.h"
#include "engine/evaluate/evaluate.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/models/decoder/experts.h"
#include "engine/generate/generate.h"
#include "engine/report/events.h"
#include "engine/train/copies.h"
#include "engine/train/metrics.h"
#include "engine/process/asked.h"
#include "engine/process/launch.h"
#include "engine/run/autotune.h"
#include "engine/train/progress.h"
#include "engine/train/resume.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* -- data -------------------------------------------------------------------------------------------------------- */
struct train_feed {
	struct train_loop *l;
	int64_t first;
	int32_t *ids;
};

/* Fills in the ids or targets (ids shifted by one) of this rank's slice of a micro-batch. */
static int fill(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out)
{
	struct train_feed *f = ctx;
	int shift = !strcmp(t->v.name, "targets");
	int64_t s0 = micro * g->plan->batch + hd_offset(g->plan, t, 0, g->rank);

	for (int64_t i = 0; i < t->local[0]; i++) {
		HD_TRY(hd_data_sample(f->l->j->data, f->first, s0 + i, f->ids, f->l->err));
		hd_pieces_tokens(g->plan, t, g->rank, f->ids + shift, out + i * t->local[1]);
	}
	return HD_OK;
}

/* -- a step ------------------------------------------------------------------------------------------------------ */
/* Reports weights that the previous update has made non-finite, because
 * every result computed from them is non-finite too. */
static int weights_not_finite(struct train_loop *l, int64_t step, double loss, double norm, const char *me)
{
	char *spoilt = l->at.step > l->first ? hd_program_spoilt_text(l->g) : NULL;

	if (spoilt)
		hd_err_set(
			l->err, HD_EINVAL,
			"step %lld: loss %g, gradient norm %g. The update of step %lld (train.optimizer = %s) left %s on "
			"%s not finite",
			(long long)step, loss, norm, (long long)step - 1,
			hd_section_str(hd_conf_section(l->j->conf, NULL, "train"), "optimizer"), spoilt, me);
	free(spoilt);
	return hd_comm_agree(l->err);
}

static int not_finite(struct train_loop *l, struct hd_run *run, struct train_feed *f, double loss, double norm)
{
	struct hd_err where = { 0 };
	char *me = hd_rank_text(l->j->world.rank), *spoilt;
	int received = 0, rc;

	loss = isnan(loss) ? fabs(loss) : loss; /* "nan", not "-nan" */
	norm = isnan(norm) ? fabs(norm) : norm;
	if (weights_not_finite(l, run->step, loss, norm, me) < 0) {
		free(me);
		return l->err->code;
	}
	spoilt = hd_program_spoilt_text(l->g);
	rc = hd_program_find_nan(l->g, run, fill, f, &received, &where);
	/* First ranks where it began; else ranks that received it. */
	for (int turn = 0; turn < 2 && rc >= 0 && !l->err->code; turn++) {
		if (where.code && received <= turn)
			hd_err_set(l->err, HD_EINVAL,
				   "step %lld: loss %g, gradient norm %g; first on %s: %s; the weights stay as "
				   "they were before it%s%s%s",
				   (long long)run->step, loss, norm, me, where.text, spoilt ? ", with " : "",
				   spoilt ? spoilt : "", spoilt ? " not finite" : "");
		hd_comm_agree(l->err);
	}
	free(spoilt);
	free(me);
	HD_TRY(rc);
	return hd_err_set(l->err, HD_EINVAL, "step %lld: loss %g, gradient norm %g", (long long)run->step, loss, norm);
}

/* Makes all ranks decide alike. If members have norms of their own, they must
 * tell each other; otherwise all see the same norm. */
static int any_rank(const struct train_loop *l, int bad)
{
	return l->own_norms ? hd_comm_max((double)bad) > 0 : bad;
}

/* Writes the last line of metrics, as otherwise a curve would just end. A run that
 * resumes repeats this step and moves the line away. */
static int write_failed(struct train_loop *l, const struct hd_run *run, const struct hd_numbers *n)
{
	if (l->metrics || l->events)
		hd_train_emit(l, json_pack("{s:I, s:o, s:o, s:o, s:o}", "step", (json_int_t)run->step, "loss",
					   hd_json_number(n->loss), "grad_norm", hd_json_number(n->norm), "lr",
					   hd_json_number(run->lr), "error", json_string(l->err->text)));
	return l->err->code;
}

static int step(struct train_loop *l, struct hd_numbers *n)
{
	struct hd_job *j = l->j;
	int64_t seq = l->p->model.seq, tokens = l->global_batch * seq;
	int32_t *ids = l->show.scratch;
	struct train_feed f = { l, l->at.samples, ids };
	struct hd_run run = {
		.seed = (uint64_t)j->train.seed, .step = l->at.step + 1, .train = 1, .loss_scale = 1.0 / (double)tokens
	};
	double begin = hd_seconds();

	run.lr = hd_learning_rate(&j->train, l->at.step + 1, l->at.tokens + tokens, l->steps,
				  hd_ramp_last(&j->train.batch, l->at.tokens, l->steps - l->at.step));
	l->failed_alone = 1; /* the others would wait for this rank */
	HD_TRY(hd_program_compute(l->g, &run, fill, &f));
	l->failed_alone = 0;
	n->loss = hd_program_scalar(l->g, l->p->loss) / (double)tokens;
	n->norm = hd_program_scalar(l->g, l->p->norm);
	if (any_rank(l, !isfinite(n->loss) || !isfinite(n->norm))) {
		not_finite(l, &run, &f, n->loss, n->norm);
		return write_failed(l, &run, n);
	}
	l->failed_alone = 1;
	HD_TRY(hd_program_update(l->g, &run));
	l->failed_alone = 0;
	n->seconds = hd_seconds() - begin;
	n->step = run.step;
	n->lr = run.lr;
	n->tokens = tokens;
	n->tokens_per_second = (double)tokens / n->seconds;
	n->share = n->tokens_per_second * j->flops_per_token / (j->rate * j->world.size);
	l->share = fmax(l->share, n->share);
	l->at.step++;
	l->at.samples += l->global_batch;
	l->at.tokens += tokens;
	n->total_tokens = l->at.tokens;
	return HD_OK;
}

/* Adds the numbers of the expert layers, in order. The step has left their sums in place. */
static void add_experts(const struct train_loop *l, json_t *o, double tokens)
{
	json_t *dropped = json_array(), *load = json_array();
	double aux = 0;

	for (size_t i = 0; i < l->p->nmoe_stats; i++) {
		const struct tensor *t = l->p->moe_stats[i];
		void *sums = hd_program_map(l->g, t, 0, HD_MAP_READ);
		struct hd_expert_numbers n = hd_experts_numbers(&l->p->model, sums, t->v.dtype, tokens);

		hd_program_unmap(l->g, t, 0, sums, HD_MAP_READ);
		aux += n.aux_loss;
		json_array_append_new(dropped, hd_json_number(n.dropped));
		json_array_append_new(load, hd_json_number(n.load));
	}
	if (l->p->nmoe_stats && o) {
		json_object_set_new(o, "aux_loss", hd_json_number(aux));
		json_object_set_new(o, "dropped", json_incref(dropped));
		json_object_set_new(o, "load", json_incref(load));
	}
	json_decref(dropped);
	json_decref(load);
}

/* Returns the seconds since 1970. */
static double wall_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Adds the description of the run to the first line that is successfully written. */
static void write_metrics(struct train_loop *l, json_t *o, struct hd_err *why)
{
	if (l->about)
		json_object_set(o, "run", l->about);
	if (hd_metrics_write(l->metrics, json_incref(o), why) < 0)
		return;
	json_decref(l->about);
	l->about = NULL;
}

/* Takes over the reference o. A log that cannot be written does not end the
 * run: the steps are worth more than their numbers. */
void hd_train_emit(struct train_loop *l, json_t *o)
{
	struct hd_err why = { 0 };

	if (!json_object_get(o, "time"))
		json_object_set_new(o, "time", hd_json_number(wall_clock()));
	if (l->metrics) {
		write_metrics(l, o, &why);
		hd_log_file_note(&l->metrics_say, &why);
	}
	why.code = 0;
	if (l->events) {
		hd_events_write(l->events, o, &why);
		hd_log_file_note(&l->events_say, &why);
	}
	json_decref(o);
}

static void write_step(struct train_loop *l, struct hd_numbers *n)
{
	json_t *o;

	if (!hd_end_requested()) /* an mpirun that is ending the job reads no more output */
		hd_show_step(&l->show, n);
	if (!l->metrics && !l->events)
		return;
	o = json_pack("{s:I, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:I}", "step", (json_int_t)n->step, "loss",
		      hd_json_number(n->loss), "grad_norm", hd_json_number(n->norm), "lr", hd_json_number(n->lr),
		      "tokens", (json_int_t)n->tokens, "seconds", hd_json_number(n->seconds), "tokens_per_second",
		      hd_json_number(n->tokens_per_second), hd_device_in_host(l->j->device) ? "matmul_share" : "mfu",
		      hd_json_number(n->share), "total_tokens", (json_int_t)n->total_tokens);
	add_experts(l, o, (double)n->tokens);
	hd_train_emit(l, o);
}

/* Evaluates each set by itself. *loss is the mean over the tokens of all sets, valid_loss. Returns HD_SCORE_STOPPED if
 * the evaluation was interrupted. */
static int evaluate_sets(struct train_loop *l, json_t *o, double *loss, int64_t *tokens)
{
	int64_t sets = hd_data_valid_sets(l->j->data);
	double sum = 0;
	int rc;

	*tokens = 0;
	for (int64_t i = 0; i < sets; i++) {
		const char *name = hd_data_valid_name(l->j->data, i);
		double one;
		int64_t n;

		rc = hd_evaluate(l->j, i, l->j->train.eval_batches, hd_end_requested, &one, &n, l->err);
		if (rc)
			return rc;
		sum += one * (double)n;
		*tokens += n;
		if (sets > 1) {
			char *key = hd_format("valid_loss.%s", name);

			json_object_set_new(o, key, hd_json_number(one));
			free(key);
		}
		if (sets == 1)
			*loss = one;
	}
	if (sets > 1)
		*loss = sum / (double)(*tokens ? *tokens : 1);
	return HD_OK;
}

/* Evaluates. A run that is asked to end interrupts this. The resumed run
 * repeats it if the metrics lack it (evaluate_missed). */
static int evaluate(struct train_loop *l)
{
	json_t *of_sets, *o;
	double loss = 0;
	int64_t tokens = 0;
	int rc;

	if (!l->j->program[HD_JOB_EVAL] || !hd_data_valid_samples(l->j->data, 0))
		return HD_OK;
	of_sets = json_object();
	rc = evaluate_sets(l, of_sets, &loss, &tokens);
	if (rc == HD_OK) {
		hd_show_eval(&l->show, l->at.step, loss, tokens, of_sets);
		o = json_pack("{s:I, s:o, s:o}", "step", (json_int_t)l->at.step, "time", hd_json_number(wall_clock()),
			      "valid_loss", hd_json_number(loss));
		json_object_update(o, of_sets);
		hd_train_emit(l, o);
	} else if (rc > 0) {
		hd_log(HD_LOG_INFO, "the evaluation after step %lld was interrupted; %s", (long long)l->at.step,
		       *l->j->log.metrics ? "the resumed run repeats it"
					  : "without log.metrics the resumed run does not know of it");
	}
	json_decref(of_sets);
	return rc;
}

#define CHANGED \
	"memory, a link or a processor has changed it, and earlier checkpoints are intact; or a strategy computes different " \
	"bits on each member, as sums in a different order do (heddle conform)"

/* Gets the current parameters from servers, for what reads them between steps. */
static int pull(struct train_loop *l)
{
	l->failed_alone = 1; /* the others would wait for this rank */
	HD_TRY(hd_program_pull(l->g));
	l->failed_alone = 0;
	return HD_OK;
}

static int print_sample(struct train_loop *l)
{
	hd_show_line(&l->show);
	return hd_sample(l->j, hd_end_requested, l->err);
}

static int is_due(const struct train_loop *l, int64_t every, int last)
{
	return last || (every && l->at.step % every == 0);
}

/* Adds the time since `begin` to the estimate of what is left to do. Returns the current time. */
static double add_pace(struct train_loop *l, int kind, double begin)
{
	double now = hd_seconds();

	hd_pace_add(&l->show.pace, kind, now - begin);
	return now;
}

/* Does the work between steps that is done at intervals. Returns 1 if it was
 * interrupted because the ranks are asked to end. */
static int after_step(struct train_loop *l, int last)
{
	int eval = is_due(l, l->j->train.eval_every, last), texts = is_due(l, l->j->log.sample_every, last),
	    stopped = 0;
	int64_t hash = l->j->train.hash_every;
	double begin;

	l->last_save = last;
	if (hash && is_due(l, hash, last)) /* before a wrong state is saved */
		HD_TRY(hd_copies_check(l->j, l->at.step, CHANGED, l->err));
	begin = hd_seconds();
	/* Save before the evaluation, which would overwrite the step's gradients. */
	if (hd_train_saves(l) && is_due(l, l->j->checkpoint.every, last)) {
		HD_TRY(hd_train_save_once(l));
		begin = add_pace(l, HD_PACE_SAVE, begin);
	}
	if (eval || texts)
		HD_TRY(pull(l));
	if (eval) {
		HD_TRY(stopped = evaluate(l));
		begin = add_pace(l, HD_PACE_EVALUATION, begin);
	}
	if (!stopped && texts) {
		stopped = print_sample(l);
		add_pace(l, HD_PACE_SAMPLE, begin);
	}
	return stopped;
}

/* -- the end of a run -------------------------------------------------------------------------------------------- */
/* After passing on a signal, mpirun kills the ranks within a second, Open MPI 5 even sooner. Not
 * so after SIGUSR1: it passes that on and waits. */
#define HURRY \
	"heddle: asked to end; if mpirun was, it kills its ranks within a second, and a step or save that takes longer is lost. " \
	"kill -USR1 of mpirun has no such limit\n"

/* Ends the run if a rank was asked to end. With a checkpoint that is no failure, since the run can be resumed. */
static int interrupted(struct train_loop *l)
{
	int sig = (int)hd_comm_max((double)hd_end_requested());

	if (!sig)
		return 0;
	if (hd_end_requested_by_launcher())
		hd_launch_redirect_messages();
	l->j->stopped = HD_STOPPED;
	l->last_save = 1;
	if (hd_train_saves(l) && (hd_train_save_once(l) < 0 || hd_train_wait_for_saves(l) < 0))
		return 1;
	if (hd_train_saves(l))
		l->j->stopped = HD_STOPPED_SAVED;
	hd_err_set(l->err, HD_EIO, "%s after step %lld%s%s", sig == SIGINT ? "interrupted" : "asked to end",
		   (long long)l->at.step,
		   hd_train_saves(l) ? "; saved in " : "; nothing is saved (checkpoint.dir is not given)",
		   hd_train_saves(l) ? l->j->checkpoint.dir : "");
	return 1;
}

/* Ends the run after an interrupted evaluation or sample. These overwrite
 * gradients, so a missing save is made without them. */
static int end_early(struct train_loop *l)
{
	if (hd_train_saves(l) && l->j->checkpoint.gradients && l->saved != l->at.step) {
		l->j->checkpoint.gradients = 0;
		hd_log(HD_LOG_INFO,
		       "step %lld is saved without checkpoint.gradients: an evaluation or a sample uses their memory",
		       (long long)l->at.step);
	}
	return interrupted(l) ? l->err->code : HD_OK;
}

/* Continues with the ramp's next batch size: a different program on the same weights. */
static int resize(struct train_loop *l)
{
	int64_t batch = hd_ramp_batch(&l->j->train.batch, l->at.tokens);
	const struct hd_program *was = l->g;

	if (batch != l->global_batch) {
		HD_TRY(hd_train_wait_for_saves(l)); /* a save in progress uses names of the old program */
		hd_trace_cut(l);
	}
	l->global_batch = batch;
	HD_TRY(hd_job_resize(l->j, l->global_batch, l->err));
	l->p = l->j->plan[HD_JOB_TRAIN];
	l->g = l->j->program[HD_JOB_TRAIN];
	return l->g == was ? HD_OK : hd_train_messages_meet(l->g, l->err);
}

/* Makes an evaluation that was due at the step that this run resumes from, if the previous run
 * ended before it. Returns the same as evaluate. */
static int evaluate_missed(struct train_loop *l)
{
	const char *path = l->j->log.metrics;
	int64_t every = l->j->train.eval_every, step = l->at.step;
	int due = step > 0 && (step == l->steps || (every && step % every == 0)), missed;

	if (!due || !*path || !l->j->program[HD_JOB_EVAL])
		return HD_OK;
	missed = l->metrics && hd_metrics_has(path, step, "loss") && !hd_metrics_has(path, step, "valid_loss");
	if (hd_comm_max((double)missed) <= 0)
		return HD_OK;
	HD_TRY(pull(l));
	return evaluate(l);
}

/* Ends a run that has no step left. If it resumed from elsewhere, checkpoint.dir still gets that checkpoint. */
static int finish(struct train_loop *l)
{
	int saves = hd_train_saves(l) && l->saved != l->at.step, stopped;

	l->last_save = 1;
	if (saves) {
		l->j->checkpoint.gradients = 0; /* no step has computed any */
		HD_TRY(hd_train_save_once(l));
	}
	HD_TRY(hd_train_wait_for_saves(l));
	if (l->at.step > 0)
		hd_log(HD_LOG_INFO, "step %lld is %s train.steps = %lld: nothing to %s%s", (long long)l->at.step,
		       l->at.step > l->steps ? "already past" : "the last of", (long long)l->steps,
		       saves ? "train; saved in " : "do", saves ? l->j->checkpoint.dir : "");
	HD_TRY(stopped = evaluate_missed(l));
	if (!stopped)
		HD_TRY(stopped = print_sample(l));
	return stopped ? end_early(l) : HD_OK;
}

static int loop(struct train_loop *l)
{
	struct hd_numbers n;
	int stopped;

	if (l->at.step >= l->steps)
		return finish(l);
	if (interrupted(l))
		return l->err->code;
	HD_TRY(stopped = evaluate_missed(l));
	while (!stopped && l->at.step < l->steps) {
		HD_TRY(resize(l));
		hd_trace_begin(l);
		HD_TRY(step(l, &n));
		write_step(l, &n);
		hd_trace_end(l);
		HD_TRY(hd_train_look_after_saves(l));
		if (interrupted(l))
			return l->err->code;
		HD_TRY(stopped = after_step(l, l->at.step == l->steps));
	}
	if (stopped)
		return end_early(l);
	HD_TRY(hd_train_wait_for_saves(l));
	hd_autotune_exceeded(l->j, l->share);
	return HD_OK;
}

static void open_metrics(struct train_loop *l)
{
	const struct hd_log_config *log = &l->j->log;

	if (*log->metrics)
		hd_metrics_open(log->metrics, l->at.step, &l->metrics, l->err);
	if (*log->tensorboard && !l->err->code)
		hd_events_open(log->tensorboard, &l->events, l->err);
	l->about = hd_train_about(l);
}

static int open_outputs(struct train_loop *l)
{
	if (l->j->world.rank == 0)
		open_metrics(l);
	hd_trace_check(&l->j->log, l->j->world.rank, l->at.step + 1, l->steps, l->err);
	HD_TRY(hd_comm_agree(l->err));
	HD_TRY(hd_checkpoint_room(l->j, l->at.step + (l->saved == l->at.step), hd_train_saves_to_come(l), l->err));
	if (hd_train_saves(l))
		HD_TRY(hd_saver_open(l->j, &l->saver, l->err));
	hd_launch_open_stderr();
	if (hd_train_saves(l) && hd_launch_kills_soon())
		hd_end_request_notice(HURRY, hd_comm_failed);
	return HD_OK;
}

static int begin(struct train_loop *l)
{
	const char *load = hd_section_str(hd_conf_section(l->j->conf, NULL, "model"), "load");
	char *resume = NULL;
	uint64_t part = 0;
	int rc = HD_OK;

	HD_TRY(hd_train_choose(l, &resume));
	if (*load && !resume) {
		HD_TRY(hd_checkpoint_weights(l->j, load, l->err));
		hd_load_notes(l->j, load);
		part = hd_weights_part(l->g);
	} else {
		hd_init_weights(l->g, l->j->train.seed, &part);
	}
	hd_log(HD_LOG_INFO, "initial weights %016llx", (unsigned long long)hd_weights_hash(l->g, part));
	if (resume) {
		HD_TRY(hd_checkpoint_load(l->j, resume, &l->at, l->err));
		hd_log(HD_LOG_INFO, "resumed from %s", resume);
		hd_resume_notes(l->j, resume, &l->at);
		if (hd_train_in_dir(l, resume))
			l->newest = l->saved = l->at.step;
	}
	l->first = l->at.step;
	/* Different hosts may have read different files. Besides, the
	 * comparison's memory is then allocated before the steps. */
	if (l->j->train.hash_every || (l->j->world.size > 1 && (*load || resume)))
		rc = hd_copies_check(l->j, l->at.step, *load || resume ? "they have read different files" : CHANGED,
				     l->err);
	free(resume);
	return rc < 0 ? rc : open_outputs(l);
}

int hd_train(struct hd_job *j, struct hd_err *err)
{
	struct train_loop l = { .j = j,
				.p = j->plan[HD_JOB_TRAIN],
				.g = j->program[HD_JOB_TRAIN],
				.err = err,
				.steps = j->train.steps,
				.saved = -1,
				.newest = -1,
				.metrics_say = { .key = "log.metrics" },
				.events_say = { .key = "log.tensorboard" } };
	struct hd_err late = { 0 };
	int rc;

	l.own_norms = hd_plan_has_own_gradients(l.p);
	l.show.scratch = hd_alloc((size_t)(l.p->model.seq + 1) * sizeof(int32_t));
	hd_show_open(&l.show, j, l.steps);
	rc = hd_train_messages_meet(l.g, err);
	rc = rc >= 0 ? begin(&l) : rc;
	if (rc >= 0) {
		hd_show_begin(&l.show, &l.at);
		rc = loop(&l);
	}
	if (rc >= 0)
		hd_show_end(&l.show);
	hd_show_line(&l.show);
	hd_metrics_close(l.metrics, err);
	hd_events_close(l.events, err);
	json_decref(l.about);
	free(l.show.scratch);
	if (l.failed_alone && l.g->why.code)
		hd_err_set(err, rc, "step %lld: %s", (long long)l.at.step + 1, l.g->why.text);
	else if (l.failed_alone)
		hd_err_set(err, rc, "step %lld ended with code %d", (long long)l.at.step + 1, rc);
	/* No other rank answers any more, so the process ends here. What it was saving is lost. */
	if (l.failed_alone && j->world.size > 1)
		return err->code;
	hd_log_file_check(&l.metrics_say, err);
	hd_log_file_check(&l.events_say, err);
	if (l.trace_error.code && !err->code)
		hd_err_set(err, l.trace_error.code, "%s", l.trace_error.text);
	hd_comm_agree(err);
	if (hd_saver_wait(l.saver, &late) < 0) /* a save whose copy was complete */
		hd_log(HD_LOG_WARN, "%s", late.text);
	hd_saver_close(l.saver);
	return err->code;
}
