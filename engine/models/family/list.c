/* SPDX-License-Identifier: Apache-2.0
 * The families, and those that a name means.
 */
#include <config.h>
#include "engine/models/family/families.h"
#include <string.h>

static const struct hd_family *const families[] = { &hd_family_gpt2,    &hd_family_llama,     &hd_family_mixtral,
						    &hd_family_mistral, &hd_family_qwen2,     &hd_family_qwen3,
						    &hd_family_gemma2,  &hd_family_gemma3,    &hd_family_phi3,
						    &hd_family_olmo2,   &hd_family_qwen3_moe, &hd_family_olmoe,
						    &hd_family_glm4_moe };

const struct hd_expert_names hd_experts_of_mlp = { "mlp", "gate_proj", "up_proj", "down_proj" };

const struct hd_family *hd_family_find(const char *name)
{
	for (size_t i = 0; i < HD_LEN(families); i++)
		if (!strcmp(families[i]->name, name))
			return families[i];
	return NULL;
}

const struct hd_family *hd_family_of_type(const char *type)
{
	for (size_t i = 0; i < HD_LEN(families); i++)
		if (!strcmp(families[i]->model_type, type))
			return families[i];
	return NULL;
}

const char *const *hd_family_names(int types)
{
	static const char *names[2][HD_LEN(families) + 1];

	for (size_t i = 0; i < HD_LEN(families); i++)
		names[types][i] = types ? families[i]->model_type : families[i]->name;
	return names[types];
}
