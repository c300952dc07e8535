/* SPDX-License-Identifier: Apache-2.0
 * Placement rules alone must yield the collectives of the published systems: how many of each kind a layer has,
 * forward and backward, and their bytes.  If a placement rule slipped, training would still be right, but half as
 * fast: one all-reduce too many per layer, or a gathered parameter kept where it should have been gathered again.
 *
 * The same layouts also run, all ranks in this process, in double on the reference device.  Loss, gradient norm and
 * every gradient equal one rank's to rounding.
 *
 * Counts: Megatron-LM (Shoeybi et al. 2019), its sequence parallelism (Korthikanti et al. 2022), DeepSpeed-Ulysses
 * (Jacobs et al. 2023), ZeRO (Rajbhandari et al. 2020).
 */
#include <config.h>
#include "t/lib/one_rank.h"
#include "t/lib/tap.h"
#include <float.h>

#define LAYERS 2
#define SEQ 8
#define EMBED 16
#define MICRO 2

struct count {
	const char *unit, *axis, *kind;
	int n;
	int64_t bytes; /* of all n together, as a ring sends them; 0: not checked */
	uint32_t dims; /* count only tensors with at least so many dims */
};
struct layout {
	const char *name, *axes, *rules, *more; /* more: lines of the strategy's section */
	int ranks;
	struct count published[8];
};

/* b s h bytes of one activation of a micro-batch, in fp32 */
#define BSH (MICRO * SEQ * EMBED * 4)
#define TP "vocab>tp+ heads>tp kv_heads>tp mlp>tp"
#define ULYSSES "heads>cp@attention kv_heads>cp@attention seq>cp"

