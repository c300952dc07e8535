/* SPDX-License-Identifier: Apache-2.0
 * Checks what a stage holds in memory at once, from the lifetimes of its program: activations of m micro-batches with
 * gpipe, of min(p - r, m) with 1f1b, and of min(p, m) until their weight gradients with zb.  The boundary tensors
 * under way do not grow in number with m, and the planned bytes follow.  What is sent is in memory once.  If this broke, a job that fits by the papers'
 * formulas would not start, or more micro-batches (which shrink the bubble) would not fit.
 */
#include <config.h>
#include "engine/device/device.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

#define P 4

static struct hd_plan *plan(const char *order, int m, const char *how)
{
	char ini[1500];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 8\nembed = 64\nheads = 2\nvocab = 64\n[data]\ntrain = none\n"
		 "[train]\nseq = 64\nglobal_batch = %d\nmicro_batch = 2\nsteps = 1\nrecompute = %s\n"
		 "[strategy pp]\nplugin = " HD_TEST_BUILD "/plugins/pp/.libs/pp.so\nsize = %d\nschedule = %s\n",
		 2 * m, how, P, order);
	return gt_plan_of(ini, P, HD_DTYPE_F32);
}

static struct hd_program *program(struct hd_plan *p, int rank)
{
	struct hd_program_options o = { .rank = rank, .device = hd_device_cpu() };
	struct hd_err err = { 0 };
	struct hd_program *g = NULL;

	hd_program_build(p, &o, &g, &err);
	return g;
}

static void forget(struct hd_plan *p)
{
	gt_plan_destroy(p);
}

/* Returns whether an entry writes or reads the tensor. */
static int touches(const struct entry *e, const struct tensor *t)
{
	if (e->type != HD_ENTRY_NODE)
		return 0;
	for (uint32_t k = 0; k < e->node->v.nout; k++)
		if (e->node->outs[k] == t)
			return 1;
	for (uint32_t i = 0; hd_entry_reads(e, i); i++)
		if (e->node->ins[i] == t)
			return 1;
	return 0;
}

/* Counts in alive[entry] each micro-batch whose tensor lives there, from its first entry to its last. */
static void add_lives(const struct hd_program *g, const struct tensor *t, int *alive)
{
	for (int m = 0; m < (int)g->plan->micros; m++) {
		int64_t first = -1, last = -1;

		for (int64_t e = 0; e < (int64_t)g->n; e++)
			if (g->entries[e].micro == m && touches(&g->entries[e], t)) {
				first = first < 0 ? e : first;
				last = e;
			}
		for (int64_t e = first; first >= 0 && e <= last; e++)
			alive[e]++;
	}
}

static int most(const int *v, size_t n)
{
	int top = 0;

	for (size_t i = 0; i < n; i++)
		top = v[i] > top ? v[i] : top;
	return top;
}

/* Returns how many attention outputs of the first layer of each chunk are alive at once.  Backward of attention and a
 * weight gradient read them. */
static int in_flight(const struct hd_program *g)
{
	int *alive = hd_alloc((g->n + 1) * sizeof(*alive)), top;
	int64_t seen = -1;

	for (const struct node *n = g->plan->first; n; n = n->next) {
		const struct block *b = n->block >= 0 ? &g->plan->blocks[n->block] : NULL;

		if (!b || n->v.phase != HD_UNIT_F || strcmp(n->v.op->name, "attention") || b->coord != g->coord ||
		    b->chunk <= seen)
			continue;
		seen = b->chunk;
		add_lives(g, n->outs[0], alive);
	}
	top = most(alive, g->n);
	free(alive);
	return top;
}

