/* SPDX-License-Identifier: Apache-2.0
 * engine/plan/plan.h - the plan: one layout of one model, from the logical graph to the placed and lowered one.
 */
#ifndef HD_ENGINE_PLAN_H
#define HD_ENGINE_PLAN_H
#include "engine/models/model.h"
#include "engine/passes/passes.h"

struct hd_plan_options {
	int64_t ranks;
	int train;    /* 1: with backward and update; 0: forward only */
	int generate; /* logits of one position instead of the loss */
	/* With generate: of each sequence the keys and values of `past` positions are kept from run to run, and a run computes
	 * `tokens` of it; at least `rows` sequences at once.  past 0: a run computes train.seq tokens, and keeps nothing. */
	int64_t past, tokens, rows;
	int64_t global_batch;   /* 0: train.global_batch; else one of its ramp's sizes */
	int64_t micros;         /* micro-batches of a step; 0: as many as the global batch has */
	int64_t data_vocab;     /* what the data say of the vocabulary; 0: nothing */
	uint32_t master_dtype;  /* 0: HD_DTYPE_F32 */
	uint32_t compute_dtype; /* HD_DTYPE_BF16: activations and what products read; 0: all is `real` */
	int gelu;               /* the device has products of bf16 that take a gelu in (kernel einsum_gelu) */
	int own_memory;         /* the device's memory is not the host's */
	int whole_logits;       /* logits are made at once, unless train.loss_parts says something else */
	int residuals_apart;    /* residual streams are added by kernels of their own */
	int loss_apart;         /* the gradient of logits is made by a kernel of its own */
	int separate;      /* the device has no kernels that make a slope or sums beside something else (gelu_slope) */
	int64_t node_size; /* ranks of a host; 0: unknown, or not the same on all */
	int quiet;         /* what plugins warn of is not printed: of many plans, of which one is chosen */
	int64_t *needs;    /* if not NULL: the ranks of the layout, where they are not `ranks` */
	const char *after; /* the last pass that runs; NULL: all */
};
int hd_plan_create(struct hd_conf *c, const struct hd_plan_options *o, struct hd_plan **out, struct hd_err *err);
/* A line that names the key and the number with which no stage is idle for the want of micro-batches; malloc'ed.  NULL: none is. */
char *hd_plan_batch_hint(const struct hd_plan *p);
void hd_plan_destroy(struct hd_plan *p);
void hd_plan_hash_node(struct hd_plan *p, const struct node *n, uint64_t *h); /* mixes what it computes into h */
const char *hd_plan_pass(size_t i); /* the name of pass i, in the order in which they run; NULL: there are no more */
/* The passes from one to another, both included, of a graph that was made by hand: those that need nothing of an INI. */
int hd_plan_run(struct hd_plan *p, const char *from, const char *to);
/* Of every [strategy NAME] and [plugin NAME], besides those of its plugin. */
extern const struct hd_key_table hd_strategy_keys, hd_extension_keys;
int hd_plan_sections(struct hd_conf *c, struct hd_err *err); /* refuses INI sections that nothing reads */

/* The first state of an instance that begins as 0, is read, and is never assigned; *count: of all of them.  NULL: there is none. */
const struct tensor *hd_constant_state(const struct hd_plan *p, int inst, int64_t *count);
int hd_is_idle_axis(const struct hd_plan *p, int axis); /* nothing is sharded along it */

#endif
