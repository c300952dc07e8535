/* SPDX-License-Identifier: Apache-2.0
 * A model of each family, as transformers has written it, and one step of it, on one rank and in layouts.  The loss,
 * the norm and every tensor's gradient must be those that PyTorch has computed (t/data/families.py).  They depend on
 * the meaning of the keys of config.json, on where a weight is stored, and on every term of the decoder.
 *
 * The batch has three sequences.  Two ranks have it twice, from a file and its copy: the mean, and so each gradient, is
 * the same.
 *
 * The gradient is computed from a step whose rate is so large (1024, a power of two) that the weights themselves are
 * lost in rounding.  t/lib/kept.h has the bounds; the batch here has 60 tokens, fewer than there, and sums are not
 * longer.
 */
#include <config.h>
#include "t/lib/kept.h"

static const struct {
	const char *name;
	int thirds;  /* bits of the layouts of three ranks that its sizes allow: 1 parameters, 2 experts */
	int experts; /* 1: its number of experts is even */
} models[] = {
	{ "llama3", 1, 0 },   { "llama-biased", 0, 0 },   { "mistral", 0, 0 },   { "qwen2", 0, 0 },
	{ "qwen3", 1, 0 },    { "gemma2", 1, 0 },         { "gemma3", 1, 0 },    { "phi3", 0, 0 },
	{ "olmo2", 0, 0 },    { "olmoe", 0, 1 },          { "mixtral", 0, 1 },   { "qwen3-moe", 1, 1 },
	{ "glm4-moe", 3, 1 }, { "glm4-moe-plain", 0, 1 }, { "phi3-long", 0, 0 },
};

/* The batch has three sequences, and a model has two layers or four. */
static const struct {
	const char *name, *sections;
	int ranks, thirds, twice, experts; /* twice: with the batch twice */
} layouts[] = {
	{ "one rank", "", 1, 0, 0, 0 },
	{ "tp 2 x pp 2", "[strategy tp]\nplugin = tp\nsize = 2\n[strategy pp]\nplugin = pp\nsize = 2\n", 4, 0, 0, 0 },
	{ "zero 3 on 3", "[strategy dp]\nplugin = dp\nsize = 3\nzero = 3\n", 3, 1, 0, 0 },
	{ "ep 3", "[strategy ep]\nplugin = ep\nsize = 3\n", 3, 2, 0, 0 },
	{ "zero 3 on 2", "[strategy dp]\nplugin = dp\nsize = 2\nzero = 3\n", 2, 0, 1, 0 },
	{ "ep 2", "[strategy ep]\nplugin = ep\nsize = 2\n", 2, 0, 1, 1 },
};

static void one(const char *model, size_t layout)
{
	struct curve want = { .sgd = 0 };
	char path[200], load[100], name[100];

	snprintf(load, sizeof(load), "--set model.load=%s", model);
	if (!ok(kept_run(layouts[layout].twice ? "two.ini" : "one.ini", layouts[layout].ranks, layouts[layout].sections,
			 load) == 0,
		"%s, %s", model, layouts[layout].name))
		return;
	snprintf(path, sizeof(path), "%s/one.jsonl", model);
	read_curve(path, &want);
	is_int(want.n, 1, "one step was kept");
	kept_numbers(model, &want);
	snprintf(path, sizeof(path), "%s/model.safetensors", model);
	snprintf(name, sizeof(name), "%s/one.safetensors", model);
	kept_tensors("... its gradients", name, "new/step-00000001/model.safetensors", path, -1. / 1024, gradient_bound,
		     &want);
}

/* Runs a model in all its layouts; in the tier check, only two families run in more than one. */
static void in_layouts(size_t model)
{
	const char *name = models[model].name;
	int all = whole_sweep() || !strcmp(name, "gemma2") || !strcmp(name, "glm4-moe");

	for (size_t l = 0; l < sizeof(layouts) / sizeof(*layouts) && (all || !l); l++)
		if ((layouts[l].thirds & models[model].thirds) == layouts[l].thirds &&
		    layouts[l].experts <= models[model].experts)
			one(name, l);
}

/* With an argument, runs only the models whose name contains it. */
int main(int argc, char **argv)
{
	if (kept_begin() < 0 || chdir("families"))
		return 1;
	if (system("cp ids-llmc.bin copy-llmc.bin && sed -e 's/^train = .*/train = ids-llmc.bin, copy-llmc.bin\\nweights = 1, 1/' "
		   "-e 's/^global_batch = .*/global_batch = 6/' one.ini >two.ini"))
		return 1;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++)
		if (argc < 2 || strstr(models[i].name, argv[1]))
			in_layouts(i);
	kept_end();
	return done();
}
