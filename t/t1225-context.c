/* SPDX-License-Identifier: Apache-2.0
 * Runs context parallelism in each form, alone and with every other strategy, with 2, 3, 4, 5 and 8 members: loss,
 * gradient norm and every gradient are one rank's.  If this broke, tokens would attend to the wrong tokens, or layers
 * would be trained on part of a sequence.
 *
 * All ranks in this process, in double on the reference device.
 */
#include <config.h>
#include "t/lib/one_rank.h"

#define PLUGIN(name) "plugin = " HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\n"
#define SECTION(name) "[strategy " name "]\n" PLUGIN(name)

struct shape {
	int layers, heads, embed, mlp, seq, batch, micro;
	const char *family, *train;
};

static struct hd_plan *plan(const struct shape *m, int micro, int ranks, const char *sections)
{
	char ini[2500];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = %d\nheads = %d\nembed = %d\nmlp = %d\nvocab = 19\ninit_std = 0.1\n"
		 "%s\n[data]\ntrain = none\n"
		 "[train]\nseq = %d\nglobal_batch = %d\nmicro_batch = %d\nsteps = 1\noptimizer = sgd\nclip = 0\n%s%s",
		 m->layers, m->heads, m->embed, m->mlp, m->family, m->seq, m->batch, micro, ranks > 1 ? m->train : "",
		 sections);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

static int begin(const struct shape *m)
{
	struct hd_plan *p = plan(m, m->batch, 1, "");

	one = p ? gt_open(p, NULL) : NULL;
	if (one && gt_compute(one) > 0)
		return 1;
	ok(0, "one rank, seq %d, %s: %s", m->seq, m->family, gt_why());
	return 0;
}

/* Returns the lines of an INI joined into one, for a description. */
static const char *line(const char *text)
{
	static char copies[3][100];
	static int turn;
	char *copy = copies[turn = (turn + 1) % 3];

	snprintf(copy, sizeof(copies[0]), "%s", text);
	for (char *c = copy; (c = strchr(c, '\n'));)
		*c = c[1] ? ',' : 0;
	return copy;
}

static void against_one(const struct shape *m, int ranks, const char *sections, const char *name)
{
	struct hd_plan *p = plan(m, m->micro, ranks, sections);
	struct gt_run *r = p ? gt_open(p, sim_members) : NULL;

	like_one_rank(r, name, line(m->family));
	sim_close(r);
}

static const char *const forms[] = { "form = ulysses\n", "form = ring\n", "form = ring\nbalance = none\n" };

/* -- members ------------------------------------------------------------------------------------ */
static void alone(int n, int kv_heads, int batch)
{
	char family[100], sections[300], name[200];
	struct shape m = { .layers = 2,
			   .heads = 2 * n,
			   .embed = 4 * n,
			   .mlp = 6,
			   .seq = 4 * n,
			   .batch = batch,
			   .micro = 1,
			   .train = "" };

	if (kv_heads)
		snprintf(family, sizeof(family), "family = llama,kv_heads = %d", kv_heads);
	else
		snprintf(family, sizeof(family), "dropout = 0.2");
	m.family = family;
	for (char *c = family; (c = strchr(c, ','));)
		*c = '\n';
	if (!begin(&m))
		return;
	for (size_t i = 0; i < HD_LEN(forms); i++) {
		snprintf(sections, sizeof(sections), SECTION("cp") "size = %d\n%s", n, forms[i]);
		snprintf(name, sizeof(name), "cp %d, %s", n, line(forms[i]));
		against_one(&m, n, sections, name);
	}
	gt_close(one);
}

static void members(void)
{
	static const int sizes[] = { 2, 3, 4, 5, 8 };

	for (size_t i = 0; i < HD_LEN(sizes); i++) {
		int n = sizes[i];

		alone(n, 0, 3);
		alone(n, 1, 1);
		alone(n, n, 2);
		alone(n, 2 * n, 1);
	}
}

/* -- one member --------------------------------------------------------------------------------- */
/* With one member the plan has the same nodes, down to the casts, as without the section, so attention can still be
 * recomputed. */
