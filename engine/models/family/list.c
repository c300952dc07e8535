/* SPDX-License-Identifier: Apache-2.0
 * The list of families, which finds them by name: Heddle's own, followed by those of plugins.
 */
#include <config.h>
#include "engine/models/family/families.h"
#include <string.h>

static const struct hd_family *const families[] = { &hd_family_gpt2,    &hd_family_llama,     &hd_family_mixtral,
						    &hd_family_mistral, &hd_family_qwen2,     &hd_family_qwen3,
						    &hd_family_gemma2,  &hd_family_gemma3,    &hd_family_phi3,
						    &hd_family_olmo2,   &hd_family_qwen3_moe, &hd_family_olmoe,
						    &hd_family_glm4_moe };
static const struct hd_family **brought;
static size_t nbrought, cap_brought;

const struct hd_expert_names hd_experts_of_mlp = { "mlp", "gate_proj", "up_proj", "down_proj" };

static const struct hd_family *family_at(size_t i)
{
	return i < HD_LEN(families)              ? families[i]
	       : i - HD_LEN(families) < nbrought ? brought[i - HD_LEN(families)]
						 : NULL;
}

const struct hd_family *hd_family_find(const char *name)
{
	const struct hd_family *f;

	for (size_t i = 0; (f = family_at(i)); i++)
		if (!strcmp(f->name, name))
			return f;
	return NULL;
}

const struct hd_family *hd_family_of_type(const char *type)
{
	const struct hd_family *f;

	for (size_t i = 0; (f = family_at(i)); i++)
		if (!strcmp(f->model_type, type))
			return f;
	return NULL;
}

void hd_family_add(const struct hd_family *f)
{
	brought = hd_grow(brought, nbrought, &cap_brought, sizeof(*brought));
	brought[nbrought++] = f;
}

const char *const *hd_family_names(int types)
{
	static const char **names;
	static size_t cap;
	const struct hd_family *f;
	size_t n = 0;

	for (; (f = family_at(n)); n++) {
		names = hd_grow(names, n, &cap, sizeof(*names));
		names[n] = types ? f->model_type : f->name;
	}
	names = hd_grow(names, n, &cap, sizeof(*names));
	names[n] = NULL;
	return names;
}
