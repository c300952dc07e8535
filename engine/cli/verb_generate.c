/* SPDX-License-Identifier: Apache-2.0
 * heddle generate: text from a checkpoint.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/train/generate.h"
#include "engine/text/tokenizer.h"
#include "engine/train/metrics.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_ids(const int32_t *ids, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		printf(i ? " %d" : "%d", ids[i]);
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

/* "1 2 3" */
static int parse_ids(const char *text, int64_t vocab, struct hd_ids *out, struct hd_err *err)
{
	char *copy = hd_strdup(text), *save, *end;

	for (char *word = strtok_r(copy, " \t\n,", &save); word && !err->code; word = strtok_r(NULL, " \t\n,", &save)) {
		long long id = strtoll(word, &end, 10);

		if (*end || id < 0 || id >= vocab)
			hd_err_set(err, HD_EINVAL,
				   "generate: --ids: '%.40s' is not an id below the model's vocab of %lld", word,
				   (long long)vocab);
		hd_ids_add(out, (int32_t)id);
	}
	free(copy);
	return err->code;
}

/* Whose text the prompt is: the checkpoint's tokenizer, or bytes where those are its tokens. */
static int find_tokenizer(struct hd_job *j, const struct hd_cli *c, struct hd_tokenizer **t, struct hd_err *err)
{
	int64_t vocab = hd_job_any_plan(j)->model.vocab;
	struct hd_section *data = hd_conf_section(j->conf, NULL, "data");

	if (hd_cli_has(c, "ids"))
		return HD_OK;
	HD_TRY(hd_data_text_tokenizer(j->conf, "the prompt", 0, t, err));
	if (*t && hd_tokenizer_vocab(*t) > vocab)
		return hd_err_set(err, HD_EINVAL, "generate: %s has %lld tokens, and the model's vocab is %lld",
				  hd_tokenizer_path(*t), (long long)hd_tokenizer_vocab(*t), (long long)vocab);
	if (*t || vocab == 256 || (vocab > 256 && hd_section_has(data, "tokenizer")))
		return HD_OK;
	if (vocab < 256)
		return hd_err_set(err, HD_EINVAL,
				  "generate: the vocabulary has %lld entries, and text as bytes needs 256",
				  (long long)vocab);
	return hd_err_set(
		err, HD_EINVAL,
		"generate: the model's vocab of %lld is not one of bytes, and there is no tokenizer.json in %s: put it "
		"there, or give --tokenizer DIR, or the prompt as ids (--ids)",
		(long long)vocab, c->positional);
}

static int prompt_ids(struct hd_job *j, const struct hd_cli *c, const struct hd_tokenizer *t, struct hd_ids *out,
		      struct hd_err *err)
{
	const char *prompt = hd_cli_str(c, "prompt", "\n");

	if (hd_cli_has(c, "ids"))
		HD_TRY(parse_ids(prompt, hd_job_any_plan(j)->model.vocab, out, err));
	else
		HD_TRY(hd_prompt(t, prompt, out, err));
	return out->n ? HD_OK : hd_err_set(err, HD_EINVAL, "generate: --prompt is empty");
}

static int print_more(struct hd_job *j, const struct hd_cli *c, const struct hd_tokenizer *t, struct hd_ids *ids,
		      int64_t n, const struct hd_sampling *s, struct hd_err *err)
{
	int64_t have = (int64_t)ids->n;

	for (int64_t i = 0; i < n; i++)
		hd_ids_add(ids, 0);
	HD_TRY(hd_generate(j, ids->at, have, n, s, err));
	if (j->world.rank)
		return HD_OK;
	if (!hd_cli_has(c, "ids"))
		return hd_ids_print(t, ids->at, have + n, err);
	print_ids(ids->at, have + n);
	return HD_OK;
}

static int generate(struct hd_job *j, struct hd_cli *c, struct hd_err *err)
{
	struct hd_sampling s = { .temperature = 0.8 };
	struct hd_tokenizer *t = NULL;
	struct hd_ids ids = { 0 };
	int64_t n;

	HD_TRY(hd_cli_int(c, "tokens", 0, 1000000, 200, &n, err));
	HD_TRY(hd_cli_num(c, "temperature", 0, 100, 0.8, &s.temperature, err));
	HD_TRY(hd_cli_int(c, "top-k", 0, 1000000, 0, &s.top_k, err));
	HD_TRY(hd_cli_int(c, "seed", 0, INT64_MAX, 1, &s.seed, err));
	if (find_tokenizer(j, c, &t, err) >= 0 && prompt_ids(j, c, t, &ids, err) >= 0) {
		if (hd_cli_has(c, "logits"))
			print_logits(j, ids.at, (int64_t)ids.n, err);
		else
			print_more(j, c, t, &ids, n, &s, err);
	}
	hd_ids_release(&ids);
	hd_tokenizer_close(t);
	return err->code;
}

int hd_verb_generate(struct hd_cli *c)
{
	struct hd_job j = { 0 };
	struct hd_err err = { 0 };
	int rc;

	if (hd_checkpoint_start(c, &j, &err) >= 0 && hd_checkpoint_open(c, &j, HD_JOB_GENERATE, &err) >= 0)
		generate(&j, c, &err);
	rc = hd_finish(c, &j, &err);
	hd_job_close(&j);
	return rc;
}
