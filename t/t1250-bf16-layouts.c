/* SPDX-License-Identifier: Apache-2.0
 * Compares precision = bf16 in many layouts with one rank in bf16, and that one with fp32: the hash of the initial
 * weights, losses, and every gradient of the last of a few steps.  If this broke, a gradient would be reduced before
 * its conversion to fp32, a weight's copy would differ from its master, or one layout would keep a tensor in a
 * different precision.
 *
 * Bounds.  A value rounded to bf16 is off by at most u = 2^-8 of itself.  Two runs that round the same values at
 * different places differ, in each tensor that one of them rounds, by at most 2 u^2 of its square; errors of different
 * roundings add up as squares.  A gradient has passed ROUNDINGS tensors per layer, forward and backward, and those of
 * the embedding and the head. The weights have moved apart by at most STEPS such errors.  The loss is a mean over the
 * tokens.  Their errors are independent, since the weights' roundings are the same in both runs, so the square of the
 * loss is off by TOKENS times less.
 */
#include <config.h>
#define LAYERS 3
#define STEPS 3
#define TOKENS (8 * 16)
#define ROUNDINGS 20
#define BOUND (2 * 0x1p-16 * ROUNDINGS * (LAYERS + 1) * STEPS)
#define LOSS_BOUND (BOUND / TOKENS)
#include "t/lib/layout_run.h"

struct layout {
	const char *name;
	int ranks;
	const char *section; /* %s: the build folder */
};

#define RULES "[strategy m]\nplugin = %s/t/plugins/.libs/rules.so\n"
#define TP "[strategy tp]\nplugin = tp\nsize = 2\n"
#define PP "[strategy pp]\nplugin = pp\nsize = 2\n"
#define EP "[strategy ep]\nplugin = ep\nsize = 2\n"
#define CP "[strategy cp]\nplugin = cp\nsize = 2\n"
#define DP "[strategy dp]\nplugin = dp\nsize = 2\n"

static const struct layout layouts[] = {
	{ "two replicas", 2, DP },
	{ "tensor 2", 2, TP },
	{ "tensor 2, sequence parallel", 2, TP "sequence_parallel = yes\n" },
	{ "pipeline 2", 2, PP },
	{ "pipeline 2, zero bubble, in pieces over tensor 2", 4, TP PP "schedule = zb\nscatter_gather = yes\n" },
	{ "tensor 2 x data 2 x pipeline 2, gpipe", 8, TP DP PP "schedule = gpipe\n" },
	{ "parameters sharded over replicas", 2, RULES "axes = a:2\nrules = batch>a\nhome = a\n" },
	{ "parameters sharded over replicas, two stages", 4,
	  RULES "axes = a:2 c:2\nrules = batch>a layer>c\nhome = a\norder = split\n" },
	{ "experts on two", 2, EP },
	{ "experts on two, their products sharded", 4, EP TP },
	{ "heads sharded in attention, the sequence elsewhere", 4,
	  RULES "axes = b:2 a:2\nrules = batch>a heads>b@attention kv_heads>b@attention seq>b\n" },
	{ "servers on two, tensor 2", 4, TP DP "sync = server\nbucket = 8K\n" },
	{ "everything sharded over replicas, two stages, zero bubble", 4,
	  DP "zero = 3\nbucket = 16K\n" PP "schedule = zb\n" },
	{ "experts on two, gradients sharded over replicas", 4, EP DP "zero = 2\n" },
	{ "sequence on two, heads in attention", 2, CP "form = ulysses\n" },
	{ "sequence on two, in a ring, tensor 2", 4, TP CP "form = ring\n" },
	{ "sums on two levels", 4, "[strategy dp]\nplugin = dp\nsize = 4\nsync = hierarchical\nnode_size = 2\n" },
};

