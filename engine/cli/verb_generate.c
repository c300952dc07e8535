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
#include <errno.h>
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

/* -- prompts ----------------------------------------------------------------------------------- */
struct prompts {
	struct hd_ids *all;
	size_t n, cap;
};

/* One more; where: names it in messages. */
static int add_prompt(struct hd_job *j, const struct hd_cli *c, const struct hd_tokenizer *t, const char *text,
		      const char *where, struct prompts *out, struct hd_err *err)
{
	struct hd_ids *ids;

	out->all = hd_grow(out->all, out->n, &out->cap, sizeof(*out->all));
	ids = &out->all[out->n++];
	if (hd_cli_has(c, "ids"))
		HD_TRY(parse_ids(text, hd_job_any_plan(j)->model.vocab, ids, err));
	else
		HD_TRY(hd_prompt(t, text, ids, err));
	return ids->n ? HD_OK : hd_err_set(err, HD_EINVAL, "generate: %s is empty", where);
}

/* A prompt a line. */
static int read_prompts(struct hd_job *j, const struct hd_cli *c, const struct hd_tokenizer *t, const char *path,
			struct prompts *out, struct hd_err *err)
{
	FILE *f = fopen(path, "r");
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	if (!f)
		return hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	while (!err->code && (n = getline(&line, &cap, f)) >= 0) {
		char *where = hd_format("%s:%zu: the prompt", path, out->n + 1);

		line[strcspn(line, "\r\n")] = 0;
		add_prompt(j, c, t, line, where, out, err);
		free(where);
	}
	if (!err->code && !out->n)
		hd_err_set(err, HD_EINVAL, "%s: there is no prompt in it", path);
	free(line);
	fclose(f);
	return err->code;
}

static int get_prompts(struct hd_job *j, const struct hd_cli *c, const struct hd_tokenizer *t, struct prompts *out,
		       struct hd_err *err)
{
	if (hd_cli_has(c, "prompts"))
		read_prompts(j, c, t, hd_cli_str(c, "prompts", ""), out, err);
	else
		add_prompt(j, c, t, hd_cli_str(c, "prompt", "\n"), "--prompt", out, err);
	return hd_comm_agree(err); /* each rank has read the file itself */
}

static void release_prompts(struct prompts *p)
{
	for (size_t i = 0; i < p->n; i++)
		hd_ids_release(&p->all[i]);
	free(p->all);
}

/* -- the command ------------------------------------------------------------------------------- */
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

/* Options that would say nothing here. */
static int check_options(const struct hd_cli *c, struct hd_err *err)
{
	static const char *const of_draws[] = { "tokens", "temperature", "top-k", "top-p", "seed" };

	if (hd_cli_has(c, "prompt") && hd_cli_has(c, "prompts"))
		return hd_err_set(err, HD_EINVAL, "generate: --prompt and --prompts: one of the two");
	if (hd_cli_has(c, "ids") && hd_cli_has(c, "tokenizer"))
		return hd_err_set(err, HD_EINVAL, "generate: --tokenizer: with --ids no text is read or written");
	for (size_t i = 0; hd_cli_has(c, "logits") && i < HD_LEN(of_draws); i++)
		if (hd_cli_has(c, of_draws[i]))
			return hd_err_set(err, HD_EINVAL, "generate: --%s: with --logits nothing is generated",
					  of_draws[i]);
	return HD_OK;
}

static int read_sampling(const struct hd_cli *c, int64_t *tokens, struct hd_sampling *s, struct hd_err *err)
{
	HD_TRY(check_options(c, err));
	HD_TRY(hd_cli_int(c, "tokens", 0, 1000000, 200, tokens, err));
	HD_TRY(hd_cli_num(c, "temperature", 0, 100, 0.8, &s->temperature, err));
	HD_TRY(hd_cli_int(c, "top-k", 0, 1000000, 0, &s->top_k, err));
	HD_TRY(hd_cli_num(c, "top-p", 0, 1, 1, &s->top_p, err));
	HD_TRY(hd_cli_int(c, "seed", 0, INT64_MAX, 1, &s->seed, err));
	return s->top_p > 0
		       ? HD_OK
		       : hd_err_set(err, HD_EINVAL, "generate: --top-p: 0 leaves no token; it is above 0, at most 1");
}

static int generate(struct hd_job *j, const struct hd_cli *c, int64_t tokens, struct hd_sampling *s, struct hd_err *err)
{
	struct hd_tokenizer *t = NULL;
	struct prompts all = { 0 };

	hd_checkpoint_tokenizer(c, j, "the prompt", &t, err);
	if (!err->code)
		get_prompts(j, c, t, &all, err);
	for (size_t i = 0; i < all.n && !err->code; i++) {
		s->text = (int64_t)i;
		if (hd_cli_has(c, "logits"))
			print_logits(j, all.all[i].at, (int64_t)all.all[i].n, err);
		else
			print_more(j, c, t, &all.all[i], tokens, s, err);
	}
	release_prompts(&all);
	hd_tokenizer_close(t);
	return err->code;
}

int hd_verb_generate(struct hd_cli *c)
{
	struct hd_sampling s = { .temperature = 0.8 };
	struct hd_job j = { 0 };
	struct hd_err err = { 0 };
	int64_t tokens = 0;
	int rc;

	read_sampling(c, &tokens, &s, &err);
	if (hd_checkpoint_start(c, &j, &err) >= 0 && hd_checkpoint_open(c, &j, HD_JOB_GENERATE, &err) >= 0)
		generate(&j, c, tokens, &s, &err);
	rc = hd_finish(c, &j, &err);
	hd_job_close(&j);
	return rc;
}
