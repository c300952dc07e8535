/* SPDX-License-Identifier: Apache-2.0
 * heddle eval: loss and perplexity of a checkpoint on a file.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/train/metrics.h"
#include "engine/train/train.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The data of --data, cut as the checkpoint's own training data were. */
static int open_data(const struct hd_cli *c, struct hd_job *j, struct hd_err *err)
{
	struct hd_section *m = hd_conf_section(j->conf, NULL, "model");
	struct hd_train_config t;

	hd_train_config_read(j->conf, &t, err);
	hd_section_check(j->conf, m, &hd_model_keys, 1, err);
	if (!hd_cli_str(c, "data", NULL))
		hd_err_set(err, HD_EINVAL, "eval: --data FILE must be given");
	else if (!err->code)
		hd_data_open_file(j->conf, hd_cli_str(c, "data", ""), t.seq, hd_section_int(m, "vocab"), &j->data, err);
	return hd_comm_agree(err);
}

static void print_eval(const struct hd_cli *c, double loss, int64_t tokens)
{
	char *line;

	if (!hd_cli_has(c, "json")) {
		printf("loss %.9g  perplexity %.9g  tokens %lld\n", loss, exp(loss), (long long)tokens);
		return;
	}
	line = hd_json_line(json_pack("{s:o, s:o, s:I}", "loss", hd_json_number(loss), "perplexity",
				      hd_json_number(exp(loss)), "tokens", (json_int_t)tokens));
	puts(line);
	free(line);
}

static int eval(const struct hd_cli *c, struct hd_job *j, struct hd_err *err)
{
	double loss = 0;
	int64_t tokens = 0;

	HD_TRY(hd_checkpoint_start(c, j, err));
	HD_TRY(open_data(c, j, err));
	HD_TRY(hd_checkpoint_open(c, j, HD_JOB_EVAL, err));
	HD_TRY(hd_evaluate(j, 0, &loss, &tokens, err));
	if (j->world.rank == 0)
		print_eval(c, loss, tokens);
	return HD_OK;
}

int hd_verb_eval(struct hd_cli *c)
{
	struct hd_job j = { 0 };
	struct hd_err err = { 0 };
	int rc;

	eval(c, &j, &err);
	rc = hd_finish(c, &j, &err);
	hd_job_close(&j);
	return rc;
}
