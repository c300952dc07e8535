/* SPDX-License-Identifier: Apache-2.0
 * The scale of initial weights, for every kind of parameter of every family: normal with model.init_std, divided by
 * sqrt(2 layers) at the end of a residual branch (GPT-2, Radford et al. 2019); norms are one, biases zero.  Other tests
 * compare layouts with each other, which start from the same weights even if all are wrong.  If this broke, a deep
 * model whose residual stream starts too wide would learn late or not at all.
 *
 * A kind is a parameter's name without its layer.  The standard deviation of N numbers is off by 1 / sqrt(2 N) of
 * itself, a mean by 1 / sqrt(N) of the deviation: 6 times that is allowed, and never more than 5 %.
 */
#include <config.h>
#include "engine/run/job.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"
#include <ctype.h>
#include <string.h>

#define LAYERS 8

struct kind {
	char name[100];
	int64_t n;
	double sum, squares, least, most;
};

/* "h.3.attn.q.weight" -> "h.attn.q.weight" */
static void kind_of(const char *name, char *kind, size_t size)
{
	size_t n = 0;

	for (; *name && n + 1 < size; name++)
		if (*name == '.' && isdigit((unsigned char)name[1]))
			name += strspn(name + 1, "0123456789");
		else
			kind[n++] = *name;
	kind[n] = 0;
}

static struct kind *find(struct kind *all, int *n, const char *name)
{
	char kind[100];

	kind_of(name, kind, sizeof(kind));
	for (int i = 0; i < *n; i++)
		if (!strcmp(all[i].name, kind))
			return &all[i];
	memset(&all[*n], 0, sizeof(all[0]));
	memcpy(all[*n].name, kind, sizeof(kind));
	all[*n].least = INFINITY;
	all[*n].most = -INFINITY;
	return &all[(*n)++];
}

static void add(struct kind *k, const double *w, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		k->sum += w[i];
		k->squares += w[i] * w[i];
		k->least = fmin(k->least, w[i]);
		k->most = fmax(k->most, w[i]);
	}
	k->n += n;
}

static int has(const char *name, const char *const *words)
{
	for (; *words; words++)
		if (strstr(name, *words))
			return 1;
	return 0;
}

static void is_constant(const struct kind *k, double want)
{
	if (!ok(k->least == want && k->most == want, "%s is %g", k->name, want))
		note("from %g to %g", k->least, k->most);
}

static void is_normal(const struct kind *k, double std)
{
	double n = (double)k->n, mean = k->sum / n, got = sqrt(k->squares / n - mean * mean), allowed = 6 / sqrt(2 * n);

	if (!ok(allowed < 0.05 && fabs(got / std - 1) < allowed && fabs(mean) < 6 * std / sqrt(n),
		"%s has a standard deviation of %.4g", k->name, std))
		note("%lld numbers have a deviation of %g and a mean of %g; off by %g, %g is allowed", (long long)k->n,
		     got, mean, fabs(got / std - 1), allowed);
}

static void judge(const struct kind *k, double std)
{
	static const char *const ends[] = {
		"attn.proj.weight", "mlp.proj.weight", "experts.proj.weight", "o_proj", "down_proj", ".w2.", NULL
	};
	static const char *const norms[] = { "ln_", "norm", NULL }, *const biases[] = { ".bias", NULL };

	if (has(k->name, biases))
		is_constant(k, 0);
	else if (has(k->name, norms))
		is_constant(k, 1);
	else
		is_normal(k, has(k->name, ends) ? std / sqrt(2.0 * LAYERS) : std);
}

/* kinds: the number of kinds of parameters that the model has */
static void model(const char *keys, double std, int kinds)
{
	struct kind all[40];
	char ini[1000];
	struct hd_plan *p;
	struct gt_run *r;
	int n = 0;

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = %d\nheads = 4\nembed = 64\nvocab = 257\nmax_seq = 128\n%s[data]\n"
		 "train = none\n[train]\n"
		 "seq = 8\nglobal_batch = 1\nsteps = 1\noptimizer = sgd\nclip = 0\n",
		 LAYERS, keys);
	p = gt_plan_of(ini, 1, HD_DTYPE_F64);
	r = p ? gt_open(p, NULL) : NULL;
	if (!ok(r != NULL, "%.*s: the model is planned", (int)strcspn(keys, "\n"), keys)) {
		note("%s", gt_why());
		return;
	}
	hd_init_weights(r->g[0], 3, NULL);
	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];

		if (!t->v.node && t->v.what == HD_TENSOR_PARAM)
			add(find(all, &n, t->v.name), gt_address(r, t, 0), hd_local_count(t));
	}
	is_int(n, kinds, "the model has all kinds of parameters");
	for (int i = 0; i < n; i++)
		judge(&all[i], std);
	gt_close(r);
}

int main(void)
{
	model("family = gpt2\n", 0.02, 20);
	model("family = gpt2\ninit_std = 0.5\nexperts = 16\nmoe_every = 1\ntie_embeddings = no\n", 0.5, 20);
	model("family = llama\nkv_heads = 2\n", 0.02, 12);
	model("family = mixtral\nexperts = 16\ninit_std = 0.3\n", 0.3, 13);
	return done();
}
