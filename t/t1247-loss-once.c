/* SPDX-License-Identifier: Apache-2.0
 * Checks where one node computes both the statistics and the gradient of logits (engine/passes/loss/once.c), and where
 * the two stay apart.  Fusing them would be wrong where the vocabulary is sharded, and would take more memory where
 * another node reads the logits.  t2013 checks that the node computes the same bits, and t1245 runs layouts that use
 * it.
 */
#include <config.h>
#include "engine/cli/work.h"
#include "engine/program/program.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"
#include <stdlib.h>
#include <string.h>

#define PLUGIN(name) "plugin = " HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\nsize = 2\n"
#define MODEL(keys, train) \
	"[model]\nlayers = 2\nembed = 64\nheads = 4\nvocab = 128\n" keys "[data]\ntrain = none\n" \
	"[train]\nseq = 32\nsteps = 1\nglobal_batch = 8\n" train
#define TP "[strategy shards]\n" PLUGIN("tp")
#define TP_OF_ONE "[strategy shards]\nplugin = " HD_TEST_BUILD "/plugins/tp/.libs/tp.so\nsize = 1\n"
#define DP "[strategy replicas]\n" PLUGIN("dp")
#define PP(schedule) "[strategy stages]\n" PLUGIN("pp") "schedule = " schedule "\n"

static struct hd_plan *plan_of(const char *ini, int ranks, int train, int separate_loss_gradient)
{
	struct hd_plan_options o = { .ranks = ranks,
				     .train = train,
				     .master_dtype = HD_DTYPE_F32,
				     .separate_loss_gradient = separate_loss_gradient };
	struct hd_conf *c = gt_conf(ini);
	struct hd_err err = { 0 };
	struct hd_plan *p = NULL;

	if (!c || hd_plan_create(c, &o, &p, &err) < 0) {
		note("%s%s", gt_why(), err.text);
		return NULL;
	}
	return p;
}

static int count(const struct hd_plan *p, const char *op)
{
	int k = 0;

	for (const struct node *n = p->first; n; n = n->next)
		k += !strcmp(n->v.op->name, op);
	return k;
}

static void expect(const char *name, const char *ini, int ranks, int both, int apart)
{
	struct hd_plan *p = plan_of(ini, ranks, 1, 0);

	if (!ok(p != NULL, "%s: planned", name))
		return;
	is_int(count(p, "xent_both"), both, name);
	is_int(count(p, "xent_d"), apart, "... separate gradient nodes");
	is_int(count(p, "xent_combine") > 0, apart > 0,
	       "... statistics are combined only if the vocabulary is sharded");
	is_int(count(p, "xent") > 0, apart > 0, "... separate statistics nodes");
	gt_plan_destroy(p);
}

static void made_once(void)
{
	expect("one rank", MODEL("", "micro_batch = 4\n"), 1, 1, 0);
	expect("in parts", MODEL("", "micro_batch = 4\nloss_parts = 4\n"), 1, 4, 0);
	expect("an axis of one member", MODEL("", "micro_batch = 4\n") TP_OF_ONE, 1, 1, 0);
	expect("replicas", MODEL("", "micro_batch = 4\n") DP, 2, 1, 0);
	expect("stages", MODEL("", "micro_batch = 2\n") PP("1f1b"), 2, 1, 0);
	expect("stages, all forwards first", MODEL("", "micro_batch = 2\n") PP("gpipe"), 2, 1, 0);
	expect("stages, weights later", MODEL("", "micro_batch = 2\n") PP("zb"), 2, 1, 0);
	expect("recomputed except for the head", MODEL("", "micro_batch = 4\nrecompute = full\n"), 1, 1, 0);
}

static void made_apart(void)
{
	expect("a sharded vocabulary", MODEL("", "micro_batch = 4\n") TP, 2, 0, 1);
	expect("a sharded vocabulary, in parts", MODEL("", "micro_batch = 4\nloss_parts = 2\n") TP, 2, 0, 2);
	expect("recomputed logits", MODEL("", "micro_batch = 2\nrecompute = full\n") PP("gpipe"), 2, 0, 1);
}

static void options(void)
{
	struct hd_plan *p = plan_of(MODEL("", "micro_batch = 4\n"), 1, 0, 0);

	if (ok(p != NULL, "forward only: planned")) {
		is_int(count(p, "xent"), 1, "... evaluation computes statistics alone");
		gt_plan_destroy(p);
	}
	p = plan_of(MODEL("", "micro_batch = 4\n"), 1, 1, 1);
	if (ok(p != NULL, "a framework that computes the two apart: planned")) {
		is_int(count(p, "xent_both"), 0, "... has no fused node");
		gt_plan_destroy(p);
	}
}

static int64_t memory(const char *ini, int ranks, int separate_loss_gradient)
{
	struct hd_plan *p = plan_of(ini, ranks, 1, separate_loss_gradient);
	struct hd_program_options o = { .rank = ranks - 1, .device = hd_device_cpu() };
	struct hd_program *g = NULL;
	struct hd_err err = { 0 };
	int64_t bytes = -1;

	if (p && hd_program_build(p, &o, &g, &err) >= 0)
		bytes = g->memory.transient;
	hd_program_destroy(g);
	if (p)
		gt_plan_destroy(p);
	return bytes;
}

/* Checks that fusing takes no more memory: the gradient replaces the logits. */
static void no_more_memory(void)
{
	static const struct {
		const char *name, *ini;
		int ranks;
	} runs[] = { { "at once", MODEL("", "micro_batch = 4\n"), 1 },
		     { "in parts", MODEL("", "micro_batch = 4\nloss_parts = 4\n"), 1 },
		     { "soft caps", MODEL("family = llama\nlogit_softcap = 5\n", "micro_batch = 4\n"), 1 },
		     { "all forwards first", MODEL("", "micro_batch = 2\n") PP("gpipe"), 2 } };

	for (size_t i = 0; i < HD_LEN(runs); i++) {
		int64_t apart = memory(runs[i].ini, runs[i].ranks, 1), once = memory(runs[i].ini, runs[i].ranks, 0);

		ok(once > 0 && once <= apart, "%s: %lld bytes, and %lld apart", runs[i].name, (long long)once,
		   (long long)apart);
	}
}

int main(void)
{
	made_once();
	made_apart();
	options();
	no_more_memory();
	return done();
}
