/* SPDX-License-Identifier: Apache-2.0
 * Qwen 3 with experts (Yang et al. 2505.09388): every layer, or every n-th, has experts, whose width is a key of its
 * own.
 */
#include <config.h>
#include "engine/models/family/families.h"
#include "engine/models/decoder/knobs.h"

static const struct hd_family_value defaults[] = { { "qk_norm", "head" }, { NULL, NULL } };

static const struct hd_family_key keys[] = {
	HD_FAMILY_KEYS_LLAMA("1e-6", "no"),
	{ "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 },
	{ "attention_bias", "qkv_bias", NULL, NULL, 0 },
	{ "attention_bias", "out_bias", NULL, NULL, 0 },
	{ "num_experts", "experts", NULL, NULL, 0 },
	{ "num_local_experts", "experts", NULL, "128", 0 }, /* the key's name in transformers 5 */
	{ "num_experts_per_tok", "experts_per_token", NULL, "8", 0 },
	{ "moe_intermediate_size", "expert_mlp", NULL, "768", 0 },
	{ "norm_topk_prob", "normalize_gates", NULL, "no", 0 },
	{ "decoder_sparse_step", "moe_every", NULL, "1", 0 },
	{ "mlp_only_layers", NULL, "[]|null", NULL, 0 },
	{ "router_aux_loss_coef", "aux_loss", NULL, "0.001", 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

const struct hd_family hd_family_qwen3_moe = {
	.name = "qwen3_moe",
	.model_type = "qwen3_moe",
	.class = "Qwen3MoeForCausalLM",
	HD_DECODER_FAMILY,
	.defaults = defaults,
	.keys = keys,
	.window = HD_FAMILY_WINDOW_USED_BY_ALL,
	.window_absent = 4096,
	.experts = 128,
	.moe_every = 1,
	.router = HD_ROUTER_TOPK,
	.expert_names = &hd_experts_of_mlp,
	.dense = &hd_family_qwen3,
};
