/* SPDX-License-Identifier: Apache-2.0
 * Runs layers of experts in many layouts: loss, auxiliary loss, norm, every gradient and all routing decisions are
 * those of one rank, with the all-to-alls of GShard (Lepikhin et al. 2020).  The classic bug scales the experts'
 * gradients by the number of ranks that hold experts.  Such a model still trains, with Adam even well.
 *
 * All ranks in this process, in double on the reference device.  Decisions are discontinuous: a layout that rounds its
 * sums differently may choose differently.  So the margins of all decisions are measured before layouts are compared.
 */
#include <config.h>
#include "engine/models/decoder/experts.h"
#include "engine/models/decoder/knobs.h"
#include "engine/base/rng.h"
#include "t/lib/sim_ranks.h"
#include "t/lib/tap.h"
#include <float.h>

enum { SEQ = 8, BATCH = 8, EMBED = 16, LAYERS = 2 };

struct layout {
	const char *name, *axes, *rules, *more;
	int ranks, micro;
};

#define PLUGIN(name) "[strategy " name "]\nplugin = " HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\n"
#define EP "expert>ep batch>ep!"
#define TP "vocab>tp+ heads>tp kv_heads>tp mlp>tp"

static const struct layout layouts[] = {
	{ "experts on 2", "ep:2", EP, "", 2, 2 },
	{ "experts on 4", "ep:4", EP, "", 4, 2 },
	{ "experts on 8", "ep:8", EP, "", 8, 1 },
	{ "replicas only", "dp:4", "batch>dp", "", 4, 2 },
	{ "experts on 2, replicas 2", "ep:2 dp:2", EP " batch>dp", "", 4, 2 },
	{ "replicas 2, experts on 2", "dp:2 ep:2", "batch>dp " EP, "", 4, 1 },
	{ "experts on 2, each sharded over 2", "tp:2 ep:2", TP " " EP, "", 4, 2 },
	{ "each expert sharded over 4", "tp:4", TP, "", 4, 2 },
	{ "experts on 2, each sharded over 2, sequence too", "tp:2 ep:2", TP " seq>tp " EP, "", 4, 2 },
	{ "experts on 2, stages 2", "ep:2 pp:2", EP " layer>pp", "", 4, 2 },
	{ "experts on 2, stages 2, separate weight gradients", "ep:2 pp:2", EP " layer>pp", "order = split\n", 4, 1 },
	{ "experts on 2, parameters sharded over replicas", "ep:2 dp:2", EP " batch>dp", "home = dp\n", 4, 2 },
	{ "experts on 2, each sharded over 2, replicas 2", "tp:2 ep:2 dp:2", TP " " EP " batch>dp", "", 8, 1 },
};

static struct hd_plan *plan(const struct layout *l, uint32_t real, const char *model, int micro)
{
	char ini[2000];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = %d\nembed = %d\nheads = 4\nvocab = 16\nmlp = 24\ninit_std = 0.4\n%s"
		 "[data]\ntrain = none\n[train]\nseq = %d\nglobal_batch = %d\nmicro_batch = %d\nsteps = 1\n"
		 "optimizer = sgd\nclip = 0\n",
		 LAYERS, EMBED, model, SEQ, BATCH, micro);
	if (l)
		snprintf(ini + strlen(ini), sizeof(ini) - strlen(ini),
			 "[strategy x]\nplugin = %s/t/plugins/.libs/rules.so\n"
			 "axes = %s\nrules = %s\n%s",
			 HD_TEST_BUILD, l->axes, l->rules, l->more);
	return gt_plan_of(ini, l ? l->ranks : 1, real);
}

static struct gt_run *one; /* of one rank, for the model at hand; its whole batch is one micro-batch */
static size_t nstats;      /* statistics of layers; the plan of `one` has logits after them */

static void keep_logits(struct hd_plan *p)
{
	nstats = p->nmoe_stats;
	for (struct node *n = p->first; n; n = n->next)
		if (!strcmp(n->v.op->name, "route")) {
			p->moe_stats = hd_grow(p->moe_stats, p->nmoe_stats, &p->cap_moe_stats, sizeof(*p->moe_stats));
			p->moe_stats[p->nmoe_stats++] = n->ins[0];
		}
}

/* -- decisions of a router with sigmoids --------------------------------------------------------------------------- */
static struct tensor *bias_of(const struct hd_plan *p, int64_t l)
{
	char name[100];

