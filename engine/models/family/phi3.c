/* SPDX-License-Identifier: Apache-2.0
 * Phi-3 and Phi-4 (Abdin et al. 2404.14219, 2412.08905): files store q, k and v as one tensor, and gate and up as one.
 * Only a part of head_dim may be rotated.
 */
#include <config.h>
#include "engine/models/family/families.h"

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-5", "no"),
	{ "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 },
	{ "attention_bias", NULL, "false|null", NULL, 0 },
	{ "resid_pdrop", NULL, "0|null", NULL, 0 },
	{ "embd_pdrop", NULL, "0|null", NULL, 0 },
	{ "partial_rotary_factor", "rotary_fraction", NULL, NULL, 0 },
	{ "original_max_position_embeddings", "rope_original", NULL, NULL, 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

const struct hd_family hd_family_phi3 = {
	.name = "phi3",
	.model_type = "phi3",
	.class = "Phi3ForCausalLM",
	HD_DECODER_FAMILY,
	.longrope_only = 1,
	.keys = keys,
	.window = HD_FAMILY_WINDOW_ALL,
	.fused = 1,
	.moe_every = 2,
};
