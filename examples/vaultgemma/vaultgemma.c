/* SPDX-License-Identifier: Apache-2.0
 * The model family VaultGemma 1B (Google, 2025; arXiv 2510.15001) as data. It is Gemma 2 without the norms after its
 * sublayers, and with a different name for the norm before the feed-forward layer. Heddle reads and writes what
 * transformers calls VaultGemmaForCausalLM.
 */
#include <heddle/strategy.h>

static const struct hd_family_value defaults[] = {
	{ "norm", "before" },          { "norm_offset", "yes" },
	{ "activation", "gelu_tanh" }, { "embed_scale", "0" },
	{ "tie_embeddings", "yes" },   { "norm_eps", "1e-6" },
	{ "window_layers", "wf" },     { "attention_softcap", "50" },
	{ "logit_softcap", "30" },     { NULL, NULL },
};

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-6", "yes"),
	{ "hidden_activation", "activation", HD_FAMILY_ACTIVATIONS, "gelu_tanh", 0 },
	{ "attention_bias", "qkv_bias", NULL, "no", 0 },
	{ "attention_bias", "out_bias", NULL, "no", 0 },
	{ "query_pre_attn_scalar", "query_scale", NULL, "256", 0 },
	{ "attn_logit_softcapping", "attention_softcap", NULL, "50", HD_FAMILY_KEY_NULL },
	{ "final_logit_softcapping", "logit_softcap", NULL, "30", HD_FAMILY_KEY_NULL },
	{ NULL, NULL, NULL, NULL, 0 },
};

static const struct hd_family_name names[] = {
	{ "model.layers.*.post_attention_layernorm", "model.layers.*.pre_feedforward_layernorm" },
	{ NULL, NULL },
};

static const struct hd_family_ops vaultgemma = {
	.size = sizeof(vaultgemma),
	.name = "vaultgemma",
	.model_type = "vaultgemma",
	.class_name = "VaultGemmaForCausalLM",
	.defaults = defaults,
	.keys = keys,
	.names = names,
	.window = HD_FAMILY_WINDOW_TYPES,
	.window_every = 2,
	.window_absent = 4096,
};

static const struct hd_family_ops *const families[] = { &vaultgemma, NULL };
HD_PLUGIN_TABLES("vaultgemma", "1.0", .families = families)
