/* SPDX-License-Identifier: Apache-2.0
 * train.loss_parts computes logits, loss and their gradients part by part.  Many layouts are compared with one rank
 * that computes them at once: losses, norms and every gradient of the last of a few steps under SGD.  If this broke, a
 * part would read the tokens of another, or a term of a gradient would be lost or counted twice.
 *
 * The plan's memory must shrink, and losses that cannot be computed in parts are refused.
 */
#include <config.h>
#define LAYERS 4
#define STEPS 3
#define EMBED 24
#define HEAD 2
#define MLP 48
#define SEQ 24
#define VOCAB 258
#define BATCH 30
#define TOKENS (BATCH * SEQ)
#include "t/lib/layout_run.h"
#include "t/lib/graph_test.h"
#include "engine/cli/work.h"
#include <string.h>

#define TP(n) "[strategy tp]\nplugin = tp\nsize = " #n "\n"
#define DP(n) "[strategy dp]\nplugin = dp\nsize = " #n "\n"
#define PP(n) "[strategy pp]\nplugin = pp\nsize = " #n "\n"
#define CP(n) "[strategy cp]\nplugin = cp\nsize = " #n "\n"

static const struct layout {
	const char *name;
	int ranks, micro_batch;
	const char *train, *sections;
	int quick;
} layouts[] = {
	{ "each sequence", 1, 6, "loss_parts = 6\n", "", 1 },
	{ "several parts per sequence", 1, 1, "loss_parts = 8\n", "", 0 },
	{ "three parts per sequence", 1, 5, "loss_parts = 15\n", "", 1 },
	{ "one token per part", 1, 2, "loss_parts = 48\n", "", 0 },
	{ "a vocabulary on three", 3, 6, "loss_parts = 3\n", TP(3), 1 },
	{ "a vocabulary on two, sequence parallel", 2, 6, "loss_parts = 12\n", TP(2) "sequence_parallel = yes\n", 1 },
	{ "replicas, parameters sharded", 3, 2, "loss_parts = 4\n", DP(3) "zero = 3\n", 1 },
	{ "replicas of five, gradients sharded", 5, 3, "loss_parts = 3\n", DP(5) "zero = 2\n", 0 },
	{ "two stages, zero bubble", 2, 3, "loss_parts = 9\n", PP(2) "schedule = zb\n", 1 },
	{ "two stages, all forwards first, recomputed", 2, 3, "recompute = full\nloss_parts = 3\n",
	  PP(2) "schedule = gpipe\n", 1 },
	{ "two stages, interleaved", 2, 3, "loss_parts = 6\n", PP(2) "schedule = interleaved\nchunks = 2\n", 0 },
	{ "recomputed", 1, 6, "recompute = full\nloss_parts = 2\n", "", 0 },
	{ "recomputed where it is cheap", 1, 6, "recompute = selective\nloss_parts = 2\n", "", 0 },
	{ "a sequence in a ring", 2, 2, "loss_parts = 4\n", CP(2) "form = ring\nbalance = zigzag\n", 1 },
	{ "a sequence on three, heads in attention", 3, 2, "loss_parts = 2\n", CP(3) "form = ulysses\n", 0 },
	{ "tensor 2 x data 2 x pipeline 2", 8, 3, "loss_parts = 3\n", TP(2) DP(2) PP(2), 0 },
	{ "tensor 2 x context 2 x pipeline 2", 8, 2, "loss_parts = 4\n", TP(2) CP(2) PP(2) "schedule = zb\n", 0 },
};

static const struct {
	const char *name, *keys;
} models[] = {
	{ "gpt2, tied", "tie_embeddings = yes" },
	{ "llama, soft caps", "family = llama\nkv_heads = 12\nlogit_softcap = 5" },
};

