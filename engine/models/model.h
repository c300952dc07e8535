/* SPDX-License-Identifier: Apache-2.0
 * engine/models/model.h - a model family: its keys, its sizes, its graph written once for one device, its Hugging Face names.
 *
 * One file per family in engine/models/.  A family builds nodes block by block (embed, layer 0, ..., head) with the
 * builders of engine/ops/build.h; it knows no mesh and no rank.
 */
#ifndef HD_ENGINE_MODEL_H
#define HD_ENGINE_MODEL_H
#include "engine/config/conf.h"
#include "engine/graph/graph.h"
#include <jansson.h>

/* Where a parameter is stored in a Hugging Face file: a region of the tensor `name`.  The parameter's dims are first
 * merged into rows x cols (cols = product of the dims from `split` on; ndim 1 parameters: rows only), then transposed if
 * asked, then placed at (row, col).  Together the regions of a tensor are all of it. */
struct hd_hf_region {
	char name[128];
	int ndim;
	int64_t shape[2]; /* of the whole stored tensor */
	int64_t at[2];    /* where this parameter begins in it */
	int split;        /* the first `split` dims of the parameter are rows */
	int transpose;
	/* 1: the parameter's first dim runs over tensors of their own, whose names have its index in place of the `*` in
	 * `name`; all else, also `split`, is said of one of them. */
	int each;
};

/* A key of config.json ("a.b": within an object), and ours of [model] that says the same. */
struct hd_hf_key {
	const char *theirs, *ours;
};

struct hd_family {
	const char *name;              /* also model_type in config.json */
	int tie;                       /* default of tie_embeddings */
	int dropout;                   /* the graph drops activations: model.dropout may be more than 0 */
	int grouped, rope;             /* it reads model.kv_heads, model.rope_theta */
	int64_t experts, moe_every;    /* defaults of these keys; moe_every 0: the graph has no layer of experts */
	int topk;                      /* default of router is topk */
	int64_t (*mlp)(int64_t embed); /* default of mlp */
	/* The forward graph from ids (batch, seq) to the last hidden state (batch, seq, embed), block by block; then the
	 * product with the vocabulary: of (batch, seq, embed) or, in generation, (batch, embed). */
	struct tensor *(*hidden)(struct hd_plan *p, struct tensor *ids);
	struct tensor *(*logits)(struct hd_plan *p, struct tensor *hidden);
	int (*hf)(const struct hd_model *m, const char *param, struct hd_hf_region *r); /* 0, or HD_EBUG */
	json_t *(*config)(const struct hd_model *m);                                    /* config.json, new reference */
	/* And read: the keys, ended by NULL (NULL: directories of transformers are not read), later ones first; and the key in
	 * which a config says what this graph does not, or NULL. */
	const struct hd_hf_key *keys;
	const char *(*unlike)(const json_t *config);
};

extern const struct hd_family hd_family_gpt2, hd_family_llama, hd_family_mixtral;
extern const struct hd_key_table hd_model_keys;
int hd_model_read(struct hd_conf *c, int64_t data_vocab, struct hd_model *m, struct hd_err *err);
const struct hd_family *hd_family_find(const char *name);
/* The most tokens of a group that an expert takes; without a limit: group_tokens. */
int64_t hd_model_capacity(const struct hd_model *m);

/* -- model_graph.c -------------------------------------------------------------------------------------------------------- */
/* p->model in nodes, of p->batch sequences: up to the loss, or (generate) to the logits of one position. */
int hd_model_graph(struct hd_plan *p, int generate);
void hd_model_count_blocks(struct hd_plan *p); /* what each block costs, for plugins that deal them to stages */

#endif
