/* SPDX-License-Identifier: Apache-2.0
 * config.json of models that others have trained, as keys of [model].  A setting that is read as another one, or passed over, is
 * another model with somebody's weights: it must arrive, or be refused by its name.
 */
#include <config.h>
#include "engine/models/decoder/hf.h"
#include "engine/models/family/families.h"
#include "t/lib/tap.h"

#define SIZES \
	"\"hidden_size\":32,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"vocab_size\":61,\"intermediate_size\":64," \
	"\"max_position_embeddings\":64"
#define LONGROPE \
	"\"rope_type\":\"longrope\",\"short_factor\":[1,2],\"long_factor\":[4,5],\"original_max_position_embeddings\":16"
#define PARAMS(keys) "\"rope_parameters\":{" keys "}"
#define SECTIONS(full, own) PARAMS("\"full_attention\":{" full "},\"sliding_attention\":{" own "}")
#define LAYERS(a, b, c, d) "\"layer_types\":[\"" a "\",\"" b "\",\"" c "\",\"" d "\"]"
#define FULL "full_attention"
#define OWN "sliding_attention"
#define ROPE(keys) "\"rope_scaling\":{" keys "}"

static const struct {
	const char *family, *keys; /* beside the sizes */
	const char *want;          /* what the text has, or with a ! in front the error */
} files[] = {
	{ "llama", "\"attention_bias\":true", "qkv_bias = yes\n" },
	{ "llama", "\"attention_bias\":false", "out_bias = no\n" },
	{ "llama", "\"attention_bias\":null", "qkv_bias = 0\n" },
	{ "llama", "\"attention_bias\":\"yes\"",
	  "!attention_bias is \"yes\", which is not known for the family llama; known: true, false" },
	{ "llama", "\"hidden_act\":\"relu6\"", "!hidden_act is \"relu6\", which" },
	{ "llama", "\"rms_norm_eps\":1e-05", "norm_eps = 1e-05\n" },
	{ "llama", "\"a_new_key\":1", "!a_new_key is 1, which is not known for the family llama; known: the keys " },
	{ "llama", "\"a_new_key\":1", "!, rope_theta, rope_scaling, rope_parameters" },
	{ "mistral", "\"a_new_key\":1", "!, rope_parameters, sliding_window" },
	{ "llama", "\"tie_word_embeddings\":null",
	  "!tie_word_embeddings is null, which is not known for the family llama; known: true, false" },
	{ "llama", "\"a_new_key\":null,\"_from\":1,\"torch_dtype\":\"float16\"", "embed = 32\n" },
	{ "gpt2", "\"rope_theta\":5", "!rope_theta is 5, which is not known for the family gpt2" },
	{ "olmoe", "\"clip_qkv\":8", "!clip_qkv is 8, which is not known for the family olmoe; known: null" },
	{ "phi3", "\"resid_pdrop\":0.0", "embed = 32\n" },
	{ "phi3", "\"resid_pdrop\":0.5",
	  "!resid_pdrop is 0.5, which is not known for the family phi3; known: 0, null" },
	{ "phi3", "\"attention_bias\":{\"q\":1}",
	  "!attention_bias is {\"q\":1}, which is not known for the family phi3; known: false, null" },
	{ "gemma2", "\"hidden_act\":\"relu\"", "!hidden_act is \"relu\", which" },
	{ "qwen3_moe", "\"mlp_only_layers\":[]", "embed = 32\n" },
	{ "qwen3_moe", "\"mlp_only_layers\":[0]",
	  "!mlp_only_layers is [0], which is not known for the family qwen3_moe; known: [], null" },
	{ "gemma2", "\"hidden_activation\":null",
	  "!hidden_activation is null, which is not known for the family gemma2; known: silu" },
	{ "llama", "\"tie_word_embeddings\":\"false\"",
	  "!tie_word_embeddings is \"false\", which is not known for the family llama; known: true, false" },
	{ "llama", "\"rms_norm_eps\":\"1e-6\"",
	  "!rms_norm_eps is \"1e-6\", which is not known for the family llama; known: a number" },
	/* of published files */
	{ "llama", "\"rope_interleaved\":false,\"pruned_heads\":{},\"is_decoder\":true", "embed = 32\n" },
	{ "qwen2", "\"use_mrope\":false", "embed = 32\n" },
	{ "phi3", "\"full_attn_mod\":1,\"interpolate_factor\":1,\"lm_head_bias\":false,\"mlp_bias\":false",
	  "embed = 32\n" },
	{ "llama", "\"rope_interleaved\":true",
	  "!rope_interleaved is true, which is not known for the family llama; known: false" },
	{ "qwen2", "\"use_mrope\":true", "!use_mrope is true, which" },
	{ "phi3", "\"full_attn_mod\":2", "!full_attn_mod is 2, which is not known for the family phi3; known: 1" },
	{ "phi3", "\"lm_head_bias\":true", "!lm_head_bias is true, which" },
	{ "llama", "\"pruned_heads\":{\"0\":[1]}",
	  "!pruned_heads is {\"0\":[1]}, which is not known for the family llama; known: {}" },
	{ "llama", "\"mlp_bias\":true", "mlp_bias = yes\n" },
	/* rotary positions */
	{ "llama", "\"rope_theta\":5e5", "rope_theta = 500000\n" },
	{ "llama", ROPE("\"factor\":2"), "!rope_scaling is {\"factor\":2}, which is not known" },
	{ "llama", ROPE("\"factor\":1"), "embed = 32\n" },
	{ "llama", ROPE("\"rope_type\":\"linear\""), "; known: a factor beside rope_type" },
	{ "llama", ROPE("\"rope_type\":\"linear\",\"factor\":\"2\""), "; known: numbers for all but" },
	{ "llama", "\"rope_scaling\":\"linear\"", "!rope_scaling is \"linear\", which" },
	{ "llama", "\"rope_theta\":\"x\"", "!rope_theta is \"x\", which" },
	{ "llama", "\"rope_parameters\":[]", "!rope_parameters is [], which" },
	{ "llama", "\"rope_theta\":5,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7}",
	  "!rope_theta is 5, and rope_parameters.rope_theta is 7" },
	{ "llama", "\"rope_theta\":null", "rope_theta = 10000\n" },
	{ "mixtral", "\"num_local_experts\":4", "rope_theta = 1000000\n" },
	{ "llama", "\"rms_norm_eps\":null", "!rms_norm_eps is null, which" },
	{ "llama", ROPE("\"type\":\"linear\",\"factor\":2"), "rope_scaling = linear\n" },
	{ "llama", ROPE("\"type\":\"linear\",\"factor\":2,\"new\":null"), "rope_factor = 2\n" },
	{ "llama", ROPE("\"type\":\"linear\",\"factor\":2,\"new\":1"),
	  "!rope_scaling is {\"type\":\"linear\",\"factor\":2,\"new\":1}, which" },
	{ "llama", ROPE("\"rope_type\":\"proportional\""),
	  "; known: rope_type default, linear, dynamic, llama3, yarn, longrope" },
	{ "llama", ROPE("\"rope_type\":\"dynamic\",\"factor\":2,\"original_max_position_embeddings\":8"),
	  "rope_original = 64\n" },
	{ "llama",
	  ROPE("\"rope_type\":\"llama3\",\"factor\":2,\"original_max_position_embeddings\":8,\"low_freq_factor\":1,\"high_freq_factor\":4"),
	  "rope_original = 8\n" },
	{ "llama", ROPE("\"rope_type\":\"yarn\",\"factor\":2,\"truncate\":true"), "rope_truncate = yes\n" },
	{ "llama", ROPE("\"rope_type\":\"yarn\",\"factor\":2,\"truncate\":false"), "rope_truncate = no\n" },
	/* (0.1 ln 2 + 1) / (0.2 ln 2 + 1); the stretch that is said goes before it */
	{ "llama", ROPE("\"rope_type\":\"yarn\",\"factor\":2,\"mscale\":1,\"mscale_all_dim\":2"),
	  "rope_attention = 0.939124" },
	{ "llama", ROPE("\"rope_type\":\"yarn\",\"factor\":2,\"mscale\":1,\"mscale_all_dim\":2,\"attention_factor\":3"),
	  "rope_attention = 3\n" },
	{ "llama", ROPE("\"rope_type\":\"yarn\",\"factor\":1,\"mscale\":1,\"mscale_all_dim\":2"),
	  "rope_attention = 1\n" },
	{ "llama", ROPE("\"rope_type\":\"longrope\",\"long_factor\":[1]"),
	  "!short_factor is nothing, which is not known for the family llama; known: a list of numbers" },
	{ "llama", ROPE(LONGROPE ",\"factor\":3"), "rope_factor = 3\n" },
	{ "llama", ROPE(LONGROPE), "rope_factor = 4\n" },
	{ "llama", ROPE("\"rope_type\":\"longrope\",\"short_factor\":[1,\"2\"],\"long_factor\":[4]"),
	  "!short_factor is" },
	{ "phi3", ROPE(LONGROPE), "!has rope_type longrope, and no original_max_position_embeddings" },
	{ "llama", ROPE("\"rope_type\":\"longrope\",\"short_factor\":[1,2.5],\"long_factor\":4"),
	  "!long_factor is 4, which" },
	{ "llama",
	  ROPE("\"rope_type\":\"longrope\",\"short_factor\":[1,2.5],\"long_factor\":[4],\"original_max_position_embeddings\":16"),
	  "rope_factor = 4\n" },
	{ "llama", "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7}", "rope_theta = 7\n" },
	{ "gemma3",
	  "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":7},\"sliding_attention\":{\"rope_type\":\"linear\"}}",
	  "!rope_parameters.sliding_attention is {\"rope_type\":\"linear\"}, which" },
	{ "gemma3",
	  "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":7},\"sliding_attention\":{\"rope_theta\":9}}",
	  "rope_theta_window = 9\n" },
	{ "gemma3",
	  "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":7},\"sliding_attention\":{\"rope_theta\":7}}",
	  "rope_theta_window = 0\n" },
	/* what a section lacks stands beside it, or is the default of its layers */
	{ "gemma3", SECTIONS("\"rope_theta\":7", "\"rope_type\":\"default\""), "rope_theta_window = 10000\n" },
	{ "gemma3", SECTIONS("\"rope_theta\":7", "") ",\"rope_local_base_freq\":9", "rope_theta_window = 9\n" },
	{ "gemma3", SECTIONS("", "\"rope_theta\":7"), "rope_theta = 1000000\n" },
	{ "gemma3", SECTIONS("", "\"rope_theta\":7") ",\"rope_theta\":5", "rope_theta = 5\n" },
	{ "gemma3", PARAMS("\"sliding_attention\":{\"rope_theta\":7}"), "rope_theta_window = 7\n" },
	{ "gemma3",
	  SECTIONS("\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":7",
		   "\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":7"),
	  "rope_theta_window = 0\n" },
	{ "gemma3", SECTIONS("\"rope_theta\":7", "\"rope_theta\":9,\"factor\":2"),
	  "!rope_parameters.sliding_attention is" },
	{ "gemma3", SECTIONS("\"rope_theta\":7", "\"rope_theta\":9,\"new\":2"),
	  "!rope_parameters.sliding_attention is" },
	{ "gemma3", SECTIONS("\"rope_theta\":7", "\"rope_theta\":9") ",\"rope_local_base_freq\":9.0",
	  "rope_theta_window = 9\n" },
	{ "gemma3", "\"rope_local_base_freq\":null", "!rope_local_base_freq is null" },
	{ "gemma3", PARAMS("\"rope_theta\":7"),
	  "!rope_parameters is {\"rope_theta\":7}, which is not known for the family gemma3; known: full_attention and" },
	{ "gemma3", PARAMS("\"rope_theta\":7") ",\"rope_theta\":7", "rope_theta = 7\n" },
	/* two places that say different things */
	{ "gemma3", SECTIONS("\"rope_theta\":7", "\"rope_theta\":9") ",\"rope_local_base_freq\":8",
	  "!rope_parameters.sliding_attention.rope_theta is 9, and rope_local_base_freq is 8" },
	{ "gemma3", SECTIONS("\"rope_theta\":7", "") ",\"rope_theta\":8",
	  "!rope_theta is 8, and rope_parameters.full_attention.rope_theta is 7" },
	{ "phi3", PARAMS("\"rope_theta\":7,\"partial_rotary_factor\":0.5") ",\"partial_rotary_factor\":1.0",
	  "!rope_parameters.partial_rotary_factor is 0.5, and partial_rotary_factor is 1" },
	{ "phi3", PARAMS("\"rope_theta\":7,\"partial_rotary_factor\":0.5") ",\"partial_rotary_factor\":0.5",
	  "rotary_fraction = 0.5\n" },
	{ "llama", ROPE("\"rope_type\":\"linear\",\"factor\":8") "," PARAMS("\"rope_type\":\"linear\",\"factor\":2"),
	  "!rope_parameters.factor is 2, and rope_scaling.factor is 8" },
	{ "llama",
	  ROPE("\"type\":\"linear\",\"factor\":8") "," PARAMS("\"rope_theta\":5,\"type\":\"linear\",\"factor\":2"),
	  "!rope_parameters.factor is 2, and rope_scaling.factor is 8" },
	{ "llama", ROPE("\"type\":\"linear\",\"factor\":8") "," PARAMS("\"rope_type\":\"default\""),
	  "!rope_parameters.rope_type is default, and rope_scaling.type is linear" },
	{ "llama", ROPE("\"type\":\"linear\",\"factor\":8") "," PARAMS("\"rope_type\":\"linear\",\"factor\":8.0"),
	  "rope_factor = 8\n" },
	{ "llama",
	  ROPE("\"type\":\"linear\",\"factor\":8") "," PARAMS("\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":5"),
	  "!rope_parameters has rope_theta, and rope_scaling, which transformers reads in its place, has none" },
	{ "llama", ROPE("\"rope_type\":\"default\",\"type\":\"linear\""), "; known: one word as rope_type and type" },
	{ "llama", SECTIONS("\"rope_theta\":7", "\"rope_theta\":7"), "; known: one object for all layers" },
	{ "qwen3_moe", "\"num_experts\":4,\"num_local_experts\":5", "!num_experts is 4, and num_local_experts is 5" },
	/* what the class has no use for, or cannot do without */
	{ "llama", PARAMS("\"partial_rotary_factor\":0.5"), "; known: a partial_rotary_factor of 1" },
	{ "llama", PARAMS("\"partial_rotary_factor\":1.0"), "embed = 32\n" },
	{ "gemma3", SECTIONS("\"partial_rotary_factor\":0.5", ""), "; known: a partial_rotary_factor of 1" },
	{ "gemma3", SECTIONS("", "\"partial_rotary_factor\":0.5"), "; known: a partial_rotary_factor of 1" },
	{ "glm4_moe", PARAMS("\"partial_rotary_factor\":0.25"), "rotary_fraction = 0.25\n" },
	{ "llama", ROPE("\"rope_type\":\"llama3\",\"factor\":2,\"low_freq_factor\":1"),
	  "; known: low_freq_factor and high_freq_factor beside rope_type llama3" },
	{ "llama", PARAMS("\"rope_type\":3"), "!rope_parameters is {\"rope_type\":3}, which" },
	{ "llama", ROPE("\"rope_type\":\"yarn\",\"factor\":2,\"truncate\":0"), "; known: truncate as true or false" },
	{ "llama", ROPE("\"rope_type\":\"yarn\",\"factor\":2,\"mscale\":\"1\""), "; known: numbers for all but" },
	{ "llama", ROPE("\"rope_type\":\"yarn\",\"factor\":2,\"attention_factor\":0"),
	  "; known: an attention_factor of more than 0" },
	{ "gemma3", "\"attn_logit_softcapping\":50.0", "!attn_logit_softcapping is 50.0, which is not known" },
	/* windows */
	{ "qwen2", "\"use_sliding_window\":false,\"sliding_window\":8", "window = 0\n" },
	{ "qwen2", "\"use_sliding_window\":true,\"sliding_window\":8,\"max_window_layers\":2",
	  "window_layers = ffww\n" },
	{ "qwen2", "\"use_sliding_window\":true,\"sliding_window\":8,\"max_window_layers\":9", "window = 0\n" },
	{ "qwen2",
	  "\"use_sliding_window\":true,\"sliding_window\":8,\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\",\"sliding_attention\"]",
	  "window_layers = fw\n" },
	{ "qwen2", "\"use_sliding_window\":true,\"sliding_window\":8,\"layer_types\":[\"full_attention\"]",
	  "!layer_types is [\"full_attention\"], which is not known for the family qwen2; known: sliding_attention and full_attention, one for each layer, in an array" },
	{ "qwen2", "\"use_sliding_window\":true,\"sliding_window\":8,\"sliding_window_pattern\":2",
	  "!sliding_window_pattern is 2, which" },
	{ "gemma3", "\"sliding_window\":8,\"sliding_window_pattern\":2", "window_layers = wf\n" },
	{ "gemma3", "\"sliding_window\":8,\"_sliding_window_pattern\":2",
	  "!_sliding_window_pattern is 2, which is not known for the family gemma3; known: 6 where there is no layer_types" },
	{ "gemma3", "\"_sliding_window_pattern\":2," LAYERS(OWN, OWN, FULL, FULL), "window_layers = wwff\n" },
	{ "gemma3", "\"_sliding_window_pattern\":6", "window = 4096\n" },
	{ "gemma3", "\"sliding_window_pattern\":2.0", "!sliding_window_pattern is 2.0, which" },
	{ "gemma2", "\"sliding_window_pattern\":3",
	  "!sliding_window_pattern is 3, which is not known for the family gemma2; known: 2 where there is no layer_types" },
	{ "gemma2", "\"sliding_window_pattern\":2", "window_layers = wf\n" },
	{ "gemma2", "\"_sliding_window_pattern\":3", "!_sliding_window_pattern is 3, which" },
	{ "gemma2", "\"use_sliding_window\":true", "!use_sliding_window is true, which" },
	{ "gemma2", "\"sliding_window\":null," LAYERS(OWN, FULL, OWN, FULL), "; known: full_attention alone" },
	{ "gemma2", "\"sliding_window\":null," LAYERS(FULL, FULL, FULL, FULL), "window = 0\n" },
	{ "qwen2", "\"use_sliding_window\":true,\"max_window_layers\":0", "window = 4096\n" },
	{ "qwen2", "\"use_sliding_window\":1",
	  "!use_sliding_window is 1, which is not known for the family qwen2; known: true" },
	{ "qwen2", "\"use_sliding_window\":\"true\"", "!use_sliding_window is \"true\", which" },
	{ "qwen2", "\"use_sliding_window\":true,\"max_window_layers\":\"1\"", "!max_window_layers is \"1\", which" },
	{ "qwen2", "\"use_sliding_window\":true,\"max_window_layers\":1.0", "; known: a whole number from 0, or null" },
	{ "qwen2", "\"layer_types\":\"full_attention\"",
	  "; known: sliding_attention and full_attention, one for each layer, in an array" },
	{ "qwen2", "\"layer_types\":{\"0\":\"full_attention\"}", "!layer_types is {\"0\":" },
	{ "qwen2",
	  "\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]",
	  "; known: sliding_attention and full_attention, one for each layer, in an array" },
	{ "qwen2", "\"layer_types\":null", "window = 0\n" },
	{ "qwen2", "\"use_sliding_window\":false," LAYERS(FULL, OWN, FULL, FULL),
	  "; known: full_attention alone, where no window is used" },
	{ "mistral", "\"sliding_window\":5.0",
	  "!sliding_window is 5.0, which is not known for the family mistral; known: a whole number from 1, or null" },
	{ "mistral", "\"sliding_window\":\"5\"", "!sliding_window is \"5\", which" },
	{ "mistral", "\"sliding_window\":true", "!sliding_window is true, which" },
	{ "mistral", "\"sliding_window\":0", "!sliding_window is 0, which" },
	{ "mistral", "\"num_hidden_layers\":4.0", "window_layers = w\n" },
	{ "mistral", "\"sliding_window\":null", "window = 0\n" },
	{ "mistral", "\"sliding_window\":8", "window_layers = w\n" },
};

int main(void)
{
	for (size_t i = 0; i < HD_LEN(files); i++) {
		struct hd_err err = { 0 };
		char *json = hd_format("{%s%s%s}", strcmp(files[i].family, "gpt2") ? SIZES "," : "", files[i].keys, "");
		json_t *config = json_loads(json, 0, NULL);
		char *text = hd_hf_read(config, hd_family_find(files[i].family), "c", &err);
		const char *want = files[i].want + (*files[i].want == '!'), *got = text ? text : err.text;

		if (!ok(config && strstr(got, want) && !text == !!err.code && (*files[i].want != '!' || !text),
			"%s: %s", files[i].family, files[i].keys))
			note("got %s, want %s", got, want);
		free(text);
		json_decref(config);
		free(json);
	}
	return done();
}
