/* SPDX-License-Identifier: Apache-2.0
 * The update of every parameter of a complete model, compared with the test's own arithmetic.  That is SGD, and Adam
 * with decoupled weight decay (Loshchilov and Hutter 2019), with their betas, eps, weight decay, and clipping (Pascanu
 * et al. 2013).  It runs on one rank and in layouts that shard states, gradients and parameters.  Kernels are tested
 * elsewhere; this test checks the numbers that reach them.  If this broke, biases and norms would decay, or nothing
 * would, and the model would still train, only worse.
 *
 * In double on the reference device, all ranks in this process.
 */
#include <config.h>
#include "t/lib/one_rank.h"

#define PLUGIN(name) "[strategy " name "]\nplugin = " HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\n"
#define DECAY 0.25
#define BETA1 0.75
#define BETA2 0.9
#define EPS 0.01 /* large enough to show, and to keep a gradient of mere rounding from becoming a sign */
#define CLIP 0.125
#define LR 0.03125
#define BATCH 18
#define SEQ 5

struct kind {
	const char *name;
	int adam;
	double clip;
};

static const struct kind kinds[] = {
	{ "adamw", 1, 0 },
	{ "adamw, clipped", 1, CLIP },
	{ "sgd", 0, 0 },
	{ "sgd, clipped", 0, CLIP },
};

static struct hd_plan *plan(const char *model, const struct kind *k, int ranks, const char *sections)
{
	char ini[2500];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 3\nheads = 3\nembed = 18\nmlp = 27\nvocab = 19\n%s\n[data]\ntrain = none\n"
		 "[train]\nseq = %d\nglobal_batch = %d\nmicro_batch = %d\nsteps = 3\noptimizer = %s\n"
		 "clip = %g\nweight_decay = %g\n"
		 "beta1 = %g\nbeta2 = %g\neps = %g\n%s",
		 model, SEQ, BATCH, ranks == 1 ? 6 : 2, k->adam ? "adamw" : "sgd", k->clip, DECAY, BETA1, BETA2, EPS,
		 sections);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

/* Opens a run with optimizer states of zero, as at the start of training. */
static struct gt_run *opened(struct hd_plan *p, int many)
{
	struct gt_run *r = p ? gt_open(p, many ? sim_members : NULL) : NULL;

	for (size_t i = 0; r && i < p->ntensors; i++)
		for (int k = 0; k < r->n; k++)
			if (p->tensors[i]->v.what == HD_TENSOR_STATE && !p->tensors[i]->v.node &&
			    hd_tensor_here(r->g[k], p->tensors[i]))
				memset(gt_address(r, p->tensors[i], k), 0, (size_t)hd_local_bytes(p->tensors[i]));
	if (r) {
		r->run.lr = LR;
		r->run.loss_scale = 1.0 / (BATCH * SEQ);
	}
	return r;
}

static int is_parameter(const struct tensor *t)
{
	return !t->v.node && t->v.what == HD_TENSOR_PARAM;
}

/* Weights that are multiplied decay; biases and the scales of norms do not. */
static int decays(const char *name)
{
	size_t n = strlen(name);

	return !strstr(name, "ln_") && !strstr(name, "norm") && strcmp(n > 5 ? name + n - 5 : name, ".bias");
}

/* -- weight decay without a gradient ----------------------------------------------------------- */
static void decay_alone(const char *model, const char *what, const struct kind *k)
{
	int moved = 0, stayed = 0, wrong = 0;
	double *before[200];
	size_t n;

	one = opened(plan(model, k, 1, ""), 0);
	if (!ok(one && one->plan->ntensors > 0, "%s, %s: the model is planned", what, k->name))
		return;
	one->run.loss_scale = 0;
	n = one->plan->ntensors;
	for (size_t i = 0, at = 0; i < n; i++)
		if (is_parameter(one->plan->tensors[i]) && at < HD_LEN(before)) {
			size_t bytes = (size_t)hd_local_bytes(one->plan->tensors[i]);

			before[at] = hd_alloc(bytes);
			memcpy(before[at++], gt_address(one, one->plan->tensors[i], 0), bytes);
		}
	gt_compute(one);
	hd_program_update(one->g[0], &one->run);
	for (size_t i = 0, at = 0; i < n; i++) {
		const struct tensor *t = one->plan->tensors[i];
		double *w, factor;

		if (!is_parameter(t) || at == HD_LEN(before))
			continue;
		w = gt_address(one, t, 0);
		factor = decays(t->v.name) ? 1 - LR * DECAY : 1;
		*(decays(t->v.name) ? &moved : &stayed) += 1;
		for (int64_t e = 0; e < hd_local_count(t); e++)
			if (!(fabs(w[e] - before[at][e] * factor) <= (factor < 1 ? 2 * DBL_EPSILON * fabs(w[e]) : 0))) {
				note("%s[%lld]: from %.17g to %.17g, not times %g", t->v.name, (long long)e,
				     before[at][e], w[e], factor);
				wrong++;
				break;
			}
		free(before[at++]);
	}
	ok(!wrong && moved && stayed, "without a gradient %d parameters become w (1 - lr decay), and %d keep every bit",
	   moved, stayed);
	gt_close(one);
}

