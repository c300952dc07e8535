/* SPDX-License-Identifier: Apache-2.0
 * Warns of keys that are given but have no effect, because another key is not given. That is no error: one INI may
 * serve several runs with different --set.
 */
#include <config.h>
#include "engine/command/command.h"
#include "engine/data/tokens.h"
#include "engine/models/decoder/experts.h"
#include "engine/models/decoder/knobs.h"
#include "engine/passes/passes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 20

struct idle {
	const char *section, *keys[MOST];
	const char *why; /* follows "does nothing" */
};

static void warn(struct hd_conf *c, const struct idle *x)
{
	const struct hd_section *s = hd_conf_section(c, NULL, x->section);

	for (int i = 0; i < MOST && x->keys[i]; i++)
		if (hd_section_given_by_user(s, x->keys[i]))
			hd_log(HD_LOG_WARN, "%s.%s does nothing %s", x->section, x->keys[i], x->why);
}

static void warn_unsaved(const struct hd_plan *p)
{
	static const struct idle keep = { "checkpoint", { "keep" }, "without checkpoint.dir: nothing is saved" };
	static const char *const keys[] = { "every", "gradients", "async" };
	const struct hd_section *s = hd_conf_section(p->conf, NULL, "checkpoint");

	if (*hd_section_str(s, "dir") && hd_section_int(s, "async") && !hd_section_int(s, "every"))
		hd_log(HD_LOG_WARN,
		       "checkpoint.async does nothing with checkpoint.every = 0: the run waits for its last save");
	if (*hd_section_str(s, "dir"))
		return;
	warn(p->conf, &keep);
	for (size_t i = 0; i < HD_LEN(keys); i++)
		if (hd_section_int(s, keys[i])) /* keys that are off need no warning */
			hd_log(HD_LOG_WARN, "checkpoint.%s does nothing without checkpoint.dir: nothing is saved",
			       keys[i]);
}

static int64_t last_of(const struct hd_train_config *t) /* the end of the run, in schedule_unit */
{
	return t->by_tokens ? hd_ramp_last(&t->batch, 0, t->steps) : t->steps;
}

/* This is not an error: a run of more steps may continue from this one. */
static void warn_of_warmup(const struct hd_train_config *t)
{
	if (t->steps && t->warmup > last_of(t))
		hd_log(HD_LOG_WARN,
		       "train.warmup = %lld %s is beyond the end of the run at %lld: no step has train.lr = %g",
		       (long long)t->warmup, t->by_tokens ? "tokens" : "steps", (long long)last_of(t), t->lr);
	else if (t->by_tokens && t->warmup && t->warmup <= hd_ramp_last(&t->batch, 0, 1))
		hd_log(HD_LOG_WARN, "train.warmup does nothing with schedule_unit = tokens: the first step has %lld",
		       (long long)hd_ramp_last(&t->batch, 0, 1));
}

static void warn_of_ramp(const struct hd_train_config *t)
{
	int64_t last;

	if (!t->batch.steps || !t->steps)
		return;
	last = hd_ramp_batch(&t->batch, hd_ramp_last(&t->batch, 0, t->steps - 1));
	if (last < t->batch.full)
		hd_log(HD_LOG_WARN,
		       "train.global_batch_ramp does not reach train.global_batch = %lld: the last step has %lld sequences",
		       (long long)t->batch.full, (long long)last);
}

/* The decay begins after the warm-up. */
static int never_decays(const struct hd_train_config *t)
{
	return t->steps && t->warmup >= last_of(t);
}

/* Returns 1 if train.schedule_unit has no effect. If all steps have the same size, their share of all steps equals the
 * share of their tokens of all tokens. */
static int is_unit_idle(const struct hd_plan *p)
{
	const struct hd_train_config *t = &p->config;
	const struct hd_section *s = hd_conf_section(p->conf, NULL, "checkpoint");
	int is_resumed = strcmp(hd_section_str(s, "resume"), "no") != 0;

	if (!t->by_tokens || t->warmup)
		return 0;
	return t->schedule == HD_LR_CONSTANT || (!t->decay && !t->batch.steps && !is_resumed);
}

