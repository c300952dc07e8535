/* SPDX-License-Identifier: Apache-2.0
 * Llama 1 to 3.3 (Touvron et al. 2302.13971, 2307.09288; Grattafiori et al. 2407.21783), SmolLM, and other models that
 * declare this model_type: the shared decoder without changes.
 */
#include <config.h>
#include "engine/models/family/families.h"

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-6", "no"),
	{ "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 },
	{ "attention_bias", "qkv_bias", NULL, NULL, 0 },
	{ "attention_bias", "out_bias", NULL, NULL, 0 },
	{ "mlp_bias", "mlp_bias", NULL, NULL, 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

const struct hd_family hd_family_llama = {
	.name = "llama",
	.model_type = "llama",
	.class = "LlamaForCausalLM",
	HD_DECODER_FAMILY,
	.heads = HD_FAMILY_HEADS_DIVIDE,
	.keys = keys,
	.moe_every = 2,
};
