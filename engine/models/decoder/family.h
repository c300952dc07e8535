/* SPDX-License-Identifier: Apache-2.0
 * engine/models/decoder/family.h - what a model family is: defaults of keys, a graph, Hugging Face names and keys.
 *
 * Most families are the shared decoder (decoder.h) and a table of defaults; see engine/models/family/llama.c.
 */
#ifndef HD_ENGINE_MODELS_FAMILY_H
#define HD_ENGINE_MODELS_FAMILY_H
#include "engine/config/conf.h"
#include "engine/graph/graph.h"
#include <heddle/family.h>
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
	/* 1: the parameter's first dim runs over tensors of their own. Their names have its index in place of the `*` in
	 * `name`. All else, also `split`, is of one of them. */
	int each;
};

/* How a family names what a layer of experts has, behind "layers.N.". */
struct hd_expert_names {
	const char *stem, *gate, *up, *down; /* "block_sparse_moe", "w1", ... */
};

enum {
	HD_FAMILY_HEADS_ANY,    /* of any number and width */
	HD_FAMILY_HEADS_DIVIDE, /* their number divides embed */
	HD_FAMILY_HEADS_SHARE,  /* their width is embed over their number */
};

struct hd_family {
	const char *name, *model_type, *class; /* the latter two: in config.json */
	int dropout;                           /* the graph drops activations: model.dropout may be more than 0 */
	int decoder;                           /* it is the shared decoder, and takes its keys */
	int64_t heads;                         /* HD_FAMILY_HEADS_...: what its class of transformers takes */
	int longrope_only;                     /* that class takes no other scaling of positions */
	int grouped, rope;                     /* it reads model.kv_heads, model.rope_theta */
	int64_t experts, moe_every;    /* defaults of these keys; moe_every 0: the graph has no layer of experts */
	int64_t router;                /* default of router: HD_ROUTER_... (knobs.h) */
	int always_shared;             /* its class has shared experts in every layer of experts */
	int always_normal;             /* gates of the class of transformers are normalised, for one expert too */
	int64_t (*mlp)(int64_t embed); /* default of mlp */
	const struct hd_family_value *defaults; /* of other keys, ended by NULL; or NULL */
	/* The forward graph from ids (batch, seq) to the last hidden state (batch, seq, embed), block by block. Then the
	 * product with the vocabulary: of (batch, seq, embed) or, in generation, (batch, embed). */
	struct tensor *(*hidden)(struct hd_plan *p, struct tensor *ids);
	struct tensor *(*logits)(struct hd_plan *p, struct tensor *hidden);
	int (*hf)(const struct hd_model *m, const char *param, struct hd_hf_region *r); /* 0, or HD_EBUG */
	/* config.json: the keys, ended by NULL; NULL: directories of transformers are not read. */
	const struct hd_family_key *keys;
	uint32_t window;        /* HD_FAMILY_WINDOW_... */
	int64_t window_pattern; /* HD_FAMILY_WINDOW_TYPES: every so many-th layer has none, in a config that does not say it */
	int window_fixed;         /* its class has window_pattern, and reads no other from sliding_window_pattern */
	int64_t window_absent;    /* the window of a config without sliding_window */
	const char *theta_absent; /* the theta of a config without one; NULL: the family's default */
	const struct hd_expert_names *expert_names; /* NULL: Mixtral's */
	const struct hd_family *dense;              /* whose class a model without experts is; NULL: its own */
	int fused;                                  /* q, k and v are one stored tensor, and so are gate and up */
	const struct hd_family_name *names; /* of a plugin's family: other names of weights; NULL: as they are */
};

const struct hd_expert_names *hd_expert_names_of(const struct hd_family *f);
/* The value that the family has for a key, or NULL. */
const char *hd_family_default(const struct hd_family *f, const char *key);

#endif
