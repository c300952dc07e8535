/* SPDX-License-Identifier: Apache-2.0
 * heddle train, data, plugins.
 */
#include <config.h>
#include "engine/verbs.h"
#include "engine/checkpoint.h"
#include "engine/json.h"
#include "engine/ramp.h"
#include "engine/registry.h"
#include "engine/tensorfile.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The data, once the sections that say which have been checked. */
static int open_data(struct hd_job *j, struct hd_conf *conf, struct hd_err *err)
{
	struct hd_section *t = hd_conf_section(conf, NULL, "train"), *m = hd_conf_section(conf, NULL, "model");

	HD_TRY(hd_section_check(conf, t, &hd_train_keys, 1, err));
	HD_TRY(hd_section_check(conf, m, &hd_model_keys, 1, err));
	HD_TRY(hd_section_check(conf, hd_conf_section(conf, NULL, "checkpoint"), &hd_checkpoint_keys, 1, err));
	HD_TRY(hd_section_check(conf, hd_conf_section(conf, NULL, "log"), &hd_log_keys, 1, err));
	return hd_data_open(conf, hd_section_int(t, "seq"), hd_section_int(m, "vocab"), (uint64_t)hd_section_int(t, "seed"),
			    &j->data, err);
}

/* Rank 0 writes the files of [log]; the directory of checkpoints every rank. */
static int open_dir(const struct hd_job *j, struct hd_conf *conf, struct hd_err *err)
{
	struct hd_section *s = hd_conf_section(conf, NULL, "checkpoint");
	const char *dir = hd_section_str(s, "dir");
	struct hd_err why = { 0 };

	if (j->world.rank == 0)
		HD_TRY(hd_outputs_check(conf, err));
	if (*dir && hd_dir_writable(dir, &why) < 0)
		return hd_section_fail(conf, s, "dir", err, why.code, "%s", why.text);
	return HD_OK;
}

static int train(struct hd_job *j, struct hd_conf *conf, struct hd_err *err)
{
	struct hd_section *log = hd_conf_section(conf, NULL, "log");
	unsigned roles = 1u << HD_TRAIN;
	char *resume = NULL, *picks = NULL;

	open_data(j, conf, err);
	HD_TRY(hd_comm_agree(err));
	open_dir(j, conf, err);
	HD_TRY(hd_comm_agree(err));
	hd_checkpoint_choose(conf, &resume, err);
	HD_TRY(hd_comm_agree(err));
	if (resume)
		picks = hd_checkpoint_picks(resume, err);
	free(resume);
	HD_TRY(hd_comm_agree(err));
	if (hd_data_valid_samples(j->data))
		roles |= 1u << HD_EVAL;
	if (hd_section_int(log, "sample"))
		roles |= 1u << HD_GENERATE;
	hd_job_open(j, conf, roles, picks, err);
	free(picks);
	HD_TRY(err->code);
	hd_comm_watchdog(hd_section_num(j->train, "watchdog"), NULL);
	return hd_train(j, err);
}

int hd_verb_train(struct hd_cli *c)
{
	struct hd_job j = { 0 };
	struct hd_conf *conf = NULL;
	struct hd_err err = { 0 };
	int rc;

	hd_cli_conf(c, &conf, &err);
	if (hd_start(&j, conf, &err) >= 0)
		train(&j, conf, &err);
	rc = hd_finish(&j, &err);
	j.conf = conf;
	hd_job_close(&j);
	return rc;
}

/* -- data -------------------------------------------------------------------------------------------------------------------------- */
static json_t *sample_json(const int32_t *ids, int64_t n)
{
	json_t *a = json_array();

	for (int64_t i = 0; i < n; i++)
		json_array_append_new(a, json_integer(ids[i]));
	return a;
}

static int print_step(struct hd_job *j, struct hd_conf *conf, int64_t step, int json, struct hd_err *err)
{
	struct hd_section *t = hd_conf_section(conf, NULL, "train");
	struct hd_ramp ramp;
	int64_t seq, batch, first;
	int32_t *ids;
	json_t *all = json_array();

	HD_TRY(open_data(j, conf, err));
	seq = hd_section_int(t, "seq");
	HD_TRY(hd_ramp_read(conf, &ramp, err));
	first = hd_ramp_samples(&ramp, step - 1);
	batch = hd_ramp_batch(&ramp, first);
	ids = hd_alloc((size_t)(seq + 1) * sizeof(*ids));
	for (int64_t s = 0; s < batch; s++) {
		HD_TRY(hd_data_sample(j->data, first, s, ids, err));
		json_array_append_new(all, sample_json(ids, seq + 1));
		for (int64_t i = 0; !json && i <= seq; i++)
			printf("%d%s", ids[i], i == seq ? "\n" : " ");
	}
	if (json) {
		char *line = hd_json_line(json_pack("{s:I, s:o}", "step", (json_int_t)step, "tokens", all));

		puts(line);
		free(line);
	}
	free(ids);
	return HD_OK;
}

int hd_verb_data(struct hd_cli *c)
{
	struct hd_job j = { 0 };
	struct hd_conf *conf = NULL;
	struct hd_err err = { 0 };
	int64_t step = 1;

	if (hd_cli_conf(c, &conf, &err) >= 0 && hd_cli_int(c, "step", 1, INT64_MAX / 2, 1, &step, &err) >= 0)
		print_step(&j, conf, step, hd_cli_has(c, "json"), &err);
	if (err.code)
		hd_log(HD_ERROR, "%s", err.text);
	hd_data_close(j.data);
	hd_conf_destroy(conf);
	return err.code ? 1 : 0;
}

int hd_verb_plugins(struct hd_cli *c)
{
	struct hd_err err = { 0 };

	if (hd_plugins_print(stdout, c->positional, hd_cli_has(c, "json"), &err) < 0)
		hd_log(HD_ERROR, "%s", err.text);
	return err.code ? 1 : 0;
}
