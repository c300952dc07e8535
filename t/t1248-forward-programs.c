/* SPDX-License-Identifier: Apache-2.0
 * Checks programs that are forward only on stages, as evaluation runs them: several micro-batches, so that all stages
 * work at the same time, and parameters of other stages that move only when they have changed.  If this broke, an
 * evaluation would count losses of the wrong sequences, or take as many times longer as there are stages.
 *
 * All ranks run in this process, in double on the reference device.
 */
#include <config.h>
#include "t/lib/one_rank.h"

#define PP "[strategy pp]\nplugin = " HD_TEST_BUILD "/plugins/pp/.libs/pp.so\n"
#define EMBED 8

static struct hd_plan *plan(int ranks, int64_t micros, const char *sections)
{
	struct hd_plan_options o = { .ranks = ranks, .master_dtype = HD_DTYPE_F64, .micros = micros };
	char ini[1000];
	struct hd_conf *c;
	struct hd_plan *p = NULL;
	struct hd_err err = { 0 };

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 6\nembed = %d\nheads = 2\nvocab = 19\n[data]\ntrain = none\n"
		 "[train]\nseq = 4\nglobal_batch = 2\nmicro_batch = 2\nsteps = 1\noptimizer = sgd\nclip = 0\n%s",
		 EMBED, sections);
	c = gt_conf(ini);
	if (!c || hd_plan_create(c, &o, &p, &err) < 0)
		note("%s%s", gt_why(), err.text);
	return p;
}

/* -- losses -------------------------------------------------------------------------------------------------------- */
/* Returns the losses of a micro-batch, on the rank that has them. */
static const double *losses(struct gt_run *r, int64_t micro)
{
	for (int k = 0; k < r->n; k++)
		if (hd_owns(r->g[k], r->plan->nll))
			return hd_program_address(r->g[k], r->plan->nll, micro);
	return NULL;
}

/* Returns the largest difference from the losses of one rank in the micro-batches from ... to - 1. */
static double worst_loss(struct gt_run *r, int64_t from, int64_t to)
{
	double worst = 0;

	for (int64_t m = from; m < to; m++)
		for (int64_t i = 0; i < hd_local_count(one->plan->nll); i++) {
			double off = fabs(losses(r, m)[i] - losses(one, m)[i]);

			if (!(off <= worst))
				worst = off;
		}
	return worst;
}

/* Runs all ranks.  Unlike sim_compute, it leaves the memory of the last run as it is. */
static const char *run_again(struct gt_run *r)
{
	sim.why[0] = 0;
	sim_forget();
	for (int i = 0; i < sim.nmembers; i++) {
		sim.members[i]->calls = 0;
		memset(sim.members[i]->sent, 0, sizeof(sim.members[i]->sent));
		memset(sim.members[i]->received, 0, sizeof(sim.members[i]->received));
	}
	return sim_all(r, 0);
}

static int64_t sent(void)
{
	int64_t n = 0;

	for (int i = 0; i < sim.nmembers; i++)
		for (size_t k = 0; k < HD_LEN(sim.members[i]->sent); k++)
			n += sim.members[i]->sent[k];
	return n;
}

/* Only the first two micro-batches run, as at the end of an evaluation. */
static void some(struct gt_run *r, const char *name)
{
	r->run.micros = 2;
	ok(!sim_compute(r), "%s: a run of two micro-batches", name);
	ok(worst_loss(r, 0, 2) < 1e-12, "... has their losses");
	ok(!(worst_loss(r, 2, 3) < 1e-12), "... and computes no other");
	r->run.micros = 0;
}

/* Returns whether parameters of other stages have memory of their own in the whole run, for the next run. */
static int keep_gathered(const struct gt_run *r)
{
	int kept = 1;

	for (int k = 0; k < r->n; k++) {
		struct hd_memory_use *use = hd_program_memory_use(r->g[k]);

		for (size_t i = 1; i < r->g[k]->n; i++)
			kept &= use[i].parameters == use[0].parameters;
		free(use);
	}
	return kept;
}

/* The embedding is also the head, on another stage. */
static void repeated(struct gt_run *r, const char *name)
{
	int64_t first, second;

	ok(keep_gathered(r), "%s: the embedding keeps its memory", name);
	ok(!sim_compute(r), "%s: a run", name);
	first = sent();
	r->run.again = 1;
	ok(!run_again(r), "... and another with the same parameters");
	second = sent();
	is_int(first - second, 1, "... which sends no embedding");
	ok(worst_loss(r, 0, r->plan->micros) < 1e-12, "... and computes the same losses");
	r->run.micros = 2;
	ok(!run_again(r) && worst_loss(r, 0, 2) < 1e-12, "... and so do two of its micro-batches");
	r->run.again = 0, r->run.micros = 0;
	ok(!run_again(r), "a run after a change of parameters");
	is_int(sent(), first, "... sends the embedding again");
}