static const struct layout layouts[] = {
	{ "data parallel",
	  "dp:4",
	  "batch>dp",
	  "",
	  4,
	  { { "F", "dp", "all-reduce", 0, 0, 0 }, { "B", "dp", "all-reduce", 0, 0, 0 } } },
	{ "Megatron",
	  "tp:4",
	  TP,
	  "",
	  4,
	  { { "F", "tp", "all-reduce", 2, 2 * 2 * BSH * 3 / 4, 0 },
	    { "B", "tp", "all-reduce", 2, 2 * 2 * BSH * 3 / 4, 0 },
	    { "F", "tp", "all-gather", 0, 0, 0 },
	    { "B", "tp", "reduce-scatter", 0, 0, 0 } } },
	{ "Megatron with sequence parallelism",
	  "tp:4",
	  TP " seq>tp",
	  "",
	  4,
	  { { "F", "tp", "all-gather", 2, 2 * BSH * 3 / 4, 0 },
	    { "F", "tp", "reduce-scatter", 2, 2 * BSH * 3 / 4, 0 },
	    { "B", "tp", "all-gather", 4, 4 * BSH * 3 / 4, 0 },
	    { "B", "tp", "reduce-scatter", 2, 2 * BSH * 3 / 4, 0 },
	    { "F", "tp", "all-reduce", 0, 0, 0 },
	    { "B", "tp", "all-reduce", 0, 0, 0 } } },
	{ "Ulysses",
	  "cp:4",
	  ULYSSES,
	  "",
	  4,
	  { { "F", "cp", "all-to-all", 4, 4 * BSH / 4 * 3 / 4, 0 },
	    { "B", "cp", "all-to-all", 4, 4 * BSH / 4 * 3 / 4, 0 },
	    { "F", "cp", "all-gather", 0, 0, 0 },
	    { "B", "cp", "all-gather", 0, 0, 0 } } },
	{ "ZeRO-3",
	  "dp:4",
	  "batch>dp",
	  "home = dp\n",
	  4,
	  { /* each parameter once; weights again in backward */
	    { "F", "dp", "all-gather", 16, 0, 0 },
	    { "F", "dp", "all-gather", 4, 0, 3 },
	    { "B", "dp", "all-gather", 4, 0, 3 } } },
	{ "data and Megatron",
	  "tp:2 dp:2",
	  "batch>dp " TP,
	  "",
	  4,
	  { { "F", "tp", "all-reduce", 2, 0, 0 },
	    { "B", "tp", "all-reduce", 2, 0, 0 },
	    { "F", "dp", "all-reduce", 0, 0, 0 } } },
	{ "data and Megatron with sequence parallelism",
	  "tp:4 dp:2",
	  "batch>dp " TP " seq>tp",
	  "",
	  8,
	  { { "F", "tp", "all-gather", 2, 0, 0 },
	    { "B", "tp", "all-gather", 4, 0, 0 },
	    { "B", "tp", "reduce-scatter", 2, 0, 0 } } },
	{ "ZeRO-3 and Megatron with sequence parallelism",
	  "tp:2 dp:2",
	  "batch>dp " TP " seq>tp",
	  "home = dp\n",
	  4,
	  { { "F", "tp", "all-gather", 2, 0, 0 }, { "B", "tp", "all-gather", 4, 0, 0 } } },
	{ "data, Ulysses and Megatron",
	  "tp:2 cp:2 dp:2",
	  "batch>dp " TP " " ULYSSES,
	  "",
	  8,
	  { { "F", "tp", "all-reduce", 2, 0, 0 },
	    { "F", "tp", "all-gather", 0, 0, 0 },
	    { "F", "cp", "all-to-all", 4, 0, 0 },
	    { "B", "cp", "all-to-all", 4, 0, 0 } } },
	{ "pipeline", "pp:2", "layer>pp", "", 2, { { "F", "pp", "all-reduce", 0, 0, 0 } } },
	{ "pipeline, all forwards first",
	  "pp:2",
	  "layer>pp",
	  "order = all\n",
	  2,
	  { { "F", "pp", "all-reduce", 0, 0, 0 } } },
	{ "pipeline, weight gradients apart",
	  "pp:2",
	  "layer>pp",
	  "order = split\n",
	  2,
	  { { "F", "pp", "all-reduce", 0, 0, 0 } } },
	{ "three axes",
	  "tp:2 dp:2 pp:2",
	  "batch>dp " TP " layer>pp",
	  "order = all\n",
	  8,
	  { { "F", "tp", "all-reduce", 2, 0, 0 }, { "B", "tp", "all-reduce", 2, 0, 0 } } },
	{ "three axes, sequence, ZeRO-3, weight gradients apart",
	  "tp:2 dp:2 pp:2",
	  "batch>dp " TP " seq>tp layer>pp",
	  "order = split\nhome = dp\n",
	  8,
	  { { "F", "tp", "all-gather", 2, 0, 0 } } },
	{ "vocabulary sharded in the embedding alone",
	  "tp:2",
	  "vocab>tp+@embedding heads>tp mlp>tp",
	  "",
	  2,
	  { { "F", "tp", "all-reduce", 2, 0, 0 } } },
	{ "vocabulary sharded in products alone",
	  "tp:2",
	  "vocab>tp+@einsum heads>tp mlp>tp",
	  "",
	  2,
	  { { "F", "tp", "all-reduce", 2, 0, 0 } } },
	{ "sequence first", "tp:2", "seq>tp " TP, "", 2, { { "F", "tp", "all-reduce", 0, 0, 0 } } },
	{ "the terms of one gradient have different placements",
	  "tp:2",
	  "seq>tp@einsum vocab>tp+@embedding",
	  "",
	  2,
	  { { "F", "tp", "all-reduce", 0, 0, 0 } } },
	{ "the same, the other way round",
	  "tp:2",
	  "vocab>tp+@einsum seq>tp@embedding",
	  "",
	  2,
	  { { "F", "tp", "all-reduce", 0, 0, 0 } } },
	{ "the terms of one gradient have different placements on two stages",
	  "tp:2 pp:2",
	  "seq>tp@einsum vocab>tp+@embedding layer>pp",
	  "",
	  4,
	  { { "F", "tp", "all-reduce", 0, 0, 0 } } },
	{ "embed sharded wherever it may be", "tp:2", "embed>tp", "", 2, { { "F", "tp", "all-to-all", 0, 0, 0 } } },
	{ "sharded norms, in phases: two numbers per token each way",
	  "tp:2",
	  "embed>tp@norm",
	  "",
	  2,
	  { { "F", "tp", "all-reduce", 4, 4 * MICRO *SEQ * 4, 0 },
	    { "B", "tp", "all-reduce", 4, 4 * MICRO *SEQ * 4, 0 } } },
	{ "batch sharded by two axes", "a:2 b:2", "batch>a batch>b", "", 4, { { "F", "a", "all-reduce", 0, 0, 0 } } },
};

static const char *recompute = "none"; /* as in [train] */

static struct hd_plan *plan(const struct layout *l, uint32_t real, const char *model)
{
	char ini[1500];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = %d\nembed = %d\nheads = 4\n%s[data]\ntrain = "
		 "none\n"
		 "[train]\nseq = %d\nglobal_batch = 8\nmicro_batch = %d\nsteps = 1\noptimizer = "
		 "sgd\nclip = 0\nrecompute = %s\n",
		 LAYERS, EMBED, model, SEQ, MICRO, recompute);
	if (l)
		snprintf(ini + strlen(ini), sizeof(ini) - strlen(ini),
			 "[strategy x]\nplugin = %s/t/plugins/.libs/rules.so\n"
			 "axes = %s\nrules = %s\n%s",
			 HD_TEST_BUILD, l->axes, l->rules, l->more);
	return gt_plan_of(ini, l ? l->ranks : 1, real);
}

