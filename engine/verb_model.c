/* SPDX-License-Identifier: Apache-2.0
 * heddle eval and generate: verbs on a checkpoint.
 */
#include <config.h>
#include "engine/verbs.h"
#include "engine/checkpoint.h"
#include "engine/generate.h"
#include "engine/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_checkpoint(struct hd_job *j, struct hd_cli *c, int role, struct hd_err *err)
{
	struct hd_conf *conf = NULL;

	if (!c->positional)
		hd_err_set(err, HD_EINVAL, "%s: which checkpoint?", c->verb->name);
	else
		hd_checkpoint_conf(c->positional, c->sets, c->nsets, &conf, err);
	j->conf = conf;
	HD_TRY(hd_start(j, conf, err));
	if (role == HD_EVAL) {
		struct hd_section *t = hd_conf_section(conf, NULL, "train"), *m = hd_conf_section(conf, NULL, "model");

		hd_section_check(conf, t, &hd_train_keys, 1, err);
		hd_section_check(conf, m, &hd_model_keys, 1, err);
		if (!hd_cli_str(c, "data", NULL))
			hd_err_set(err, HD_EINVAL, "eval: --data FILE must be given");
		else if (!err->code)
			hd_data_open_file(hd_cli_str(c, "data", ""), hd_section_int(t, "seq"), hd_section_int(m, "vocab"),
					  &j->data, err);
		HD_TRY(hd_comm_agree(err));
	}
	HD_TRY(hd_job_open(j, conf, 1u << role, NULL, err));
	return hd_checkpoint_weights(j, c->positional, err);
}

static void print_eval(const struct hd_cli *c, double loss, int64_t tokens)
{
	char *line;

	if (!hd_cli_has(c, "json")) {
		printf("loss %.9g  perplexity %.9g  tokens %lld\n", loss, exp(loss), (long long)tokens);
		return;
	}
	line = hd_json_line(json_pack("{s:o, s:o, s:I}", "loss", hd_json_number(loss), "perplexity", hd_json_number(exp(loss)),
				      "tokens", (json_int_t)tokens));
	puts(line);
	free(line);
}

int hd_verb_eval(struct hd_cli *c)
{
	struct hd_job j = { 0 };
	struct hd_err err = { 0 };
	double loss = 0;
	int64_t tokens = 0;
	int rc;

	if (open_checkpoint(&j, c, HD_EVAL, &err) >= 0 && hd_evaluate(&j, 0, &loss, &tokens, &err) >= 0 && j.world.rank == 0)
		print_eval(c, loss, tokens);
	rc = hd_finish(&j, &err);
	hd_job_close(&j);
	return rc;
}

static void print_text(const int32_t *ids, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		putchar(ids[i] < 256 ? (int)ids[i] : '?');
	putchar('\n');
}

static int print_logits(struct hd_job *j, const int32_t *ids, int64_t n, struct hd_err *err)
{
	int64_t vocab = hd_job_any_plan(j)->model.vocab;
	float *z = hd_alloc((size_t)vocab * sizeof(*z));
	json_t *all = json_array();
	char *line;

	hd_next_logits(j, ids, n, z, err);
	for (int64_t i = 0; !err->code && i < vocab; i++)
		json_array_append_new(all, hd_json_number((double)z[i]));
	line = hd_json_line(json_pack("{s:o}", "logits", all));
	if (!err->code && j->world.rank == 0)
		puts(line);
	free(line);
	free(z);
	return err->code;
}

static int generate(struct hd_job *j, struct hd_cli *c, struct hd_err *err)
{
	const char *prompt = hd_cli_str(c, "prompt", "\n");
	struct hd_sampling s = { .temperature = 0.8 };
	int64_t n, have = (int64_t)strlen(prompt);
	int32_t *ids;
	int rc;

	HD_TRY(hd_cli_int(c, "tokens", 0, 1000000, 200, &n, err));
	HD_TRY(hd_cli_num(c, "temperature", 0, 100, 0.8, &s.temperature, err));
	HD_TRY(hd_cli_int(c, "top-k", 0, 1000000, 0, &s.top_k, err));
	HD_TRY(hd_cli_int(c, "seed", 0, INT64_MAX, 1, &s.seed, err));
	if (!have)
		return hd_err_set(err, HD_EINVAL, "generate: --prompt is empty");
	if (hd_job_any_plan(j)->model.vocab < 256)
		return hd_err_set(err, HD_EINVAL, "generate: the vocabulary has %lld entries, and text as bytes needs 256",
				  (long long)hd_job_any_plan(j)->model.vocab);
	ids = hd_alloc((size_t)(have + n) * sizeof(*ids));
	for (int64_t i = 0; i < have; i++)
		ids[i] = (uint8_t)prompt[i];
	if (hd_cli_has(c, "logits")) {
		rc = print_logits(j, ids, have, err);
	} else {
		rc = hd_generate(j, ids, have, n, &s, err);
		if (rc >= 0 && j->world.rank == 0)
			print_text(ids, have + n);
	}
	free(ids);
	return rc;
}

int hd_verb_generate(struct hd_cli *c)
{
	struct hd_job j = { 0 };
	struct hd_err err = { 0 };
	int rc;

	if (open_checkpoint(&j, c, HD_GENERATE, &err) >= 0)
		generate(&j, c, &err);
	rc = hd_finish(&j, &err);
	hd_job_close(&j);
	return rc;
}
