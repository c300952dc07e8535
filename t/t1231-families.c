/* SPDX-License-Identifier: Apache-2.0
 * Runs each model family, with various settings of its keys, in layouts of each kind: loss, gradient norm and every
 * gradient are one rank's.  If this broke, a loaded model would be trained as a different one as soon as it is
 * sharded.
 *
 * All ranks in this process, in double on the reference device.
 */
#include <config.h>
#include "t/lib/one_rank.h"

#define SECTION(name) "[strategy " name "]\nplugin = " HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\n"

static const struct layout {
	const char *name;
	int ranks, micro;
	const char *sections;
} layouts[] = {
	{ "tp 2 x pp 2", 4, 2, SECTION("tp") "size = 2\n" SECTION("pp") "size = 2\n" },
	{ "zero 3", 2, 2, SECTION("dp") "size = 2\nzero = 3\n" },
	{ "tp 2, sequence parallel", 2, 4, SECTION("tp") "size = 2\nsequence_parallel = yes\n" },
	{ "tp 2 x 2", 4, 4, SECTION("tp") "size = 4\nform = 2d\n" },
	{ "cp 2", 2, 2, SECTION("cp") "size = 2\nform = ulysses\n" },
	{ "cp 2, ring", 2, 2, SECTION("cp") "size = 2\nform = ring\n" },
	{ "tp 4, key heads shared", 4, 4, SECTION("tp") "size = 4\n" },
};
static const struct layout experts[] = {
	{ "ep 2", 2, 2, SECTION("ep") "size = 2\n" },
	{ "ep 2 x tp 2", 4, 2, SECTION("ep") "size = 2\n" SECTION("tp") "size = 2\n" },
	{ "tp 2 x pp 2", 4, 2, SECTION("tp") "size = 2\n" SECTION("pp") "size = 2\n" },
	{ "ep 2 x dp 2, zero 3", 4, 1, SECTION("ep") "size = 2\n" SECTION("dp") "size = 2\nzero = 3\n" },
};

static const char *const models[] = {
	"family = llama\nhead_dim = 6\nrope_scaling = llama3\nrope_factor = 4\nrope_original = 4\n",
	"family = llama\nqkv_bias = yes\nout_bias = yes\nmlp_bias = yes\nrotary_fraction = 0.5\n",
	"family = mistral\nwindow = 3\nrope_scaling = linear\nrope_factor = 2\n",
	"family = qwen2\nwindow = 4\nwindow_layers = fw\nrope_scaling = yarn\nrope_factor = 2\nrope_original = 4\n",
	"family = qwen3\nhead_dim = 8\n",
	"family = gemma2\nwindow = 3\nattention_softcap = 1\nlogit_softcap = 2\nquery_scale = 3\n",
	"family = gemma3\nwindow = 2\nwindow_layers = wf\n",
	"family = phi3\nactivation = gelu_erf\n",
	"family = phi3\nrope_scaling = longrope\nrope_factor = 4\nrope_original = 4\nrope_short = 1, 1\nrope_long = 2, 3.5\n",
	"family = olmo2\nrope_scaling = dynamic\nrope_factor = 3\nrope_original = 4\n",
};

static struct hd_plan *plan(const char *model, int micro, int ranks, const char *sections)
{
	char ini[2000];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 2\nheads = 4\nkv_heads = 2\nembed = 16\nmlp = 12\nvocab = 19\ninit_std = 0.2\n%s"
		 "[data]\ntrain = none\n"
		 "[train]\nseq = 8\nglobal_batch = 4\nmicro_batch = %d\nsteps = 1\noptimizer = sgd\nclip = 0\n%s",
		 model, micro, sections);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

/* Returns the lines of an INI joined into one, for a description. */
static const char *line(const char *text)
{
	static char copy[200];

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *c = copy; (c = strchr(c, '\n'));)
		*c = c[1] ? ',' : 0;
	return copy;
}

static void in_layouts(const char *model, const struct layout *l, size_t n)
{
	struct hd_plan *p = plan(model, 4, 1, "");

	one = p ? gt_open(p, NULL) : NULL;
	if (!ok(one && gt_compute(one) > 0, "one rank, %s", line(model))) {
		note("%s", gt_why());
		return;
	}
	for (size_t i = 0; i < n; i++) {
		struct gt_run *r;

		p = plan(model, l[i].micro, l[i].ranks, l[i].sections);
		r = p ? gt_open(p, sim_members) : NULL;
		like_one_rank(r, l[i].name, line(model));
		sim_close(r);
	}
	gt_close(one);
}

