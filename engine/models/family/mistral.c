/* SPDX-License-Identifier: Apache-2.0
 * Mistral 7B and its successors (Jiang et al. 2310.06825): all layers have a window, or none has.
 */
#include <config.h>
#include "engine/models/family/families.h"

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-6", "no"),
	{ "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 },
	{ "attention_bias", NULL, "false|null", NULL, 0 }, /* of tools that write Llama's keys */
	{ "mlp_bias", NULL, "false|null", NULL, 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

const struct hd_family hd_family_mistral = {
	.name = "mistral",
	.model_type = "mistral",
	.class = "MistralForCausalLM",
	HD_DECODER_FAMILY,
	.keys = keys,
	.window = HD_FAMILY_WINDOW_ALL,
	.window_absent = 4096,
	.moe_every = 2,
};