static void nobody_else(void)
{
	struct shape m = { .layers = 1,
			   .heads = 2,
			   .embed = 4,
			   .mlp = 6,
			   .seq = 4,
			   .batch = 1,
			   .micro = 1,
			   .family = "family = llama\nwindow = 3",
			   .train = "" };
	struct hd_plan *without = plan(&m, 1, 1, "");

	for (size_t i = 0; i < HD_LEN(forms); i++) {
		char sections[300];
		struct hd_plan *with;
		const struct node *a = without ? without->first : NULL, *b;

		snprintf(sections, sizeof(sections), SECTION("cp") "size = 1\n%s", forms[i]);
		with = plan(&m, 1, 1, sections);
		b = with ? with->first : NULL;
		while (a && b && a->v.op == b->v.op && !strcmp(a->attr, b->attr))
			a = a->next, b = b->next;
		ok(with && !a && !b, "cp 1, %s: the plan has the nodes of the model without cp", line(forms[i]));
		hd_plan_destroy(with);
	}
	hd_plan_destroy(without);
}

/* -- windows ------------------------------------------------------------------------------------ */
static int shifts(const struct hd_plan *p)
{
	int n = 0;

	for (const struct node *x = p->first; x; x = x->next)
		n += x->comm.kind == HD_COMM_SHIFT;
	return n;
}

/* Returns how many shifts a plan has.  Keys and values are shifted as many members on as the window reaches, in
 * forward and again in backward; their gradients are shifted as far once, and then home. */
static int shifts_wanted(int members, int tokens, int window, int layers)
{
	int turns = window > 1 ? 2 + (window - 2) / tokens : 1;

	turns = turns < members ? turns : members;
	return layers * (turns > 1 ? 6 * (turns - 1) + 2 : 0);
}

static void window(int n, int window, const char *more)
{
	char family[200], name[200], sections[300];
	struct shape m = { .layers = 2,
			   .heads = 2,
			   .embed = 8,
			   .mlp = 6,
			   .seq = 4 * n,
			   .batch = 2,
			   .micro = 1,
			   .family = family,
			   .train = "" };
	struct hd_plan *p;

	snprintf(family, sizeof(family), "family = llama\nwindow = %d\n%s", window, more);
	if (!begin(&m))
		return;
	for (size_t i = 1; i < HD_LEN(forms); i++) {
		snprintf(sections, sizeof(sections), SECTION("cp") "size = %d\n%s", n, forms[i]);
		snprintf(name, sizeof(name), "cp %d, %s, a window of %d", n, line(forms[i]), window);
		against_one(&m, n, sections, name);
	}
	p = plan(&m, 1, n, sections);
	is_int(p ? shifts(p) : -1, shifts_wanted(n, 4, window, 2),
	       "... and keys are shifted as far as the window reaches");
	hd_plan_destroy(p);
	gt_close(one);
}

static void windows(void)
{
	static const int sizes[] = { 2, 3, 5 };
	static const int of[] = { 1, 2, 5, 6, 7 };

	for (size_t i = 0; i < HD_LEN(sizes); i++)
		for (size_t k = 0; k < HD_LEN(of); k++)
			window(sizes[i], of[k], "");
	window(4, 15, "attention_softcap = 1\nkv_heads = 1\n");
}

