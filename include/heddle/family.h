/* SPDX-License-Identifier: Apache-2.0
 * heddle/family.h - a model family that a plugin defines. A layout selects it with family = NAME in [model], and loads
 * the plugin in a section [plugin NAME] or [strategy NAME].
 *
 * A family is data: defaults for keys of [model], their names in a config.json, and the names of the weights in a
 * checkpoint. A config.json is that of Hugging Face transformers. The graph is always Heddle's decoder, whose keys are
 * in doc/ini.md. With a family, Heddle loads directories of transformers (model.load, eval, generate). It also writes
 * checkpoints that the model class of transformers loads. Heddle checks all entries when it loads the plugin, and
 * refuses the plugin if one is wrong.
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
	const char *key, *value; /* a key of [model] and its value, as written in an INI */
};

/* A key of config.json (theirs) and the key of [model] (ours) with the same meaning. Several entries may have the same
 * key of theirs. When a config is written, these entries must agree on its value; otherwise the model does not belong
 * to this class. Every family reads and writes rope_theta, rope_scaling, rope_parameters and the keys of windows. Any
 * other key of a config must be in the list, unless it says nothing about the model. Frozen. */
struct hd_family_key {
	const char *theirs;
	const char *ours; /* NULL: Heddle has no such key, so theirs must have one of `values` */
	/* without ours: the JSON values allowed, "a|b"; NULL: any. For a choice: "theirs=ours|...". Else NULL */
	const char *values;
	/* the value if a config lacks the key, as written in an INI; NULL: the default; "!": mandatory; "-": the key is
	 * written and not read */
	const char *absent;
	uint64_t flags; /* HD_FAMILY_KEY_NULL */
};
enum { HD_FAMILY_KEY_NULL = 1 }; /* a value of 0 in ours corresponds to null in theirs, whose 0 is refused */

/* The names of weights that differ from those of Llama's class. The last word (weight, bias) is left out; * stands for
 * the number of a layer or of an expert. Llama's names are:
 *
 *	model.embed_tokens  lm_head  model.norm
 *	model.layers.*.input_layernorm  .post_attention_layernorm
 *	model.layers.*.pre_feedforward_layernorm  .post_feedforward_layernorm
 *	model.layers.*.self_attn.q_proj  .k_proj  .v_proj  .o_proj  .q_norm  .k_norm
 *	model.layers.*.mlp.gate_proj  .up_proj  .down_proj
 *	model.layers.*.mlp.gate  .experts.*.gate_proj  ...  .shared_experts.gate_proj  ...  (with experts)
 *
 * With norm = before, post_attention_layernorm is the norm before the feed-forward layer. Projections of the same input
 * (q, k, v; gate, up) may share a name. They are then rows of one tensor, in the order of the list. Frozen. */
struct hd_family_name {
	const char *ours, *theirs;
};

/* How config.json tells which layers have a sliding window. */
enum {
	HD_FAMILY_WINDOW_NONE,
	HD_FAMILY_WINDOW_ALL,         /* sliding_window, for all layers */
	HD_FAMILY_WINDOW_USED_BY_ALL, /* sliding_window and use_sliding_window, for all layers */
	HD_FAMILY_WINDOW_USE,         /* as before, with max_window_layers or layer_types for the layers */
	HD_FAMILY_WINDOW_TYPES,       /* sliding_window and layer_types; or every n-th layer has no window */
};

struct hd_family_ops { /* static const data */
	size_t size;
	const char *name;                       /* mandatory, as are model_type, class_name and keys */
	const char *model_type, *class_name;    /* as in config.json: "llama", "LlamaForCausalLM" */
	const struct hd_family_value *defaults; /* any keys except sizes; the last entry has a NULL key. NULL: none */
	/* The last entry has a NULL key of theirs. The list must contain layers, embed, heads, vocab and max_seq. */
	const struct hd_family_key *keys;
	const struct hd_family_name *names; /* the last entry is NULL; NULL: Llama's names */
	/* window_every: the n of HD_FAMILY_WINDOW_TYPES for a config without layer_types */
	uint32_t window, window_every;
	int64_t window_absent; /* the window of a config without sliding_window; 0: none */
};

/* The keys of Llama's config.json, which most others share: sizes, norm_eps and tie_embeddings. eps and tie are the
 * values of the last two in a config without them. */
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
/* The values of hidden_act, for an entry { "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 }. */
#define HD_FAMILY_ACTIVATIONS \
	"silu=silu|swish=silu|gelu_pytorch_tanh=gelu_tanh|gelu_new=gelu_tanh|gelu_fast=gelu_tanh|gelu=gelu_erf|gelu_python=gelu_erf"

#ifdef __cplusplus
}
#endif
#endif
