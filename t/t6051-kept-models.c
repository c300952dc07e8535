/* SPDX-License-Identifier: Apache-2.0
 * Models that transformers has written, and one step of them: the loss, the norm, every tensor's gradient, and every
 * weight after a step of AdamW must be those that PyTorch has computed (t/data/models.py, reference.py).  They depend
 * on names, on the orientation and order of what is stored, and on config.json.  A norm's eps that is ignored, or
 * columns of q taken for those of k, would turn somebody's weights into a different model.
 *
 * The gradient is computed from a step of plain gradient descent.  Its rate is so large (1024, a power of two) that the
 * weights themselves are lost in rounding.  t/lib/kept.h has the bounds.
 */
#include <config.h>
#include "t/lib/kept.h"

#define TP3 "[strategy tp]\nplugin = tp\nsize = 3\n"
#define TP2 "[strategy tp]\nplugin = tp\nsize = 2\n"
#define EP3 "[strategy ep]\nplugin = ep\nsize = 3\n"

static const struct layout {
	const char *model, *name;
	int ranks;
	const char *sections;
} layouts[] = {
	{ "gpt2", "one rank", 1, "" },        { "gpt2", "tensor 3", 3, TP3 },   { "headless", "one rank", 1, "" },
	{ "llama", "one rank", 1, "" },       { "llama", "tensor 3", 3, TP3 },  { "llama-tied", "one rank", 1, "" },
	{ "llama-tied", "tensor 2", 2, TP2 }, { "mixtral", "one rank", 1, "" }, { "mixtral", "experts 3", 3, EP3 },
};

/* Takes one step of WHAT.ini and compares its numbers with the kept ones.  Returns whether the step ran. */
static int step(const struct layout *l, const char *what, const char *kept, struct curve *want)
{
	char name[100], path[100], load[100];

	snprintf(name, sizeof(name), "%s, %s, %s", l->model, l->name, what);
	snprintf(path, sizeof(path), "%s.ini", what);
	snprintf(load, sizeof(load), "--set model.load=%s", l->model);
	if (!ok(kept_run(path, l->ranks, l->sections, load) == 0, "%s", name))
		return 0;
	snprintf(path, sizeof(path), "%s/%s.jsonl", kept, what);
	read_curve(path, want);
	is_int(want->n, 1, "one step was kept");
	kept_numbers(name, want);
	return 1;
}

static void one(const struct layout *l)
{
	const char *kept = strcmp(l->model, "headless") ? l->model : "gpt2";
	struct curve want = { .sgd = 0 };
	char name[100], path[100];

	if (step(l, "one-adamw", kept, &want)) {
		snprintf(path, sizeof(path), "%s/one-adamw.safetensors", kept);
		snprintf(name, sizeof(name), "%s, %s: the weights after AdamW", l->model, l->name);
		kept_tensors(name, path, "new/step-00000001/model.safetensors", NULL, 1, weight_bound, &want);
	}
	if (step(l, "one-sgd", kept, &want)) {
		snprintf(path, sizeof(path), "%s/model.safetensors", kept);
		snprintf(name, sizeof(name), "%s/one-sgd.safetensors", kept);
		kept_tensors("... its gradients", name, "new/step-00000001/model.safetensors", path, -1. / 1024,
			     gradient_bound, &want);
	}
}

/* With an argument, runs only the layouts whose model or name contains it. */
int main(int argc, char **argv)
{
	if (kept_begin() < 0)
		return 1;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (argc < 2 || strstr(layouts[i].model, argv[1]) || strstr(layouts[i].name, argv[1]))
			one(&layouts[i]);
	kept_end();
	return done();
}