/* -- with others -------------------------------------------------------------------------------- */
#define CP "@"
static const struct {
	const char *name, *sections; /* CP: this form's section */
	int ranks, experts;
} mixed[] = {
	{ "cp 2 x dp 2", CP SECTION("dp") "size = 2\n", 4, 0 },
	{ "dp 2, states sharded, x cp 2", SECTION("dp") "size = 2\nzero = 1\nbucket = 1K\n" CP, 4, 0 },
	{ "cp 2 x dp 2, gradients sharded", CP SECTION("dp") "size = 2\nzero = 2\n", 4, 0 },
	{ "cp 2 x dp 2, parameters sharded", CP SECTION("dp") "size = 2\nzero = 3\n", 4, 0 },
	{ "tp 2 x cp 2", SECTION("tp") "size = 2\n" CP, 4, 0 },
	{ "cp 2 x tp 2", CP SECTION("tp") "size = 2\n", 4, 0 },
	{ "tp 2, sequence sharded, x cp 2", SECTION("tp") "size = 2\nsequence_parallel = yes\n" CP, 4, 0 },
	{ "cp 2 x tp 2, sequence sharded", CP SECTION("tp") "size = 2\nsequence_parallel = yes\n", 4, 0 },
	{ "tp 2d x cp 2", SECTION("tp") "size = 4\nform = 2d\n" CP, 8, 0 },
	{ "cp 2 x tp 2d", CP SECTION("tp") "size = 4\nform = 2d\n", 8, 0 },
	{ "cp 2 x pp 2, gpipe", CP SECTION("pp") "size = 2\nschedule = gpipe\n", 4, 0 },
	{ "pp 2, 1f1b, x cp 2", SECTION("pp") "size = 2\nschedule = 1f1b\n" CP, 4, 0 },
	{ "cp 2 x pp 2, interleaved", CP SECTION("pp") "size = 2\nschedule = interleaved\n", 4, 0 },
	{ "cp 2 x pp 2, separate weight gradients", CP SECTION("pp") "size = 2\nschedule = zb\n", 4, 0 },
	{ "pp 2 x cp 2 x tp 2, scatter-gather",
	  SECTION("pp") "size = 2\nscatter_gather = yes\n" CP SECTION("tp") "size = 2\n", 8, 0 },
	{ "tp 2 x cp 2 x dp 2, states sharded, x pp 2",
	  SECTION("tp") "size = 2\n" CP SECTION("dp") "size = 2\nzero = 1\n" SECTION("pp") "size = 2\n", 16, 0 },
	{ "cp 2 x ep 2", CP SECTION("ep") "size = 2\n", 4, 1 },
	{ "ep 2 x cp 2", SECTION("ep") "size = 2\n" CP, 4, 1 },
	{ "tp 2 x cp 2 x ep 2", SECTION("tp") "size = 2\n" CP SECTION("ep") "size = 2\n", 8, 1 },
};

/* Runs two sections of one plugin: neither may lower the other's nodes. */
static void two_sections(const struct shape *m)
{
	static const char *const pairs[][2] = {
		{ "form = ulysses\n", "form = ring\n" },
		{ "form = ring\n", "form = ulysses\n" },
		{ "form = ring\n", "form = ring\n" },
		{ "form = ulysses\n", "form = ulysses\n" },
	};
	char sections[800], name[200];

	if (!begin(m))
		return;
	for (size_t i = 0; i < HD_LEN(pairs); i++) {
		snprintf(sections, sizeof(sections),
			 "[strategy a]\n" PLUGIN("cp") "size = 2\n%s[strategy b]\n" PLUGIN("cp") "size = 2\n%s",
			 pairs[i][0], pairs[i][1]);
		snprintf(name, sizeof(name), "cp 2 x cp 2, %s x %s", line(pairs[i][0]), line(pairs[i][1]));
		against_one(m, 4, sections, name);
	}
	gt_close(one);
}

static void fill(char *sections, size_t size, const char *with, const char *form)
{
	const char *at = strchr(with, '@');

	snprintf(sections, size, "%.*s" SECTION("cp") "size = 2\n%s%s", (int)(at - with), with, form, at + 1);
}

static void with_others(const struct shape *m, int has_experts)
{
	char sections[1200], name[200];

	if (!begin(m))
		return;
	for (size_t i = 0; i < HD_LEN(mixed); i++)
		for (size_t k = 0; k < HD_LEN(forms) && mixed[i].experts == has_experts; k++) {
			fill(sections, sizeof(sections), mixed[i].sections, forms[k]);
			snprintf(name, sizeof(name), "%s, %s%s", mixed[i].name, line(forms[k]), line(m->train));
			against_one(m, mixed[i].ranks, sections, name);
		}
	gt_close(one);
}

int main(void)
{
	const struct shape gpt2 = { .layers = 4,
				    .heads = 4,
				    .embed = 16,
				    .mlp = 12,
				    .seq = 16,
				    .batch = 8,
				    .micro = 2,
				    .family = "dropout = 0.2",
				    .train = "" };
	struct shape m = gpt2;

	members();
	nobody_else();
	windows();
	with_others(&m, 0);
	two_sections(&m);
	m.train = "recompute = full\n";
	m.family = "family = llama\nkv_heads = 2";
	if (whole_sweep())
		with_others(&m, 0);
	m.train = "recompute = selective\n";
	m.family = "family = mixtral\nexperts = 2\nkv_heads = 4\nz_loss = 0.01";
	with_others(&m, 1);
	m.train = "";
	m.family = "moe_every = 2\nexperts = 2";
	if (whole_sweep())
		with_others(&m, 1);
	return done();
}
