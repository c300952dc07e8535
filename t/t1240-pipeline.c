/* SPDX-License-Identifier: Apache-2.0
 * Compares pipelines with one rank on the same micro-batches: every order of units, stages that divide evenly or not,
 * few and many micro-batches, with other strategies and with recompute.  If this broke, a pipeline would train a
 * different model: a message mistaken for another, an activation overwritten before a later unit reads it, a tied
 * embedding's gradient from one stage alone.
 *
 * All ranks run in this process, in double on the reference device.  A send completes only when it is received, so an
 * order that needs buffers in between would stop here.
 */
#include <config.h>
#include "t/lib/one_rank.h"

#define PLUGIN(name) "plugin = " HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\n"

static struct hd_plan *plan(const char *model, int micros, int replicas, const char *how, int64_t ranks,
			    const char *sections)
{
	char ini[2500];

	snprintf(
		ini, sizeof(ini),
		"[model]\nlayers = 6\nembed = 8\nheads = 2\nvocab = 19\n%s[data]\ntrain = none\n"
		"[train]\nseq = 4\nglobal_batch = %d\nmicro_batch = %d\nsteps = 1\noptimizer = sgd\nclip = 0\nrecompute = %s\n%s",
		model, 2 * micros, 2 / replicas, how, sections);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

static void against_one(const char *model, int micros, int replicas, const char *how, int64_t ranks,
			const char *sections, const char *name)
{
	struct hd_plan *p = plan(model, micros, replicas, how, ranks, sections);
	struct gt_run *r = p ? gt_open(p, sim_members) : NULL;

	like_one_rank(r, name, how);
	sim_close(r);
}

static void refused(const char *model, int micros, int64_t ranks, const char *sections, const char *want)
{
	struct hd_plan *p = plan(model, micros, 1, "none", ranks, sections);

	if (!ok(!p && strstr(gt_why(), want), "%s: %lld stages, %d micro-batches", want, (long long)ranks, micros))
		note("%s", p ? "accepted" : gt_why());
	if (p)
		hd_plan_destroy(p);
}

/* -- stages alone -------------------------------------------------------------------------------------------------- */
static void orders(const char *model, const char *what, int m, int turn)
{
	static const char *const names[] = { "gpipe", "1f1b", "zb", "interleaved" };
	static const char *const hows[] = { "none", "full", "selective" };
	char sections[300], name[200];

	for (int p = 2; p <= 4; p += 2)
		for (int k = 0; k < 4; k++) {
			snprintf(sections, sizeof(sections),
				 "[strategy pp]\n" PLUGIN("pp") "size = %d\nschedule = %s\n", p, names[k]);
			snprintf(name, sizeof(name), "%s, %d micro-batches, %d stages, %s", what, m, p, names[k]);
			if (k == 3 && m % p) {
				char want[100];

				snprintf(want, sizeof(want),
					 "the %d micro-batches of a step are not a multiple of the %d stages", m, p);
				refused(model, m, p, sections, want);
				continue;
			}
			for (int h = 0; h < 3; h++)
				if (m == 8 || h == (turn + k) % 3)
					against_one(model, m, 1, hows[h], p, sections, name);
		}
}

/* -- an order of the user's, with micro-batches out of sequence ---------------------------------------------------- */
/* Writes an order for two stages of two chunks: all units of a kind together, each chunk's micro-batches as in
 * `turns`. */
static void own_order(const char *model, const char *what, const char *kinds, const char *const turns[3])
{
	char path[] = "/tmp/heddle-order-XXXXXX", sections[300], name[200];
	int fd = mkstemp(path);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (!ok(f != NULL, "a file for the order is created"))
		return;
	for (int k = 0; kinds[k]; k++)
		for (int c = 0; c < 2; c++)
			for (const char *m = turns[k]; *m; m++)
				fprintf(f, "0,%c,%d,%c\n1,%c,%d,%c\n", kinds[k], k ? 1 - c : c, *m, kinds[k],
					k ? 1 - c : c, *m);
	fclose(f);
	snprintf(sections, sizeof(sections), "[strategy pp]\n" PLUGIN("pp") "size = 2\nchunks = 2\nschedule = %s\n",
		 path);
	snprintf(name, sizeof(name), "%s, micro-batches of %s in the orders %s, %s, %s", what, kinds, turns[0],
		 turns[1], turns[2]);
	against_one(model, 4, 1, "none", 2, sections, name);
	remove(path);
}

static void own_orders(const char *model, const char *what)
{
	own_order(model, what, "FB", (const char *const[]){ "3102", "1320", "" });
	own_order(model, what, "FBW", (const char *const[]){ "2031", "0213", "3120" });
}

/* -- with other axes ----------------------------------------------------------------------------------------------- */
static const struct mixed {
	const char *name;
	int ranks, replicas;
	const char *how, *sections;
} mixed[] = {
	{ "tensor 2 x stages 2, scatter-gather, gpipe", 4, 1, "full",
	  "[strategy tp]\n" PLUGIN("tp") "size = 2\n[strategy pp]\n" PLUGIN(
		  "pp") "size = 2\nschedule = gpipe\nscatter_gather = yes\n" },
	{ "tensor 2 x stages 2, scatter-gather, 1f1b", 4, 1, "none",
	  "[strategy tp]\n" PLUGIN("tp") "size = 2\n[strategy pp]\n" PLUGIN(
		  "pp") "size = 2\nschedule = 1f1b\nscatter_gather = yes\n" },
	{ "tensor 2 x stages 2, scatter-gather, zb", 4, 1, "selective",
	  "[strategy tp]\n" PLUGIN("tp") "size = 2\n[strategy pp]\n" PLUGIN(
		  "pp") "size = 2\nschedule = zb\nscatter_gather = yes\n" },
	{ "tensor 2 x stages 2, sequence sharded, zb", 4, 1, "full",
	  "[strategy tp]\n" PLUGIN("tp") "size = 2\nsequence_parallel = yes\n[strategy pp]\n" PLUGIN(
		  "pp") "size = 2\nschedule = zb\nscatter_gather = yes\n" },
	{ "data 2 x tensor 2 x stages 2, scatter-gather, interleaved", 8, 2, "full",
	  "[strategy dp]\n" PLUGIN("dp") "size = 2\n[strategy tp]\n" PLUGIN("tp") "size = 2\n[strategy pp]\n" PLUGIN(
		  "pp") "size = 2\nschedule = interleaved\nscatter_gather = yes\n" },
	{ "stages 2 x data 2 x tensor 2, scatter-gather, interleaved in three chunks", 8, 2, "none",
	  "[strategy pp]\n" PLUGIN("pp") "size = 2\nschedule = interleaved\nchunks = 3\nscatter_gather = yes\n[strategy dp]\n" PLUGIN(
		  "dp") "size = 2\n[strategy tp]\n" PLUGIN("tp") "size = 2\n" },
};

static void with_others(const char *model, const char *what)
{
	char name[200];

	for (size_t i = 0; i < HD_LEN(mixed); i++) {
		snprintf(name, sizeof(name), "%s, %s", what, mixed[i].name);
		against_one(model, 4, mixed[i].replicas, mixed[i].how, mixed[i].ranks, mixed[i].sections, name);
	}
}

/* Scatter-gather splits the batch inside the pieces of the replicas, so nothing moves among replicas, wherever dp
 * stands. */
static void pieces_of_pieces(const char *sections, const char *what)
{
	struct hd_plan *p = plan("", 4, 1, "none", 8, sections);
	int pieces = 0, among = 0;

	if (!ok(p != NULL, "%s", what)) {
		note("%s", gt_why());
		return;
	}
	for (const struct node *n = p->first; n; n = n->next)
		if (n->comm.kind && n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W))
			for (uint32_t a = 0; a < n->comm.group->n; a++) {
				pieces += n->comm.kind == HD_COMM_ALL_GATHER &&
					  !strcmp(n->comm.group->axes[a]->v.name, "tp");
				among += !strcmp(n->comm.group->axes[a]->v.name, "dp");
			}
	is_int(pieces, 2, "... each message between stages is gathered from its pieces, forward and backward");
	is_int(among, 0, "... and nothing moves among replicas");
	gt_plan_destroy(p);
}

