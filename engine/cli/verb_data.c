/* SPDX-License-Identifier: Apache-2.0
 * heddle data: prints the token ids of a step.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/train/metrics.h"
#include <stdio.h>
#include <stdlib.h>

static json_t *sample_json(const int32_t *ids, int64_t n)
{
	json_t *a = json_array();

	for (int64_t i = 0; i < n; i++)
		json_array_append_new(a, json_integer(ids[i]));
	return a;
}

static int print_step(struct hd_conf *conf, int64_t step, int json, struct hd_data **data, struct hd_err *err)
{
	struct hd_train_config t;
	int64_t batch, first;
	int32_t *ids;
	json_t *all = json_array();

	HD_TRY(hd_cli_data(conf, data, err));
	HD_TRY(hd_train_config_read(conf, &t, err));
	first = hd_ramp_samples(&t.batch, 0, step - 1);
	batch = hd_ramp_batch(&t.batch, (__int128)first * t.seq);
	ids = hd_alloc((size_t)(t.seq + 1) * sizeof(*ids));
	for (int64_t s = 0; s < batch; s++) {
		HD_TRY(hd_data_sample(*data, first, s, ids, err));
		json_array_append_new(all, sample_json(ids, t.seq + 1));
		for (int64_t i = 0; !json && i <= t.seq; i++)
			printf("%d%s", ids[i], i == t.seq ? "\n" : " ");
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
	struct hd_data *data = NULL;
	struct hd_conf *conf = NULL;
	struct hd_err err = { 0 };
	int64_t step = 1;

	if (hd_cli_conf(c, &conf, &err) >= 0 && hd_cli_int(c, "step", 1, INT64_MAX / 2, 1, &step, &err) >= 0)
		print_step(conf, step, hd_cli_has(c, "json"), &data, &err);
	if (err.code)
		hd_log(HD_LOG_ERROR, "%s", err.text);
	hd_data_close(data);
	hd_conf_destroy(conf);
	return err.code ? 1 : 0;
}