static void write_ini(const char *name, int model, const struct layout *l)
{
	char path[200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.ini", tmp, name);
	f = fopen(path, "w");
	fprintf(f,
		"[model]\nlayers = %d\nembed = %d\nheads = 12\nhead_dim = %d\nmlp = %d\nvocab = %d\ninit_std = 0.1\n%s\n"
		"[data]\ntrain = %s/text\ntokenizer = byte\nvalid_fraction = 0.1\n[train]\nseq = %d\nglobal_batch = %d\n"
		"micro_batch = %d\nsteps = %d\noptimizer = sgd\nlr = 0.1\nschedule = constant\nclip = 0\n"
		"weight_decay = 0\nthreads = 1\neval_batches = 1\n%s\n[checkpoint]\ngradients = yes\n%s",
		LAYERS, EMBED, HEAD, MLP, VOCAB, models[model].keys, tmp, SEQ, BATCH, l ? l->micro_batch : BATCH, STEPS,
		l ? l->train : "loss_parts = 1", l ? l->sections : "");
	fclose(f);
}

static double valid_loss(const char *name)
{
	char path[200], line[1000];
	double loss = NAN;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.jsonl", tmp, name);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, "\"valid_loss\":");

		loss = at ? strtod(at + 13, NULL) : loss;
	}
	if (f)
		fclose(f);
	return loss;
}

static void alike(int model, const struct layout *l, const struct result *one, int number)
{
	char name[40], first[40], where[300] = "";
	double loss, off, valid;
	struct result r;

	snprintf(name, sizeof(name), "%d-%d", model, number);
	snprintf(first, sizeof(first), "one-%d", model);
	write_ini(name, model, l);
	if (!ok(run_ini(name, l->ranks, &r) == 0, "%s: %s runs", models[model].name, l->name))
		return;
	loss = worst_loss(&r, one);
	off = compare(one, &r, where, sizeof(where));
	valid = fabs(valid_loss(name) / valid_loss(first) - 1) / sqrt(LOSS_BOUND_OF(STEPS));
	ok(loss <= 1 && off <= 1 && valid <= 1, "%s: %s: results are one rank's", models[model].name, l->name);
	note("times the bound: loss %.3g, gradients %.3g (%s), validation %.3g", loss, off, where, valid);
}

static void against_one_rank(void)
{
	for (int m = 0; m < (int)HD_LEN(models); m++) {
		char name[40];
		struct result one;

		snprintf(name, sizeof(name), "one-%d", m);
		write_ini(name, m, NULL);
		if (!ok(run_ini(name, 1, &one) == 0, "%s: one rank", models[m].name))
			continue;
		for (int i = 0; i < (int)HD_LEN(layouts); i++)
			if (layouts[i].quick || whole_sweep())
				alike(m, &layouts[i], &one, i);
	}
}

/* -- memory -------------------------------------------------------------------------------------------------------- */
#define LARGE_VOCAB 16384
#define LARGE_TOKENS (4 * 512)
#define LARGE \
	"[model]\nlayers = 1\nembed = 64\nheads = 4\nvocab = 16384\n[data]\ntrain = none\n" \
	"[train]\nseq = 512\nglobal_batch = 4\nmicro_batch = 4\nsteps = 1\nloss_parts = %s\n%s"

static int64_t transient(const char *parts, const char *more)
{
	char *ini = hd_format(LARGE, parts, more);
	struct hd_plan *p = gt_plan_of(ini, 1, HD_DTYPE_F32);
	struct hd_program_options o = { .device = hd_device_cpu() };
	struct hd_program *g = NULL;
	struct hd_err err = { 0 };
	int64_t bytes = -1;

	if (p && hd_program_build(p, &o, &g, &err) == 0)
		bytes = g->memory.transient;
	else
		note("%s%s", gt_why(), err.text);
	hd_program_destroy(g);
	if (p)
		gt_plan_destroy(p);
	free(ini);
	return bytes;
}

