/* SPDX-License-Identifier: Apache-2.0
 * heddle eval: computes the loss and perplexity of a checkpoint on a file, and its accuracy on multiple-choice
 * questions.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/evaluate/choices.h"
#include "engine/train/metrics.h"
#include "engine/evaluate/evaluate.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Opens the data of --data, cut into sequences as the checkpoint's training data were. */
static int open_data(const struct hd_cli *c, struct hd_job *j, struct hd_err *err)
{
	struct hd_section *m = hd_conf_section(j->conf, NULL, "model");
	struct hd_train_config t;

	hd_train_config_read(j->conf, &t, err);
	hd_section_check(j->conf, m, &hd_model_keys, 1, err);
	if (!hd_cli_str(c, "data", NULL) && !hd_cli_str(c, "choices", NULL))
		hd_err_set(err, HD_EINVAL, "eval: --data FILE or --choices FILE must be given");
	else if (!err->code && hd_cli_has(c, "no-special-tokens") && !hd_cli_str(c, "choices", NULL))
		hd_err_set(err, HD_EINVAL, "eval: --no-special-tokens does nothing with --data, which adds none");
	else if (!err->code && hd_cli_str(c, "data", NULL))
		hd_data_open_file(j->conf, hd_cli_str(c, "data", ""), t.seq, hd_section_int(m, "vocab"), &j->data, err);
	if (j->data)
		hd_data_warn(j->data);
	return hd_comm_agree(err);
}

static int no_number(const struct hd_job *j, struct hd_err *err)
{
	char *spoilt = hd_program_spoilt_text(hd_job_first_program(j));

	if (spoilt)
		hd_err_set(err, HD_EINVAL, "eval: the loss is not a number: weights are not finite: %s", spoilt);
	free(spoilt);
	HD_TRY(hd_comm_agree(err)); /* only one rank's shard may have them */
	hd_err_set(err, HD_EINVAL, "eval: the loss is not a number: weights are not finite, or became too large");
	return hd_comm_agree(err);
}

/* -- text -------------------------------------------------------------------------------------- */
static int eval_data(const struct hd_cli *c, struct hd_job *j, json_t *o, struct hd_err *err)
{
	double loss = 0;
	int64_t tokens = 0, left = 0, seq = hd_job_any_plan(j)->model.seq;

	HD_TRY(hd_evaluate_file(j, &loss, &tokens, &left, err));
	if (isnan(loss))
		return no_number(j, err);
	if (left)
		hd_log(HD_LOG_INFO,
		       "eval: the last %lld of %lld tokens are left out: they do not fill a window of train.seq = %lld",
		       (long long)left, (long long)hd_data_tokens(j->data, 1), (long long)seq);
	json_object_set_new(o, "loss", hd_json_number(loss));
	json_object_set_new(o, "perplexity", hd_json_number(exp(loss)));
	json_object_set_new(o, "tokens", json_integer(tokens));
	json_object_set_new(o, "seq", json_integer(seq));
	if (j->world.rank == 0 && !hd_cli_has(c, "json"))
		printf("loss %.9g  perplexity %.9g  tokens %lld\n", loss, exp(loss), (long long)tokens);
	return HD_OK;
}

/* -- questions --------------------------------------------------------------------------------- */
static const char *const best_names[] = { "best", "best_by_tokens", "best_by_bytes" };
static const char *const accuracy_names[] = { "accuracy", "accuracy_by_tokens", "accuracy_by_bytes" };

static json_t *question_json(const struct hd_question *q)
{
	json_t *o = json_object(), *sums = json_array(), *tokens = json_array(), *bytes = json_array();

	for (int64_t i = 0; i < q->n; i++) {
		json_array_append_new(sums, hd_json_number(q->answers[i].likelihood));
		json_array_append_new(tokens, json_integer((json_int_t)q->answers[i].ids.n - q->answers[i].first));
		json_array_append_new(bytes, json_integer(q->answers[i].bytes));
	}
	json_object_set_new(o, "log_likelihood", sums);
	json_object_set_new(o, "tokens", tokens);
	json_object_set_new(o, "bytes", bytes);
	json_object_set_new(o, "answer", json_integer(q->right));
	for (int k = 0; k < HD_CHOICE_KINDS; k++)
		json_object_set_new(o, best_names[k], json_integer(hd_question_best(q, k)));
	return o;
}

static void add_choices(const struct hd_choices *all, json_t *o)
{
	json_t *list = json_array();

	json_object_set_new(o, "questions", json_integer((json_int_t)all->n));
	for (int k = 0; k < HD_CHOICE_KINDS; k++)
		json_object_set_new(o, accuracy_names[k], hd_json_number(hd_choices_accuracy(all, k)));
	for (size_t i = 0; i < all->n; i++)
		json_array_append_new(list, question_json(&all->all[i]));
	json_object_set_new(o, "choices", list);
}

