/* SPDX-License-Identifier: Apache-2.0
 * engine/models/decoder/family.h - the description of a model family: defaults of keys, a graph, Hugging Face names
 * and keys.
 *
 * Most families are the shared decoder (decoder.h) with a table of defaults; see engine/models/family/llama.c.
 */
#ifndef HD_ENGINE_MODELS_FAMILY_H
#define HD_ENGINE_MODELS_FAMILY_H
#include "engine/config/conf.h"
#include "engine/graph/graph.h"
#include <heddle/family.h>
#include <jansson.h>

/* Where a parameter is stored in a Hugging Face file: a region of the tensor `name`.  The parameter's dims are first
 * merged into rows x cols (cols = product of the dims from `split` on; ndim 1 parameters: rows only), then transposed
 * if asked, then placed at (row, col).  Together the regions of a tensor cover it completely. */
struct hd_hf_region {
	char name[128];
	int ndim;
	int64_t shape[2]; /* of the complete stored tensor */
	int64_t at[2];    /* where this parameter begins in it */
	int split;        /* the first `split` dims of the parameter are rows */
	int transpose;
	/* 1: each index of the parameter's first dim is a tensor of its own, with the index in place of the `*` in
	 * `name`. All other fields, including `split`, describe one of these tensors. */
	int each;
};

/* The names of a layer of experts, after "layers.N.". */
struct hd_expert_names {
	const char *stem, *gate, *up, *down; /* "block_sparse_moe", "w1", ... */
};

enum {
	HD_FAMILY_HEADS_ANY,    /* any number and width */
	HD_FAMILY_HEADS_DIVIDE, /* their number must divide embed */
	HD_FAMILY_HEADS_SHARE,  /* their width must be embed / their number */
};

struct hd_family {
	const char *name, *model_type, *class; /* the latter two: in config.json */
	int dropout;                           /* the graph drops activations: model.dropout may be more than 0 */
	int decoder;                           /* it is the shared decoder, and accepts its keys */
	int64_t heads;                 /* HD_FAMILY_HEADS_...: the heads that its class of transformers accepts */
	int longrope_only;             /* that class accepts no other scaling of positions */
	int grouped, rope;             /* it reads model.kv_heads; it reads model.rope_theta */
	int64_t experts, moe_every;    /* defaults of these keys; moe_every 0: the graph has no layer of experts */
	int64_t router;                /* default of router: HD_ROUTER_... (knobs.h) */
	int always_shared;             /* its class has shared experts in every layer of experts */
	int always_normal;             /* its class normalizes the gates, even if a token has only one expert */
	int64_t (*mlp)(int64_t embed); /* default of mlp */
	const struct hd_family_value *defaults; /* defaults of other keys, ended by NULL; or NULL */
	/* hidden builds the forward graph from ids (batch, seq) to the last hidden state (batch, seq, embed), block by
	 * block. logits adds the product with the vocabulary, of (batch, seq, embed) or, in generation, of (batch,
	 * embed). */
	struct tensor *(*hidden)(struct hd_plan *p, struct tensor *ids);
	struct tensor *(*logits)(struct hd_plan *p, struct tensor *hidden);
	int (*hf)(const struct hd_model *m, const char *param, struct hd_hf_region *r); /* 0, or HD_EBUG */
	/* The keys of config.json, ended by NULL. NULL: directories of transformers are not read. */
	const struct hd_family_key *keys;
	uint32_t window; /* HD_FAMILY_WINDOW_... */
	/* For HD_FAMILY_WINDOW_TYPES: every n-th layer has no window, if config.json does not tell. */
	int64_t window_pattern;
	int window_fixed;         /* its class always has window_pattern, and does not read sliding_window_pattern */
	int64_t window_absent;    /* the window of a config without sliding_window */
	const char *theta_absent; /* the theta of a config without one; NULL: the family's default */
	const struct hd_expert_names *expert_names; /* NULL: Mixtral's */
	const struct hd_family *dense;      /* the family whose class a model without experts has; NULL: this one */
	int fused;                          /* q, k and v are one stored tensor, and so are gate and up */
	const struct hd_family_name *names; /* of a plugin's family: names that differ from Llama's; NULL: none */
};

const struct hd_expert_names *hd_expert_names_of(const struct hd_family *f);
/* Returns the family's default of a key, or NULL. */
const char *hd_family_default(const struct hd_family *f, const char *key);

#endif
