/* SPDX-License-Identifier: Apache-2.0
 * heddle generate: generates text from a checkpoint.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/file/file.h"
#include "engine/generate/generate.h"
#include "engine/process/launch.h"
#include "engine/text/leading.h"
#include "engine/text/tokenizer.h"
#include "engine/train/metrics.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_ids(const int32_t *ids, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		printf(i ? " %d" : "%d", ids[i]);
	putchar('\n');
}

static void print_logits(const float *z, int64_t vocab)
{
	json_t *all = json_array();
	char *line;

	for (int64_t i = 0; i < vocab; i++)
		json_array_append_new(all, hd_json_number((double)z[i]));
	line = hd_json_line(json_pack("{s:o}", "logits", all));
	puts(line);
	free(line);
}

/* -- prompts ----------------------------------------------------------------------------------- */
struct prompts {
	struct hd_ids *all;
	size_t *special; /* for each prompt: the ids before its text, which are not printed */
	size_t n, cap, cap_special;
};

/* Adds a prompt; where: its name in messages. */
static int add_prompt(struct hd_job *j, const struct hd_cli *c, const struct hd_tokenizer *t, const char *text,
		      const char *where, struct prompts *out, struct hd_err *err)
{
	struct hd_err why = { 0 };
	struct hd_ids *ids;
	size_t *special;

	out->all = hd_grow(out->all, out->n, &out->cap, sizeof(*out->all));
	out->special = hd_grow(out->special, out->n, &out->cap_special, sizeof(*out->special));
	special = &out->special[out->n];
	*special = 0;
	ids = &out->all[out->n++];
	if (hd_cli_has(c, "ids") && hd_ids_parse(text, hd_checkpoint_vocab(j), ids, &why) < 0)
		return hd_err_set(err, why.code, "generate: --ids: %s", why.text);
	if (!hd_cli_has(c, "ids"))
		HD_TRY(hd_prompt(t, text, hd_cli_has(c, "no-special-tokens") ? NULL : special, ids, err));
	return ids->n ? HD_OK : hd_err_set(err, HD_EINVAL, "generate: %s is empty", where);
}

/* Removes the line break, which may be CRLF. A carriage return elsewhere belongs to the text. */
static void drop_line_break(char *line, size_t n)
{
	if (!n || line[n - 1] != '\n')
		return;
	line[n - 1] = 0;
	if (n > 1 && line[n - 2] == '\r')
		line[n - 2] = 0;
}

/* Reads one prompt per line. */
static int read_prompts(struct hd_job *j, const struct hd_cli *c, const struct hd_tokenizer *t, const char *path,
			struct prompts *out, struct hd_err *err)
{
	FILE *f = fopen(path, "r");
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	if (!f)
		return hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	while (!err->code && (n = hd_file_line(f, path, &line, &cap, err)) >= 0) {
		char *where = hd_format("%s:%zu: the prompt", path, out->n + 1);

		if (strlen(line) < (size_t)n)
			hd_err_set(err, HD_EINVAL, "generate: %s has a byte 0x00: this is not a text file", where);
		drop_line_break(line, (size_t)n);
		if (!err->code)
			add_prompt(j, c, t, line, where, out, err);
		free(where);
	}
	if (!err->code && !out->n)
		hd_err_set(err, HD_EINVAL, "%s: it contains no prompt", path);
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
	return hd_comm_agree(err); /* each rank has read the file separately */
}

static void release_prompts(struct prompts *p)
{
	for (size_t i = 0; i < p->n; i++)
		hd_ids_release(&p->all[i]);
	free(p->all), free(p->special);
}

/* -- the command ------------------------------------------------------------------------------- */
struct generation {
	struct hd_job *j;
	const struct hd_cli *c;
	struct hd_tokenizer *t;
	struct prompts prompts;
	struct hd_sampling sampling;
	struct hd_ids ends; /* ids that end a text */
	int64_t tokens;
	struct hd_err *err;
};

static int print_text(struct generation *g, const struct hd_ids *ids, size_t before)
{
	if (g->j->world.rank)
		return HD_OK;
	if (!hd_cli_has(g->c, "ids"))
		return hd_ids_print(g->t, ids->at + before, (int64_t)(ids->n - before), hd_launch_terminal(), g->err);
	print_ids(ids->at, (int64_t)ids->n);
	return HD_OK;
}

