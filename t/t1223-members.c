/* SPDX-License-Identifier: Apache-2.0
 * Runs every strategy with 3, 5, 6, 7 and 8 members, where its form admits the number: loss, gradient norm and every
 * gradient are one rank's.  Machines and models are not all powers of two: samples have odd lengths, the vocabulary is
 * prime, and layers, heads and micro-batches are odd in number.  If this broke, a ring of five, a third of the states
 * or a seventh stage would train a different model.
 *
 * All ranks in this process, in double on the reference device.
 */
#include <config.h>
#include "t/lib/one_rank.h"

#define PLUGIN(name) "[strategy " name "]\nplugin = " HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\n"

static const int members[] = { 3, 5, 6, 7, 8 };

/* The sizes of a model and its batch; `family` holds the family's own keys. */
struct shape {
	int layers, heads, embed, mlp, seq, batch, micro;
	const char *family;
};

/* Returns the lines of an INI joined into one, for a description. */
static const char *flat(const char *lines)
{
	static char text[2][400];
	static int turn;
	char *t = text[turn ^= 1];

	snprintf(t, sizeof(text[0]), "%s", lines);
	for (char *c = t; (c = strchr(c, '\n'));)
		*c = c[1] ? ',' : 0;
	return t;
}

static struct hd_plan *plan(const struct shape *m, int micro, int ranks, const char *sections)
{
	char ini[2500];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = %d\nheads = %d\nembed = %d\nmlp = %d\nvocab = 19\ninit_std = 0.1\n"
		 "%s\n[data]\ntrain = none\n"
		 "[train]\nseq = %d\nglobal_batch = %d\nmicro_batch = %d\nsteps = 1\noptimizer = sgd\nclip = 0\n%s",
		 m->layers, m->heads, m->embed, m->mlp, m->family, m->seq, m->batch, micro, sections);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

static int begin(const struct shape *m)
{
	struct hd_plan *p = plan(m, m->batch, 1, "");

	one = p ? gt_open(p, NULL) : NULL;
	if (ok(one && gt_compute(one) > 0, "one rank, %d layers, %d heads, seq %d, batch %d, %s", m->layers, m->heads,
	       m->seq, m->batch, flat(m->family)))
		return 1;
	note("%s", gt_why());
	return 0;
}

static void against_one(const struct shape *m, int ranks, const char *sections, const char *name)
{
	struct hd_plan *p = plan(m, m->micro, ranks, sections);
	struct gt_run *r = p ? gt_open(p, sim_members) : NULL;

	like_one_rank(r, flat(name), flat(m->family));
	sim_close(r);
}

static void refused(const struct shape *m, int ranks, const char *sections, const char *want)
{
	struct hd_plan *p = plan(m, m->micro, ranks, sections);

	if (!ok(!p && strstr(gt_why(), want), "refused: %s", want))
		note("%s", p ? "accepted" : gt_why());
	if (p) {
		gt_plan_destroy(p);
	}
}

/* -- data -------------------------------------------------------------------------------------- */
/* Buckets of 1 KB are many, and the last ones are padded. */
static const char *const ways[] = {
	"sync = ring\nbucket = 1K\n",
	"sync = ring\n",
	"sync = allreduce\nbucket = 1K\n",
	"sync = allreduce\noverlap = no\n",
	"sync = server\nbucket = 1K\n",
	"sync = server\n",
	"sync = hierarchical\nnode_size = 2\n",
	"sync = hierarchical\nnode_size = 3\n",
	"zero = 1\n",
	"zero = 2\nbucket = 1K\n",
	"zero = 3\n",
	"zero = 3\nsync = allreduce\nbucket = 1K\n",
	"zero = 2\nsync = server\n",
};

static int node_size(const char *way)
{
	const char *at = strstr(way, "node_size = ");

	return at ? atoi(at + 12) : 1;
}

static void replicas(const char *family)
{
	char sections[400], name[200];

	for (size_t i = 0; i < HD_LEN(members); i++) {
		int n = members[i];
		struct shape m = { .layers = 1,
				   .heads = n,
				   .embed = 2 * n,
				   .mlp = 3 * n,
				   .seq = 5,
				   .batch = 3 * n,
				   .micro = 1,
				   .family = family };

		if (!begin(&m))
			continue;
		for (size_t k = 0; k < HD_LEN(ways); k++) {
			if (n % node_size(ways[k]))
				continue;
			snprintf(sections, sizeof(sections), PLUGIN("dp") "size = %d\n%s", n, ways[k]);
			snprintf(name, sizeof(name), "dp %d, %s", n, ways[k]);
			against_one(&m, n, sections, name);
		}
		gt_close(one);
	}
}

