/* SPDX-License-Identifier: Apache-2.0
 * GLM-4.5 (2508.06471): layers of experts like those of DeepSeek-V3 (2412.19437). The router uses sigmoids, and its
 * bias can balance the load in place of a loss. Shared experts receive every token, and the first layers have no
 * experts.
 */
#include <config.h>
#include "engine/models/decoder/knobs.h"
#include "engine/models/family/families.h"

static const struct hd_family_value defaults[] = {
	{ "rotary_fraction", "0.5" },
	{ "shared_experts", "1" },
	{ "dense_layers", "1" },
	{ "aux_loss", "0" },
	{ NULL, NULL },
};

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-5", "no"),
	{ "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 },
	{ "attention_bias", "qkv_bias", NULL, "no", 0 },
	{ "partial_rotary_factor", "rotary_fraction", NULL, "0.5", 0 },
	{ "use_qk_norm", "qk_norm", "false=none|true=head", "none", 0 },
	{ "n_routed_experts", "experts", NULL, "128", 0 },
	{ "num_experts_per_tok", "experts_per_token", NULL, "8", 0 },
	{ "moe_intermediate_size", "expert_mlp", NULL, "1408", 0 },
	{ "n_shared_experts", "shared_experts", NULL, "1", 0 },
	{ "first_k_dense_replace", "dense_layers", NULL, "1", 0 },
	{ "n_group", "router_groups", NULL, "1", 0 },
	{ "topk_group", "router_best_groups", NULL, "1", 0 },
	{ "routed_scaling_factor", "gate_scale", NULL, "1", 0 },
	{ "norm_topk_prob", "normalize_gates", NULL, "yes", 0 },
	{ "router_aux_loss_coef", "aux_loss", NULL, "0", 0 }, /* its class has no auxiliary loss */
	{ "num_nextn_predict_layers", NULL, "0|1|null", NULL, 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

const struct hd_family hd_family_glm4_moe = {
	.name = "glm4_moe",
	.model_type = "glm4_moe",
	.class = "Glm4MoeForCausalLM",
	HD_DECODER_FAMILY,
	.defaults = defaults,
	.keys = keys,
	.experts = 128,
	.moe_every = 1,
	.router = HD_ROUTER_SIGMOID,
	.always_shared = 1,
	.expert_names = &hd_experts_of_mlp,
	.dense = &hd_family_qwen3,
};
