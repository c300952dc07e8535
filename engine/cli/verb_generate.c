/* SPDX-License-Identifier: Apache-2.0
 * heddle generate: text from a checkpoint.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/train/generate.h"
#include "engine/train/metrics.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
		return hd_err_set(err, HD_EINVAL,
				  "generate: the vocabulary has %lld entries, and text as bytes needs 256",
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

	if (hd_checkpoint_start(c, &j, &err) >= 0 && hd_checkpoint_open(c, &j, HD_JOB_GENERATE, &err) >= 0)
		generate(&j, c, &err);
	rc = hd_finish(c, &j, &err);
	hd_job_close(&j);
	return rc;
}