/* Uses more members than one addition of servers has terms. */
static void many_servers(void)
{
	struct shape m = {
		.layers = 1, .heads = 2, .embed = 22, .mlp = 33, .seq = 3, .batch = 11, .micro = 1, .family = ""
	};

	if (begin(&m))
		against_one(&m, 11, PLUGIN("dp") "sync = server\n", "dp 11, servers"), gt_close(one);
}

/* The members divide no dim and outnumber the elements of some, so pieces are padded; also inside what other strategies
 * shard. */
static const char *const cuts[] = { "zero = 1\n",      "zero = 2\nbucket = 1K\n",
				    "zero = 3\n",      "zero = 3\nbucket = 1K\n",
				    "sync = server\n", "zero = 3\nsync = server\n" };

static void padded_beside(const char *family, int n, int ranks, const char *other)
{
	struct shape m = {
		.layers = 2, .heads = 4, .embed = 16, .mlp = 32, .seq = 4, .batch = 2 * n, .micro = 1, .family = family
	};
	char sections[600], name[300];

	if (!begin(&m))
		return;
	for (size_t k = 0; k < HD_LEN(cuts); k++) {
		if (n > 7 && k != 3)
			continue;
		snprintf(sections, sizeof(sections), "%s" PLUGIN("dp") "size = %d\n%s", other, n, cuts[k]);
		snprintf(name, sizeof(name), "dp %d padded, %s, %d ranks", n, cuts[k], ranks);
		against_one(&m, ranks, sections, name);
	}
	gt_close(one);
}

static void padded(const char *family)
{
	padded_beside(family, 3, 3, "");
	padded_beside(family, 7, 7, "");
	padded_beside(family, 48, 48, "");
	padded_beside(family, 3, 6, PLUGIN("tp") "size = 2\n");
	padded_beside(family, 5, 10, PLUGIN("pp") "size = 2\n");
}

/* Groups of replicas that shard among themselves, in one level or as nodes, combined with other strategies. */
static const struct {
	int n;
	const char *keys;
} groups[] = {
	{ 4, "zero_size = 2\nzero = 1\n" },
	{ 4, "zero_size = 2\nzero = 2\nbucket = 1K\nsync = allreduce\n" },
	{ 4, "zero_size = 2\nzero = 3\n" },
	{ 4, "zero_size = 4\nzero = 3\n" },
	{ 4, "zero_size = 1\nzero = 3\n" },
	{ 4, "zero_size = 2\nzero = 1\noverlap = no\n" },
	{ 6, "zero_size = 3\nzero = 1\nbucket = 1K\n" },
	{ 6, "zero_size = 2\nzero = 3\nbucket = 1K\n" },
	{ 6, "zero_size = 3\nzero = 2\nsync = hierarchical\nnode_size = %d\n" },
	{ 4, "zero = 1\nsync = hierarchical\nnode_size = %d\nbucket = 1K\n" },
	{ 6, "zero = 3\nsync = hierarchical\nnode_size = %d\n" },
	{ 6, "zero = 2\nsync = hierarchical\nnode_size = %d\nbucket = 1K\n" },
	{ 8, "zero_size = 4\nzero = 3\nbucket = 1K\n" },
};

static void grouped_beside(const char *family, int inside, const char *other)
{
	char keys[200], sections[600], name[400];

	for (size_t k = 0; k < HD_LEN(groups); k++) {
		int n = groups[k].n, node = n == 6 ? 3 : 2;
		struct shape m = { .layers = 2,
				   .heads = 4,
				   .embed = 16,
				   .mlp = 32,
				   .seq = 4,
				   .batch = 8 * n,
				   .micro = 2,
				   .family = family };

		snprintf(keys, sizeof(keys), groups[k].keys, node * inside);
		snprintf(sections, sizeof(sections), "%s" PLUGIN("dp") "size = %d\n%s", other, n, keys);
		snprintf(name, sizeof(name), "%d ranks per replica, dp %d, %s", inside, n, keys);
		if (!begin(&m))
			continue;
		against_one(&m, n * inside, sections, name);
		gt_close(one);
	}
}

static void grouped(void)
{
	struct shape m = {
		.layers = 1, .heads = 2, .embed = 8, .mlp = 8, .seq = 2, .batch = 6, .micro = 1, .family = ""
	};

	grouped_beside("dropout = 0.2", 1, "");
	grouped_beside("family = llama\nkv_heads = 2", 2, PLUGIN("tp") "size = 2\nsequence_parallel = yes\n");
	grouped_beside("family = llama\nkv_heads = 2", 2, PLUGIN("pp") "size = 2\nschedule = zb\n");
	grouped_beside("", 2, PLUGIN("pp") "size = 2\nschedule = 1f1b\n");
	grouped_beside("family = mixtral\nkv_heads = 2\nexperts = 2", 2, PLUGIN("ep") "size = 2\n");
	refused(&m, 6, PLUGIN("dp") "zero = 1\nzero_size = 4\n",
		"[strategy dp] zero_size: 4 does not divide 6 replicas");
	refused(&m, 6, PLUGIN("dp") "zero_size = 2\n", "zero_size: 2, but nothing is sharded, since zero is 0");
	refused(&m, 6, PLUGIN("dp") "zero_size = 2\nsync = server\n", "zero_size: 2 with sync = server");
	refused(&m, 6, PLUGIN("dp") "zero_size = 2\nzero = 1\nsync = hierarchical\nnode_size = 3\n",
		"zero_size: 2, but with sync = hierarchical groups are nodes, of 3 replicas, or all 6");
}