/* Parts shrink the logits; their gradient is computed in place. */
static void memory(void)
{
	int64_t logits = (int64_t)LARGE_TOKENS * LARGE_VOCAB * 4, whole = transient("1", ""), four = transient("4", "");
	int64_t chosen = transient("0", "");

	ok(whole >= logits, "at once: %lld bytes include %lld of logits", (long long)whole, (long long)logits);
	ok(whole - four >= logits / 2, "in four parts: %lld bytes, much less", (long long)four);
	is_int(chosen, transient("2", ""), "134 MB of logits are computed in two parts by default");
	is_int(transient("0", "recompute = full\n"), transient("2", "recompute = full\n"), "... also with recompute");
}

/* -- refusals ------------------------------------------------------------------------------------------------------ */
static void refused(const char *parts, const char *train, const char *more, int ranks, const char *want)
{
	char *ini = hd_format(
		"[model]\nlayers = 1\nembed = 64\nheads = 4\nvocab = 128\n[data]\ntrain = none\n[train]\nseq = 8\n"
		"global_batch = 4\nsteps = 1\nloss_parts = %s\n%s%s",
		parts, train, more);
	struct hd_plan *p = gt_plan_of(ini, ranks, HD_DTYPE_F32);

	ok(!p, "loss_parts = %s is refused", parts);
	ok(p || strstr(gt_why(), want), "... and the message says why: %s", p ? "" : gt_why());
	if (p)
		gt_plan_destroy(p);
	free(ini);
}

/* Where products have terms on several ranks there is one part, and gradients stay in backward. */
static void stays(const char *name, const char *model, const char *strategy, int ranks, int moved)
{
	char *ini = hd_format(
		"[model]\nlayers = 1\nembed = 64\nheads = 4\nvocab = 65536\n%s[data]\ntrain = none\n[train]\nseq = 512\n"
		"global_batch = 8\nmicro_batch = 8\nsteps = 1\n[strategy t]\nplugin = " HD_TEST_BUILD
		"/plugins/tp/.libs/tp.so\n%s",
		model, strategy);
	struct hd_plan *p = gt_plan_of(ini, ranks, HD_DTYPE_F32);
	int n = 0;

	for (const struct node *k = p ? p->first : NULL; k; k = k->next)
		n += k->computes_for != 0;
	ok(p && (n > 0) == moved, "%s: forward %s gradients (%d nodes)", name, moved ? "computes" : "computes no", n);
	if (p)
		gt_plan_destroy(p);
	free(ini);
}

/* A checkpoint's INI states the parts, but evaluation may use shorter sequences. */
static void evaluated(void)
{
	char out[200];
	int rc;

	snprintf(out, sizeof(out), "%s/eval.out", tmp);
	rc = mpi_run(1, 240, "%s/heddle eval %s/0-0 --data %s/text --set train.seq=2 --set train.micro_batch=1 >%s",
		     HD_TEST_BUILD, tmp, tmp, out);
	if (!ok(rc == 0, "a checkpoint of 6 parts is evaluated on sequences of two tokens"))
		show(out);
}

int main(void)
{
	if (access(HD_TEST_BUILD "/heddle", X_OK))
		skip_all("heddle is not built");
	if (layouts_begin() < 0)
		return 1;
	memory();
	refused("3", "micro_batch = 2\n", "", 1, "2 x 8 tokens");
	refused("64", "micro_batch = 4\n", "", 1, "4 x 8 tokens");
	refused("2", "micro_batch = 4\n",
		"[strategy t]\nplugin = " HD_TEST_BUILD "/plugins/tp/.libs/tp.so\nsize = 4\nform = 2d\n", 4,
		"the loss cannot be computed in parts: [strategy t] has nodes of its own there (plugin tp)");
	stays("a vocabulary on two", "", "size = 2\n", 2, 1);
	stays("products in two dims", "", "size = 4\nform = 2d\n", 4, 0);
	stays("capped logits", "family = llama\nlogit_softcap = 5\n", "size = 4\nform = 2d\n", 4, 0);
	stays("products in three dims", "", "size = 8\nform = 3d\n", 8, 0);
	against_one_rank();
	evaluated();
	layouts_end();
	return done();
}