static void warn_of_rates(const struct hd_plan *p)
{
	static const struct idle constant = { "train", { "min_lr", "decay" }, "with train.schedule = constant" },
				 unit = { "train",
					  { "schedule_unit" },
					  "without train.warmup, train.decay and train.global_batch_ramp" },
				 unit_of_constant = { "train",
						      { "schedule_unit" },
						      "with train.schedule = constant and no train.warmup" };
	int is_constant = p->config.schedule == HD_LR_CONSTANT;
	char why[80];
	const struct idle warming = { "train", { "schedule", "min_lr", "decay" }, why };

	snprintf(why, sizeof(why), "with train.warmup = %lld: no step comes after it", (long long)p->config.warmup);
	if (is_constant)
		warn(p->conf, &constant);
	else if (never_decays(&p->config))
		warn(p->conf, &warming);
	warn_of_warmup(&p->config);
	if (is_unit_idle(p))
		warn(p->conf, is_constant ? &unit_of_constant : &unit);
}

static void warn_of_evaluations(const struct hd_plan *p)
{
	static const struct idle none = { "train", { "eval_every", "eval_batches" }, "with data.valid_fraction = 0" },
				 never = { "train", { "eval_every", "eval_batches" }, "with train.steps = 0" };
	const struct hd_section *data = hd_conf_section(p->conf, NULL, "data");

	if (!*hd_section_str(data, "valid") && !(hd_section_num(data, "valid_fraction") > 0))
		warn(p->conf, &none);
	else if (!p->config.steps)
		warn(p->conf, &never);
}

/* Warns if selective recompute finds nothing. A ring computes attention in parts, which store what they need; and not
 * every model has a gelu. */
void hd_warn_of_recompute(const struct hd_plan *p)
{
	const struct node *n = p->first;

	if (p->config.recompute != HD_RECOMPUTE_SELECTIVE || !p->train)
		return;
	while (n && !(n->recompute_of && hd_is_recomputed_by_choice(n)))
		n = n->next;
	if (!n)
		hd_log(HD_LOG_WARN,
		       "train.recompute = selective does nothing in this layout: it has no gelu, and no attention "
		       "that is one node");
}

static int is_collective_of_unit(const struct node *n)
{
	return n->comm.kind && n->comm.kind != HD_COMM_SEND && n->comm.kind != HD_COMM_RECV && n->comm.group->v.n > 1 &&
	       n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W);
}

static void warn_of_expert_rows(const struct hd_plan *p)
{
	if (p->config.expert_rows > 0 && hd_rows_case(p) == HD_ROWS_EQUAL)
		hd_log(HD_LOG_WARN, "train.expert_rows does nothing in this layout: %s",
		       !p->model.experts              ? "the model has no experts"
		       : p->model.capacity_factor > 0 ? "model.capacity_factor limits the rows of experts"
						      : "each rank has all experts");
}

/* Warns if two micro-batches at a time have no collective to overlap with. */
static void warn_of_pairs(const struct hd_plan *p)
{
	const struct node *n = p->first;

	while (n && !is_collective_of_unit(n))
		n = n->next;
	if (hd_computes_pairs(p) && !n)
		hd_log(HD_LOG_WARN,
		       "train.overlap_micro_batches takes memory and saves no time in this layout: forward "
		       "and backward have no collectives");
}

static void warn_of_optimizer(const struct hd_plan *p)
{
	char why[120];
	const struct idle adamw = { "train", { "beta1", "beta2", "eps" }, why };

	snprintf(why, sizeof(why), "with train.optimizer = %.60s",
		 hd_section_str(hd_conf_section(p->conf, NULL, "train"), "optimizer"));
	if (!p->config.adamw)
		warn(p->conf, &adamw);
}