/* -- tensor ------------------------------------------------------------------------------------ */
static void tensor(int n, const char *family)
{
	struct shape m = { .layers = 2,
			   .heads = n,
			   .embed = 4 * n,
			   .mlp = 5 * n,
			   .seq = 3 * n,
			   .batch = 3,
			   .micro = 1,
			   .family = family };
	char sections[400], name[100];

	if (!begin(&m))
		return;
	for (int sequence = 0; sequence < 2; sequence++) {
		snprintf(sections, sizeof(sections), PLUGIN("tp") "size = %d\nsequence_parallel = %s\n", n,
			 sequence ? "yes" : "no");
		snprintf(name, sizeof(name), "tp %d%s", n, sequence ? ", sequence sharded" : "");
		against_one(&m, n, sections, name);
	}
	gt_close(one);
}

/* With fewer ranks than key heads each rank has several. */
static void several_key_heads(void)
{
	struct shape m = { .layers = 1, .heads = 8, .embed = 16, .mlp = 12, .seq = 4, .batch = 1, .micro = 1 };

	m.family = "family = llama\nkv_heads = 4";
	if (begin(&m))
		against_one(&m, 2, PLUGIN("tp") "size = 2\n", "tp 2, two key heads per rank"), gt_close(one);
	m.heads = 6, m.embed = 12, m.family = "";
	refused(&m, 4, PLUGIN("tp") "size = 4\n", "size: 4 does not divide model.heads = 6");
}

static void tensors(void)
{
	several_key_heads();
	for (size_t i = 0; i < HD_LEN(members); i++) {
		tensor(members[i], "dropout = 0.2");
		tensor(members[i], "family = llama\nkv_heads = 1");
		for (int kv = 2; kv < members[i]; kv++)
			if (members[i] % kv == 0) {
				char family[100];

				snprintf(family, sizeof(family), "family = llama\nkv_heads = %d\ntie_embeddings = yes",
					 kv);
				tensor(members[i], family);
			}
	}
}

static const struct grid {
	const char *name, *keys;
	int ranks, q;
} grids[] = {
	{ "tp 2d, 4 ranks", "form = 2d\n", 4, 2 },
	{ "tp 2d, 9 ranks", "form = 2d\n", 9, 3 },
	{ "tp 2.5d, 8 ranks", "form = 2.5d\ndepth = 2\n", 8, 2 },
	{ "tp 2.5d, 12 ranks", "form = 2.5d\ndepth = 3\n", 12, 2 },
	{ "tp 3d, 8 ranks", "form = 3d\n", 8, 2 },
};

static void in_grids(const char *family)
{
	for (size_t i = 0; i < HD_LEN(grids); i++) {
		const struct grid *g = &grids[i];
		int rows = g->ranks == g->q * g->q ? g->q : g->ranks / g->q;
		struct shape m = { .layers = 1,
				   .heads = g->q,
				   .embed = 4 * g->q,
				   .mlp = 5 * g->q * g->q,
				   .seq = 5,
				   .batch = 3 * rows,
				   .micro = rows,
				   .family = family };
		char sections[400];

		if (!begin(&m))
			continue;
		snprintf(sections, sizeof(sections), PLUGIN("tp") "%s", g->keys);
		against_one(&m, g->ranks, sections, g->name);
		gt_close(one);
	}
}

/* -- stages ------------------------------------------------------------------------------------ */
static const char *const orders[] = { "gpipe", "1f1b", "zb", "interleaved" };

/* Runs each schedule.  Interleaved is skipped unless the micro-batches are a multiple of the stages and the layers
 * suffice for two chunks each. */
static void stages(int n, int layers, int micros, const char *family)
{
	struct shape m = { .layers = layers,
			   .heads = 2,
			   .embed = 8,
			   .mlp = 12,
			   .seq = 3,
			   .batch = micros,
			   .micro = 1,
			   .family = family };
	char sections[400], name[100];

	if (!begin(&m))
		return;
	for (size_t k = 0; k < HD_LEN(orders); k++) {
		int interleaved = k == 3;

		if (interleaved && (micros % n || layers < 2 * n - 2))
			continue;
		snprintf(sections, sizeof(sections), PLUGIN("pp") "size = %d\nschedule = %s\n", n, orders[k]);
		snprintf(name, sizeof(name), "pp %d, %s", n, orders[k]);
		against_one(&m, n, sections, name);
	}
	gt_close(one);
}