static void print_choices(const struct hd_choices *all)
{
	for (size_t i = 0; i < all->n; i++) {
		const struct hd_question *q = &all->all[i];

		printf("question %zu  answer %lld  best %lld  by tokens %lld  by bytes %lld  log-likelihoods", i + 1,
		       (long long)q->right, (long long)hd_question_best(q, HD_CHOICE_SUM),
		       (long long)hd_question_best(q, HD_CHOICE_TOKENS),
		       (long long)hd_question_best(q, HD_CHOICE_BYTES));
		for (int64_t a = 0; a < q->n; a++)
			printf(" %.9g", q->answers[a].likelihood);
		putchar('\n');
	}
	printf("accuracy %.9g  by tokens %.9g  by bytes %.9g  questions %zu\n", hd_choices_accuracy(all, HD_CHOICE_SUM),
	       hd_choices_accuracy(all, HD_CHOICE_TOKENS), hd_choices_accuracy(all, HD_CHOICE_BYTES), all->n);
}

/* Refuses NaN: the first of several such answers would count as the best. */
static int check_numbers(const struct hd_choices *all, struct hd_err *err)
{
	for (size_t i = 0; i < all->n; i++)
		for (int64_t a = 0; a < all->all[i].n; a++)
			if (isnan(all->all[i].answers[a].likelihood))
				return hd_err_set(
					err, HD_EINVAL,
					"eval: question %zu: the log-likelihood of choice %lld is not a number: weights "
					"are not finite, or became too large",
					i + 1, (long long)a);
	return HD_OK;
}

static int judge_choices(const struct hd_cli *c, struct hd_job *j, struct hd_choices *all, json_t *o,
			 struct hd_err *err)
{
	HD_TRY(hd_choices_score(j, all, err));
	HD_TRY(check_numbers(all, err));
	add_choices(all, o);
	if (j->world.rank == 0 && !hd_cli_has(c, "json"))
		print_choices(all);
	return HD_OK;
}

/* Reads the questions before any file is evaluated, so that a wrong line is reported at once. */
static int read_choices(const struct hd_cli *c, struct hd_job *j, struct hd_choices *all, struct hd_err *err)
{
	struct hd_tokenizer *t = NULL;

	if (hd_checkpoint_tokenizer(c, j, hd_cli_str(c, "choices", ""), &t, err) >= 0)
		hd_choices_read(hd_cli_str(c, "choices", ""), t, !hd_cli_has(c, "no-special-tokens"),
				hd_job_any_plan(j)->model.seq, all, err);
	hd_tokenizer_close(t);
	return hd_comm_agree(err);
}

/* Refuses --choices with a capacity limit on experts: the score of an answer would depend on the other rows of its
 * batch. */
static int check_experts(const struct hd_cli *c, struct hd_job *j, struct hd_err *err)
{
	const struct hd_model *m = &hd_job_any_plan(j)->model;

	if (!hd_cli_has(c, "choices") || !m->experts || !(m->capacity_factor > 0))
		return HD_OK;
	hd_err_set(err, HD_EINVAL,
		   "eval: --choices uses experts without a capacity limit, --data with the checkpoint's "
		   "(model.capacity_factor = %g): give one of the two",
		   m->capacity_factor);
	return hd_comm_agree(err);
}

static int eval(struct hd_cli *c, struct hd_job *j, struct hd_choices *all, json_t *o, struct hd_err *err)
{
	HD_TRY(hd_checkpoint_start(c, j, err));
	HD_TRY(open_data(c, j, err));
	HD_TRY(hd_checkpoint_open(c, j, 1u << HD_JOB_EVAL, err));
	HD_TRY(check_experts(c, j, err));
	if (hd_cli_has(c, "choices"))
		HD_TRY(read_choices(c, j, all, err));
	if (hd_cli_has(c, "data"))
		HD_TRY(eval_data(c, j, o, err));
	return hd_cli_has(c, "choices") ? judge_choices(c, j, all, o, err) : HD_OK;
}

/* Removes the limit on experts, as with --set. */
static void without_limit(struct hd_cli *c)
{
	const char **sets = hd_alloc((size_t)(c->nsets + 1) * sizeof(*sets));

	for (int i = 0; i < c->nsets; i++)
		sets[i] = c->sets[i];
	sets[c->nsets] = "model.capacity_factor=0";
	free(c->sets);
	c->sets = sets;
	c->nsets++;
}

int hd_verb_eval(struct hd_cli *c)
{
	struct hd_job j = { 0 };
	struct hd_err err = { 0 };
	struct hd_choices all = { 0 };
	json_t *o = json_object();
	char *line;
	int rc;

	if (hd_cli_has(c, "choices") && !hd_cli_has(c, "data"))
		without_limit(c);
	rc = eval(c, &j, &all, o, &err);
	line = hd_json_line(o);
	if (rc >= 0 && !err.code && j.world.rank == 0 && hd_cli_has(c, "json"))
		puts(line);
	free(line);
	rc = hd_finish(c, &j, &err);
	hd_choices_release(&all);
	hd_job_close(&j);
	return rc;
}