static void warn_of_train(const struct hd_plan *p)
{
	static const struct idle ramp = { "train", { "global_batch_ramp" }, "that begins at train.global_batch" },
				 hash = { "train", { "hash_every" }, "with one rank" };

	warn_of_optimizer(p);
	if (*hd_section_str(hd_conf_section(p->conf, NULL, "train"), "global_batch_ramp") && !p->config.batch.steps)
		warn(p->conf, &ramp);
	warn_of_ramp(&p->config);
	if (p->ranks == 1)
		warn(p->conf, &hash);
	warn_of_rates(p);
	hd_warn_of_recompute(p);
	warn_of_pairs(p);
	warn_of_expert_rows(p);
	warn_of_evaluations(p);
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

/* Returns 1 if the scaling of rotary positions changes nothing. It divides angles by the factor; dynamic and longrope
 * do more than that. */
static int scales_nothing(const struct hd_model *m)
{
	if (m->rope_factor != 1)
		return 0;
	if (m->rope_scaling == HD_ROPE_SCALING_YARN)
		return m->rope_attention == 0 || m->rope_attention == 1;
	return m->rope_scaling == HD_ROPE_SCALING_LINEAR || m->rope_scaling == HD_ROPE_SCALING_LLAMA3;
}

/* Warns and returns 1 if rotary positions turn no pair of dims. Other warnings about them would then be pointless. */
static int warn_of_no_turn(const struct hd_plan *p)
{
	char why[80];
	const struct idle all = { "model",
				  { "rope_theta", "rope_theta_window", "rope_scaling", "rope_factor", "rope_original",
				    "rope_low", "rope_high", "rope_beta_fast", "rope_beta_slow", "rope_attention",
				    "rope_short", "rope_long", "rope_truncate" },
				  why };

	if ((int64_t)(p->model.rotary_fraction * (double)p->model.head_dim) >= 2)
		return 0;
	snprintf(why, sizeof(why), "with model.rotary_fraction = %g: no pair of dims is rotated",
		 p->model.rotary_fraction);
	warn(p->conf, &all);
	return 1;
}

static int64_t windowed_layers(const struct hd_model *m)
{
	int64_t n = 0;

	for (int64_t l = 0; l < m->layers && m->window; l++)
		n += m->window_layers[(size_t)l % strlen(m->window_layers)] == 'w';
	return n;
}

/* Warns and returns 1 if all layers have a window and thus their own theta, which is not scaled. Keys for the other
 * layers have no effect then. */
static int warn_of_own_theta(const struct hd_plan *p)
{
	static const struct idle all = { "model",
					 { "rope_theta", "rope_scaling", "rope_factor", "rope_original", "rope_low",
					   "rope_high", "rope_beta_fast", "rope_beta_slow", "rope_attention",
					   "rope_short", "rope_long", "rope_truncate" },
					 "with model.rope_theta_window and a window in every layer" };

	if (!(p->model.rope_theta_window > 0) || windowed_layers(&p->model) < p->model.layers)
		return 0;
	warn(p->conf, &all);
	return 1;
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
	static const struct idle linear = { "model", { "rope_original" }, "with model.rope_scaling = linear" };
	static const struct idle whole = { "model", { "rope_scaling" }, "with model.rope_factor = 1" };

	if (warn_of_no_turn(p) || warn_of_own_theta(p))
		return;
	if (scales_nothing(&p->model))
		warn(p->conf, &whole);
	if (p->model.rope_scaling == HD_ROPE_SCALING_LINEAR)
		warn(p->conf, &linear);
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
					 "with model.window_layers that has only f" };
	const struct hd_model *m = &p->model;
	char why[160];
	const struct idle late = { "model", { "window", "window_layers", "rope_theta_window" }, why },
			  wide = { "model", { "window", "window_layers" }, why };

	if (!m->window) {
		warn(p->conf, &none);
	} else if (m->window_layers && !strchr(m->window_layers, 'w')) {
		warn(p->conf, &all);
	} else if (!windowed_layers(m)) {
		snprintf(why, sizeof(why),
			 "with model.layers = %lld: the first w of model.window_layers is for layer %zu",
			 (long long)m->layers, strcspn(m->window_layers, "w") + 1);
		warn(p->conf, &late);
	} else if (m->window >= m->max_seq && !(m->rope_theta_window > 0)) {
		snprintf(why, sizeof(why),
			 "with model.max_seq = %lld: a window of %lld holds all positions. Checkpoints keep it",
			 (long long)m->max_seq, (long long)m->window);
		warn(p->conf, &wide);
	}
}

static int has_dense_layers(const struct hd_model *m)
{
	for (int64_t l = 0; l < m->layers; l++)
		if (!hd_experts_in(m, l))
			return 1;
	return 0;
}