/* -- steps in the test's own arithmetic -------------------------------------------------------- */
struct moments {
	double *m, *v;
};

/* Returns the factor of clipping.  *largest is the largest entry of any gradient so far. */
static double factor_by_hand(double clip, double *largest)
{
	double sum = 0;

	for (size_t i = 0; i < one->plan->ntensors; i++) {
		const struct tensor *t = one->plan->tensors[i];
		const double *g = is_parameter(t) ? gt_address(one, gt_gradient_of(one->plan, t), 0) : NULL;

		for (int64_t e = 0; g && e < hd_local_count(t); e++) {
			sum += g[e] * g[e];
			*largest = fmax(*largest, fabs(g[e]));
		}
	}
	return clip > 0 && sqrt(sum) > clip ? clip / sqrt(sum) : 1;
}

/* Computes the new value of one parameter.  Powers of beta are computed by multiplication. */
static void by_hand(const struct kind *k, const double *w, const double *g, double factor, double decay, int step,
		    int64_t n, struct moments *s, double *out)
{
	double b1 = 1, b2 = 1;

	for (int i = 0; i < step; i++)
		b1 *= BETA1, b2 *= BETA2;
	for (int64_t e = 0; e < n; e++) {
		double x = factor * g[e], move = x;

		s->m[e] += (1 - BETA1) * (x - s->m[e]);
		s->v[e] += (1 - BETA2) * (x * x - s->v[e]);
		if (k->adam)
			move = s->m[e] / (1 - b1) / (EPS + sqrt(s->v[e] / (1 - b2)));
		out[e] = w[e] * (1 - LR * decay) - LR * move;
	}
}

/* Makes a step of `one`.  Returns the largest difference from the arithmetic above, and the factor of clipping. */
static double step(const struct kind *k, int number, struct moments *states, double *factor, double *largest)
{
	double **want = hd_alloc(one->plan->ntensors * sizeof(*want)), worst = 0;

	one->run.step = number;
	if (!(gt_compute(one) > 0))
		return NAN;
	*factor = factor_by_hand(k->clip, largest);
	for (size_t i = 0; i < one->plan->ntensors; i++) {
		const struct tensor *t = one->plan->tensors[i];
		int64_t n = hd_local_count(t);

		if (!is_parameter(t))
			continue;
		if (!states[i].m) {
			states[i].m = hd_alloc((size_t)n * sizeof(double));
			states[i].v = hd_alloc((size_t)n * sizeof(double));
		}
		want[i] = hd_alloc((size_t)n * sizeof(double));
		by_hand(k, gt_address(one, t, 0), gt_address(one, gt_gradient_of(one->plan, t), 0), *factor,
			decays(t->v.name) ? DECAY : 0, number, n, &states[i], want[i]);
	}
	hd_program_update(one->g[0], &one->run);
	for (size_t i = 0; i < one->plan->ntensors; i++) {
		const double *w = want[i] ? gt_address(one, one->plan->tensors[i], 0) : NULL;

		for (int64_t e = 0; w && e < hd_local_count(one->plan->tensors[i]); e++) {
			double off = fabs(w[e] - want[i][e]);

			if (!(off <= worst))
				worst = off;
		}
		free(want[i]);
	}
	free(want);
	return worst;
}

