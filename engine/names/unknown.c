/* SPDX-License-Identifier: Apache-2.0
 * The hint that follows an unknown key or section. For a key, a name that other programs use in this section is
 * translated first. Next are other sections, which have the same key, or have it under the name of another program.
 * Then follow the nearest spelling, and the name that shares a word with it. A name far from all others gets no
 * suggestion.
 */
#include <config.h>
#include "engine/names/unknown.h"
#include "engine/base/err.h"
#include "engine/base/parse.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names that common frameworks and libraries use. section NULL: any section that has the key `ours`. */
static const struct other_name {
	const char *theirs, *section, *ours;
} others[] = {
	{ "learning_rate", "train", "lr" },
	{ "min_learning_rate", "train", "min_lr" },
	{ "lr_decay_style", "train", "schedule" },
	{ "lr_scheduler", "train", "schedule" },
	{ "lr_scheduler_type", "train", "schedule" },
	{ "warmup_steps", "train", "warmup" },
	{ "lr_warmup_iters", "train", "warmup" },
	{ "lr_decay_iters", "train", "decay" },
	{ "batch_size", "train", "global_batch" },
	{ "train_batch_size", "train", "global_batch" },
	{ "global_batch_size", "train", "global_batch" },
	{ "micro_batch_size", "train", "micro_batch" },
	{ "per_device_train_batch_size", "train", "micro_batch" },
	{ "gradient_accumulation", "train", "micro_batch" },
	{ "gradient_accumulation_steps", "train", "micro_batch" },
	{ "grad_accum_steps", "train", "micro_batch" },
	{ "rampup_batch_size", "train", "global_batch_ramp" },
	{ "sequence", "train", "seq" },
	{ "context", "train", "seq" },
	{ "seq_len", "train", "seq" },
	{ "seq_length", "train", "seq" },
	{ "sequence_length", "train", "seq" },
	{ "max_seq_len", "train", "seq" },
	{ "max_length", "train", "seq" },
	{ "block_size", "train", "seq" },
	{ "context_length", "train", "seq" },
	{ "epochs", "train", "steps" },
	{ "num_epochs", "train", "steps" },
	{ "num_train_epochs", "train", "steps" },
	{ "max_steps", "train", "steps" },
	{ "max_iters", "train", "steps" },
	{ "iters", "train", "steps" },
	{ "iterations", "train", "steps" },
	{ "train_iters", "train", "steps" },
	{ "grad_clip", "train", "clip" },
	{ "clip_grad", "train", "clip" },
	{ "max_grad_norm", "train", "clip" },
	{ "max_norm", "train", "clip" },
	{ "gradient_clipping", "train", "clip" },
	{ "adam_epsilon", "train", "eps" },
	{ "dtype", "train", "precision" },
	{ "bf16", "train", "precision" },
	{ "fp16", "train", "precision" },
	{ "mixed_precision", "train", "precision" },
	{ "activation_checkpointing", "train", "recompute" },
	{ "recompute_activations", "train", "recompute" },
	{ "warmup_ratio", "train", "warmup" },
	{ "gradient_checkpointing", "train", "recompute" },
	{ "eval_interval", "train", "eval_every" },
	{ "eval_steps", "train", "eval_every" },
	{ "eval_iters", "train", "eval_batches" },
	{ "backend", "train", "comm" },
	{ "hidden", "model", "embed" },
	{ "hidden_size", "model", "embed" },
	{ "hidden_dim", "model", "embed" },
	{ "d_model", "model", "embed" },
	{ "n_embd", "model", "embed" },
	{ "num_layers", "model", "layers" },
	{ "n_layers", "model", "layers" },
	{ "n_layer", "model", "layers" },
	{ "num_hidden_layers", "model", "layers" },
	{ "num_heads", "model", "heads" },
	{ "n_heads", "model", "heads" },
	{ "n_head", "model", "heads" },
	{ "num_attention_heads", "model", "heads" },
	{ "num_query_groups", "model", "kv_heads" },
	{ "num_key_value_heads", "model", "kv_heads" },
	{ "ffn_hidden_size", "model", "mlp" },
	{ "intermediate_size", "model", "mlp" },
	{ "kv_channels", "model", "head_dim" },
	{ "padded_vocab_size", "model", "vocab" },
	{ "max_position_embeddings", "model", "max_seq" },
	{ "num_experts", "model", "experts" },
	{ "num_local_experts", "model", "experts" },
	{ "moe_router_topk", "model", "experts_per_token" },
	{ "num_experts_per_tok", "model", "experts_per_token" },
	{ "initializer_range", "model", "init_std" },
	{ "rms_norm_eps", "model", "norm_eps" },
	{ "pretrained", "model", "load" },
	{ "file", "data", "train" },
	{ "path", "data", "train" },
	{ "data_path", "data", "train" },
	{ "dataset", "data", "train" },
	{ "validation", "data", "valid" },
	{ "shuffle", "data", "order" },
	{ "path", "checkpoint", "dir" },
	{ "save", "checkpoint", "dir" },
	{ "save_dir", "checkpoint", "dir" },
	{ "output_dir", "checkpoint", "dir" },
	{ "interval", "checkpoint", "every" },
	{ "save_interval", "checkpoint", "every" },
	{ "save_every", "checkpoint", "every" },
	{ "save_steps", "checkpoint", "every" },
	{ "save_total_limit", "checkpoint", "keep" },
	{ "resume_from_checkpoint", "checkpoint", "resume" },
	{ "load", "checkpoint", "resume, or [model] load" },
	{ "fsdp", "strategy NAME", "zero = 3" },
	{ "tensor_model_parallel_size", "strategy NAME", "size" },
	{ "pipeline_model_parallel_size", "strategy NAME", "size" },
	{ "file", "log", "metrics" },
	{ "path", "log", "metrics" },
	{ "log_file", "log", "metrics" },
	{ "interval", "log", "every" },
	{ "log_interval", "log", "every" },
	{ "logging_steps", "log", "every" },
	{ "world_size", NULL, "size" },
	{ "degree", NULL, "size" },
	{ "tensor_model_parallel_size", NULL, "size" },
	{ "pipeline_model_parallel_size", NULL, "size" },
	{ "zero_stage", NULL, "zero" },
	{ "stage", NULL, "zero" },
	{ "virtual_pipeline_model_parallel_size", NULL, "chunks" },
};
static const struct other_name sections[] = {
	{ "optimizer", NULL, "train" },
	{ "optim", NULL, "train" },
	{ "scheduler", NULL, "train" },
	{ "training", NULL, "train" },
	{ "trainer", NULL, "train" },
	{ "dataset", NULL, "data" },
	{ "dataloader", NULL, "data" },
	{ "tokenizer", NULL, "data" },
	{ "checkpointing", NULL, "checkpoint" },
	{ "logging", NULL, "log" },
	{ "logger", NULL, "log" },
	{ "wandb", NULL, "log" },
	{ "experiment", NULL, "log" },
	{ "network", NULL, "model" },
	{ "architecture", NULL, "model" },
	{ "parallel", NULL, "strategy NAME" },
	{ "parallelism", NULL, "strategy NAME" },
	{ "distributed", NULL, "strategy NAME" },
};