	snprintf(name, sizeof(name), "layers.%lld.mlp.gate.e_score_correction_bias", (long long)l);
	return gt_param_named(p, name);
}

/* Returns the distance of the n-th largest value from the next one; sorts x. */
static double gap(double *x, int64_t count, int64_t n)
{
	for (int64_t i = 0; i < count; i++)
		for (int64_t j = i + 1; j < count; j++)
			if (x[j] > x[i]) {
				double y = x[i];

				x[i] = x[j], x[j] = y;
			}
	return n < count ? x[n - 1] - x[n] : INFINITY;
}

/* Returns the smallest margin: of the choice of groups, by their two best experts, and of experts within them. */
static double sigmoid_margin(const struct hd_model *m, const double *z, const double *bias)
{
	double t[64], sums[64], least;
	int64_t G = m->router_groups, n = m->experts / G, many = 0;

	for (int64_t g = 0; g < G; g++) {
		double first = -INFINITY, second = -INFINITY;

		for (int64_t e = g * n; e < (g + 1) * n; e++) {
			double x = 1 / (1 + exp(-z[e])) + bias[e];

			second = fmax(second, fmin(first, x));
			first = fmax(first, x);
		}
		t[g] = sums[g] = first + second;
	}
	least = gap(sums, G, m->router_best_groups);
	for (int64_t g = 0; g < G; g++)
		for (int64_t e = g * n; t[g] >= sums[m->router_best_groups - 1] && e < (g + 1) * n; e++)
			sums[G + many++] = 1 / (1 + exp(-z[e])) + bias[e];
	for (int64_t k = 1; k <= m->experts_per_token; k++)
		least = fmin(least, gap(sums + G, many, k));
	return least;
}

/* -- margins ------------------------------------------------------------------------------------------------------- */
/* Returns the smallest margin of a token's decisions: between logits adjacent in order, down to the last chosen
 * expert, and between 2 g2 and the random number.  Places are counted in integers, so they need no margin. */
static double token_margin(const struct hd_model *m, const double *z, uint64_t key, uint64_t token)
{
	double sorted[64], least = INFINITY;
	int64_t E = m->experts;

	memcpy(sorted, z, (size_t)E * sizeof(*z));
	for (int64_t i = 0; i < E; i++)
		for (int64_t j = i + 1; j < E; j++)
			if (sorted[j] > sorted[i]) {
				double x = sorted[i];

				sorted[i] = sorted[j], sorted[j] = x;
			}
	for (int64_t j = 0; j < m->experts_per_token && j + 1 < E; j++)
		least = fmin(least, sorted[j] - sorted[j + 1]);
	if (m->second_random)
		least = fmin(least, fabs(2 / (1 + exp(sorted[0] - sorted[1])) - hd_random_uniform(key, token)));
	return least;
}

static double margin(void)
{
	const struct hd_plan *p = one->plan;
	const struct hd_model *m = &p->model;
	double least = INFINITY;
	size_t at = nstats;

	for (int64_t l = 0; l < m->layers; l++) {
		uint64_t key = hd_key(one->run.seed, "second expert", hd_hash64((uint64_t)one->run.step) ^ (uint64_t)l);

		if (!hd_experts_in(m, l))
			continue;
		for (int64_t i = 0; i < BATCH * SEQ && m->router == HD_ROUTER_SIGMOID; i++)
			least = fmin(least, sigmoid_margin(m, gt_address(one, p->moe_stats[at], 0) + i * m->experts,
							   gt_address(one, bias_of(p, l), 0)));
		for (int64_t i = 0; i < BATCH * SEQ && m->router != HD_ROUTER_SIGMOID; i++)
			least = fmin(least, token_margin(m, gt_address(one, p->moe_stats[at], 0) + i * m->experts, key,
							 (uint64_t)i));
		at++;
	}
	return least;
}

