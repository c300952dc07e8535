/* SPDX-License-Identifier: Apache-2.0
 * Runs plugins/tp in two and three dimensions.  If this broke, training on a grid of ranks would yield a different
 * model than one rank, or send more than the published algorithms do (Xu et al. 2104.05343, Wang et al. 2105.14500,
 * Bian et al. 2105.14450).
 *
 *   - One product Y = X W of integers: Y, dX and dW are one rank's to the bit, and each rank sends what the formula
 *     says.
 *   - While SUMMA computes a product, the next blocks are under way, and no others.
 *   - GPT-2, Llama with fewer key heads, experts: loss, gradient norm and every reassembled gradient are one rank's
 *     (in double, all ranks in this process).  These run on up to 27 ranks, also combined with replicas, experts and
 *     stages.
 */
#include <config.h>
#include "engine/host/host.h"
#include "t/lib/one_rank.h"
#include "t/lib/integers.h"

#define PLUGIN(name) "plugin = " HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\n"
#define TP "[strategy tp]\n" PLUGIN("tp")

struct form {
	const char *name, *keys;
	int ranks, q, depth; /* q^2 depth, or q^3 with depth 0 */
};

static const struct form forms[] = {
	{ "2d, 1 rank", "form = 2d\n", 1, 1, 1 },
	{ "2d, 4 ranks", "form = 2d\n", 4, 2, 1 },
	{ "2d, 9 ranks", "form = 2d\n", 9, 3, 1 },
	{ "2.5d, 2 ranks", "form = 2.5d\ndepth = 2\n", 2, 1, 2 },
	{ "2.5d, 4 ranks of depth 1", "form = 2.5d\ndepth = 1\n", 4, 2, 1 },
	{ "2.5d, 8 ranks", "form = 2.5d\ndepth = 2\n", 8, 2, 2 },
	{ "2.5d, 12 ranks", "form = 2.5d\ndepth = 3\n", 12, 2, 3 },
	{ "2.5d, 18 ranks", "form = 2.5d\ndepth = 2\n", 18, 3, 2 },
	{ "3d, 1 rank", "form = 3d\n", 1, 1, 0 },
	{ "3d, 8 ranks", "form = 3d\n", 8, 2, 0 },
	{ "3d, 27 ranks", "form = 3d\n", 27, 3, 0 },
};

/* -- one product --------------------------------------------------------------------------------------------------- */
#define BATCH 36 /* rows of a micro-batch: 4 tokens each */
#define TOKENS 4
#define IN 36
#define OUT 18

/* Calls a slot of the plugin on a graph built by hand, as engine/plan/plan.c does. */
static void slot(struct hd_plan *p, const char *name, int (*call)(struct hd_strategy *, struct hd_plan *))
{
	p->slot = (struct hd_slot){ .name = name };
	p->cursor = hd_cursor_end(HD_UNIT_F, -1);
	if (call)
		hd_slot_returned(p, call(p->inst[0].self, p));
	p->slot = (struct hd_slot){ .inst = -1 };
	p->cursor = hd_cursor_end(HD_UNIT_F, -1);
}

static const struct hd_strategy_ops *load(struct hd_plan *p, const struct form *f)
{
	static const struct hd_option own[] = { { "plugin", HD_OPT_STR, 0, NULL, NULL, "" },
						{ "size", HD_OPT_STR, 0, "auto", NULL, "" } };
	struct hd_key_table tables[2] = { { own, 2, sizeof(own[0]) } };
	struct hd_plugin_entry *e = NULL;
	struct inst *in = &p->inst[0];
	char ini[400];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 1\nembed = 36\nheads = 6\n[train]\nseq = 4\nglobal_batch = 36\nsteps = 1\n"
		 "optimizer = sgd\nclip = 0\nweight_decay = 0\n" TP "%s",
		 f->keys);
	hd_conf_destroy(p->conf);
	p->conf = gt_conf(ini);
	if (!p->conf || hd_registry_find(HD_TEST_BUILD "/plugins/tp/.libs/tp.so", ".", &e, p->err) < 0)
		return NULL;
	tables[1] = (struct hd_key_table){ e->ops->options, e->ops->noptions, e->ops->option_size };
	*in = (struct inst){ .name = "tp", .section = hd_conf_next(p->conf, "strategy", NULL), .plugin = e, .open = 1 };
	if (hd_section_check(p->conf, in->section, tables, 2, p->err) < 0)
		return NULL;
	p->ninst = 1;
	p->slot = (struct hd_slot){ .name = "open" };
	e->ops->open(p, &hd_host_table, &in->self);
	p->slot.name = "mesh";
	e->ops->mesh(in->self, p, f->ranks, f->ranks);
	p->ranks = f->ranks;
	p->slot = (struct hd_slot){ .inst = -1 };
	return p->err->code ? NULL : e->ops;
}

