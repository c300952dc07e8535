/* SPDX-License-Identifier: Apache-2.0
 * Complete runs against an independent implementation: PyTorch and transformers have trained the same models on the
 * same tokens for twelve steps (t/data/reference.py), and their losses, norms, rates and last weights are kept.  The
 * settings are decay, betas, eps, clipping, warm-up, schedules, dropout, router losses and expert capacity.  One that
 * is read wrongly, or in one layout only, would train a different model for weeks.  Comparing Heddle with itself would
 * not show it.
 *
 * t/lib/kept.h has the bounds.
 */
#include <config.h>
#include "t/lib/kept.h"

#define ONE ""
#define TP(n) "[strategy tp]\nplugin = tp\nsize = " #n "\n"
#define PP(n) "[strategy pp]\nplugin = pp\nsize = " #n "\n"
#define DP(n, keys) "[strategy dp]\nplugin = dp\nsize = " #n "\n" keys "\n"
#define EP(n) "[strategy ep]\nplugin = ep\nsize = " #n "\n"

static const struct layout {
	const char *run, *name;
	int ranks;
	const char *sections;
} layouts[] = {
	/* dropout, a cosine between two rates, every constant of AdamW, clipping in some steps */
	{ "run-cosine", "one rank", 1, ONE },
	{ "run-cosine", "zero 1", 3, DP(3, "zero = 1") },
	{ "run-cosine", "zero 2", 3, DP(3, "zero = 2") },
	{ "run-cosine", "zero 3", 3, DP(3, "zero = 3") },
	{ "run-cosine", "tensor 2", 2, TP(2) },
	{ "run-cosine", "tensor 3", 3, TP(3) },
	{ "run-cosine", "pipeline 2", 2, PP(2) },
	{ "run-cosine", "pipeline 3", 3, PP(3) },
	{ "run-cosine", "tensor 2 x replicas 3", 6, TP(2) DP(3, "") },
	/* a linear schedule in tokens, other settings at their defaults, clipping in every step */
	{ "run-linear", "one rank", 1, ONE },
	{ "run-linear", "tensor 3 x pipeline 2", 6, TP(3) PP(2) },
	{ "run-linear", "zero 3", 2, DP(2, "zero = 3") },
	/* plain gradient descent with weight decay */
	{ "run-sgd", "one rank", 1, ONE },
	{ "run-sgd", "zero 2", 3, DP(3, "zero = 2") },
	{ "run-sgd", "tensor 2 x pipeline 3", 6, TP(2) PP(3) },
	/* the two best experts of six, with both router losses */
	{ "run-mixtral", "one rank", 1, ONE },
	{ "run-mixtral", "experts 3", 3, EP(3) },
	{ "run-mixtral", "tensor 3 x replicas 2", 6, TP(3) DP(2, "") },
	/* GShard: expert capacity, and a second expert used at random */
	{ "run-gshard", "one rank", 1, ONE },
	{ "run-gshard", "experts 2 x tensor 2", 4, EP(2) TP(2) },
	{ "run-gshard", "pipeline 2", 2, PP(2) },
};

static void one(const struct layout *l)
{
	struct curve want = { .sgd = !strcmp(l->run, "run-sgd") };
	char name[100], path[100], kept[100];

	snprintf(name, sizeof(name), "%s, %s", l->run, l->name);
	snprintf(path, sizeof(path), "%s.ini", l->run);
	if (!ok(kept_run(path, l->ranks, l->sections, "") == 0, "%s: %d ranks ran", name, l->ranks))
		return;
	snprintf(path, sizeof(path), "%s.jsonl", l->run);
	read_curve(path, &want);
	is_int(want.n, 12, "twelve steps were kept");
	kept_numbers(name, &want);
	snprintf(kept, sizeof(kept), "%s.safetensors", l->run);
	snprintf(path, sizeof(path), "%s: the last weights", name);
	kept_tensors(path, kept, "new/step-00000012/model.safetensors", NULL, 1, weight_bound, &want);
}

/* With an argument, runs only the layouts whose run or name contains it. */
int main(int argc, char **argv)
{
	if (kept_begin() < 0)
		return 1;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (argc < 2 || strstr(layouts[i].run, argv[1]) || strstr(layouts[i].name, argv[1]))
			one(&layouts[i]);
	kept_end();
	return done();
}