/* -- comparison with one rank -------------------------------------------------------------------------------------- */
static double compare(struct gt_run *r, const struct tensor *g, const struct tensor *whole)
{
	double *w = gt_address(one, whole, 0), worst = 0;

	for (int k = 0; k < r->n; k++) {
		double *x = hd_tensor_here(r->g[k], g) ? gt_address(r, g, k) : NULL;
		int64_t n = hd_local_count(g);

		for (int64_t i = 0; x && i < n; i++) {
			int64_t rest = i, global = 0, at[HD_MAX_DIMS];
			double off;

			for (uint32_t d = g->v.ndim; d-- > 0; rest /= g->local[d])
				at[d] = rest % g->local[d] + hd_offset(r->plan, g, d, k);
			for (uint32_t d = 0; d < g->v.ndim; d++)
				global = global * g->dims[d]->n + at[d];
			off = fabs(x[i] - w[global]);
			if (!(off <= worst))
				worst = off;
		}
	}
	return worst;
}

/* Returns the worst relative difference of gradients, of parameters whose name contains `only`, or of all. */
static double gradients(struct gt_run *r, const char *only, const char **where)
{
	double worst = 0, scale = 0;

	for (size_t i = 0; i < one->plan->ntensors; i++) {
		struct tensor *t = one->plan->tensors[i], *w, *g, *whole;
		double off;

		if (t->v.node || t->v.what != HD_TENSOR_PARAM || (only && !strstr(t->v.name, only)))
			continue;
		whole = gt_gradient_of(one->plan, t);
		if (!whole && strstr(t->v.name, "e_score_correction_bias"))
			continue;
		for (int64_t k = 0; k < hd_global_count(t); k++)
			scale = fmax(scale, fabs(gt_address(one, whole, 0)[k]));
		w = gt_param_named(r->plan, t->v.name);
		g = w ? gt_gradient_of(r->plan, w) : NULL;
		off = g ? compare(r, g, whole) : NAN;
		if (!(off <= worst)) {
			worst = off;
			*where = t->v.name;
		}
	}
	return worst / scale;
}

static double largest(double a, double b)
{
	return b > a || b != b ? b : a;
}

/* Compares the loss, the norm and the statistics on every rank.  *decisions: whether the (integer) counts agree. */
static double numbers(struct gt_run *r, int *decisions)
{
	double worst = r->plan->nmoe_stats == nstats ? 0 : NAN;

	*decisions = 1;
	for (int k = 0; k < r->n; k++) {
		worst = largest(worst,
				fabs(*gt_address(r, r->plan->loss, k) / *gt_address(one, one->plan->loss, 0) - 1));
		worst = largest(worst,
				fabs(*gt_address(r, r->plan->norm, k) / *gt_address(one, one->plan->norm, 0) - 1));
		for (size_t i = 0; i < nstats && i < r->plan->nmoe_stats; i++) {
			double *a = gt_address(r, r->plan->moe_stats[i], k),
			       *b = gt_address(one, one->plan->moe_stats[i], 0);

			for (int64_t s = 0; s < 2; s++)
				worst = largest(worst, fabs(a[s] / b[s] - 1));
			for (int64_t s = 2; s < 3 + one->plan->model.experts; s++)
				*decisions &= a[s] == b[s];
		}
	}
	return worst;
}

/* Returns whether the update moves each bias by the rate on every rank that has it.  It moves up where an expert was
 * chosen less often than the mean over all tokens, else down. */
static int moves_biases(struct gt_run *r)
{
	const struct hd_model *m = &one->plan->model;
	double was[GT_RANKS][64];
	int right = 1, stat = 0;

	for (int64_t l = 0; l < LAYERS; l++) {
		struct tensor *b = bias_of(r->plan, l);

		for (int k = 0; b && k < r->n; k++)
			for (int64_t i = 0; hd_tensor_here(r->g[k], b) && i < hd_local_count(b); i++)
				was[k][8 * l + i] = gt_address(r, b, k)[i];
	}
	if (sim_update(r))
		return 0;
	for (int64_t l = 0; l < LAYERS; l++) {
		struct tensor *b = bias_of(r->plan, l);
		const double *load;

		if (!hd_experts_in(m, l))
			continue;
		load = gt_address(one, one->plan->moe_stats[stat++], 0) + 3;
		for (int k = 0; k < r->n; k++)
			for (int64_t i = 0; hd_tensor_here(r->g[k], b) && i < hd_local_count(b); i++) {
				int64_t e = i + hd_offset(r->plan, b, 0, k);
				double off =
					(double)(BATCH * SEQ * m->experts_per_token) / (double)m->experts - load[e];
				double want = m->router_bias_rate * ((off > 0) - (off < 0));

				right &= fabs(gt_address(r, b, k)[i] - was[k][8 * l + i] - want) < 1e-15;
			}
	}
	return right;
}