/* Returns how many sends across one boundary are started but not yet waited for, at most. */
static int on_the_way(const struct hd_program *g)
{
	int top = 0;

	for (const struct node *n = g->plan->first; n; n = n->next) {
		int *alive = hd_alloc((g->n + 1) * sizeof(*alive)), k;

		for (int64_t e = 0; e < (int64_t)g->n; e++)
			for (int64_t i = e; g->entries[e].node == n && n->comm.kind == HD_COMM_SEND && n->block >= 0 &&
					    i < g->entries[e].wait;
			     i++)
				alive[i]++;
		k = most(alive, g->n);
		top = k > top ? k : top;
		free(alive);
	}
	return top;
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

static int expected(const char *order, int m, int r)
{
	if (!strcmp(order, "gpipe"))
		return m;
	if (!strcmp(order, "1f1b"))
		return least(P - r, m);
	if (!strcmp(order, "zb"))
		return least(P, m);
	return least((P - r - 1) * 2 + P + 1, 2 * m);
}

static void counts(const char *order)
{
	static const int micros[] = { 1, 2, 4, 6, 8, 16 };
	int wrong = 0, way = 0;

	for (size_t i = 0; i < HD_LEN(micros); i++) {
		int m = micros[i];
		struct hd_plan *p = m % P && !strcmp(order, "interleaved") ? NULL : plan(order, m, "none");

		for (int r = 0; p && r < P; r++) {
			struct hd_program *g = program(p, r);
			int got = g ? in_flight(g) : -1, sends = g ? on_the_way(g) : 99;

			if (got != expected(order, m, r)) {
				note("%s, %d micro-batches, stage %d: %d in flight, not %d", order, m, r, got,
				     expected(order, m, r));
				wrong++;
			}
			way = sends > way ? sends : way;
			hd_program_destroy(g);
		}
		if (p)
			forget(p);
	}
	ok(!wrong, "%s: each stage has the expected number of micro-batches in flight", order);
	ok(way > 0 && way <= P, "%s: at most %d boundary tensors are under way, for up to 16 micro-batches", order,
	   way);
}

static int64_t bytes(const char *order, int m, int r, const char *how)
{
	struct hd_plan *p = plan(order, m, how);
	struct hd_program *g = p ? program(p, r) : NULL;
	int64_t n = g ? g->memory.transient : -1;

	hd_program_destroy(g);
	forget(p);
	return n;
}

/* Checks whether a step's bytes grow with the micro-batches, beyond the loss and the ids that each has. */
static void planned(const char *order, const char *how, int grows)
{
	const int64_t boundary = 2 * 64 * 64 * 4, small = 4 * 2 * 64 * 4;

	for (int r = 0; r < P; r++) {
		int64_t a = bytes(order, 16, r, how), b = bytes(order, 32, r, how), c = bytes(order, 64, r, how);

		if (grows)
			ok(a > 0 && c - b > 32 * boundary && llabs((c - b) - 2 * (b - a)) <= 32 * small,
			   "%s, %s, stage %d: bytes grow with the micro-batches", order, how, r);
		else
			ok(a > 0 && c - b <= 32 * small && b - a <= 16 * small,
			   "%s, %s, stage %d: bytes do not grow with the micro-batches", order, how, r);
		note("16, 32, 64 micro-batches: %lld, %lld, %lld", (long long)a, (long long)b, (long long)c);
	}
}

/* An embedding that another stage reads too is most of this model.  Its stage needs it and its gradient, and the
 * gradient from the other stage, which is added to its own. */
static void sent_once(void)
{
	const double embedding = 20000 * 16 * 4;
	struct hd_plan *p =
		gt_plan_of("[model]\nlayers = 2\nembed = 16\nheads = 2\nvocab = 20000\ntie_embeddings = yes\n"
			   "[data]\ntrain = none\n[train]\nseq = 16\nglobal_batch = 2\nmicro_batch = 1\n"
			   "steps = 1\noptimizer = sgd\nclip = 0\n[strategy pp]\nplugin = " HD_TEST_BUILD
			   "/plugins/pp/.libs/pp.so\nsize = 2\n",
			   2, HD_DTYPE_F32);
	struct hd_program *g = p ? program(p, 0) : NULL;
	double n = g ? (double)(g->memory.persistent + g->memory.transient) / embedding : 0;

	ok(n > 1 && n < 3.5, "what a stage sends has no second buffer: %.2f embeddings", n);
	hd_program_destroy(g);
	if (p)
		forget(p);
}

int main(void)
{
	counts("gpipe");
	counts("1f1b");
	counts("zb");
	counts("interleaved");
	planned("gpipe", "none", 1);
	planned("gpipe", "full", 1);
	planned("1f1b", "none", 0);
	planned("1f1b", "full", 0);
	planned("zb", "none", 0);
	planned("interleaved", "none", 0);
	sent_once();
	return done();
}
