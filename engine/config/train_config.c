/* SPDX-License-Identifier: Apache-2.0
 * The keys of [train], the struct that they fill, and the learning rate computed from them.
 */
#include <config.h>
#include "engine/config/train_config.h"
#include "engine/base/parse.h"
#include <math.h>
#include <string.h>

static const struct hd_option train[] = {
	{ "seq", HD_OPT_INT, 0, NULL, "1..1000000000", "tokens per sequence" },
	{ "global_batch", HD_OPT_INT, 0, NULL, "1..1000000000", "sequences per step of the whole job" },
	{ "global_batch_ramp", HD_OPT_STR, 0, "", NULL,
	  "START,STEP,TOKENS: grows from START, by STEP at a time, to global_batch over that many tokens" },
	{ "micro_batch", HD_OPT_INT, 0, "0", "0..1000000000",
	  "sequences per micro-batch of one replica (0: the largest that divides, at most 8)" },
	{ "steps", HD_OPT_INT, 0, NULL, "0..", "number of updates" },
	{ "optimizer", HD_OPT_STR, 0, "adamw", NULL,
	  "adamw: decoupled, bias-corrected; sgd: no momentum; or NAME: that of a [plugin NAME]" },
	{ "lr", HD_OPT_NUM, 0, "3e-4", "0..", "peak learning rate" },
	{ "min_lr", HD_OPT_NUM, 0, "-1", NULL, "learning rate at the end of the decay (-1: lr/10)" },
	{ "schedule", HD_OPT_CHOICE, 0, "cosine", "cosine|linear|constant", "decay of the learning rate" },
	{ "warmup", HD_OPT_INT, 0, "0", "0..", "length of the linear warm-up, in schedule_unit" },
	{ "decay", HD_OPT_INT, 0, "0", "0..", "end of the decay, in schedule_unit (0: the last step)" },
	{ "schedule_unit", HD_OPT_CHOICE, 0, "steps", "steps|tokens", "unit of warmup and decay" },
	{ "weight_decay", HD_OPT_NUM, 0, "0.1", "0..", "weight decay of parameters of two or more dims" },
	{ "beta1", HD_OPT_NUM, 0, "0.9", "0..0.999999", "adamw: decay of the mean gradient" },
	{ "beta2", HD_OPT_NUM, 0, "0.95", "0..0.999999", "adamw: decay of the mean squared gradient" },
	{ "eps", HD_OPT_NUM, 0, "1e-8", "1e-37..", "adamw: added to the root of the mean squared gradient" },
	{ "clip", HD_OPT_NUM, 0, "1.0", "0..", "largest global gradient norm (0: off)" },
	{ "seed", HD_OPT_INT, 0, "1", "0..", "seed of initial weights, data order and dropout" },
	{ "precision", HD_OPT_CHOICE, 0, "fp32", "fp32|bf16|auto",
	  "of activations and matmuls (unset: bf16 on cuda); masters, gradients, states: fp32" },
	{ "recompute", HD_OPT_CHOICE, 0, "none", "none|selective|full",
	  "activations that backward recomputes instead of saving them" },
	{ "loss_parts", HD_OPT_INT, 0, "0", "0..1000000",
	  "parts of a micro-batch whose logits and their gradients exist one after the other (0: chosen to save "
	  "memory)" },
	{ "overlap_micro_batches", HD_OPT_BOOL, 0, "no", NULL,
	  "compute two micro-batches at a time: collectives of one are under way while the other computes" },
	{ "expert_rows", HD_OPT_NUM, 0, "0", "0..",
	  "memory for experts without a capacity limit, in rows of equal choices (0: for any choices)" },
	{ "reduce", HD_OPT_CHOICE, 0, "fast", "fast|rank_order",
	  "rank_order: sums in member order on every transport" },
	{ "deterministic", HD_OPT_BOOL, 0, "no", NULL,
	  "same bits from run to run, whatever the timings and the number of threads" },
	{ "eval_every", HD_OPT_INT, 0, "0", "0..", "steps between evaluations (0: after the last step only)" },
	{ "eval_batches", HD_OPT_INT, 0, "0", "0..1000000000",
	  "global batches per evaluation (0: all of the validation data)" },
	{ "device", HD_OPT_CHOICE, 0, "auto", "cpu|cuda|auto", "where kernels run" },
	{ "comm", HD_OPT_CHOICE, 0, "auto", "auto|mpi|nccl", "transport between hosts" },
	{ "threads", HD_OPT_INT, 0, "0", "0..4096",
	  "threads of a rank (0: OMP_NUM_THREADS, else cores / local ranks)" },
	{ "hash_every", HD_OPT_INT, 0, "0", "0..",
	  "steps between comparisons of all copies of parameters and states by hash (0: never)" },
	{ "watchdog", HD_OPT_NUM, 0, "300", "0..", "seconds without progress after which a late rank is named" },
};
const struct hd_key_table hd_train_keys = { train, HD_LEN(train), sizeof(train[0]) };