static void runs(const struct layout *l, const char *model, const char *what)
{
	struct hd_plan *p = plan(l, HD_DTYPE_F64, model, l->micro);
	struct gt_run *r = p ? gt_open(p, sim_members) : NULL;
	const char *why = r ? sim_compute(r) : gt_why(), *where = "", *expert = "";
	int same = 0;
	double off = why ? NAN : numbers(r, &same), all = why ? NAN : gradients(r, NULL, &where);
	double experts = why ? NAN : gradients(r, "experts", &expert);

	if (!ok(off < 1e-12 && all < 1e-12, "%s: loss, auxiliary loss, norm and gradients of one rank, %s", l->name,
		what))
		note("%s: numbers differ by %g, gradients by %g (%s)", why ? why : "it ran", off, all, where);
	ok(same, "%s: decisions are those of one rank", l->name);
	if (!ok(experts < 1e-12, "%s: expert gradients are not scaled by the axis of experts", l->name))
		note("off by %g of the largest (%s)", experts, expert);
	if (!why && r->plan->model.router_bias_rate > 0)
		ok(moves_biases(r), "%s: biases move towards experts with few tokens", l->name);
	sim_close(r);
}

/* -- differences --------------------------------------------------------------------------------------------------- */
/* Returns the objective: the loss plus the weighted auxiliary losses (loss_scale is 1 here). */
static double objective(struct gt_run *r)
{
	const struct hd_model *m = &r->plan->model;
	double sum = gt_compute(r);

	for (size_t i = 0; i < nstats; i++) {
		const double *s = gt_address(r, r->plan->moe_stats[i], 0);

		sum += m->aux_loss * s[0] + m->z_loss * s[1];
	}
	return sum;
}

/* Compares gradients with central differences of some entries; the tolerance is that of gt_differences. */
static double differences(struct gt_run *r, const char **where)
{
	double loss = objective(r), h = cbrt(DBL_EPSILON), worst = loss == loss ? 0 : NAN;

	*where = "";
	for (size_t i = 0; i < r->plan->ntensors; i++) {
		struct tensor *t = r->plan->tensors[i],
			      *gt = t->v.node || t->v.what != HD_TENSOR_PARAM ? NULL : gt_gradient_of(r->plan, t);
		int64_t n = hd_local_count(t), step = n > 3 ? n / 3 : 1;
		double *g, scale = 1 + fabs(loss);

		if (!gt)
			continue;
		g = hd_alloc((size_t)n * sizeof(*g));
		objective(r);
		memcpy(g, gt_address(r, gt, 0), (size_t)n * sizeof(*g));
		for (int64_t k = 0; k < n; k++)
			scale = fmax(scale, fabs(g[k]));
		for (int64_t k = (int64_t)i % step; k < n; k += step) {
			double *w = gt_address(r, t, 0), x = w[k], up, off;

			w[k] = x + h;
			up = objective(r);
			w[k] = x - h;
			off = fabs((up - objective(r)) / (2 * h) - g[k]) / (300 * h * h * scale);
			w[k] = x;
			if (!(off <= worst)) {
				worst = off;
				*where = t->v.name;
			}
		}
		free(g);
	}
	return worst;
}

static void model(const char *keys, const char *what, int few)
{
	struct hd_plan *p = plan(NULL, HD_DTYPE_F64, keys, BATCH);
	const char *where = "";
	double off;

	if (p)
		keep_logits(p);
	one = p ? gt_open(p, NULL) : NULL;
	if (!ok(one && gt_compute(one) > 0 && nstats > 0, "one rank, %s", what)) {
		note("%s", gt_why());
		return;
	}
	if (!ok(margin() > 1e-6, "... decisions have clear margins"))
		note("the smallest margin is %g", margin());
	off = differences(one, &where);
	if (!ok(off <= 1, "... and gradients match finite differences"))
		note("off by %g times the tolerance (%s)", off, where);
	gt_compute(one);
	for (size_t i = 0; i < HD_LEN(layouts); i++)
		if (!few || i % 3 == 1)
			runs(&layouts[i], keys, what);
	gt_close(one);
}

