/* SPDX-License-Identifier: Apache-2.0
 * A model of each family, as transformers has written it, and one step of it: the loss, the norm and every tensor's gradient
 * are those that PyTorch has computed (t/data/families.py).  Which keys of config.json mean what, where a weight is stored,
 * and every term of the decoder are in that.
 *
 * The gradient is taken from a step whose rate is so large (1024, a power of two) that the weights themselves round away.
 * t/lib/kept.h has the bounds; the batch here is of 60 tokens, fewer than there, and sums are no longer.
 */
#include <config.h>
#include "t/lib/kept.h"

static const char *const models[] = { "llama3",  "llama-biased", "mistral",  "qwen2",          "qwen3",
				      "gemma2",  "gemma3",       "phi3",     "olmo2",          "olmoe",
				      "mixtral", "qwen3-moe",    "glm4-moe", "glm4-moe-plain", "phi3-long" };

static void one(const char *model)
{
	struct curve want = { .sgd = 0 };
	char path[200], load[100], name[100];

	snprintf(load, sizeof(load), "--set model.load=%s", model);
	if (!ok(kept_run("one.ini", 1, "", load) == 0, "%s", model))
		return;
	snprintf(path, sizeof(path), "%s/one.jsonl", model);
	read_curve(path, &want);
	is_int(want.n, 1, "a step is kept");
	kept_numbers(model, &want);
	snprintf(path, sizeof(path), "%s/model.safetensors", model);
	snprintf(name, sizeof(name), "%s/one.safetensors", model);
	kept_tensors("its gradients", name, "new/step-00000001/model.safetensors", path, -1. / 1024, gradient_bound,
		     &want);
}

/* With an argument only the models that have it in their names. */
int main(int argc, char **argv)
{
	if (kept_begin() < 0 || chdir("families"))
		return 1;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++)
		if (argc < 2 || strstr(models[i], argv[1]))
			one(models[i]);
	kept_end();
	return done();
}
