/* SPDX-License-Identifier: Apache-2.0
 * heddle/family.h - a model family of a plugin: family = NAME of [model], where a [plugin NAME] or [strategy NAME]
 * loads it.
 *
 * A family is data: defaults of keys of [model], the names of these keys in a config.json of transformers, and the
 * names of the weights in a checkpoint.  The graph is the decoder of Heddle, and its keys are in doc/ini.md.
 * With a family, Heddle loads directories of transformers (model.load, eval, generate) and writes checkpoints that the
 * class of transformers loads.  Heddle reads all of this when it loads the plugin, and refuses a plugin with a wrong
 * entry.
 *
 *	static const struct hd_family_key keys[] = { HD_FAMILY_KEYS_LLAMA("1e-6", "no"),
 *		{ "attention_bias", "qkv_bias", NULL, "yes", 0 }, { NULL, NULL, NULL, NULL, 0 } };
 *	static const struct hd_family_ops mine = { .size = sizeof(mine), .name = "mine", .model_type = "mine",
 *		.class_name = "MineForCausalLM", .keys = keys };
 *	static const struct hd_family_ops *const families[] = { &mine, NULL };
 *	HD_PLUGIN_TABLES("mine", "1.0", .families = families)
 */
#ifndef HEDDLE_FAMILY_H
#define HEDDLE_FAMILY_H
#include <heddle/host.h>
#ifdef __cplusplus
extern "C" {
#endif

struct hd_family_value {         /* frozen */
	const char *key, *value; /* of [model], as an INI says it */
};

/* A key of config.json (theirs) and the key of [model] (ours) with the same meaning.  Several entries may have one
 * key of theirs.
 * When a config is written, their values must agree; else the model is not of this class.  Every family reads and
 * writes rope_theta, rope_scaling, rope_parameters and the keys of windows.  Every other key of a config must be in
 * the list, or say nothing of the model.  Frozen. */
struct hd_family_key {
	const char *theirs;
	const char *ours;   /* NULL: the value must be one of `values`, because this program knows no other */
	const char *values; /* without ours: "a|b", JSON; NULL: any.  Of a choice: "theirs=ours|...".  Else NULL */
	const char *
		absent; /* what a config without the key means, as an INI says it; NULL: the default; "!": it must be there;
			     * "-": it is written and not read */
	uint64_t flags; /* HD_FAMILY_KEY_NULL */
};
enum { HD_FAMILY_KEY_NULL = 1 }; /* 0 of ours is null of theirs */

/* Weights whose names differ from those of Llama's class.  The last word (weight, bias) is left out.  * is the number
 * of a layer or of an expert:
 *
 *	model.embed_tokens  lm_head  model.norm
 *	model.layers.*.input_layernorm  .post_attention_layernorm  .pre_feedforward_layernorm  .post_feedforward_layernorm
 *	model.layers.*.self_attn.q_proj  .k_proj  .v_proj  .o_proj  .q_norm  .k_norm
 *	model.layers.*.mlp.gate_proj  .up_proj  .down_proj
 *	model.layers.*.mlp.gate  .experts.*.gate_proj  ...  .shared_experts.gate_proj  ...  (those with experts)
 *
 * With norm = before, post_attention_layernorm is the norm before the feed-forward layer.  Projections of one input
 * (q, k, v; gate, up) with one name are rows of one tensor, in the order of the list.  Frozen. */
struct hd_family_name {
	const char *ours, *theirs;
};

/* How config.json says which layers have a window. */
enum {
	HD_FAMILY_WINDOW_NONE,
	HD_FAMILY_WINDOW_ALL,         /* sliding_window; all layers have it */
	HD_FAMILY_WINDOW_USED_BY_ALL, /* use_sliding_window too */
	HD_FAMILY_WINDOW_USE,         /* use_sliding_window too, and max_window_layers or layer_types */
	HD_FAMILY_WINDOW_TYPES,       /* sliding_window and layer_types; or every n-th layer has none */
};

struct hd_family_ops { /* static const data */
	size_t size;
	const char *name;                       /* mandatory, as are model_type, class_name and keys */
	const char *model_type, *class_name;    /* of config.json: "llama", "LlamaForCausalLM" */
	const struct hd_family_value *defaults; /* ended by a NULL key; NULL: none.  Any key but sizes */
	const struct hd_family_key
		*keys; /* ended by a NULL key of theirs; layers, embed, heads and vocab must be in it */
	const struct hd_family_name *names; /* ended by NULL; NULL: Llama's */
	uint32_t window, window_every;      /* every: HD_FAMILY_WINDOW_TYPES, where a config has no layer_types */
	int64_t window_absent;              /* the window of a config without sliding_window; 0: none */
};

/* The keys of Llama's config.json and of most others: sizes, norm_eps and tie_embeddings; eps and tie are the
 * defaults of the last two. */
#define HD_FAMILY_KEYS_LLAMA(eps, tie) \
	{ "num_hidden_layers", "layers", NULL, "!", 0 }, { "hidden_size", "embed", NULL, "!", 0 }, \
		{ "num_attention_heads", "heads", NULL, "!", 0 }, \
		{ "num_key_value_heads", "kv_heads", NULL, NULL, 0 }, { "head_dim", "head_dim", NULL, NULL, 0 }, \
		{ "intermediate_size", "mlp", NULL, "!", 0 }, { "vocab_size", "vocab", NULL, "!", 0 }, \
		{ "max_position_embeddings", "max_seq", NULL, "!", 0 }, { "rms_norm_eps", "norm_eps", NULL, eps, 0 }, \
		{ "initializer_range", "init_std", NULL, NULL, 0 }, \
		{ "tie_word_embeddings", "tie_embeddings", NULL, tie, 0 }, \
	{ \
		"attention_dropout", NULL, "0|null", NULL, 0 \
	}
/* Values of hidden_act, for { "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 }. */
#define HD_FAMILY_ACTIVATIONS \
	"silu=silu|swish=silu|gelu_pytorch_tanh=gelu_tanh|gelu_new=gelu_tanh|gelu_fast=gelu_tanh|gelu=gelu_erf|gelu_python=gelu_erf"

#ifdef __cplusplus
}
#endif
#endif