/* -- decisions do not depend on micro-batches ---------------------------------------------------------------------- */
static void micro_batches(int64_t group)
{
	char keys[200];
	struct hd_plan *p;
	int same;

	snprintf(keys, sizeof(keys), "experts = 4\nmoe_every = 1\ncapacity_factor = 1.5\ngroup_tokens = %lld\n",
		 (long long)group);
	p = plan(NULL, HD_DTYPE_F64, keys, BATCH);
	nstats = p ? p->nmoe_stats : 0;
	one = p ? gt_open(p, NULL) : NULL;
	ok(one && gt_compute(one) > 0 && gt_address(one, p->moe_stats[0], 0)[2] > 0,
	   "groups of %lld tokens: some tokens are dropped", (long long)group);
	for (int micro = 1; one && micro < BATCH; micro *= 2) {
		struct gt_run *r;
		double off = NAN;

		if (group > micro * SEQ)
			continue;
		r = gt_open(plan(NULL, HD_DTYPE_F64, keys, micro), NULL);
		same = 0;
		if (r && gt_compute(r) > 0)
			off = numbers(r, &same);
		ok(same && off < 1e-12, "groups of %lld tokens: micro-batches of %d lead to the same decisions",
		   (long long)group, micro);
		gt_close(r);
	}
	gt_close(one);
}

/* -- experts without tokens ---------------------------------------------------------------------------------------- */
/* A router of zeros scores all experts equally, and ties go to the lowest, so all tokens choose experts 0 and 1.
 * Ranks without tokens still take part in every movement, and their gradients are zero rather than stale memory. */
static void blank_routers(struct gt_run *r)
{
	for (int k = 0; k < r->n; k++)
		for (size_t i = 0; i < r->plan->ntensors; i++) {
			struct tensor *t = r->plan->tensors[i];

			if (!t->v.node && t->v.what == HD_TENSOR_PARAM && strstr(t->v.name, ".gate.weight") &&
			    hd_tensor_here(r->g[k], t))
				memset(gt_address(r, t, k), 0, (size_t)hd_local_bytes(t));
		}
}

static void without_tokens(void)
{
	static const int which[] = { 0, 1, 2, 4, 6, 9, 12 };
	static const char *const keys = "family = mixtral\naux_loss = 0\n";
	struct hd_plan *p = plan(NULL, HD_DTYPE_F64, keys, BATCH);

	nstats = p ? p->nmoe_stats : 0;
	one = p ? gt_open(p, NULL) : NULL;
	if (!one) {
		ok(0, "one rank: %s", gt_why());
		return;
	}
	blank_routers(one);
	gt_compute(one);
	ok(gt_address(one, p->moe_stats[0], 0)[3] == BATCH * SEQ &&
		   gt_address(one, p->moe_stats[0], 0)[4] == BATCH * SEQ && gt_address(one, p->moe_stats[0], 0)[5] == 0,
	   "all tokens choose two of eight experts");
	for (size_t i = 0; i < HD_LEN(which); i++) {
		const struct layout *l = &layouts[which[i]];
		struct hd_plan *many = plan(l, HD_DTYPE_F64, keys, l->micro);
		struct gt_run *r = many ? gt_open(many, sim_members) : NULL;
		const char *why = r ? (blank_routers(r), sim_compute(r)) : gt_why(), *where = "";
		int same = 0;
		double off = why ? NAN : numbers(r, &same), all = why ? NAN : gradients(r, NULL, &where);

		if (!ok(same && off < 1e-12 && all < 1e-12,
			"%s: ranks whose experts have no tokens compute what one rank does", l->name))
			note("%s: numbers differ by %g, gradients by %g (%s)", why ? why : "it ran", off, all, where);
		sim_close(r);
	}
	gt_close(one);
}

