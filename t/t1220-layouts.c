/* SPDX-License-Identifier: Apache-2.0
 * Runs the program itself in many layouts and compares with one rank: the hash of the initial weights, the losses of
 * 20 steps, and every gradient of the last one.  If this broke, a run moved to a different number of machines would
 * train a different model.
 *
 * It uses plain gradient descent without clipping, so that nothing hides a gradient's scale.  The vocabulary and the
 * layers do not divide evenly; models have dropout, and tied and separate heads.  t/lib/layout_run.h has the bounds.
 */
#include <config.h>
#define LAYERS 3
#define STEPS 20
#define EMBED 16
#define HEAD 4
#define MLP 64
#define SEQ 16
#define VOCAB 257
#define BATCH 8
#define TOKENS (BATCH * SEQ)
#include "t/lib/layout_run.h"

struct layout {
	const char *name;
	int ranks;
	const char *section; /* %s: the build folder */
};

#define MESH "[strategy m]\nplugin = %s/t/plugins/.libs/mesh3.so\n"
#define RULES "[strategy m]\nplugin = %s/t/plugins/.libs/rules.so\n"
#define TP "[strategy tp]\nplugin = tp\n"
#define PP "[strategy pp]\nplugin = pp\n"
#define REPLICAS "[strategy dp]\nplugin = dp\nsize = 2\n"
#define DP "[strategy dp]\nplugin = %s/plugins/dp/.libs/dp.so\n"

static const struct layout layouts[] = {
	{ "two replicas, ring", 2, DP "sync = ring\nbucket = 8K\n" },
	{ "four replicas, all-reduce", 4, DP "sync = allreduce\n" },
	{ "2 x 2 x 2", 8, MESH },
	{ "sharded four ways, two stages", 8, MESH "a = 1\nb = 4\nc = 2\n" },
	{ "2 x 2 x 2, sequence", 8, MESH "sequence = yes\n" },
	{ "2 x 2, sequence", 4, MESH "c = 1\nsequence = yes\n" },
	{ "parameters sharded over replicas, two stages, separate weight gradients", 4,
	  RULES "axes = a:2 c:2\nrules = batch>a layer>c\nhome = a\norder = split\n" },
	{ "heads sharded in attention, the sequence elsewhere", 4,
	  RULES "axes = b:2 a:2\nrules = batch>a heads>b@attention kv_heads>b@attention seq>b\n" },
	{ "tensor 2 x data 2 x pipeline 2, interleaved", 8,
	  TP "size = 2\n" REPLICAS PP "size = 2\nschedule = interleaved\n" },
	{ "tensor 2 x pipeline 2, sequence parallel, zero bubble", 4,
	  TP "size = 2\nsequence_parallel = yes\n" PP "size = 2\nschedule = zb\n" },
	{ "pipeline 4, gpipe", 4, PP "size = 4\nschedule = gpipe\n" },
	{ "tensor 4 x data 2", 8, TP "size = 4\n" REPLICAS },
	{ "tensor 4, sequence parallel", 4, TP "size = 4\nsequence_parallel = yes\n" },
};

/* -- runs -------------------------------------------------------------------------------------- */
static void write_ini(const char *path, const struct layout *l, const char *model)
{
	FILE *f = fopen(path, "w");

	fprintf(f,
		"[model]\nlayers = %d\nembed = %d\nheads = %d\nmlp = %d\nvocab = %d\ninit_std = 0.1\n%s\n"
		"[data]\ntrain = %s/text\ntokenizer = byte\nvalid_fraction = 0\n"
		"[train]\nseq = %d\nglobal_batch = %d\nmicro_batch = 1\nsteps = %d\noptimizer = "
		"sgd\n"
		"lr = 0.1\nschedule = constant\nclip = 0\nweight_decay = 0\nthreads = 1\n"
		"[checkpoint]\ngradients = yes\n",
		LAYERS, EMBED, EMBED / HEAD, MLP, VOCAB, model, tmp, SEQ, BATCH, STEPS);
	if (l)
		fprintf(f, l->section, HD_TEST_BUILD);
	fclose(f);
}

static int run(const char *name, const struct layout *l, const char *model, struct result *r)
{
	char ini[200];

	snprintf(ini, sizeof(ini), "%s/%s.ini", tmp, name);
	write_ini(ini, l, model);
	return run_ini(name, l ? l->ranks : 1, r);
}

static void model(char letter, const char *keys, const char *what, const int *which)
{
	struct result one, many;
	char name[20], where[300] = "";

	snprintf(name, sizeof(name), "%c1", letter);
	if (!ok(run(name, NULL, keys, &one) == 0 && one.loss[STEPS - 1] < one.loss[0], "one rank, %s", what))
		return;
	for (; *which >= 0; which++) {
		const struct layout *l = &layouts[*which];
		double off, loss;

		snprintf(name, sizeof(name), "%c%d", letter, *which + 2);
		ok(run(name, l, keys, &many) == 0, "%s, %s: a run on %d ranks succeeds", l->name, what, l->ranks);
		is_str(many.hash, one.hash, "... with the same initial weights");
		loss = worst_loss(&many, &one);
		off = compare(&one, &many, where, sizeof(where));
		ok(loss <= 1, "... losses within the bound");
		ok(off <= 1, "... and gradients within the bound");
		note("times the bound: loss %.3g, gradients %.3g (%s)", loss, off, where);
	}
}

int main(void)
{
	static const int first[] = { 0, 1, 2, 3, 4, 6, 8, 9, -1 }, second[] = { 1, 5, 7, 10, 12, -1 };
	static const int third[] = { 8, 9, 11, 12, -1 };
	static const int first_few[] = { 0, 1, 2, 3, 4, 6, -1 }, second_few[] = { 5, 7, 10, -1 }; /* each layout once */
	const int whole = whole_sweep();

	if (access(HD_TEST_BUILD "/heddle", X_OK) || access(HD_TEST_BUILD "/t/plugins/.libs/rules.so", R_OK))
		skip_all("heddle is not built");
	if (layouts_begin() < 0)
		return 1;
	model('a', "dropout = 0.1", "tied, dropout", whole ? first : first_few);
	model('b', "tie_embeddings = no", "untied head", whole ? second : second_few);
	model('c', "family = llama\nkv_heads = 2", "llama", third);
	layouts_end();
	return done();
}
