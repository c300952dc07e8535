/* SPDX-License-Identifier: Apache-2.0
 * The keys of [train], [checkpoint] and [log].
 */
#include <config.h>
#include "engine/models/model.h"

static const struct hd_option train[] = {
	{ "seq", HD_OPT_INT, 0, NULL, "1..", "tokens per sequence" },
	{ "global_batch", HD_OPT_INT, 0, NULL, "1..", "sequences per step of the whole job" },
	{ "global_batch_ramp", HD_OPT_STR, 0, "", NULL, "START,STEP,TOKENS: grows from START to global_batch over so many tokens" },
	{ "micro_batch", HD_OPT_INT, 0, "0", "0..", "sequences per micro-batch of one replica (0: as large as divides, at most 8)" },
	{ "steps", HD_OPT_INT, 0, NULL, "0..", "updates" },
	{ "optimizer", HD_OPT_CHOICE, 0, "adamw", "adamw|sgd", "adamw: decoupled, bias-corrected; sgd: no momentum" },
	{ "lr", HD_OPT_NUM, 0, "3e-4", "0..", "peak learning rate" },
	{ "min_lr", HD_OPT_NUM, 0, "-1", NULL, "learning rate at the end of the decay (-1: lr/10)" },
	{ "schedule", HD_OPT_CHOICE, 0, "cosine", "cosine|linear|constant", "decay of the learning rate" },
	{ "warmup", HD_OPT_INT, 0, "0", "0..", "length of the linear warm-up, in schedule_unit" },
	{ "decay", HD_OPT_INT, 0, "0", "0..", "end of the decay, in schedule_unit (0: the last step)" },
	{ "schedule_unit", HD_OPT_CHOICE, 0, "steps", "steps|tokens", "unit of warmup and decay" },
	{ "weight_decay", HD_OPT_NUM, 0, "0.1", "0..", "for parameters of two or more dims" },
	{ "beta1", HD_OPT_NUM, 0, "0.9", "0..0.999999", "adamw" },
	{ "beta2", HD_OPT_NUM, 0, "0.95", "0..0.999999", "adamw" },
	{ "eps", HD_OPT_NUM, 0, "1e-8", "1e-37..", "adamw" },
	{ "clip", HD_OPT_NUM, 0, "1.0", "0..", "largest global gradient norm (0: off)" },
	{ "seed", HD_OPT_INT, 0, "1", "0..", "of initial weights, data order and dropout" },
	{ "precision", HD_OPT_CHOICE, 0, "fp32", "fp32|bf16|auto", "of activations and products (unset: bf16 on cuda); masters, gradients, states: fp32" },
	{ "recompute", HD_OPT_CHOICE, 0, "none", "none|selective|full", "what backward makes again instead of keeping it" },
	{ "reduce", HD_OPT_CHOICE, 0, "fast", "fast|rank_order", "rank_order: sums in member order on every transport" },
	{ "eval_every", HD_OPT_INT, 0, "0", "0..", "steps between evaluations (0: after the last step only)" },
	{ "eval_batches", HD_OPT_INT, 0, "0", "0..", "global batches per evaluation (0: all of the validation data)" },
	{ "device", HD_OPT_CHOICE, 0, "auto", "cpu|cuda|auto", "where kernels run" },
	{ "comm", HD_OPT_CHOICE, 0, "auto", "auto|mpi|nccl", "transport between hosts" },
	{ "threads", HD_OPT_INT, 0, "0", "0..4096", "OpenMP threads of a rank (0: cores / local ranks)" },
	{ "watchdog", HD_OPT_NUM, 0, "300", "0..", "seconds without progress after which a late rank is named" },
};
const struct hd_key_table hd_train_keys = { train, HD_LEN(train), sizeof(train[0]) };

static const struct hd_option checkpoint[] = {
	{ "dir", HD_OPT_STR, 0, "", NULL, "directory of the checkpoints (empty: nothing is saved)" },
	{ "every", HD_OPT_INT, 0, "0", "0..", "steps between checkpoints (0: only at the end)" },
	{ "keep", HD_OPT_INT, 0, "2", "1..", "checkpoints that stay" },
	{ "resume", HD_OPT_STR, 0, "no", NULL, "no, auto (the newest in dir), or the path of a checkpoint" },
	{ "gradients", HD_OPT_BOOL, 0, "no", NULL, "also save the gradients of the last step (heddle/gradients.safetensors)" },
};
const struct hd_key_table hd_checkpoint_keys = { checkpoint, HD_LEN(checkpoint), sizeof(checkpoint[0]) };

static const struct hd_option logging[] = {
	{ "metrics", HD_OPT_STR, 0, "", NULL, "file for one JSON object per step" },
	{ "every", HD_OPT_INT, 0, "1", "1..", "steps between progress lines where stdout is no terminal" },
	{ "trace", HD_OPT_STR, 0, "", NULL, "file for a Chrome/Perfetto trace" },
	{ "trace_steps", HD_OPT_STR, 0, "2-4", NULL, "steps that are traced" },
	{ "sample", HD_OPT_INT, 0, "0", "0..", "bytes of text generated after the last step" },
	{ "sample_prompt", HD_OPT_STR, 0, "", NULL, "what that text begins with" },
};
const struct hd_key_table hd_log_keys = { logging, HD_LEN(logging), sizeof(logging[0]) };
