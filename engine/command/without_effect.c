/* SPDX-License-Identifier: Apache-2.0
 * Keys that are given and do nothing, since another is not.  They are no mistake: one INI serves several runs, whose --set differ.
 */
#include <config.h>
#include "engine/command/command.h"
#include "engine/data/tokens.h"
#include "engine/models/decoder/knobs.h"
#include <string.h>

#define MOST 20

struct idle {
	const char *section, *keys[MOST];
	const char *why; /* behind "does nothing" */
};

static void warn(struct hd_conf *c, const struct idle *x)
{
	const struct hd_section *s = hd_conf_section(c, NULL, x->section);

	for (int i = 0; i < MOST && x->keys[i]; i++)
		if (hd_section_has(s, x->keys[i]))
			hd_log(HD_LOG_WARN, "%s.%s does nothing %s", x->section, x->keys[i], x->why);
}

static void warn_unsaved(const struct hd_plan *p)
{
	static const struct idle keep = { "checkpoint", { "keep" }, "without checkpoint.dir: nothing is saved" };
	static const char *const keys[] = { "every", "gradients", "async" };
	const struct hd_section *s = hd_conf_section(p->conf, NULL, "checkpoint");

	if (*hd_section_str(s, "dir"))
		return;
	warn(p->conf, &keep);
	for (size_t i = 0; i < HD_LEN(keys); i++)
		if (hd_section_int(s, keys[i])) /* what is off may be said */
			hd_log(HD_LOG_WARN, "checkpoint.%s does nothing without checkpoint.dir: nothing is saved",
			       keys[i]);
}

static void warn_of_train(const struct hd_plan *p)
{
	static const struct idle adamw = { "train", { "beta1", "beta2", "eps" }, "with train.optimizer = sgd" },
				 decay = { "train", { "min_lr", "decay" }, "with train.schedule = constant" },
				 ramp = { "train", { "global_batch_ramp" }, "that begins at train.global_batch" },
				 eval = { "train", { "eval_every", "eval_batches" }, "with data.valid_fraction = 0" };
	const struct hd_section *data = hd_conf_section(p->conf, NULL, "data");

	if (!p->config.adamw && !p->config.optimizer)
		warn(p->conf, &adamw);
	if (*hd_section_str(hd_conf_section(p->conf, NULL, "train"), "global_batch_ramp") && !p->config.batch.steps)
		warn(p->conf, &ramp);
	if (p->config.schedule == HD_LR_CONSTANT)
		warn(p->conf, &decay);
	if (!*hd_section_str(data, "valid") && !(hd_section_num(data, "valid_fraction") > 0))
		warn(p->conf, &eval);
}

static void warn_of_data(const struct hd_plan *p)
{
	static const struct idle field = { "data", { "field" }, "where no file is JSONL" };
	const struct hd_section *s = hd_conf_section(p->conf, NULL, "data");
	const char *format = hd_section_str(s, "format"), *train = hd_section_str(s, "train");

	if (!hd_section_has(s, "field") || !train || !strcmp(train, "none") || !strcmp(format, "jsonl"))
		return;
	if (strcmp(format, "auto") != 0 ||
	    (!hd_tokens_have_jsonl(train) && !hd_tokens_have_jsonl(hd_section_str(s, "valid"))))
		warn(p->conf, &field);
}

static void warn_of_rope(const struct hd_plan *p)
{
	static const struct idle all = { "model",
					 { "rope_factor", "rope_original", "rope_low", "rope_high", "rope_beta_fast",
					   "rope_beta_slow", "rope_attention", "rope_short", "rope_long",
					   "rope_truncate" },
					 "without model.rope_scaling" };
	static const struct idle scale = { "model",
					   { "rope_attention" },
					   "without model.rope_scaling = yarn or longrope" };
	static const struct idle llama3 = { "model",
					    { "rope_low", "rope_high" },
					    "without model.rope_scaling = llama3" };
	static const struct idle yarn = { "model",
					  { "rope_beta_fast", "rope_beta_slow", "rope_truncate" },
					  "without model.rope_scaling = yarn" };
	static const struct idle longrope = { "model",
					      { "rope_short", "rope_long" },
					      "without model.rope_scaling = longrope" };

	if (p->model.rope_scaling == HD_ROPE_SCALING_NONE) {
		warn(p->conf, &all);
		return;
	}
	if (p->model.rope_scaling != HD_ROPE_SCALING_LLAMA3)
		warn(p->conf, &llama3);
	if (p->model.rope_scaling != HD_ROPE_SCALING_YARN)
		warn(p->conf, &yarn);
	if (p->model.rope_scaling != HD_ROPE_SCALING_YARN && p->model.rope_scaling != HD_ROPE_SCALING_LONGROPE)
		warn(p->conf, &scale);
	if (p->model.rope_scaling != HD_ROPE_SCALING_LONGROPE)
		warn(p->conf, &longrope);
}

static void warn_of_window(const struct hd_plan *p)
{
	static const struct idle none = { "model", { "window_layers", "rope_theta_window" }, "without model.window" },
				 all = { "model",
					 { "window", "rope_theta_window" },
					 "with model.window_layers of f alone" };

	if (!p->model.window)
		warn(p->conf, &none);
	else if (p->model.window_layers && !strchr(p->model.window_layers, 'w'))
		warn(p->conf, &all);
}

static void warn_of_model(const struct hd_plan *p)
{
	static const struct idle experts = { "model",
					     { "experts_per_token", "moe_every", "router", "router_groups",
					       "router_best_groups", "router_bias_rate", "gate_scale", "expert_mlp",
					       "dense_layers", "shared_experts", "normalize_gates", "capacity_factor",
					       "group_tokens", "second_expert", "aux_loss", "z_loss" },
					     "without model.experts" };
	static const struct idle second = { "model", { "second_expert" }, "without model.router = gshard" };

	if (!p->model.experts)
		warn(p->conf, &experts);
	else if (p->model.router != HD_ROUTER_GSHARD)
		warn(p->conf, &second);
}

static void warn_of_log(const struct hd_plan *p)
{
	static const struct idle prompt = { "log", { "sample_prompt" }, "without log.sample or log.sample_every" },
				 steps = { "log", { "trace_steps" }, "without log.trace" };
	const struct hd_section *s = hd_conf_section(p->conf, NULL, "log");

	if (!hd_section_int(s, "sample") && !hd_section_int(s, "sample_every"))
		warn(p->conf, &prompt);
	if (!*hd_section_str(s, "trace"))
		warn(p->conf, &steps);
}

void hd_warn_without_effect(const struct hd_plan *p)
{
	warn_unsaved(p);
	warn_of_train(p);
	warn_of_data(p);
	warn_of_model(p);
	warn_of_rope(p);
	warn_of_window(p);
	warn_of_log(p);
}