/* -- a tied embedding ---------------------------------------------------------------------------------------------- */
/* A tied embedding's gradient is the sum of the first and the last stage's parts: once per step one of them sends its
 * part. */
static void tied(void)
{
	struct hd_plan *p = plan("", 4, 1, "none", 4, "[strategy pp]\n" PLUGIN("pp") "size = 4\n");
	int sends = 0, stages[2] = { -1, -1 }, totals = 0;

	if (!ok(p != NULL, "a tied embedding on the first and the last stage"))
		return;
	for (const struct node *n = p->first; n; n = n->next) {
		if (!n->v.nin || n->ins[0]->v.what != HD_TENSOR_GRAD || strcmp(n->ins[0]->v.name, "grad:wte.weight"))
			continue;
		totals += !strcmp(n->v.op->name, "total");
		if (n->comm.kind == HD_COMM_SEND) {
			sends++;
			stages[0] = n->ins[0]->at.on[p->stages->id].index;
			stages[1] = (int)n->comm.index;
		}
	}
	is_int(totals, 1, "... its gradient's two parts are added once");
	is_int(sends, 1, "... one part is sent");
	ok(stages[0] == 3 && stages[1] == 0, "... from the last stage to the first, where the parameter lives");
	gt_plan_destroy(p);
}

/* -- the split into stages ----------------------------------------------------------------------------------------- */
static void split(const char *model, const char *keys, const char *want)
{
	char sections[200], got[200] = "";
	struct hd_plan *p;

	snprintf(sections, sizeof(sections), "[strategy pp]\n" PLUGIN("pp") "size = 4\n%s", keys);
	p = plan(model, 4, 1, "none", 4, sections);
	for (size_t b = 0; p && b < p->nblocks; b++)
		snprintf(got + strlen(got), sizeof(got) - strlen(got), "%lld", (long long)p->blocks[b].coord);
	ok(!strcmp(got, want) || (!p && strstr(gt_why(), want)), "%s", *keys ? keys : "balanced");
	note("%s", p ? got : gt_why());
	if (p) {
		gt_plan_destroy(p);
	}
}