static void warn_of_model(const struct hd_plan *p)
{
	static const struct idle init = { "model", { "init_std" }, "with model.load, whose weights are read" };
	static const struct idle mlp = { "model", { "mlp" }, "with model.expert_mlp and experts in every layer" };
	static const struct idle experts = { "model",
					     { "experts_per_token", "moe_every", "router", "router_groups",
					       "router_best_groups", "router_bias_rate", "gate_scale", "expert_mlp",
					       "dense_layers", "shared_experts", "normalize_gates", "capacity_factor",
					       "group_tokens", "second_expert", "aux_loss", "z_loss" },
					     "without model.experts" };
	static const struct idle second = { "model", { "second_expert" }, "without model.router = gshard" };
	const struct hd_section *s = hd_conf_section(p->conf, NULL, "model");

	if (!p->model.experts)
		warn(p->conf, &experts);
	else if (p->model.router != HD_ROUTER_GSHARD)
		warn(p->conf, &second);
	if (*hd_section_str(s, "load"))
		warn(p->conf, &init);
	else if (p->model.expert_mlp && !has_dense_layers(&p->model)) /* a loaded model's width is checked against it */
		warn(p->conf, &mlp);
}

static void warn_of_log(const struct hd_plan *p)
{
	static const struct idle prompt = { "log", { "sample_prompt" }, "without log.sample or log.sample_every" },
				 no_text = { "log", { "sample_every", "sample_prompt" }, "with log.sample = 0" },
				 steps = { "log", { "trace_steps" }, "without log.trace or log.machine" };
	const struct hd_section *s = hd_conf_section(p->conf, NULL, "log");
	int has_interval = hd_section_int(s, "sample_every") != 0;

	if (has_interval && hd_section_has(s, "sample") && !hd_section_int(s, "sample"))
		warn(p->conf, &no_text);
	else if (!has_interval && !hd_section_int(s, "sample"))
		warn(p->conf, &prompt);
	if (!*hd_section_str(s, "trace") && !*hd_section_str(s, "machine"))
		warn(p->conf, &steps);
}

static int brings_family(const struct hd_plugin_entry *e, const char *family)
{
	for (size_t i = 0; e->families && e->families[i]; i++)
		if (!strcmp(e->families[i]->name, family))
			return 1;
	return 0;
}

/* Warns of a [plugin NAME] that brings only an optimizer or families, if the run uses none of them. */
static void warn_of_plugin(const struct hd_plan *p, const struct inst *in)
{
	const struct hd_plugin_entry *e = in->plugin;
	const char *family = hd_section_str(hd_conf_section(p->conf, NULL, "model"), "family"),
		   *optimizer = hd_section_str(hd_conf_section(p->conf, NULL, "train"), "optimizer");

	if (!in->extension || e->kernels || e->rewrites || e->lowers || (!e->optimizer && !e->families))
		return;
	if (p->optimizer == in || brings_family(e, family))
		return;
	hd_log(HD_LOG_WARN, "[plugin %s] does nothing with %s%s%s%s%s: it brings %s", in->name,
	       e->optimizer ? "train.optimizer = " : "", e->optimizer ? optimizer : "",
	       e->optimizer && e->families ? " and " : "", e->families ? "model.family = " : "",
	       e->families ? family : "",
	       !e->families    ? "another optimizer"
	       : !e->optimizer ? "other families"
			       : "others");
}

/* Warns of values that end in a comment or stand in quotes, both of which become part of a text. Numbers and choices
 * of that kind are refused. */
static void warn_of_slips(const struct hd_conf *c)
{
	char *lines = NULL;

	hd_conf_slips(c, &lines);
	hd_log_lines(HD_LOG_WARN, lines);
	free(lines);
}

void hd_warn_without_effect(const struct hd_plan *p)
{
	warn_of_slips(p->conf);
	for (int i = 0; i < p->ninst; i++)
		warn_of_plugin(p, &p->inst[i]);

	warn_unsaved(p);
	warn_of_train(p);
	warn_of_data(p);
	warn_of_model(p);
	warn_of_rope(p);
	warn_of_window(p);
	warn_of_log(p);
}