static enum hd_lr_schedule lr_schedule(const char *v)
{
	return !strcmp(v, "cosine") ? HD_LR_COSINE : !strcmp(v, "linear") ? HD_LR_LINEAR : HD_LR_CONSTANT;
}

static enum hd_precision precision(const struct hd_section *s)
{
	const char *v = hd_section_str(s, "precision");

	if (!hd_section_has(s, "precision"))
		return HD_PRECISION_UNSET;
	return !strcmp(v, "bf16") ? HD_PRECISION_BF16 : !strcmp(v, "auto") ? HD_PRECISION_AUTO : HD_PRECISION_FP32;
}

static enum hd_recompute recompute(const char *v)
{
	return !strcmp(v, "full")        ? HD_RECOMPUTE_FULL
	       : !strcmp(v, "selective") ? HD_RECOMPUTE_SELECTIVE
					 : HD_RECOMPUTE_NONE;
}

static enum hd_device_choice device(const char *v)
{
	return !strcmp(v, "cpu") ? HD_DEVICE_CPU : !strcmp(v, "cuda") ? HD_DEVICE_CUDA : HD_DEVICE_AUTO;
}

static enum hd_transport_choice comm(const char *v)
{
	return !strcmp(v, "mpi") ? HD_TRANSPORT_MPI : !strcmp(v, "nccl") ? HD_TRANSPORT_NCCL : HD_TRANSPORT_AUTO;
}

/* Checks that the learning rate falls, and that the decay ends after the warm-up. */
static int check_rates(struct hd_conf *c, const struct hd_train_config *t, struct hd_err *err)
{
	if (t->schedule == HD_LR_CONSTANT)
		return HD_OK;
	if (t->decay && t->decay < t->warmup)
		return hd_train_fail(c, t, "decay", err, HD_EINVAL, "%lld is before the end of warmup = %lld",
				     (long long)t->decay, (long long)t->warmup);
	if (t->min_lr > t->lr)
		return hd_train_fail(c, t, "min_lr", err, HD_EINVAL, "%g is more than lr = %g", t->min_lr, t->lr);
	if (t->min_lr < 0 && t->min_lr != -1)
		return hd_train_fail(c, t, "min_lr", err, HD_EINVAL, "%g is negative (-1: lr/10)", t->min_lr);
	return HD_OK;
}

/* Checks that the tokens of all steps fit into 64 bits: the learning rate may depend on their number. */
static int check_tokens(struct hd_conf *c, const struct hd_train_config *t, struct hd_err *err)
{
	double tokens = (double)t->steps * (double)t->batch.full * (double)t->seq;

	if (tokens < 9e18)
		return HD_OK;
	return hd_train_fail(c, t, "steps", err, HD_EINVAL,
			     "%lld x global_batch = %lld x seq = %lld are more tokens than can be counted",
			     (long long)t->steps, (long long)t->batch.full, (long long)t->seq);
}

/* Refuses a transport that contradicts the INI itself. Whether the machine has GPUs is only known when a run begins. */
static int check_comm(struct hd_conf *c, const struct hd_train_config *t, struct hd_err *err)
{
	if (t->comm != HD_TRANSPORT_NCCL)
		return HD_OK;
	if (t->device == HD_DEVICE_CPU)
		return hd_train_fail(c, t, "comm", err, HD_ENOTSUP, "nccl needs GPUs, and the device is cpu");
	if (t->rank_order)
		return hd_train_fail(c, t, "reduce", err, HD_ENOTSUP,
				     "rank_order: nccl adds in an order of its own; "
				     "with train.comm = mpi it is that of the ranks");
	return HD_OK;
}

#define MAX_NAMES 32

/* Accepts adamw, sgd, or the name of a section that loads a plugin. Whether the plugin has an optimizer is checked when
 * it is loaded. */
