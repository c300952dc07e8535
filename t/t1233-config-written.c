/* SPDX-License-Identifier: Apache-2.0
 * A saved model's config.json states the keys of [model] as its family's class expects, or names a class of Heddle's
 * own if that class cannot express them.  Read again, it is the same model.  If this broke, a checkpoint would be a
 * different model to other programs.
 */
#include <config.h>
#include "engine/models/decoder/hf.h"
#include "engine/models/decoder/knobs.h"
#include "engine/models/model.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

static const struct {
	const char *family, *keys; /* of [model], added to the sizes */
	const char *want;          /* text that config.json must contain, or with a ! in front must not */
} models[] = {
	{ "llama", "", "\"model_type\":\"llama\"" },
	{ "llama", "rope_scaling = yarn\nrope_factor = 2", "\"truncate\":true" },
	{ "llama", "rope_scaling = yarn\nrope_factor = 2", "!attention_factor" },
	{ "llama", "rope_scaling = yarn\nrope_factor = 2\nrope_truncate = no\nrope_attention = 1.5",
	  "\"truncate\":false" },
	{ "llama", "rope_scaling = yarn\nrope_factor = 2\nrope_attention = 1.5", "\"attention_factor\":1.5" },
	{ "llama", "rope_scaling = llama3\nrope_factor = 2\nrope_original = 32",
	  "\"original_max_position_embeddings\":32" },
	{ "llama", "rope_scaling = linear\nrope_factor = 2", "\"factor\":2.0" },
	{ "llama", "rope_scaling = longrope\nrope_short = 1,1\nrope_long = 2, 2\nrope_original = 32\nrope_factor = 2",
	  "\"model_type\":\"heddle\"" },
	{ "llama", "rope_theta_window = 7\nwindow = 4", "\"model_type\":\"heddle\"" },
	{ "llama", "window = 4\nwindow_layers = w", "\"model_type\":\"heddle\"" },
	{ "phi3",
	  "rope_scaling = longrope\nrope_short = 1,1\nrope_long = 2 , 2\nrope_original = 32\nrope_factor = 2\nrope_attention = 1.25",
	  "\"attention_factor\":1.25" },
	{ "phi3", "rope_scaling = longrope\nrope_short = 1,1\nrope_long = 2,2\nrope_original = 32\nrope_factor = 2",
	  "\"model_type\":\"phi3\"" },
	{ "phi3", "rope_scaling = longrope\nrope_short = 1,1\nrope_long = 2,2\nrope_original = 32\nrope_factor = 3",
	  "\"model_type\":\"heddle\"" },
	{ "mixtral", "experts = 4", "\"model_type\":\"mixtral\"" },
	{ "mixtral", "experts = 4\nexpert_mlp = 16\nnormalize_gates = no", "\"model_type\":\"heddle\"" },
	{ "mixtral", "experts = 4\nexpert_mlp = 16\nrouter = sigmoid", "\"model_type\":\"heddle\"" },
	{ "mixtral", "experts = 4\nexpert_mlp = 16\nrouter = sigmoid\nrouter_groups = 2", "router_groups" },
	{ "mixtral", "experts = 4\nexpert_mlp = 16\nmoe_every = 2", "\"model_type\":\"heddle\"" },
	{ "mixtral", "experts = 0", "\"model_type\":\"" },
	{ "glm4_moe", "experts = 4\nexpert_mlp = 16\nshared_experts = 0", "\"model_type\":\"heddle\"" },
	{ "qwen3_moe", "experts = 4\nexpert_mlp = 16\nwindow = 8", "\"use_sliding_window\":true" },
	{ "qwen3_moe", "experts = 4\nexpert_mlp = 16", "\"use_sliding_window\":false" },
	{ "qwen2", "window = 8\nwindow_layers = fw", "\"use_sliding_window\":true" },
	/* a window that no layer uses: these classes would apply it to all */
	{ "mistral", "window = 8\nwindow_layers = f", "\"sliding_window\":null" },
	{ "mistral", "window = 8\nwindow_layers = ffw", "\"sliding_window\":null" },
	{ "mistral", "window = 8\nwindow_layers = w", "\"sliding_window\":8" },
	{ "mixtral", "experts = 4\nwindow = 8\nwindow_layers = f", "\"sliding_window\":null" },
	{ "phi3", "window = 8\nwindow_layers = f", "\"sliding_window\":null" },
	{ "qwen2", "window = 8\nwindow_layers = f", "\"use_sliding_window\":false" },
	{ "qwen3_moe", "experts = 4\nexpert_mlp = 16\nwindow = 8\nwindow_layers = f", "\"sliding_window\":null" },
	{ "qwen3_moe", "experts = 4\nexpert_mlp = 16\nwindow = 8\nwindow_layers = f", "\"use_sliding_window\":false" },
	{ "gemma3", "rope_theta_window = 7\nwindow = 4\nwindow_layers = wf", "\"sliding_attention\"" },
	/* settings that the classes of transformers compute differently, or refuse */
	{ "llama", "rope_scaling = dynamic\nrope_factor = 2\nrope_original = 16", "\"model_type\":\"heddle\"" },
	{ "llama", "rope_scaling = dynamic\nrope_factor = 2", "\"rope_type\":\"dynamic\"" },
	{ "llama", "", "\"pad_token_id\":null" },
	/* no ordinary token ends a text, and the defaults of the classes are no tokens of this vocabulary */
	{ "llama", "", "\"eos_token_id\":null" },
	{ "gpt2", "", "\"bos_token_id\":null" },
	{ "llama", "head_dim = 4\nheads = 3\nkv_heads = 3", "\"model_type\":\"heddle\"" },
	{ "mistral", "head_dim = 4\nheads = 3\nkv_heads = 3", "\"model_type\":\"mistral\"" },
	{ "phi3", "", "\"pad_token_id\":null" },
	{ "phi3", "rope_scaling = linear\nrope_factor = 2", "\"model_type\":\"heddle\"" },
	{ "phi3", "rope_scaling = yarn\nrope_factor = 2", "\"model_type\":\"heddle\"" },
	{ "phi3",
	  "head_dim = 8\nrope_scaling = longrope\nrope_short = 1,1,1,1\nrope_long = 2,2,2,2\nrope_original = 32\nrope_factor = 2",
	  "\"model_type\":\"heddle\"" },
	{ "olmoe", "experts = 4\nhead_dim = 8", "\"model_type\":\"heddle\"" },
	{ "gemma2", "query_scale = 7.5", "\"model_type\":\"heddle\"" },
	{ "gemma2", "query_scale = 7", "\"query_pre_attn_scalar\":7," },
	{ "gemma2", "", "\"sliding_window\":64" },
	{ "gemma2", "", "\"layer_types\":[\"full_attention\",\"full_attention\"]" },
	{ "gemma3", "attention_softcap = 1.5", "\"model_type\":\"heddle\"" },
	{ "gemma3", "rope_theta = 50\nrope_theta_window = 0\nwindow = 4",
	  "\"sliding_attention\":{\"rope_theta\":50.0,\"rope_type\":\"default\"}" },
	{ "gemma3", "rope_theta = 50\nrope_theta_window = 0\nwindow = 4", "\"rope_local_base_freq\":50.0" },
	{ "gemma3", "rope_theta_window = 0\nwindow = 4\nrope_scaling = linear\nrope_factor = 2",
	  "\"model_type\":\"heddle\"" },
};

