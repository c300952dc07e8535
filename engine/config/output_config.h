/* SPDX-License-Identifier: Apache-2.0
 * engine/config/output_config.h - [checkpoint] and [log], read once: the files that a run writes, and the checkpoint
 * from which it continues.
 */
#ifndef HD_ENGINE_CONFIG_OUTPUT_CONFIG_H
#define HD_ENGINE_CONFIG_OUTPUT_CONFIG_H
#include "engine/config/conf.h"

struct hd_checkpoint_config {
	struct hd_section *section;
	const char *dir;     /* "": nothing is saved */
	int64_t every, keep; /* every 0: only at the end */
	const char *resume;  /* "no", "auto" or a path */
	int gradients;       /* the gradients of the last step are saved too */
	int async;           /* training goes on while a copy is written */
};

struct hd_log_config {
	struct hd_section *section;
	const char *metrics, *trace;  /* files; "": none */
	const char *tensorboard;      /* directory; "": none */
	const char *machine;          /* file: its predictions are printed next to the measured values; "": none */
	int64_t every;                /* steps between progress lines */
	int64_t trace_from, trace_to; /* steps that are traced */
	int64_t sample;               /* tokens of text after the last step; 0: none */
	int64_t sample_every;         /* steps between such texts; 0: only after the last step */
	const char *sample_prompt;
};

/* Check and read a section. Strings belong to the configuration and live as long. */
int hd_checkpoint_config_read(struct hd_conf *c, struct hd_checkpoint_config *k, struct hd_err *err);
int hd_log_config_read(struct hd_conf *c, struct hd_log_config *l, struct hd_err *err);

extern const struct hd_key_table hd_checkpoint_keys, hd_log_keys;

#endif