static void write_ini(const char *name, const struct layout *l, const char *model, const char *train)
{
	char path[200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.ini", tmp, name);
	f = fopen(path, "w");
	fprintf(f,
		"[model]\nlayers = %d\nembed = 16\nheads = 4\nvocab = 257\ninit_std = 0.1\n%s\n"
		"[data]\ntrain = %s/text\ntokenizer = byte\nvalid_fraction = 0\n"
		"[train]\nseq = 16\nglobal_batch = 8\nmicro_batch = 1\nsteps = %d\noptimizer = sgd\nlr = 0.1\n"
		"schedule = constant\nclip = 0\nweight_decay = 0\nthreads = 1\n%s\n[checkpoint]\ngradients = yes\n",
		LAYERS, model, tmp, STEPS, train);
	if (l)
		fprintf(f, l->section, HD_TEST_BUILD);
	fclose(f);
}

static int run(const char *name, const struct layout *l, const char *model, const char *train, struct result *r)
{
	write_ini(name, l, model, train);
	return run_ini(name, l ? l->ranks : 1, r);
}

static void alike(const struct result *a, const struct result *b, const char *what)
{
	char where[300] = "";
	double loss = worst_loss(a, b), off = compare(b, a, where, sizeof(where));

	is_str(a->hash, b->hash, what);
	ok(loss <= 1, "%s: losses agree within the bound", what);
	ok(off <= 1, "%s: gradients agree within the bound", what);
	note("times the bound: loss %.3g, gradients %.3g (%s)", loss, off, where);
}

#define BF16 "precision = bf16\n"

static void model(char letter, const char *keys, const char *what, const int *which)
{
	struct result full, one, many;
	char name[20];

	snprintf(name, sizeof(name), "%cf", letter);
	ok(run(name, NULL, keys, "", &full) == 0, "%s, one rank in fp32 runs", what);
	snprintf(name, sizeof(name), "%c1", letter);
	if (!ok(run(name, NULL, keys, BF16, &one) == 0, "%s, one rank in bf16 runs", what))
		return;
	alike(&one, &full, "bf16 and fp32");
	ok(compare(&full, &one, name, sizeof(name)) * sqrt(BOUND) > 0x1p-10, "bf16 differs from fp32");
	for (; *which >= 0; which++) {
		const struct layout *l = &layouts[*which];

		snprintf(name, sizeof(name), "%c%d", letter, *which + 2);
		ok(run(name, l, keys, *which % 2 ? BF16 "recompute = full\nloss_parts = 2\n" : BF16, &many) == 0,
		   "%s, %s runs", what, l->name);
		alike(&many, &one, l->name);
	}
}

/* Recomputation yields the same bits. */
static void recomputed(void)
{
	static const char *const how[] = { "none", "selective", "full" };
	struct result r[3];

	for (int i = 0; i < 3; i++) {
		char train[80], where[300] = "";

		snprintf(train, sizeof(train), BF16 "recompute = %s\n", how[i]);
		ok(run(how[i], NULL, "dropout = 0.1", train, &r[i]) == 0, "a run with recompute = %s succeeds", how[i]);
		ok(compare(&r[0], &r[i], where, sizeof(where)) == 0 && worst_loss(&r[0], &r[i]) == 0,
		   "... with the same bits: %s", where);
	}
}

int main(void)
{
	static const int all[] = { 0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 14, 16, -1 }, some[] = { 4, 5, 6, 12, 15, -1 };
	static const int experts[] = { 8, 9, 5, 13, -1 };
	static const int few[] = { 4, 6, -1 }, few_experts[] = { 9, 13, -1 }, half[] = { 0, 2, 5, 7, 11, 14, -1 };
	const int *of_experts = whole_sweep() ? experts : few_experts;

	if (access(HD_TEST_BUILD "/heddle", X_OK) || access(HD_TEST_BUILD "/t/plugins/.libs/rules.so", R_OK))
		skip_all("heddle is not built");
	if (layouts_begin() < 0)
		return 1;
	model('a', "", "gpt2", whole_sweep() ? all : half);
	model('b', "family = llama\nkv_heads = 2", "llama", whole_sweep() ? some : few);
	/* each token chooses every expert, since choosing between two nearly equal ones is not continuous in the
	 * logits */
	model('c', "family = mixtral\nkv_heads = 2\nexperts = 4\nexperts_per_token = 4\nz_loss = 0.001",
	      "experts, rows counted", of_experts);
	model('d', "experts = 2\nmoe_every = 2\nsecond_expert = all\ncapacity_factor = 2\naux_loss = 0",
	      "experts, places", of_experts);
	recomputed();
	layouts_end();
	return done();
}
