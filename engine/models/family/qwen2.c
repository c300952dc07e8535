/* SPDX-License-Identifier: Apache-2.0
 * Qwen 2 and 2.5 (Yang et al. 2407.10671, 2412.15115): q, k and v have biases.
 */
#include <config.h>
#include "engine/models/family/families.h"

static const struct hd_family_value defaults[] = {
	{ "qkv_bias", "yes" },
	{ NULL, NULL },
};

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-6", "no"),
	{ "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

const struct hd_family hd_family_qwen2 = {
	.name = "qwen2",
	.model_type = "qwen2",
	.class = "Qwen2ForCausalLM",
	HD_DECODER_FAMILY,
	.defaults = defaults,
	.keys = keys,
	.window = HD_FAMILY_WINDOW_USE,
	.window_absent = 4096,
	.moe_every = 2,
};