/* Weights of norms and biases have one dim in transformers' files, however many they have here. */
static void only_matrices_decay(const char *model, struct hd_plan *p)
{
	const char *wrong = NULL;
	int64_t decay = 0;

	for (size_t i = 0; p && i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];
		struct hd_hf_region r = { .ndim = 0 };

		if (t->v.what != HD_TENSOR_PARAM || t->v.node)
			continue;
		decay += t->decay;
		if (p->model.family->hf(&p->model, t->v.name, &r) < 0 || (t->decay && r.ndim == 1))
			wrong = t->v.name;
	}
	if (!ok(p && decay && !wrong, "only matrices decay, %s", line(model)))
		note("%s", wrong ? wrong : gt_why());
	if (p)
		gt_plan_destroy(p);
}

static void decaying(const char *const *of, size_t n)
{
	for (size_t i = 0; i < n; i++)
		only_matrices_decay(of[i], plan(of[i], 4, 1, ""));
}

/* A token may choose all experts, but no more. */
static void chosen_experts(void)
{
	struct hd_plan *p = plan("family = olmoe\nexperts = 4\nexperts_per_token = 4\n", 4, 1, "");

	if (!ok(p != NULL, "a token may choose all experts"))
		note("%s", gt_why());
	if (p)
		gt_plan_destroy(p);
	ok(!plan("family = olmoe\nexperts = 4\nexperts_per_token = 5\n", 4, 1, "") &&
		   strstr(gt_why(), "5 is more than model.experts = 4"),
	   "... but not one more");
}

/* With an argument, runs only the models whose keys contain it. */
int main(int argc, char **argv)
{
	static const char *const routed[] = {
		"family = mixtral\nexperts = 4\nwindow = 3\n",
		"family = qwen3_moe\nexperts = 4\nexpert_mlp = 6\nshared_experts = 2\nnormalize_gates = no\n",
		"family = qwen3_moe\nexperts = 4\nexpert_mlp = 6\ndense_layers = 1\nshared_experts = 1\ncapacity_factor = 1\n",
		"family = olmoe\nexperts = 4\nexperts_per_token = 3\n",
		"family = glm4_moe\nexperts = 6\nexpert_mlp = 6\nqkv_bias = yes\nrouter_groups = 3\nrouter_best_groups = 2\n"
		"gate_scale = 2\nrouter_bias_rate = 0.1\naux_loss = 0.1\nz_loss = 0.1\n",
		"family = glm4_moe\nexperts = 4\nqk_norm = head\ndense_layers = 0\nnormalize_gates = no\nshared_experts = 0\n",
	};

	ok(!gt_plan_of("[model]\nfamily = llama\nlayers = 1\nheads = 4\nkv_heads = 3\nembed = 16\nvocab = 19\n"
		       "[data]\ntrain = none\n[train]\nseq = 8\nglobal_batch = 4\nsteps = 1\n",
		       1, HD_DTYPE_F64) &&
		   strstr(gt_why(), "3 does not divide model.heads = 4"),
	   "heads that share keys unevenly are refused");
	chosen_experts();
	decaying(models, HD_LEN(models));
	decaying(routed, HD_LEN(routed));
	only_matrices_decay("family = gpt2",
			    gt_plan_of("[model]\nfamily = gpt2\nlayers = 1\nheads = 4\nembed = 16\nvocab = 19\n[data]\n"
				       "train = none\n[train]\nseq = 8\nglobal_batch = 4\nsteps = 1\n",
				       1, HD_DTYPE_F64));
	for (size_t i = 0; i < HD_LEN(models); i++)
		if (argc < 2 || strstr(models[i], argv[1]))
			in_layouts(models[i], layouts, HD_LEN(layouts));
	for (size_t i = 0; i < HD_LEN(routed); i++)
		if (argc < 2 || strstr(routed[i], argv[1]))
			in_layouts(routed[i], experts, HD_LEN(experts));
	return done();
}