/* -- counts -------------------------------------------------------------------------------------------------------- */
static int is_counted(const struct node *n, const struct count *c)
{
	uint32_t phases = c->unit[0] == 'F' ? HD_UNIT_F : HD_UNIT_B | HD_UNIT_W;
	char group[40];

	snprintf(group, sizeof(group), "x.%s", c->axis);
	return n->comm.kind && n->v.phase & phases && n->ins[0]->v.ndim >= c->dims && !strcmp(n->v.block, "layer 0") &&
	       !strcmp(n->comm.group->name, group) && !strcmp(hd_comm_kind_name(n->comm.kind), c->kind);
}

static void counts(const struct layout *l)
{
	struct hd_plan *p = plan(l, HD_DTYPE_F32, "vocab = 32\n");

	if (!ok(p != NULL, "%s: planned", l->name)) {
		note("%s", gt_why());
		return;
	}
	for (const struct count *c = l->published; c->unit; c++) {
		int64_t bytes = 0;
		int n = 0;

		for (const struct node *k = p->first; k; k = k->next)
			if (is_counted(k, c))
				n++, bytes += hd_comm_node_bytes(k);
		ok(n == c->n && (!c->bytes || bytes == c->bytes), "%s: %s, a layer has %d %s on %s", l->name,
		   c->unit[0] == 'F' ? "forward" : "backward", c->n, c->kind, c->axis);
		if (n == c->n && (!c->bytes || bytes == c->bytes))
			continue;
		note("found %d with %lld bytes, want %lld bytes", n, (long long)bytes, (long long)c->bytes);
		for (const struct node *k = p->first; k; k = k->next)
			if (k->comm.kind && !strcmp(k->v.block, "layer 0"))
				note("  %s %s %s %s: %s", k->v.phase == HD_UNIT_F ? "F" : "B",
				     hd_comm_kind_name(k->comm.kind), k->comm.group->name, k->ins[0]->spec,
				     k->reason ? k->reason : "");
	}
	gt_plan_destroy(p);
}

/* -- runs ---------------------------------------------------------------------------------------------------------- */
static void runs(const struct layout *l, const char *model, const char *what)
{
	struct hd_plan *p = plan(l, HD_DTYPE_F64, model);
	struct gt_run *r = p ? gt_open(p, sim_members) : NULL;

	if (!p && strstr(gt_why(), "does not divide model.kv_heads"))
		return;
	like_one_rank(r, l->name, what);
	sim_close(r);
}

static void model(const char *keys, const char *what)
{
	one = gt_open(plan(NULL, HD_DTYPE_F64, keys), NULL);
	if (!ok(one && gt_compute(one) > 0, "one rank, %s", what)) {
		note("%s", gt_why());
		return;
	}
	for (size_t i = 0; i < HD_LEN(layouts); i++)
		runs(&layouts[i], keys, what);
	gt_close(one);
}

/* A key head on a different rank than its query heads is refused: no sum over ranks could correct that. */
static void refuses_keys_apart(void)
{
	static const struct layout l = { "", "tp:2", "kv_heads>tp", "", 2, { { NULL, NULL, NULL, 0, 0, 0 } } };
	struct hd_plan *p = plan(&l, HD_DTYPE_F64, "family = llama\nvocab = 19\nmlp = 24\n");

	ok(!p && strstr(gt_why(), "rule for kv_heads along") && strstr(gt_why(), "unlike heads: in layer 0"),
	   "keys sharded without their queries are refused, and the message names the rule");
}

int main(void)
{
	for (size_t i = 0; i < HD_LEN(layouts); i++)
		counts(&layouts[i]);
	model("vocab = 19\ndropout = 0.2\n", "tied, an indivisible vocabulary, dropout");
	model("vocab = 16\ntie_embeddings = no\n", "untied head");
	model("family = llama\nvocab = 19\nmlp = 24\n", "llama");
	model("family = llama\nvocab = 19\nmlp = 24\nkv_heads = 2\n", "llama, grouped keys");
	recompute = "full";
	model("vocab = 19\ndropout = 0.2\n", "tied, dropout, full recompute");
	recompute = "selective";
	model("family = llama\nvocab = 19\nmlp = 24\nkv_heads = 2\n", "llama, selective recompute");
	recompute = "none";
	refuses_keys_apart();
	return done();
}
