/* SPDX-License-Identifier: Apache-2.0
 * Gemma 2 (2408.00118): norms before and after each sublayer, whose weights are stored minus one. GeGLU; soft caps of
 * scores and of logits; every other layer has a window; embeddings are multiplied by the square root of their width.
 */
#include <config.h>
#include "engine/models/family/families.h"

static const struct hd_family_value defaults[] = {
	{ "norm", "both" },
	{ "norm_offset", "yes" },
	{ "activation", "gelu_tanh" },
	{ "embed_scale", "0" },
	{ "tie_embeddings", "yes" },
	{ "norm_eps", "1e-6" },
	{ "window_layers", "wf" },
	{ "attention_softcap", "50" },
	{ "logit_softcap", "30" },
	{ NULL, NULL },
};

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-6", "yes"),
	{ "hidden_act", NULL, "gelu_pytorch_tanh", NULL, 0 },
	{ "hidden_activation", "activation", HD_FAMILY_ACTIVATIONS, "gelu_tanh", 0 },
	{ "attention_bias", "qkv_bias", NULL, NULL, 0 },
	{ "attention_bias", "out_bias", NULL, NULL, 0 },
	{ "query_pre_attn_scalar", "query_scale", NULL, "256", 0 },
	{ "attn_logit_softcapping", "attention_softcap", NULL, "50", 1 },
	{ "final_logit_softcapping", "logit_softcap", NULL, "30", 1 },
	{ "use_bidirectional_attention", NULL, "false|null", NULL, 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

const struct hd_family hd_family_gemma2 = {
	.name = "gemma2",
	.model_type = "gemma2",
	.class = "Gemma2ForCausalLM",
	HD_DECODER_FAMILY,
	.heads = HD_FAMILY_HEADS_DIVIDE,
	.defaults = defaults,
	.keys = keys,
	.window = HD_FAMILY_WINDOW_TYPES,
	.window_pattern = 2,
	.window_fixed = 1,
	.window_absent = 4096,
	.moe_every = 2,
};
