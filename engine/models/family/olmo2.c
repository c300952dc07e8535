/* SPDX-License-Identifier: Apache-2.0
 * OLMo 2 (2501.00656): norms after the sublayers instead of before them, and norms of queries and keys over all heads
 * together.
 */
#include <config.h>
#include "engine/models/family/families.h"

static const struct hd_family_value defaults[] = {
	{ "norm", "after" },
	{ "qk_norm", "all" },
	{ NULL, NULL },
};

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-5", "no"),
	{ "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 },
	{ "attention_bias", "qkv_bias", NULL, NULL, 0 },
	{ "attention_bias", "out_bias", NULL, NULL, 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

const struct hd_family hd_family_olmo2 = {
	.name = "olmo2",
	.model_type = "olmo2",
	.class = "Olmo2ForCausalLM",
	HD_DECODER_FAMILY,
	.defaults = defaults,
	.keys = keys,
	.moe_every = 2,
};
