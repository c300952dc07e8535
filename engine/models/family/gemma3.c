/* SPDX-License-Identifier: Apache-2.0
 * Gemma 3, the text model (2503.19786): Gemma 2 with norms of queries and keys in place of the soft caps. Five of six
 * layers have a window and their own theta.
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
	{ "qk_norm", "head" },
	{ "window_layers", "wwwwwf" },
	{ "rope_theta", "1000000" },
	{ "rope_theta_window", "10000" },
	{ NULL, NULL },
};

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-6", "yes"),
	{ "hidden_activation", "activation", HD_FAMILY_ACTIVATIONS, "gelu_tanh", 0 },
	{ "attention_bias", "qkv_bias", NULL, NULL, 0 },
	{ "attention_bias", "out_bias", NULL, NULL, 0 },
	{ "query_pre_attn_scalar", "query_scale", NULL, "256", 0 },
	{ "attn_logit_softcapping", NULL, "null|0", NULL, 0 }, /* its class does not apply it */
	{ "final_logit_softcapping", "logit_softcap", NULL, "0", 1 },
	{ "use_bidirectional_attention", NULL, "false|null", NULL, 0 },
	{ "rope_local_base_freq", "rope_theta_window", NULL, "10000", 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

const struct hd_family hd_family_gemma3 = {
	.name = "gemma3",
	.model_type = "gemma3_text",
	.class = "Gemma3ForCausalLM",
	HD_DECODER_FAMILY,
	.heads = HD_FAMILY_HEADS_DIVIDE,
	.defaults = defaults,
	.keys = keys,
	.window = HD_FAMILY_WINDOW_TYPES,
	.window_pattern = 6,
	.window_absent = 4096,
	.moe_every = 2,
};