static void refusals(void)
{
	static const struct layout two = { "", "ep:2", EP, "", 2, 1 };
	struct hd_plan *p = plan(&two, HD_DTYPE_F32, "experts = 4\ngroup_tokens = 16\n", 1);

	ok(!p && strstr(gt_why(), "groups of 16 tokens, but a rank has 8 of a micro-batch"),
	   "a group that spans two ranks is refused");
	p = plan(NULL, HD_DTYPE_F32, "experts = 4\ngroup_tokens = 12\n", 1);
	ok(!p && strstr(gt_why(), "12 neither divides train.seq = 8"),
	   "a group that does not divide a sample is refused");
	p = plan(NULL, HD_DTYPE_F32, "experts = 4\nexperts_per_token = 3\n", 1);
	ok(!p && strstr(gt_why(), "gshard chooses 2"), "gshard with three experts per token is refused");
	p = plan(NULL, HD_DTYPE_F32, "experts = 4\nrouter = topk\nexperts_per_token = 5\n", 1);
	ok(!p && strstr(gt_why(), "5 is more than model.experts = 4"), "more choices than experts are refused");
	p = plan(NULL, HD_DTYPE_F32, "experts = 16\ncapacity_factor = 1\n", 1);
	ok(!p && strstr(gt_why(), "is a capacity of less than one token"),
	   "a capacity of less than one token is refused");
	p = plan(NULL, HD_DTYPE_F32, "experts = 4\ncapacity_factor = -0.5\n", 1);
	ok(!p && strstr(gt_why(), "-0.5 is negative"), "a negative capacity factor is refused");
	p = plan(NULL, HD_DTYPE_F32, "family = glm4_moe\nexperts = 8\nrouter_groups = 3\n", 1);
	ok(!p && strstr(gt_why(), "model.experts = 8 cannot be divided into that many groups"),
	   "unequal groups are refused");
	p = plan(NULL, HD_DTYPE_F32,
		 "family = glm4_moe\nexperts = 8\nrouter_groups = 4\nrouter_best_groups = 1\nexperts_per_token = 3\n",
		 1);
	ok(!p && strstr(gt_why(), "3 is more than the 2 experts of router_best_groups = 1"),
	   "more choices than the best groups have experts are refused");
	p = plan(NULL, HD_DTYPE_F32, "family = mixtral\nrouter_bias_rate = 0.1\n", 1);
	ok(!p && strstr(gt_why(), "only router = sigmoid has it, but here it is topk"),
	   "a bias rate with topk is refused");
	p = plan(NULL, HD_DTYPE_F32, "experts = 4\nrouter = sigmoid\n", 1);
	ok(!p && strstr(gt_why(), "the family gpt2 does not have sigmoid"), "gpt2 with sigmoids is refused");
	p = plan(NULL, HD_DTYPE_F32, "experts = 4\nmoe_every = 3\n", 1);
	ok(!p && strstr(gt_why(), "3 is more than model.layers = 2: no layer has experts"),
	   "experts in no layer are refused");
	p = plan(NULL, HD_DTYPE_F32, "family = glm4_moe\nexperts = 8\ndense_layers = 2\n", 1);
	ok(!p && strstr(gt_why(), "2 of model.layers = 2: no layer has experts"),
	   "... as are experts when all layers are dense");
	p = plan(NULL, HD_DTYPE_F32, "experts = 4\ngroup_tokens = 8000\n", 1);
	ok(!p && strstr(gt_why(), "8000 does not divide the"), "a group larger than a step is refused");
	p = plan(NULL, HD_DTYPE_F32, "family = mixtral\nexperts = 4\nrouter = gshard\ngate_scale = 2\n", 1);
	ok(!p && strstr(gt_why(), "2, but gates of router = gshard have no factor"),
	   "a gate factor with gshard is refused");
	p = plan(NULL, HD_DTYPE_F32, "family = glm4_moe\nexperts = 8\nrouter_groups = 2\nrouter_best_groups = 3\n", 1);
	ok(!p && strstr(gt_why(), "3 is more than model.router_groups = 2"),
	   "more best groups than groups are refused");
	p = plan(NULL, HD_DTYPE_F32, "family = glm4_moe\nexperts = 4\nrouter_groups = 4\n", 1);
	ok(!p && strstr(gt_why(), "model.experts = 4 cannot be divided into that many groups of two"),
	   "groups of one expert are refused");
}

/* -- movements ----------------------------------------------------------------------------------------------------- */
/* GShard has 2 all-to-alls per layer forward and 2 backward, each of E C h elements per group, (n - 1) / n of them
 * remote. */
