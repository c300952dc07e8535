/* SPDX-License-Identifier: Apache-2.0
 * engine/config/train_config.h - [train], read once, as the rest of the engine uses it.
 */
#ifndef HD_ENGINE_CONFIG_TRAIN_CONFIG_H
#define HD_ENGINE_CONFIG_TRAIN_CONFIG_H
#include "engine/config/conf.h"
#include "engine/config/ramp.h"

enum hd_lr_schedule { HD_LR_COSINE, HD_LR_LINEAR, HD_LR_CONSTANT };
enum hd_recompute { HD_RECOMPUTE_NONE, HD_RECOMPUTE_SELECTIVE, HD_RECOMPUTE_FULL };
enum hd_precision { HD_PRECISION_FP32, HD_PRECISION_BF16, HD_PRECISION_AUTO, HD_PRECISION_UNSET };
enum hd_device_choice { HD_DEVICE_CPU, HD_DEVICE_CUDA, HD_DEVICE_AUTO };
enum hd_transport_choice { HD_TRANSPORT_AUTO, HD_TRANSPORT_MPI, HD_TRANSPORT_NCCL };

struct hd_train_config {
	struct hd_section *section; /* for errors that name a key's line */
	int64_t seq;
	struct hd_ramp batch; /* sequences of the whole job per step: batch.full, and how the batch grows to it */
	int64_t micro_batch;  /* sequences per replica; 0: not given */
	int64_t steps, seed;
	int adamw;             /* 0: sgd, or the optimizer of a plugin */
	const char *optimizer; /* name of the section whose plugin has the optimizer; NULL: adamw or sgd */
	double lr, min_lr, weight_decay, beta1, beta2, eps, clip;
	enum hd_lr_schedule schedule;
	int64_t warmup, decay; /* in steps or tokens; decay 0: to the last step */
	int by_tokens;
	enum hd_precision precision;
	enum hd_recompute recompute;
	int64_t loss_parts; /* parts of a micro-batch whose logits exist one after the other; 0: chosen automatically */
	int overlap_micro_batches; /* two are computed at a time */
	double expert_rows; /* rows of experts that a rank has memory for, relative to equal choices; 0: any choices */
	int rank_order;     /* sums are in member order */
	int deterministic;  /* no bit of the result depends on timing or the number of threads */
	/* eval_every 0: after the last step only; eval_batches 0: all of the validation data. */
	int64_t eval_every, eval_batches;
	int64_t hash_every; /* 0: never */
	enum hd_device_choice device;
	enum hd_transport_choice comm;
	int threads;     /* 0: cores / local ranks */
	double watchdog; /* seconds; 0: off */
};

/* Checks and reads the section. Strings belong to the configuration and live as long. */
int hd_train_config_read(struct hd_conf *c, struct hd_train_config *t, struct hd_err *err);

/* Returns the learning rate of a step, counted from 1. tokens: of all steps up to and including it; last_step and
 * last_tokens: the end of the decay if train.decay does not give one. */
double hd_learning_rate(const struct hd_train_config *t, int64_t step, int64_t tokens, int64_t last_step,
			int64_t last_tokens);
/* Fails at the line of a key of [train]. */
#define hd_train_fail(c, t, key, err, ...) hd_section_fail(c, (t)->section, key, err, __VA_ARGS__)

extern const struct hd_key_table hd_train_keys;

#endif
