/* SPDX-License-Identifier: Apache-2.0
 * Qwen 3 (Yang et al. 2505.09388): norms of the queries and keys of each head.
 */
#include <config.h>
#include "engine/models/family/families.h"

static const struct hd_family_value defaults[] = {
	{ "qk_norm", "head" },
	{ NULL, NULL },
};

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-6", "no"),
	{ "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 },
	{ "attention_bias", "qkv_bias", NULL, NULL, 0 },
	{ "attention_bias", "out_bias", NULL, NULL, 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

const struct hd_family hd_family_qwen3 = {
	.name = "qwen3",
	.model_type = "qwen3",
	.class = "Qwen3ForCausalLM",
	HD_DECODER_FAMILY,
	.defaults = defaults,
	.keys = keys,
	.window = HD_FAMILY_WINDOW_USE,
	.window_absent = 4096,
	.moe_every = 2,
};