/* Generates and prints n texts, beginning with text `first`. */
static int some_texts(struct generation *g, size_t first, int64_t n)
{
	struct hd_ids *texts = &g->prompts.all[first];

	g->sampling.text = (int64_t)first;
	if (hd_cached_rows(g->j))
		HD_TRY(hd_cached_generate(g->j, texts, n, g->tokens, &g->sampling, NULL, g->err));
	else
		HD_TRY(hd_generate(g->j, texts, g->tokens, &g->sampling, g->err));
	for (int64_t i = 0; i < n; i++)
		HD_TRY(print_text(g, &texts[i], g->prompts.special[first + (size_t)i]));
	return HD_OK;
}

static int some_logits(struct generation *g, size_t first, int64_t n)
{
	int64_t vocab = hd_job_any_plan(g->j)->model.vocab;
	const struct hd_ids *texts = &g->prompts.all[first];
	float *z = hd_alloc((size_t)(vocab * n) * sizeof(*z));

	if (hd_cached_rows(g->j))
		hd_cached_logits(g->j, texts, n, z, g->err);
	else
		hd_next_logits(g->j, texts->at, (int64_t)texts->n, z, g->err);
	for (int64_t i = 0; i < vocab * n && !g->err->code; i++)
		if (isnan(z[i]))
			hd_fail_draw((int64_t)texts[i / vocab].n, g->err);
	for (int64_t i = 0; i < n && !g->err->code && !g->j->world.rank; i++)
		print_logits(z + i * vocab, vocab);
	free(z);
	return g->err->code;
}

/* Refuses options that would have no effect. */
static int check_options(const struct hd_cli *c, struct hd_err *err)
{
	static const char *const of_draws[] = { "tokens", "temperature", "top-k", "top-p", "seed", "ignore-eos" };

	if (hd_cli_has(c, "prompt") && hd_cli_has(c, "prompts"))
		return hd_err_set(err, HD_EINVAL, "generate: --prompt and --prompts: give one of the two");
	if (hd_cli_has(c, "ids") && hd_cli_has(c, "no-special-tokens"))
		return hd_err_set(err, HD_EINVAL,
				  "generate: --no-special-tokens does nothing with --ids, which adds none");
	if (hd_cli_has(c, "ids") && hd_cli_has(c, "tokenizer"))
		return hd_err_set(err, HD_EINVAL,
				  "generate: --tokenizer does nothing with --ids: no text is read or written");
	for (size_t i = 0; hd_cli_has(c, "logits") && i < HD_LEN(of_draws); i++)
		if (hd_cli_has(c, of_draws[i]))
			return hd_err_set(err, HD_EINVAL,
					  "generate: --%s does nothing with --logits: no text is generated",
					  of_draws[i]);
	return HD_OK;
}

/* Temperature 0 draws nothing: it always takes the likeliest token. */
static void warn_of_draws(const struct hd_cli *c, const struct hd_sampling *s)
{
	static const char *const of_draws[] = { "top-k", "top-p", "seed" };

	for (size_t i = 0; s->temperature == 0 && i < HD_LEN(of_draws); i++)
		if (hd_cli_has(c, of_draws[i]))
			hd_log(HD_LOG_WARN, "generate: --%s does nothing with --temperature 0", of_draws[i]);
}

static int read_sampling(const struct hd_cli *c, int64_t *tokens, struct hd_sampling *s, struct hd_err *err)
{
	HD_TRY(check_options(c, err));
	HD_TRY(hd_cli_int(c, "tokens", 0, 1000000, 200, tokens, err));
	HD_TRY(hd_cli_num(c, "temperature", 0, 100, 0.8, &s->temperature, err));
	HD_TRY(hd_cli_int(c, "top-k", 0, 1000000, 0, &s->top_k, err));
	HD_TRY(hd_cli_num(c, "top-p", 0, 1, 1, &s->top_p, err));
	HD_TRY(hd_cli_int(c, "seed", 0, INT64_MAX, 1, &s->seed, err));
	return s->top_p > 0 ? HD_OK
			    : hd_err_set(err, HD_EINVAL,
					 "generate: --top-p: 0 leaves no token; it must be above 0 and at most 1");
}