/* loss = sum of v Y, so v's gradient is Y.  A node computes X, since a leaf would be placed where its first reader,
 * the product, needs it. */
static void build(struct hd_plan *p, const struct hd_strategy_ops *ops)
{
	struct tensor *x = gt_param(p, "x", "batch,seq,embed"), *in[1] = { x };
	struct tensor *y = hd_einsum(p, hd_map_new(p, in, 1, "a"), gt_param(p, "w", "embed,mlp"), "batch,seq,mlp");
	struct tensor *nll = gt_loss(p, y);

	p->nll = nll;
	p->loss = nll ? hd_op1(p, "sum", &nll, 1, "out=") : NULL;
	if (ops)
		slot(p, "rewrite", ops->rewrite);
	if (!p->loss || hd_pass_autodiff(p) < 0)
		return;
	if (ops)
		slot(p, "rules", ops->rules);
	hd_pass_place_leaves(p);
	if (ops)
		slot(p, "storage", ops->storage);
	hd_pass_place(p);
	hd_drop_dead(p);
	if (ops)
		slot(p, "lower", ops->lower);
	hd_pass_toposort(p);
	gt_lower(p);
}

static struct gt_run *linear(const struct form *f)
{
	const struct hd_strategy_ops *ops = NULL;
	struct hd_plan *p = gt_plan(1);

	hd_dim_get(p, "batch", BATCH);
	hd_dim_get(p, "seq", TOKENS);
	hd_dim_get(p, "embed", IN);
	hd_dim_get(p, "mlp", OUT);
	if (f && !(ops = load(p, f)))
		return NULL;
	build(p, ops);
	return gt_open(p, f && f->ranks > 1 ? sim_members : NULL);
}

static int is_of_product(const struct node *n)
{
	return n->comm.kind &&
	       (n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W) || !strcmp(hd_comm_node_subject_name(n), "grad:w"));
}

/* Returns the bytes of doubles that a rank sends, if collectives are rings. */
static int64_t formula(const struct form *f)
{
	int64_t m = BATCH * TOKENS, k = IN, n = OUT, q = f->q, d = f->depth;

	if (!d)
		return 8 * (q - 1) * (3 * m * k + 3 * k * n + 2 * m * n) / (q * q * q);
	return 8 * (3 * (q - 1) * (m * k / d + k * n) + 2 * (d - 1) * k * n / d) / (q * q);
}

static void products(void)
{
	one = linear(NULL);
	if (!ok(one != NULL, "a plan with a product of integers")) {
		note("%s", gt_why());
		return;
	}
	integers(one);
	ok(gt_compute(one) != 0, "one rank has a loss");
	for (size_t i = 0; i < HD_LEN(forms); i++) {
		const struct form *f = &forms[i];
		struct gt_run *r = linear(f);
		const char *where = "", *why = gt_why();
		int64_t least = INT64_MAX, most = 0;
		double off = NAN;

		if (r) {
			integers(r);
			why = sim_compute(r);
			off = why ? NAN
				  : all_gradients(r, &where) + fabs(*gt_address(r, r->plan->loss, 0) -
								    *gt_address(one, one->plan->loss, 0));
		}
		if (!ok(off == 0, "%s: Y, dX and dW are exact", f->name))
			note("%s: differ by %g (%s)", why ? why : "it ran", off, where);
		for (int k = 0; r && k < r->n; k++) {
			int64_t sent = 0;

			for (const struct node *n = r->plan->first; n; n = n->next)
				sent += is_of_product(n) ? hd_comm_node_sent(r->plan, n, k) : 0;
			least = sent < least ? sent : least;
			most = sent > most ? sent : most;
		}
		ok(least == formula(f) && most == least, "%s: each rank sends what the formula says", f->name);
		if (least != formula(f) || most != least)
			note("%lld to %lld bytes, not %lld", (long long)least, (long long)most, (long long)formula(f));
		sim_close(r);
	}
	gt_close(one);
}

