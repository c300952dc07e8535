/* SPDX-License-Identifier: Apache-2.0
 * engine/plan/plan.h - the plan of one layout of one model, from the logical graph to the placed and lowered graph.
 */
#ifndef HD_ENGINE_PLAN_H
#define HD_ENGINE_PLAN_H
#include "engine/models/model.h"
#include "engine/passes/passes.h"

struct hd_plan_options {
	int64_t ranks;
	int train;    /* 1: with backward and update; 0: forward only */
	int generate; /* logits of one position instead of the loss */
	/* With generate and past > 0, the keys and values of `past` positions of each sequence are kept from run to
	 * run.  A run computes `tokens` tokens of each sequence, for at least `rows` sequences at once.  past 0: a run
	 * computes train.seq tokens, and keeps nothing. */
	int64_t past, tokens, rows;
	int64_t global_batch; /* 0: train.global_batch; else one of the sizes of its ramp */
	/* Micro-batches of a step, or pairs of them if two are computed at a time; 0: as the global batch requires. */
	int64_t micros;
	int64_t data_vocab;    /* the size of the data's vocabulary; 0: unknown */
	uint32_t master_dtype; /* 0: HD_DTYPE_F32 */
	/* HD_DTYPE_BF16: for activations and operands of products; 0: everything is in master_dtype. */
	uint32_t compute_dtype;
	int gelu;                   /* a gelu can be fused into the device's bf16 products (kernel einsum_gelu) */
	int own_memory;             /* the device's memory is not the host's */
	int on_gpus;                /* the plan will run on GPUs, which train.device = auto has found */
	int undivided_logits;       /* logits are not divided into parts, unless train.loss_parts says otherwise */
	int separate_residual_adds; /* residual streams are added by separate kernels */
	int separate_loss_gradient; /* a separate kernel computes the gradient of logits */
	/* No kernel of the device computes a slope (gelu_slope) or sums together with its main result. */
	int no_multi_output_kernels;
	int64_t node_size; /* ranks per host; 0: unknown, or not the same on all hosts */
	int *node_asked;   /* If not NULL: set to 1 if a plugin asks for node_size. */
	int quiet;         /* warnings of plugins are not printed: one of many plans, of which one will be chosen */
	/* If not NULL: set to the number of ranks that the layout needs, if that is not `ranks`. */
	int64_t *needs;
	const char *after; /* the last pass to run; NULL: all run */
};
int hd_plan_create(struct hd_conf *c, const struct hd_plan_options *o, struct hd_plan **out, struct hd_err *err);
/* Returns a hint with the key and the value at which no stage is idle for lack of micro-batches; the caller frees it.
 * NULL: the stages have enough, or the plan is forward only. */
char *hd_plan_batch_hint(const struct hd_plan *p);
void hd_plan_destroy(struct hd_plan *p);
/* differ.c. hd_plan_node_hashes returns HD_NODE_HASH digits per node of the plan, in program order. hd_plan_node_text
 * describes node i in words. The caller frees both. */
#define HD_NODE_HASH 16
char *hd_plan_node_hashes(struct hd_plan *p);
char *hd_plan_node_text(const struct hd_plan *p, int64_t i);
/* shared_leaves.c. Refuses two plans of a run if they store a leaf that both have in different places: they share its memory. */
int hd_plans_store_alike(struct hd_plan *one, struct hd_plan *other, struct hd_err *err);
const char *hd_plan_pass(size_t i); /* the name of pass i, in the order in which they run; NULL: past the last */
/* Runs the passes from one to another, both included, on a graph built by hand: only those that need no INI. */
int hd_plan_run(struct hd_plan *p, const char *from, const char *to);
/* The keys of every [strategy NAME] and [plugin NAME], in addition to those of its plugin. */
extern const struct hd_key_table hd_strategy_keys, hd_extension_keys;
int hd_plan_sections(struct hd_conf *c, struct hd_err *err); /* refuses sections of the INI that nothing reads */

/* Returns the first state of an instance that begins as 0, is read, and is never assigned; *count: how many there are.
 * NULL: none. */
const struct tensor *hd_constant_state(const struct hd_plan *p, int inst, int64_t *count);
int hd_is_idle_axis(const struct hd_plan *p, int axis); /* whether nothing is sharded along it */

#endif