/* Keys that Heddle does not have; `ours` explains what holds without them. */
static const struct other_name without_key[] = {
	{ "dtype", "checkpoint", "checkpoints are in fp32" },
	{ "wandb", "log", "there is no counterpart; metrics and tensorboard are files" },
	{ "wandb_project", "log", "there is no counterpart; metrics and tensorboard are files" },
	{ "packing", "data", "there is no counterpart; texts are one stream, cut into sequences of train.seq" },
};

/* Keys that are reserved: their meaning is known, but no version implements them yet. */
static const struct other_name later[] = {
	{ "mask_documents", "data", NULL },
	{ "loss_on", "data", NULL },
};

static int is_among(const char *name, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return 1;
	return 0;
}

static int (*find_sections)(const char *key, const char **labels, int most);

void hd_unknown_look_in(int (*find)(const char *key, const char **labels, int most))
{
	find_sections = find;
}

#define MOST_SECTIONS 8

/* Returns "[checkpoint] every or [log] every", or NULL if no section has the key; the caller frees it. */
static char *elsewhere(const char *key)
{
	const char *labels[MOST_SECTIONS];
	int n = find_sections ? find_sections(key, labels, MOST_SECTIONS) : 0;
	char *text = NULL;

	for (int i = 0; i < n; i++)
		hd_append(&text, "%s[%s] %s", i ? " or " : "", labels[i], key);
	return text;
}

/* Returns "lr", or "[train] lr" if the key belongs to another section, or NULL; the caller frees it. */
static char *translated(const char *section, const char *key, const char *const *names, int n)
{
	const struct other_name *there = NULL;
	char *same;

	for (size_t i = 0; i < HD_LEN(others); i++) {
		const struct other_name *x = &others[i];

		if (!hd_word_alike(x->theirs, key))
			continue;
		if (x->section ? !strcmp(x->section, section) : is_among(x->ours, names, n))
			return hd_strdup(x->ours);
		there = x->section ? x : there;
	}
	same = elsewhere(key);
	return same || !there ? same : hd_format("[%s] %s", there->section, there->ours);
}

static const char *hint_without_key(const char *section, const char *key)
{
	for (size_t i = 0; i < HD_LEN(without_key); i++)
		if (!strcmp(without_key[i].section, section) && hd_word_alike(without_key[i].theirs, key))
			return without_key[i].ours;
	return NULL;
}

int hd_key_comes_later(const char *section, const char *key)
{
	for (size_t i = 0; i < HD_LEN(later); i++)
		if (!strcmp(later[i].section, section) && !strcmp(later[i].theirs, key))
			return 1;
	return 0;
}

char *hd_unknown_key_hint(const char *section, const char *key, const char *const *names, int n, const char *all)
{
	char *ours = section ? translated(section, key, names, n) : NULL, *hint;
	const char *near = hd_suggest_nearest(key, names, n), *least = hd_suggest_by_words(key, names, n);

	if (section && hint_without_key(section, key))
		hint = hd_strdup(hint_without_key(section, key));
	else if (ours || near)
		hint = hd_format("did you mean %s?", ours ? ours : near);
	else if (!n)
		hint = hd_strdup("it has no keys");
	else if (least)
		hint = hd_format("the nearest is %s%s%s", least, *all ? "; " : "", all);
	else
		hint = hd_strdup(*all ? all : "none is similar");
	free(ours);
	return hint;
}

char *hd_unknown_section_hint(const char *name, const char *const *names, int n)
{
	const char *near = NULL, *least = hd_suggest_by_words(name, names, n);
	char *hint = NULL;

	for (size_t i = 0; i < HD_LEN(sections) && !near; i++)
		for (int k = 0; k < n && hd_word_alike(sections[i].theirs, name); k++)
			if (hd_word_alike(names[k], sections[i].ours))
				near = names[k];
	if (!near)
		near = hd_suggest_nearest(name, names, n);
	if (near || !n)
		return near ? hd_format("did you mean %s?", near) : hd_strdup("there is none");
	if (least)
		hd_append(&hint, "the nearest is %s; ", least);
	hd_append(&hint, "sections: ");
	for (int i = 0; i < n; i++)
		hd_append(&hint, "%s%s", i ? ", " : "", names[i]);
	return hint;
}