/* In program order each broadcast, except the first ones of a product, stands before the previous step's product and
 * after the product of the step before that.  Counts how many broadcasts are under way at each product. */
static void double_buffer(void)
{
	struct gt_run *r = linear(&forms[2]);
	int under_way = 0, most = 0, products = 0, late = 0;

	for (const struct node *n = r ? r->plan->first : NULL; n; n = n->next) {
		if (n->comm.kind == HD_COMM_BROADCAST)
			under_way++;
		if (strcmp(n->v.op->name, "einsum"))
			continue;
		products++;
		most = under_way > most ? under_way : most;
		for (uint32_t i = 0; i < n->v.nin; i++)
			under_way -= n->ins[i]->v.node && N(n->ins[i]->v.node)->comm.kind == HD_COMM_BROADCAST;
		late += !under_way && products % 3;
	}
	is_int(products, 9, "there are three products of three steps each");
	is_int(most, 4, "at most the blocks of two operands for this step and the next are held");
	is_int(late, 0, "the next step's blocks are under way at every product but the last");
	sim_close(r);
}

/* -- models -------------------------------------------------------------------------------------------------------- */
struct layout {
	const char *name, *sections;
	int ranks, experts; /* experts: only for models with experts */
};

#define REPLICAS "[strategy dp]\n" PLUGIN("dp") "size = 2\n"
#define STAGES "[strategy pp]\n" PLUGIN("pp") "size = 2\n"
#define EXPERTS "[strategy ep]\n" PLUGIN("ep") "size = 2\n"

static const struct layout layouts[] = {
	{ "2d, 1 rank", TP "form = 2d\n", 1, 0 },
	{ "2d, 4 ranks", TP "form = 2d\n", 4, 0 },
	{ "2.5d, 8 ranks", TP "form = 2.5d\ndepth = 2\n", 8, 0 },
	{ "3d, 1 rank", TP "form = 3d\n", 1, 0 },
	{ "3d, 8 ranks", TP "form = 3d\n", 8, 0 },
	{ "2d in replicas", TP "form = 2d\nsize = 4\n" REPLICAS, 8, 0 },
	{ "replicas in 2d", REPLICAS TP "form = 2d\nsize = 4\n", 8, 0 },
	{ "2d in replicas that shard states", TP "form = 2d\nsize = 4\n" REPLICAS "zero = 1\n", 8, 0 },
	{ "replicas that shard parameters in 2d", REPLICAS "zero = 3\n" TP "form = 2d\nsize = 4\n", 8, 0 },
	{ "3d in replicas that shard gradients", TP "form = 3d\nsize = 8\n" REPLICAS "zero = 2\n", 16, 0 },
	{ "2d in two stages", TP "form = 2d\nsize = 4\n" STAGES, 8, 0 },
	{ "2d in two stages, interleaved", TP "form = 2d\nsize = 4\n" STAGES "schedule = interleaved\n", 8, 0 },
	{ "2d in two stages, separate weight gradients", TP "form = 2d\nsize = 4\n" STAGES "schedule = zb\n", 8, 0 },
	{ "2.5d in two stages", TP "form = 2.5d\ndepth = 2\nsize = 8\n" STAGES, 16, 0 },
	{ "2.5d in replicas", TP "form = 2.5d\ndepth = 2\nsize = 8\n" REPLICAS, 16, 0 },
	{ "3d in replicas", TP "form = 3d\nsize = 8\n" REPLICAS, 16, 0 },
	{ "3d in two stages", TP "form = 3d\nsize = 8\n" STAGES, 16, 0 },
	{ "experts in 2d", EXPERTS TP "form = 2d\nsize = 4\n", 8, 1 },
	{ "2d in experts", TP "form = 2d\nsize = 4\n" EXPERTS, 8, 1 },
	{ "2.5d in experts", TP "form = 2.5d\nsize = 8\ndepth = 2\n" EXPERTS, 16, 1 },
	{ "3d in experts", TP "form = 3d\nsize = 8\n" EXPERTS, 16, 1 },
};

static struct hd_plan *plan(const char *model, int q, int batch, const struct layout *l)
{
	char ini[2000];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 4\nembed = %d\nheads = %d\nmlp = %d\n%s[data]\ntrain = none\n[train]\nseq = 4\n"
		 "global_batch = %d\nmicro_batch = %d\nsteps = 1\noptimizer = sgd\nclip = 0\n%s",
		 8 * q, 2 * q, 12 * q, model, q * q * 8, batch, l ? l->sections : "");
	return gt_plan_of(ini, l ? l->ranks : 1, HD_DTYPE_F64);
}

