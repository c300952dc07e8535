/* SPDX-License-Identifier: Apache-2.0
 * The keys of [checkpoint] and [log], and the structs that they fill.
 */
#include <config.h>
#include "engine/config/output_config.h"
#include <stdio.h>
#include <string.h>

static const struct hd_option checkpoint[] = {
	{ "dir", HD_OPT_STR, 0, "", NULL, "directory of the checkpoints (empty: nothing is saved)" },
	{ "every", HD_OPT_INT, 0, "0", "0..", "steps between checkpoints (0: only at the end)" },
	{ "keep", HD_OPT_INT, 0, "2", "1..", "how many of the newest checkpoints are kept" },
	{ "resume", HD_OPT_STR, 0, "no", NULL, "no, auto (the newest in dir), or the path of a checkpoint" },
	{ "gradients", HD_OPT_BOOL, 0, "no", NULL,
	  "also save the gradients of the last step (heddle/gradients.safetensors)" },
	{ "async", HD_OPT_BOOL, 0, "no", NULL,
	  "training waits only for a copy in memory, which is written while training continues" },
};
const struct hd_key_table hd_checkpoint_keys = { checkpoint, HD_LEN(checkpoint), sizeof(checkpoint[0]) };

static const struct hd_option logging[] = {
	{ "metrics", HD_OPT_STR, 0, "", NULL, "file for one JSON object per step" },
	{ "tensorboard", HD_OPT_STR, 0, "", NULL, "directory for the same numbers as event files of TensorBoard" },
	{ "every", HD_OPT_INT, 0, "1", "1..", "steps between progress lines if stdout is not a terminal" },
	{ "trace", HD_OPT_STR, 0, "", NULL, "file for a Chrome/Perfetto trace" },
	{ "trace_steps", HD_OPT_STR, 0, "2-4", NULL, "steps that are traced" },
	{ "machine", HD_OPT_STR, 0, "", NULL,
	  "machine file (heddle machine): after trace_steps, compares what it predicts with what was measured" },
	{ "sample", HD_OPT_INT, 0, "0", "0..1000000",
	  "tokens of text generated after the last step (0: none; with sample_every: 200)" },
	{ "sample_every", HD_OPT_INT, 0, "0", "0..", "steps between such texts (0: after the last step only)" },
	{ "sample_prompt", HD_OPT_STR, 0, "", NULL,
	  "prompt of that text; ids if the data are ids without a tokenizer" },
};
const struct hd_key_table hd_log_keys = { logging, HD_LEN(logging), sizeof(logging[0]) };

int hd_checkpoint_config_read(struct hd_conf *c, struct hd_checkpoint_config *k, struct hd_err *err)
{
	struct hd_section *s = hd_conf_section(c, NULL, "checkpoint");

	HD_TRY(hd_section_check(c, s, &hd_checkpoint_keys, 1, err));
	k->section = s;
	k->dir = hd_section_str(s, "dir");
	k->every = hd_section_int(s, "every");
	k->keep = hd_section_int(s, "keep");
	k->resume = hd_section_str(s, "resume");
	k->gradients = hd_section_int(s, "gradients") != 0;
	k->async = hd_section_int(s, "async") != 0 && *k->dir;
	return HD_OK;
}

/* Parses FIRST-LAST or one step, counted as in the metrics. */
static int trace_steps(struct hd_conf *c, struct hd_log_config *l, struct hd_err *err)
{
	const char *t = hd_section_str(l->section, "trace_steps");
	long long a = 0, b = 0;
	int read = 0, n = sscanf(t, "%9lld%n-%9lld%n", &a, &read, &b, &read);

	if (n == 1)
		b = a;
	if (n < 1 || t[read] || a < 1 || b < a || strspn(t, "0123456789-") != strlen(t))
		return hd_section_fail(c, l->section, "trace_steps", err, HD_EINVAL,
				       "'%s' is neither a step (from 1) nor FIRST-LAST", t);
	l->trace_from = a;
	l->trace_to = b;
	return HD_OK;
}

int hd_log_config_read(struct hd_conf *c, struct hd_log_config *l, struct hd_err *err)
{
	struct hd_section *s = hd_conf_section(c, NULL, "log");

	HD_TRY(hd_section_check(c, s, &hd_log_keys, 1, err));
	l->section = s;
	l->metrics = hd_section_str(s, "metrics");
	l->trace = hd_section_str(s, "trace");
	l->machine = hd_section_str(s, "machine");
	l->tensorboard = hd_section_str(s, "tensorboard");
	l->every = hd_section_int(s, "every");
	l->sample_every = hd_section_int(s, "sample_every");
	l->sample = hd_section_int(s, "sample");
	if (l->sample_every && !hd_section_has(s, "sample"))
		l->sample = 200;
	l->sample_prompt = hd_section_str(s, "sample_prompt");
	if (*l->metrics && !strcmp(l->metrics, l->trace))
		return hd_section_fail(c, s, "trace", err, HD_EINVAL, "%s is the file of log.metrics too", l->trace);
	return trace_steps(c, l, err);
}
