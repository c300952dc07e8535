/* SPDX-License-Identifier: Apache-2.0
 * Runs the program itself in layouts of 3 and 5 ranks, with dims that no power of two divides: odd samples, heads and
 * layers, a prime vocabulary.  Initial weights, losses and every gradient are those of one rank.  If this broke,
 * kernels, transports or files would be right for even sizes only.
 *
 * This is like t1220, which has the powers of two; t1223 has all numbers of members, in double and in one process.
 */
#include <config.h>
#define LAYERS 5
#define STEPS 3
#define EMBED 30
#define HEAD 10
#define MLP 75
#define SEQ 9
#define VOCAB 257
#define BATCH 15
#define TOKENS (BATCH * SEQ)
#include "t/lib/layout_run.h"

static const struct layout {
	const char *name, *section;
	int ranks, micro;
} dense[] =
	{
		{"ring of 5", "[strategy dp]\nplugin = dp\nsync = ring\nbucket = 4K\n", 5, 1},
		{"servers on 3", "[strategy dp]\nplugin = dp\nsync = server\nbucket = 4K\n", 3, 5},
		{"parameters sharded over 5", "[strategy dp]\nplugin = dp\nzero = 3\n", 5, 3},
		{"tensor 3, sequence sharded", "[strategy tp]\nplugin = tp\nsequence_parallel = yes\n", 3, 3},
		{"5 stages, separate weight gradients", "[strategy pp]\nplugin = pp\nschedule = zb\n", 5, 1},
		{"3 stages of 5 layers", "[strategy pp]\nplugin = pp\n", 3, 3},
},
  sparse[] = {
	  {"experts on 3", "[strategy ep]\nplugin = ep\n", 3, 1},
	  {"each expert sharded over 3", "[strategy tp]\nplugin = tp\n", 3, 5},
};

static void write_ini(const char *name, const struct layout *l, const char *model)
{
	char path[200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.ini", tmp, name);
	f = fopen(path, "w");
	fprintf(f,
		"[model]\nlayers = %d\nembed = %d\nheads = %d\nmlp = %d\nvocab = %d\ninit_std = 0.1\n"
		"%s\n[data]\ntrain = %s/text\ntokenizer = byte\n"
		"valid_fraction = 0\n[train]\nseq = %d\nglobal_batch = %d\nmicro_batch = %d\n"
		"steps = %d\noptimizer = sgd\nlr = 0.1\n"
		"schedule = constant\nclip = 0\nweight_decay = 0\nthreads = 1\n[checkpoint]\ngradients = yes\n%s",
		LAYERS, EMBED, EMBED / HEAD, MLP, VOCAB, model, tmp, SEQ, BATCH, l ? l->micro : 5, STEPS,
		l ? l->section : "");
	fclose(f);
}

static void model(const char *what, const char *keys, const struct layout *l, size_t n)
{
	struct result one, many;
	char where[300] = "", name[40];
	static int runs;

	snprintf(name, sizeof(name), "run-%d", runs++);
	write_ini(name, NULL, keys);
	if (!ok(run_ini(name, 1, &one) == 0, "one rank, %s", what))
		return;
	for (; n--; l++) {
		double loss, off;

		snprintf(name, sizeof(name), "run-%d", runs++);
		write_ini(name, l, keys);
		if (!ok(run_ini(name, l->ranks, &many) == 0, "%s, %s: the run succeeds", l->name, what))
			continue;
		loss = worst_loss(&many, &one);
		off = compare(&one, &many, where, sizeof(where));
		is_str(many.hash, one.hash, "... with the same initial weights");
		ok(loss <= 1 && off <= 1, "... and losses and gradients within the bound");
		note("times the bound: loss %.3g, gradients %.3g (%s)", loss, off, where);
	}
}

int main(void)
{
	if (access(HD_TEST_BUILD "/heddle", X_OK))
		skip_all("heddle is not built");
	if (layouts_begin() < 0)
		return 1;
	model("gpt2, tied, dropout", "dropout = 0.1", dense, HD_LEN(dense));
	model("llama, one key head", "family = llama\nkv_heads = 1", dense + 2, 2);
	model("mixtral", "family = mixtral\nkv_heads = 3\nexperts = 3\nexperts_per_token = 3", sparse, HD_LEN(sparse));
	layouts_end();
	return done();
}
