/* SPDX-License-Identifier: Apache-2.0
 * engine/models/family/families.h - the model families, one per file; list.c lists them in order.
 */
#ifndef HD_ENGINE_MODELS_FAMILIES_H
#define HD_ENGINE_MODELS_FAMILIES_H
#include "engine/models/decoder/decoder.h"

extern const struct hd_family hd_family_gpt2, hd_family_llama, hd_family_mistral, hd_family_qwen2, hd_family_qwen3,
	hd_family_gemma2, hd_family_gemma3, hd_family_phi3, hd_family_olmo2, hd_family_mixtral, hd_family_qwen3_moe,
	hd_family_olmoe, hd_family_glm4_moe;
extern const struct hd_expert_names hd_experts_of_mlp; /* the names in most families */

#define HD_DECODER_FAMILY \
	.decoder = 1, .grouped = 1, .rope = 1, .mlp = hd_decoder_mlp, .hidden = hd_decoder_hidden, \
	.logits = hd_decoder_logits, .hf = hd_decoder_hf

const struct hd_family *hd_family_find(const char *name);
/* Finds a family by model_type of config.json. */
const struct hd_family *hd_family_of_type(const char *model_type);
void hd_family_add(const struct hd_family *f); /* adds a plugin's family until the process ends */
/* Returns the names of all families, or with types their model_types, ended by NULL. They are valid until the next
 * call. */
const char *const *hd_family_names(int types);

#endif
