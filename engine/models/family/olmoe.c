/* SPDX-License-Identifier: Apache-2.0
 * OLMoE (Muennighoff et al. 2409.02060): norms of queries and keys over all heads, and experts in every layer, whose
 * gates are not normalized.
 */
#include <config.h>
#include "engine/models/family/families.h"
#include "engine/models/decoder/knobs.h"

static const struct hd_family_value defaults[] = { { "qk_norm", "all" }, { "normalize_gates", "no" }, { NULL, NULL } };

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-5", "no"),
	{ "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 },
	{ "attention_bias", "qkv_bias", NULL, NULL, 0 },
	{ "attention_bias", "out_bias", NULL, NULL, 0 },
	{ "clip_qkv", NULL, "null", NULL, 0 },
	{ "num_experts", "experts", NULL, "64", 0 },
	{ "num_experts_per_tok", "experts_per_token", NULL, "8", 0 },
	{ "norm_topk_prob", "normalize_gates", NULL, "no", 0 },
	{ "router_aux_loss_coef", "aux_loss", NULL, NULL, 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

const struct hd_family hd_family_olmoe = {
	.name = "olmoe",
	.model_type = "olmoe",
	.class = "OlmoeForCausalLM",
	HD_DECODER_FAMILY,
	.heads = HD_FAMILY_HEADS_SHARE,
	.defaults = defaults,
	.keys = keys,
	.experts = 64,
	.moe_every = 1,
	.router = HD_ROUTER_TOPK,
	.expert_names = &hd_experts_of_mlp,
};