/* Warns of prompts of which the model reads only the end. */
static void warn_of_cuts(const struct prompts *p, int64_t longest, int64_t seq)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++)
		n += (int64_t)p->all[i].n > seq;
	if (p->n > 1 && n)
		hd_log(HD_LOG_WARN,
		       "generate: prompts have up to %lld tokens, but the model reads only the last train.seq = "
		       "%lld; cut: %zu of %zu",
		       (long long)longest, (long long)seq, n, p->n);
	else if (n)
		hd_log(HD_LOG_WARN,
		       "generate: the prompt has %lld tokens, but the model reads only the last train.seq = %lld",
		       (long long)longest, (long long)seq);
}

/* Gives all ranks the ids of rank 0. If a text ended on some ranks only, these would wait for the others. */
static void share_ends(struct hd_ids *ends)
{
	int64_t n = (int64_t)ends->n;

	hd_comm_bcast(&n, sizeof(n), 0);
	while ((int64_t)ends->n < n)
		hd_ids_add(ends, 0);
	ends->n = (size_t)n;
	if (n)
		hd_comm_bcast(ends->at, (size_t)n * sizeof(*ends->at), 0);
}

/* Finds the ids that end a text. With --ids no tokenizer is open, but the ids that end its texts count nevertheless. */
static void find_ends(struct generation *g)
{
	struct hd_section *data = hd_conf_section(g->j->conf, NULL, "data");
	struct hd_tokenizer *own = NULL;
	struct hd_err ignored = { 0 };

	if (g->err->code)
		return;
	hd_checkpoint_warn_generation(g->c->positional);
	if (hd_cli_has(g->c, "ignore-eos"))
		return;
	if (!g->t && hd_section_has(data, "tokenizer") && strcmp(hd_section_str(data, "tokenizer"), "byte"))
		hd_tokenizer_open(hd_section_str(data, "tokenizer"), &own, &ignored);
	hd_checkpoint_ends(g->c->positional, g->t ? g->t : own, &g->ends);
	share_ends(&g->ends);
	g->sampling.ends = &g->ends;
	hd_tokenizer_close(own);
}

/* Opens the programs, with a cache for these prompts and the tokens generated after them. */
static int open_programs(struct generation *g)
{
	struct hd_train_config t;
	int64_t longest = 0;

	HD_TRY(hd_train_config_read(g->j->conf, &t, g->err));
	for (size_t i = 0; i < g->prompts.n; i++)
		longest = (int64_t)g->prompts.all[i].n > longest ? (int64_t)g->prompts.all[i].n : longest;
	warn_of_cuts(&g->prompts, longest, t.seq);
	g->j->cache = hd_cached_sizes((int64_t)g->prompts.n, longest, g->tokens, t.seq, g->j->world.size);
	return hd_checkpoint_open(g->c, g->j,
				  hd_cli_has(g->c, "no-cache") ? 1u << HD_JOB_GENERATE
							       : 1u << HD_JOB_PROMPT | 1u << HD_JOB_NEXT,
				  g->err);
}

static int generate(struct generation *g)
{
	int64_t rows;

	HD_TRY(hd_checkpoint_start(g->c, g->j, g->err));
	/* Not earlier: the start may execute the program again, and before it every process has rank 0. */
	if (!g->j->world.rank)
		warn_of_draws(g->c, &g->sampling);
	hd_checkpoint_tokenizer(g->c, g->j, "the prompt", &g->t, g->err);
	if (!g->err->code)
		get_prompts(g->j, g->c, g->t, &g->prompts, g->err);
	HD_TRY(hd_comm_agree(g->err));
	find_ends(g);
	HD_TRY(open_programs(g));
	rows = hd_cached_rows(g->j) ? hd_cached_rows(g->j) : 1;
	for (size_t i = 0; i < g->prompts.n && !g->err->code; i += (size_t)rows) {
		int64_t left = (int64_t)(g->prompts.n - i), n = left < rows ? left : rows;

		(hd_cli_has(g->c, "logits") ? some_logits : some_texts)(g, i, n);
	}
	return g->err->code;
}

int hd_verb_generate(struct hd_cli *c)
{
	struct hd_job j = { 0 };
	struct hd_err err = { 0 };
	struct generation g = { .j = &j, .c = c, .sampling = { .temperature = 0.8 }, .err = &err };
	int rc;

	read_sampling(c, &g.tokens, &g.sampling, &err);
	if (hd_cli_has(c, "logits"))
		g.tokens = 0;
	generate(&g);
	rc = hd_finish(c, &j, &err);
	release_prompts(&g.prompts);
	hd_ids_release(&g.ends);
	hd_tokenizer_close(g.t);
	hd_job_close(&j);
	return rc;
}
