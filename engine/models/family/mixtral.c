/* SPDX-License-Identifier: Apache-2.0
 * Mixtral (Jiang et al. 2401.04088): Mistral with experts in every layer. Each token goes to the two to which its
 * router gives the highest scores.
 */
#include <config.h>
#include "engine/models/family/families.h"
#include "engine/models/decoder/knobs.h"

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-5", "no"),
	{ "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 },
	{ "num_local_experts", "experts", NULL, "8", 0 },
	{ "num_experts_per_tok", "experts_per_token", NULL, "2", 0 },
	{ "router_aux_loss_coef", "aux_loss", NULL, NULL, 0 },
	{ "router_jitter_noise", NULL, "0|null", NULL, 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

const struct hd_family hd_family_mixtral = {
	.name = "mixtral",
	.model_type = "mixtral",
	.class = "MixtralForCausalLM",
	HD_DECODER_FAMILY,
	.keys = keys,
	.window = HD_FAMILY_WINDOW_ALL,
	.theta_absent = "1000000",
	.experts = 8,
	.moe_every = 1,
	.router = HD_ROUTER_TOPK,
	.always_normal = 1,
	.dense = &hd_family_llama,
};