static void pipelines(void)
{
	for (size_t i = 0; i < HD_LEN(members); i++) {
		int n = members[i];

		stages(n, n, 2 * n + 1, "dropout = 0.2");
		stages(n, n + 2, n - 1, "family = llama\nkv_heads = 1");
		stages(n, 2 * n, n, i % 2 ? "tie_embeddings = no" : "family = llama\ntie_embeddings = yes");
	}
}

/* -- experts ----------------------------------------------------------------------------------- */
static void experts(int n, const char *family)
{
	struct shape m = { .layers = 2, .heads = 2, .embed = 8, .mlp = 12, .seq = 7, .batch = 3 * n, .micro = 1 };
	char keys[200], sections[200], name[100];

	snprintf(keys, sizeof(keys), "%s\nexperts = %d\n", family, n == 6 ? 12 : n);
	m.family = keys;
	if (!begin(&m))
		return;
	snprintf(sections, sizeof(sections), PLUGIN("ep") "size = %d\n", n);
	snprintf(name, sizeof(name), "ep %d", n);
	against_one(&m, n, sections, name);
	gt_close(one);
}

/* -- together ---------------------------------------------------------------------------------- */
static const struct {
	const char *name, *sections;
	int ranks, experts;
} mixed[] = {
	{ "tp 3 x dp 3, a ring", PLUGIN("tp") "size = 3\n" PLUGIN("dp") "size = 3\nsync = ring\nbucket = 1K\n", 9, 0 },
	{ "dp 3, parameters sharded, x tp 3, sequence sharded",
	  PLUGIN("dp") "size = 3\nzero = 3\n" PLUGIN("tp") "size = 3\nsequence_parallel = yes\n", 9, 0 },
	{ "tp 3 x pp 3, scatter-gather", PLUGIN("tp") "size = 3\n" PLUGIN("pp") "size = 3\nscatter_gather = yes\n", 9,
	  0 },
	{ "pp 3, interleaved, x dp 3, states sharded",
	  PLUGIN("pp") "size = 3\nschedule = interleaved\n" PLUGIN("dp") "size = 3\nzero = 1\n", 9, 0 },
	{ "tp 3 x dp 3 x pp 3, separate weight gradients",
	  PLUGIN("tp") "size = 3\n" PLUGIN("dp") "size = 3\nzero = 2\n" PLUGIN("pp") "size = 3\nschedule = zb\n", 27,
	  0 },
	{ "ep 3 x tp 3", PLUGIN("ep") "size = 3\n" PLUGIN("tp") "size = 3\n", 9, 1 },
	{ "tp 3 x ep 3, gradients sharded over dp 3",
	  PLUGIN("tp") "size = 3\n" PLUGIN("ep") "size = 3\n" PLUGIN("dp") "size = 3\nzero = 2\n", 27, 1 },
	{ "ep 3 x pp 3", PLUGIN("ep") "size = 3\n" PLUGIN("pp") "size = 3\nschedule = zb\n", 9, 1 },
};

static void together(int layers, const char *family, int has_experts)
{
	struct shape m = { .layers = layers,
			   .heads = 3,
			   .embed = 18,
			   .mlp = 27,
			   .seq = 9,
			   .batch = 27,
			   .micro = 1,
			   .family = family };

	if (!begin(&m))
		return;
	for (size_t i = 0; i < HD_LEN(mixed); i++)
		if (mixed[i].experts == has_experts)
			against_one(&m, mixed[i].ranks, mixed[i].sections, mixed[i].name);
	gt_close(one);
}

int main(void)
{
	replicas("dropout = 0.2");
	replicas("family = llama\nkv_heads = 1");
	many_servers();
	grouped();
	if (whole_sweep()) {
		padded("dropout = 0.2");
		padded("family = llama\nkv_heads = 2");
		in_grids("family = llama");
	}
	padded("family = mixtral\nkv_heads = 2\nexperts = 2");
	tensors();
	in_grids("dropout = 0.2");
	pipelines();
	for (size_t i = 0; i < HD_LEN(members); i++) {
		experts(members[i], "moe_every = 1");
		if (whole_sweep())
			experts(members[i], "family = mixtral\nkv_heads = 1\nz_loss = 0.01");
	}
	together(5, "dropout = 0.2", 0);
	together(3, "family = mixtral\nexperts = 3\nkv_heads = 3", 1);
	return done();
}