static void movements(const char *keys, const char *what, int64_t rows, int64_t numbers)
{
	static const struct layout l = { "", "ep:4", EP, "", 4, 2 };
	struct hd_plan *p = plan(&l, HD_DTYPE_F32, keys, 2);
	int64_t want = rows * EMBED * 4 * 3 / 4;
	int n[2] = { 0 }, others = 0, bytes = 1;

	for (const struct node *k = p ? p->first : NULL; k; k = k->next) {
		if (!k->comm.kind || strcmp(k->v.block, "layer 1"))
			continue;
		if (k->comm.kind == (numbers ? HD_COMM_ALL_TO_ALL_V : HD_COMM_ALL_TO_ALL))
			n[k->v.phase != HD_UNIT_F]++, bytes &= hd_comm_node_bytes(k) == want;
		else if (k->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W))
			others++;
	}
	ok(n[0] == 2 && n[1] == 2, "%s: 2 all-to-alls forward and 2 backward (%d, %d)", what, n[0], n[1]);
	ok(bytes, "%s: each moves %lld bytes per rank", what, (long long)want);
	ok(others == numbers, "%s: the layer has %lld other movements (%d)", what, (long long)numbers, others);
	if (p)
		gt_plan_destroy(p);
}

/* Checks the plugin's own rules: wherever ep stands among the strategies, tokens move along its axis alone.  It shards
 * the batch inside the pieces of the replicas; otherwise an all-to-all would mix rows of all replicas. */
static void beside_replicas(const char *sections, const char *what)
{
	int moved = 0, others = 0;
	struct hd_plan *p;
	char ini[1000];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 2\nembed = 16\nheads = 4\nvocab = 16\nexperts = 4\nmoe_every = 1\n"
		 "[data]\ntrain = none\n[train]\nseq = 8\nglobal_batch = 12\nmicro_batch = 2\nsteps = 1\n%s",
		 sections);
	p = gt_plan_of(ini, 6, HD_DTYPE_F32);
	if (!ok(p != NULL, "%s", what)) {
		note("%s", gt_why());
		return;
	}
	for (const struct node *n = p->first; n; n = n->next)
		if (n->comm.kind && n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W) &&
		    !strcmp(n->v.block, "layer 1")) {
			int along = n->comm.kind == HD_COMM_ALL_TO_ALL && n->comm.group->v.n == 2;

			moved += along;
			others += !along;
		}
	is_int(moved, 4, "... two all-to-alls forward and two backward, among the two ranks of ep");
	is_int(others, 0, "... and no movement among replicas");
	gt_plan_destroy(p);
}

int main(void)
{
	beside_replicas(PLUGIN("ep") "size = 2\n" PLUGIN("dp") "size = 3\n", "ep, then dp");
	beside_replicas(PLUGIN("dp") "size = 3\n" PLUGIN("ep") "size = 2\n", "dp, then ep");
	model("experts = 8\n", "gshard in every second layer", 0);
	model("family = mixtral\nexperts = 8\nkv_heads = 4\nrouter = topk\ncapacity_factor = 1.5\nz_loss = 0.01\naux_loss = 0.1\n",
	      "top 2 with places, z loss", 1);
	if (whole_sweep())
		model("family = llama\nexperts = 8\nmoe_every = 1\nrouter = topk\nexperts_per_token = 1\ncapacity_factor = 2\n",
		      "Switch", 1);
	if (whole_sweep())
		model("family = llama\nexperts = 8\nmoe_every = 1\nsecond_expert = all\ngroup_tokens = 4\naux_loss = 1\n",
		      "gshard, every second expert, half samples", 1);
	model("family = mixtral\nz_loss = 0.1\n", "mixtral without a limit", 0);
	model("family = glm4_moe\nexperts = 8\nrouter_groups = 4\nrouter_best_groups = 2\ngate_scale = 1.5\n"
	      "router_bias_rate = 0.25\naux_loss = 0.1\nz_loss = 0.1\nexpert_mlp = 12\n",
	      "sigmoids, groups, a bias that moves", 0);
	model("family = glm4_moe\nexperts = 8\nexperts_per_token = 3\nnormalize_gates = no\naux_loss = 0.2\n"
	      "shared_experts = 0\ndense_layers = 0\ncapacity_factor = 1.5\n",
	      "sigmoids that are not normalised, with a limit", 1);
	if (whole_sweep())
		model("family = mixtral\nexperts = 8\ngate_scale = 2\nnormalize_gates = no\n",
		      "gates of a softmax with a factor", 1);
	for (int64_t group = SEQ / 2; group <= 4 * SEQ; group *= 2)
		micro_batches(group);
	without_tokens();
	refusals();
	movements("experts = 8\nmoe_every = 1\n", "gshard", 2 * 8 * (2 * SEQ / 8),
		  0); /* 2 groups: the samples of a rank */
	movements("family = mixtral\n", "mixtral", 2 * SEQ * 2, 1);
	return done();
}