/* -- the order ----------------------------------------------------------------------------------------------------- */
/* Counts what would make the stages of a micro-batch wait for each other: movements among all of them. */
static int meetings(const struct hd_plan *p)
{
	int n = 0;

	for (const struct node *k = p->first; k; k = k->next)
		for (uint32_t a = 0; k->comm.kind && k->comm.kind < HD_COMM_SEND && a < k->comm.group->n; a++)
			n += k->comm.group->axes[a] == p->stages;
	return n;
}

static int64_t transient(const struct gt_run *r)
{
	int64_t most = 0;

	for (int k = 0; k < r->n; k++)
		most = r->g[k]->memory.transient > most ? r->g[k]->memory.transient : most;
	return most;
}

static int64_t transient_of_one(int stages, const char *sections)
{
	struct hd_plan *p = plan(stages, 1, sections);
	struct gt_run *r = p ? gt_open(p, sim_members) : NULL;
	int64_t bytes = r ? transient(r) : 0;

	sim_close(r);
	return bytes;
}

/* units: time of the whole program, if a chunk takes one for a micro-batch. */
static void stages(int n, const char *keys, int units)
{
	char sections[300], name[200];
	int64_t alone, message = 2 * 4 * EMBED * (int64_t)sizeof(double);
	struct hd_plan *p;
	struct gt_run *r;

	snprintf(sections, sizeof(sections), PP "size = %d\n%s", n, keys);
	snprintf(name, sizeof(name), "%d stages, %.*s", n, (int)strcspn(keys, "\n"), keys);
	alone = transient_of_one(n, sections);
	p = plan(n, 0, sections);
	r = p ? gt_open(p, sim_members) : NULL;
	if (!ok(r != NULL, "%s", name))
		return;
	is_int(p->micros, 2 * n, "... computes two micro-batches for each stage");
	is_int((int64_t)p->timing.makespan, units, "... stages work on different ones at the same time");
	is_int(meetings(p), 0, "... and never meet");
	ok(transient(r) <= alone + 4 * message, "... in the memory of one micro-batch and a few messages");
	note("%lld bytes instead of %lld; a message has %lld", (long long)transient(r), (long long)alone,
	     (long long)message);
	ok(!sim_compute(r), "... they run");
	ok(worst_loss(r, 0, p->micros) < 1e-12, "... and have the losses of one rank");
	some(r, name);
	repeated(r, name);
	sim_close(r);
}

static void generation(void)
{
	struct hd_plan_options o = { .ranks = 2, .generate = 1, .master_dtype = HD_DTYPE_F64 };
	struct hd_conf *c = gt_conf("[model]\nlayers = 2\nembed = 8\nheads = 2\nvocab = 19\n[data]\ntrain = none\n"
				    "[train]\nseq = 4\nglobal_batch = 8\nmicro_batch = 2\nsteps = 1\n" PP "size = 2\n");
	struct hd_err err = { 0 };
	struct hd_plan *p = NULL;

	if (!ok(c && hd_plan_create(c, &o, &p, &err) >= 0, "a plan for generation on two stages"))
		return;
	is_int(p->micros, 1, "... has one micro-batch, as each token needs the one before");
	gt_plan_destroy(p);
}

int main(void)
{
	struct hd_plan *p = plan(1, 0, "");

	if (ok(p != NULL, "one rank")) {
		is_int(p->micros, 1, "without stages, an evaluation computes one micro-batch at once");
		gt_plan_destroy(p);
	}
	p = plan(1, 8, "");
	one = p ? gt_open(p, NULL) : NULL;
	if (!ok(one && hd_program_compute(one->g[0], &one->run, gt_fill, one) >= 0, "one rank computes the losses"))
		return done();
	stages(2, "schedule = gpipe\n", 4 + 1);
	stages(4, "schedule = 1f1b\n", 8 + 3);
	stages(2, "schedule = interleaved\nchunks = 2\n", 2 * 4 + 1);
	stages(3, "split = 3,2,1\n", 6 + 2);
	gt_close(one);
	generation();
	return done();
}