static void one(size_t i)
{
	char ini[1200], *text, *again, *second, *name;
	struct hd_err err = { 0 };
	struct hd_plan *p, *q;
	json_t *config, *written;

	snprintf(
		ini, sizeof(ini),
		"[model]\nfamily = %s\nlayers = 2\nembed = 16\n%smlp = 32\nvocab = 61\nmax_seq = 64\n%s\n[data]\ntrain = none\n"
		"[train]\nseq = 8\nglobal_batch = 1\nsteps = 1\n",
		models[i].family, strstr(models[i].keys, "heads = ") ? "" : "heads = 4\n", models[i].keys);
	p = gt_plan_of(ini, 1, HD_DTYPE_F64);
	name = hd_one_line(hd_format("%s: %s", models[i].family, models[i].keys));
	if (!ok(p != NULL, "%s", name)) {
		note("%s", gt_why());
		free(name);
		return;
	}
	config = hd_hf_config(&p->model);
	text = json_dumps(config, JSON_COMPACT | JSON_SORT_KEYS);
	if (!ok(*models[i].want == '!' ? !strstr(text, models[i].want + 1) : strstr(text, models[i].want) != NULL,
		"... contains %s (with ! in front: lacks it)", models[i].want))
		note("%s", text);
	if (strstr(text, "\"model_type\":\"heddle\""))
		goto out;
	again = hd_hf_read(config, hd_family_of_type(json_string_value(json_object_get(config, "model_type"))),
			   "config.json", &err);
	if (!ok(again != NULL, "... is read"))
		note("%s", err.text);
	if (again) {
		snprintf(ini, sizeof(ini), "%s\n[data]\ntrain = none\n[train]\nseq = 8\nglobal_batch = 1\nsteps = 1\n",
			 again);
		q = gt_plan_of(ini, 1, HD_DTYPE_F64);
		written = q ? hd_hf_config(&q->model) : NULL;
		second = written ? json_dumps(written, JSON_COMPACT | JSON_SORT_KEYS) : hd_strdup(gt_why());
		is_str(second, text, "... and written again is the same");
		json_decref(written);
		free(second), free(again);
		if (q)
			gt_plan_destroy(q);
	}
out:
	free(text), free(name);
	json_decref(config);
	gt_plan_destroy(p);
}

int main(void)
{
	for (size_t i = 0; i < HD_LEN(models); i++)
		one(i);
	return done();
}