int main(void)
{
	static const int micros[] = { 1, 2, 5, 8 };

	for (int i = 0; i < 4; i++) {
		static const char gpt2[] = "dropout = 0.2\n", llama[] = "family = llama\nmlp = 12\nkv_heads = 1\n";

		one = gt_open(plan(gpt2, micros[i], 1, "none", 1, ""), NULL);
		if (ok(one && gt_compute(one) > 0, "one rank"))
			orders(gpt2, "gpt2, tied, dropout", micros[i], i);
		gt_close(one);
		one = gt_open(plan(llama, micros[i], 1, "none", 1, ""), NULL);
		if (ok(one && gt_compute(one) > 0, "one rank"))
			orders(llama, "llama", micros[i], i + 1);
		gt_close(one);
	}
	one = gt_open(plan("dropout = 0.2\n", 4, 1, "none", 1, ""), NULL);
	if (ok(one && gt_compute(one) > 0, "one rank"))
		own_orders("dropout = 0.2\n", "gpt2, tied, dropout"),
			with_others("dropout = 0.2\n", "gpt2, tied, dropout");
	gt_close(one);
	one = gt_open(plan("family = llama\nmlp = 12\n", 4, 1, "none", 1, ""), NULL);
	if (ok(one && gt_compute(one) > 0, "one rank"))
		with_others("family = llama\nmlp = 12\n", "llama");
	gt_close(one);
	pieces_of_pieces("[strategy tp]\n" PLUGIN("tp") "size = 2\n[strategy dp]\n" PLUGIN(
				 "dp") "size = 2\n"
				       "[strategy pp]\n" PLUGIN("pp") "size = 2\nscatter_gather = yes\n",
			 "tp, dp, pp");
	pieces_of_pieces("[strategy dp]\n" PLUGIN("dp") "size = 2\n[strategy tp]\n" PLUGIN(
				 "tp") "size = 2\n"
				       "[strategy pp]\n" PLUGIN("pp") "size = 2\nscatter_gather = yes\n",
			 "dp, tp, pp");
	tied();
	split("", "", "00112233"); /* embed, 6 layers, head: a small vocabulary */
	split("", "split = 1,1,2,2", "00122333");
	split("", "split = 0,3,3,0", "01112223");
	split("", "split = 3,0,3,0",
	      "split: 3,0,3,0 has a piece without a layer, and it is neither the first nor the last");
	split("", "split = 2,2,2", "split: 2,2,2 has 3 pieces; size x chunks is 4");
	split("", "split = 2, 2 ,1,1", "00011233");
	split("", "split = 1,1,1,1", "split: 1,1,1,1 has 4 layers; the model has 6");
	split("", "split = 2,2,1,9223372036854775807",
	      "split: 2,2,1,9223372036854775807 has more than 6 layers; the model has 6");
	split("", "split = 3,3,1,-1", "split: '3,3,1,-1' is neither balanced nor a list of numbers of layers");
	split("", "split = 3,1,1,1.0", "split: '3,1,1,1.0' is neither balanced nor a list of numbers of layers");
	split("", "split = 2,2,1,1,", "split: '2,2,1,1,' is neither balanced nor a list of numbers of layers");
	split("", "split = balancd", "split: 'balancd' is neither balanced nor a list of numbers of layers");
	return done();
}