static int choose_optimizer(struct hd_conf *c, struct hd_section *s, struct hd_train_config *t, struct hd_err *err)
{
	const char *name = hd_section_str(s, "optimizer"), *all[MAX_NAMES] = { "adamw", "sgd" };
	struct hd_section *other = NULL;
	char hint[480];
	int n = 2;

	t->adamw = !strcmp(name, "adamw");
	if (t->adamw || !strcmp(name, "sgd"))
		return HD_OK;
	while ((other = hd_conf_next(c, NULL, other))) {
		if (!hd_section_is(other, "plugin") && !hd_section_is(other, "strategy"))
			continue;
		if (!strcmp(hd_section_name(other), name))
			t->optimizer = hd_section_name(other);
		if (hd_section_is(other, "plugin") && n < MAX_NAMES)
			all[n++] = hd_section_name(other);
	}
	if (t->optimizer)
		return HD_OK;
	hd_suggest(hint, sizeof(hint), name, "choices", all, n);
	return hd_section_fail(c, s, "optimizer", err, HD_EINVAL, "'%s' is not a choice; %s", name, hint);
}

static void read_optimizer(const struct hd_section *s, struct hd_train_config *t)
{
	t->lr = hd_section_num(s, "lr");
	t->min_lr = hd_section_num(s, "min_lr");
	t->schedule = lr_schedule(hd_section_str(s, "schedule"));
	t->warmup = hd_section_int(s, "warmup");
	t->decay = hd_section_int(s, "decay");
	t->by_tokens = !strcmp(hd_section_str(s, "schedule_unit"), "tokens");
	t->weight_decay = hd_section_num(s, "weight_decay");
	t->beta1 = hd_section_num(s, "beta1");
	t->beta2 = hd_section_num(s, "beta2");
	t->eps = hd_section_num(s, "eps");
	t->clip = hd_section_num(s, "clip");
}

int hd_train_config_read(struct hd_conf *c, struct hd_train_config *t, struct hd_err *err)
{
	struct hd_section *s = hd_conf_section(c, NULL, "train");

	HD_TRY(hd_section_check(c, s, &hd_train_keys, 1, err));
	memset(t, 0, sizeof(*t));
	t->section = s;
	t->seq = hd_section_int(s, "seq");
	t->micro_batch = hd_section_int(s, "micro_batch");
	t->steps = hd_section_int(s, "steps");
	t->seed = hd_section_int(s, "seed");
	t->precision = precision(s);
	t->recompute = recompute(hd_section_str(s, "recompute"));
	t->loss_parts = hd_section_int(s, "loss_parts");
	t->overlap_micro_batches = hd_section_int(s, "overlap_micro_batches") != 0;
	t->expert_rows = hd_section_num(s, "expert_rows");
	t->rank_order = !strcmp(hd_section_str(s, "reduce"), "rank_order");
	t->deterministic = hd_section_int(s, "deterministic") != 0;
	t->eval_every = hd_section_int(s, "eval_every");
	t->hash_every = hd_section_int(s, "hash_every");
	t->eval_batches = hd_section_int(s, "eval_batches");
	t->device = device(hd_section_str(s, "device"));
	t->comm = comm(hd_section_str(s, "comm"));
	t->threads = (int)hd_section_int(s, "threads");
	t->watchdog = hd_section_num(s, "watchdog");
	if (t->expert_rows > 0 && t->expert_rows < 1)
		return hd_train_fail(c, t, "expert_rows", err, HD_EINVAL,
				     "%g has no room for equal choices, which need 1 (0: any choices)", t->expert_rows);
	HD_TRY(check_comm(c, t, err));
	HD_TRY(choose_optimizer(c, s, t, err));
	read_optimizer(s, t);
	HD_TRY(hd_ramp_read(c, s, &t->batch, err));
	HD_TRY(check_tokens(c, t, err));
	return check_rates(c, t, err);
}

double hd_learning_rate(const struct hd_train_config *t, int64_t step, int64_t tokens, int64_t last_step,
			int64_t last_tokens)
{
	double low = t->min_lr < 0 ? t->lr / 10 : t->min_lr, warm = (double)t->warmup, end = (double)t->decay, x;
	double at = (double)(t->by_tokens ? tokens : step);

	end = end > 0 ? end : (double)(t->by_tokens ? last_tokens : last_step);
	if (at < warm)
		return t->lr * at / warm;
	if (t->schedule == HD_LR_CONSTANT)
		return t->lr;
	x = end > warm ? (at - warm) / (end - warm) : at > warm; /* a warm-up ends with lr, even in the last step */
	x = x > 1 ? 1 : x;
	if (t->schedule == HD_LR_LINEAR)
		return t->lr + (low - t->lr) * x;
	return low + (t->lr - low) * 0.5 * (1 + cos(3.14159265358979323846 * x));
}