static int one_rank(const char *model, const char *what, int q, int batch)
{
	struct hd_plan *p = plan(model, q, batch, NULL);

	one = p ? gt_open(p, NULL) : NULL;
	if (ok(one && gt_compute(one) > 0, "one rank, %s", what))
		return 1;
	note("%s", gt_why());
	return 0;
}

static void run(const char *model, const char *what, int q, int batch, const struct layout *l)
{
	struct hd_plan *p = plan(model, q, batch, l);
	struct gt_run *r = p ? gt_open(p, sim_members) : NULL;

	like_one_rank(r, l->name, what);
	sim_close(r);
}

/* Runs a model in all layouts that fit it; with `wide`, also in those of 16 ranks. */
static void models(const char *model, const char *what, int wide)
{
	int experts = strstr(model, "experts") != NULL;

	if (!one_rank(model, what, 2, 8))
		return;
	for (size_t i = 0; i < HD_LEN(layouts); i++)
		if (experts >= layouts[i].experts && (wide || layouts[i].ranks <= 8))
			run(model, what, 2, layouts[i].ranks > 8 ? 8 : 4, &layouts[i]);
	gt_close(one);
}

/* Runs a model on nine and 27 ranks. */
static void threes(const char *model, const char *what)
{
	static const struct layout nine = { "2d, 9 ranks", TP "form = 2d\n", 9, 0 },
				   many = { "3d, 27 ranks", TP "form = 3d\n", 27, 0 };

	if (!one_rank(model, what, 3, 9))
		return;
	run(model, what, 3, 9, &nine);
	run(model, what, 3, 9, &many);
	gt_close(one);
}

/* Plans dims of 6 and 10, which q = 2 divides but q x depth = 4 does not: the parameters' homes stay replicated along
 * the depth. */
static struct hd_plan *odd(int ranks, const char *sections)
{
	char ini[1000];

	snprintf(
		ini, sizeof(ini),
		"[model]\nlayers = 2\nembed = 6\nheads = 2\nmlp = 6\nvocab = 10\nmax_seq = 6\n[data]\ntrain = none\n[train]\nseq = 6\n"
		"global_batch = 8\nmicro_batch = %d\nsteps = 1\noptimizer = sgd\nclip = 0\n%s",
		ranks > 1 ? 4 : 8, sections);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

static void odd_sizes(void)
{
	struct hd_plan *p = odd(1, "");
	struct gt_run *r;
	int cut = 0;

	one = p ? gt_open(p, NULL) : NULL;
	if (!ok(one && gt_compute(one) > 0, "one rank, sizes that q x depth does not divide"))
		note("%s", gt_why());
	p = odd(8, TP "form = 2.5d\ndepth = 2\n");
	if (!ok(p != NULL, "2.5d of the same sizes is planned"))
		note("%s", gt_why());
	for (size_t i = 0; p && i < p->ntensors; i++)
		for (uint32_t d = 0; d < p->tensors[i]->v.ndim && p->tensors[i]->v.what == HD_TENSOR_PARAM; d++)
			cut += p->tensors[i]->dims[d]->n % 4 && p->tensors[i]->local[d] < p->tensors[i]->dims[d]->n / 2;
	is_int(cut, 0, "no parameter is sharded four ways");
	r = p ? gt_open(p, sim_members) : NULL;
	like_one_rank(r, "2.5d", "sizes that q x depth does not divide");
	sim_close(r);
	gt_close(one);
}

int main(void)
{
	products();
	double_buffer();
	models("vocab = 19\ndropout = 0.2\n", "gpt2, tied, an indivisible vocabulary, dropout", 1);
	models("vocab = 16\ntie_embeddings = no\n", "gpt2, untied head", whole_sweep());
	models("family = llama\nvocab = 19\nkv_heads = 2\n", "llama, grouped keys", whole_sweep());
	models("vocab = 19\nexperts = 4\n", "gpt2 with experts", whole_sweep());
	if (whole_sweep())
		threes("vocab = 19\n", "gpt2");
	threes("family = llama\nvocab = 21\nkv_heads = 3\n", "llama, grouped keys");
	odd_sizes();
	return done();
}
