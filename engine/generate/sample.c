/* SPDX-License-Identifier: Apache-2.0
 * log.sample: generates text from the model that is being trained. A run on ids without a known tokenizer reads its
 * prompt as ids, and prints ids.
 */
#include <config.h>
#include "engine/generate/generate.h"
#include <stdio.h>

/* Returns whether neither text nor bytes stand for the ids. */
static int is_bare(const struct hd_data *d, int64_t vocab)
{
	return d && !hd_data_tokenizer(d) && !hd_data_is_text(d) && vocab != 256;
}

/* Prints ids for which no tokenizer is known. */
static void print_bare(const int32_t *ids, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		printf(i ? " %d" : "%d", ids[i]);
	putchar('\n');
}

static int print_sample(struct hd_job *j, const struct hd_ids *ids, struct hd_err *err)
{
	int bare = is_bare(j->data, hd_job_any_plan(j)->model.vocab);

	printf(bare ? "sample, in ids (data.tokenizer is not known):\n" : "sample:\n");
	if (!bare)
		return hd_ids_print(j->data ? hd_data_tokenizer(j->data) : NULL, ids->at, (int64_t)ids->n, 1, err);
	print_bare(ids->at, (int64_t)ids->n);
	return HD_OK;
}

int hd_sample_prompt(struct hd_conf *c, const struct hd_log_config *log, const struct hd_data *d, int64_t vocab,
		     struct hd_ids *ids, struct hd_err *err)
{
	const char *text = log->sample_prompt;
	struct hd_err why = { 0 };

	if (!is_bare(d, vocab))
		HD_TRY(hd_prompt(d ? hd_data_tokenizer(d) : NULL, *text ? text : "\n", NULL, ids, err));
	else if (hd_ids_parse(text, vocab, ids, &why) < 0)
		return hd_section_fail(c, log->section, "sample_prompt", err, why.code,
				       "%s. It is read as ids because data.tokenizer is not known", why.text);
	if (!ids->n)
		hd_ids_add(ids, 0);
	return HD_OK;
}

unsigned hd_sample_roles(struct hd_job *j, struct hd_conf *c, const struct hd_log_config *log, int64_t seq,
			 struct hd_err *err)
{
	int64_t given = hd_section_int(hd_conf_section(c, NULL, "model"), "vocab");
	int64_t vocab = given || !j->data ? given : hd_data_vocab(j->data);
	struct hd_ids ids = { 0 };

	/* hd_job_open refuses a vocab that is not known */
	hd_sample_prompt(c, log, j->data, vocab ? vocab : INT32_MAX, &ids, err);
	j->cache = hd_cached_sizes(1, (int64_t)ids.n, log->sample, seq, j->world.size);
	hd_ids_release(&ids);
	return 1u << HD_JOB_PROMPT | 1u << HD_JOB_NEXT;
}

static int add_sample(struct hd_job *j, struct hd_ids *ids, int (*asked)(void), struct hd_err *err)
{
	struct hd_sampling s = { .temperature = 0.8, .top_p = 1, .seed = j->train.seed, .asked = asked };

	if (hd_cached_rows(j))
		return hd_cached_generate(j, ids, 1, j->log.sample, &s, NULL, err);
	return hd_generate(j, ids, j->log.sample, &s, err);
}

int hd_sample(struct hd_job *j, int (*asked)(void), struct hd_err *err)
{
	struct hd_ids ids = { 0 };
	int rc;

	if (!j->log.sample || !(j->program[HD_JOB_GENERATE] || hd_cached_rows(j)))
		return HD_OK;
	rc = hd_sample_prompt(j->conf, &j->log, j->data, hd_job_any_plan(j)->model.vocab, &ids, err);
	if (rc >= 0)
		rc = add_sample(j, &ids, asked, err);
	if (rc && hd_comm_agree(err) < 0) /* all ranks have stopped: one was asked to end, or has failed */
		rc = err->code;
	if (rc == HD_OK && j->world.rank == 0)
		rc = print_sample(j, &ids, err);
	hd_ids_release(&ids);
	return rc;
}