/* -- layouts ----------------------------------------------------------------------------------- */
static const struct layout {
	const char *name, *sections;
	int ranks, experts;
} layouts[] = {
	{ "dp 3", PLUGIN("dp") "size = 3\nbucket = 1K\n", 3, 0 },
	{ "dp 3, states sharded", PLUGIN("dp") "size = 3\nzero = 1\n", 3, 0 },
	{ "dp 3, gradients sharded", PLUGIN("dp") "size = 3\nzero = 2\n", 3, 0 },
	{ "dp 3, parameters sharded", PLUGIN("dp") "size = 3\nzero = 3\n", 3, 0 },
	{ "dp 3, servers", PLUGIN("dp") "size = 3\nsync = server\n", 3, 0 },
	{ "tp 3", PLUGIN("tp") "size = 3\n", 3, 0 },
	{ "pp 3", PLUGIN("pp") "size = 3\n", 3, 0 },
	{ "pp 3, weight gradients split off", PLUGIN("pp") "size = 3\nschedule = zb\n", 3, 0 },
	{ "tp 3 x dp 3, gradients sharded", PLUGIN("tp") "size = 3\n" PLUGIN("dp") "size = 3\nzero = 2\n", 9, 0 },
	{ "ep 3 x dp 3, parameters sharded", PLUGIN("ep") "size = 3\n" PLUGIN("dp") "size = 3\nzero = 3\n", 9, 1 },
};

#define STEPS 3

/* Compares all parameters of a layout with those of one rank, after the same steps. */
static void in_layout(const struct layout *l, const char *model, const struct kind *k, double largest)
{
	struct gt_run *r = opened(plan(model, k, l->ranks, l->sections), 1);
	const char *why = r ? NULL : gt_why(), *where = "";
	double worst = 0;

	for (int s = 1; s <= STEPS && !why; s++) {
		r->run.step = s;
		why = sim_compute(r);
		why = why ? why : sim_update(r);
	}
	for (size_t i = 0; i < one->plan->ntensors && !why; i++) {
		const struct tensor *t = one->plan->tensors[i],
				    *w = is_parameter(t) ? gt_param_named(r->plan, t->v.name) : NULL;
		double off = w ? compare(r, w, t) : is_parameter(t) ? NAN : 0;

		if (!(off <= worst))
			worst = off, where = t->v.name;
	}
	/* Gradients agree to 1e-12 of the largest entry (t/lib/one_rank.h).  Adam enlarges that at most by 1 / eps, SGD
	 * not at all.  Weights of a few units add a rounding each. */
	if (!ok(!why && worst <= STEPS * (LR * (k->adam ? 1 / EPS : 1) * 1e-12 * largest + 4 * DBL_EPSILON),
		"%s: after %d steps of %s the parameters equal those of one rank", l->name, STEPS, k->name))
		note("%s: off by %g (%s)", why ? why : "it ran", worst, where);
	sim_close(r);
}

static void steps(const char *model, const char *what, int has_experts)
{
	for (size_t i = 0; i < HD_LEN(kinds); i++) {
		double worst = 0, factor = 1, least = 1, largest = 0;
		struct moments *states;

		one = opened(plan(model, &kinds[i], 1, ""), 0);
		if (!ok(one != NULL, "%s, %s: one rank is planned", what, kinds[i].name)) {
			note("%s", gt_why());
			continue;
		}
		states = hd_alloc(one->plan->ntensors * sizeof(*states));
		for (int s = 1; s <= STEPS; s++) {
			double off = step(&kinds[i], s, states, &factor, &largest);

			worst = off <= worst ? worst : off;
			least = fmin(least, factor);
		}
		/* Weights of up to 3 and moves of lr: a dozen roundings each. */
		if (!ok(worst <= 12 * DBL_EPSILON * 3, "%d steps equal those of the paper", STEPS))
			note("off by %g", worst);
		ok(kinds[i].clip > 0 ? least < 1 : least == 1, "the gradient is %s (factor %g)",
		   kinds[i].clip > 0 ? "clipped" : "not clipped", least);
		for (size_t k = 0; k < one->plan->ntensors; k++) {
			free(states[k].m);
			free(states[k].v);
		}
		free(states);
		for (size_t k = 0; k < HD_LEN(layouts); k++)
			if (layouts[k].experts == has_experts)
				in_layout(&layouts[k], model, &kinds[i], largest);
		gt_close(one);
	}
}

int main(void)
{
	static const char gpt2[] = "dropout = 0.1", llama[] = "family = llama\nkv_heads = 1",
			  mixtral[] = "family = mixtral\nkv_heads = 3\nexperts = 3",
			  some[] = "experts = 3\ntie_embeddings = no";

	for (size_t i = 1; i < HD_LEN(kinds); i++) {
		decay_alone(gpt2, "gpt2", &kinds[i]);
		decay_alone(llama, "llama", &kinds[i]);
		decay_alone(mixtral, "mixtral", &kinds[i]);
		decay_alone(some, "gpt2 with experts", &kinds[i]);
	}
	steps(gpt2, "gpt2, dropout", 0);
	steps(mixtral, "mixtral", 1);
	return done();
}
