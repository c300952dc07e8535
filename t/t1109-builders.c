/* SPDX-License-Identifier: Apache-2.0
 * Nodes that plugins build and models do not have: numbers of the run, constants, indices, random numbers, initial
 * values of states, the updated value of a parameter, and nodes that run only in some steps.  The test compares each
 * state after each step with its expected value, on one rank and on three.  If this broke, a plugin's state would
 * silently hold something else.
 */
#include <config.h>
#include "engine/base/rng.h"
#include "engine/graph/graph.h"
#include "engine/run/job.h"
#include "t/lib/one_rank.h"

#define SO HD_TEST_BUILD "/t/plugins/.libs/builders.so"
#define LR 0.0625

static struct hd_plan *plan(int ranks)
{
	char ini[2000], dp[300] = "";

	if (ranks > 1)
		snprintf(dp, sizeof(dp),
			 "[strategy dp]\nplugin = " HD_TEST_BUILD "/plugins/dp/.libs/dp.so\nsize = %d\n", ranks);
	snprintf(
		ini, sizeof(ini),
		"[model]\nfamily = gpt2\nlayers = 1\nheads = 2\nembed = 8\nmlp = 12\nvocab = 11\n[data]\ntrain = none\n"
		"[train]\nseq = 4\nglobal_batch = 12\nmicro_batch = 2\nsteps = 9\noptimizer = sgd\nclip = 0\nseed = 5\n"
		"[plugin b]\nfile = " SO "\n%s",
		dp);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

static struct gt_run *r;
static const char *what;

static const struct tensor *state(const char *name)
{
	char full[40];

	snprintf(full, sizeof(full), "b.%s.", name);
	for (size_t i = 0; i < r->plan->ntensors; i++)
		if (!r->plan->tensors[i]->v.node && !strncmp(r->plan->tensors[i]->v.name, full, strlen(full)))
			return r->plan->tensors[i];
	return NULL;
}

/* Checks that all elements of a state on a rank are this number. */
static void all_are(const char *name, int rank, double want)
{
	const struct tensor *t = state(name);
	int64_t wrong = 0;

	for (int64_t i = 0; t && i < hd_local_count(t); i++)
		wrong += gt_address(r, t, rank)[i] != want;
	if (!ok(t && !wrong, "%s, rank %d: %s is %g", what, rank, name, want))
		note("%lld wrong; the first is %g", (long long)wrong, t ? gt_address(r, t, rank)[0] : NAN);
}

static void check(int rank, int64_t step, const double *noise)
{
	const struct tensor *iota = state("iota"), *once = state("once"), *always = state("always");
	const struct tensor *snapshot = state("snapshot"), *w = snapshot ? T(snapshot->v.of) : NULL;
	int64_t n = w ? hd_local_count(w) : 0, last = w ? w->dims[w->v.ndim - 1]->n : 1, wrong = 0, stays = 0,
		moves = 0;

	all_are("lr", rank, LR);
	all_are("step", rank, (double)step);
	all_are("samples", rank, 12);
	all_are("constant", rank, 2.5);
	all_are("all", rank, (double)(step * (step + 1) / 2));
	all_are("some", rank, 100. + (step >= 4 ? 6 : step >= 2 ? 2 : 0));
	if (r->n > 1)
		all_are("member", rank, rank);
	for (int64_t i = 0; i < n; i++) {
		wrong += gt_address(r, iota, rank)[i] != (double)(i % last);
		stays += gt_address(r, once, rank)[i] == noise[i];
		moves += gt_address(r, always, rank)[i] != noise[i];
	}
	ok(n && !wrong, "%s, rank %d: iota counts along the last dim", what, rank);
	ok(n && stays == n && moves > n * 9 / 10,
	   "%s, rank %d: random numbers of one kind are the same in each step, others change", what, rank);
}

/* The snapshot has the parameter's value of the last even step, and its initial value before that. */
static void check_snapshot(int64_t step, double *kept)
{
	const struct tensor *s = state("snapshot");
	int64_t n = hd_local_count(s), off = 0;
	const double *w = gt_address(r, T(s->v.of), 0);

	if (step % 2 == 0)
		memcpy(kept, w, (size_t)n * sizeof(*kept));
	for (int64_t i = 0; i < n; i++)
		off += gt_address(r, s, 0)[i] != kept[i];
	ok(!off, "%s, step %lld: the snapshot has the parameter's value of the last even step", what, (long long)step);
	off = 0;
	for (int64_t i = 0; i < n; i++)
		off += w[i] != kept[i];
	ok(step % 2 ? off > 0 : !off, "... which %s its present value", step % 2 ? "is not" : "is");
}

static void run(int ranks)
{
	const struct tensor *once;
	double noise[400], kept[400];
	struct hd_plan *p = plan(ranks);

	what = ranks > 1 ? "three ranks" : "one rank";
	r = p ? gt_open(p, ranks > 1 ? sim_members : NULL) : NULL;
	if (!ok(r != NULL, "%s: the plugin is planned", what)) {
		note("%s", gt_why());
		return;
	}
	r->run.lr = LR;
	r->run.seed = 5;
	for (size_t i = 0; i < p->ntensors; i++)
		for (int k = 0; k < r->n; k++)
			if (p->tensors[i]->v.what == HD_TENSOR_STATE && !p->tensors[i]->v.node)
				memset(gt_address(r, p->tensors[i], k), 0, (size_t)hd_local_bytes(p->tensors[i]));
	for (int k = 0; k < r->n; k++)
		hd_init_weights(r->g[k], 3, NULL);
	ok(state("short") && state("short")->v.dtype == HD_DTYPE_BF16, "a state may have 16 bits");
	once = state("once");
	memcpy(kept, gt_address(r, T(state("snapshot")->v.of), 0), (size_t)hd_local_bytes(state("snapshot")));
	for (int64_t i = 0; i < hd_local_count(once);
	     i++) /* by definition they depend on seed, section, name and index */
		noise[i] =
			(double)(hd_random_bits(hd_key(5, "plugin", hd_hash_text("b.noise") >> 1), (uint64_t)i) >> 40) *
			0x1p-24;
	for (int64_t s = 1; s <= 5; s++) {
		const char *why;

		r->run.step = s;
		if (ranks == 1) {
			why = gt_compute(r) > 0 ? NULL : "no loss";
			hd_program_update(r->g[0], &r->run);
		} else {
			why = sim_compute(r);
			why = why ? why : sim_update(r);
		}
		if (!ok(!why, "%s: step %lld runs", what, (long long)s))
			note("%s", why);
		if (s == 1 || s == 4)
			for (int k = 0; k < r->n; k++)
				check(k, s, noise);
		check_snapshot(s, kept);
	}
	if (ranks == 1)
		gt_close(r);
	else
		sim_close(r);
}

/* Is this value of an op's `inplace` accepted: the input whose buffer the output may take, or -1 for none? */
static int is_accepted(int8_t inplace)
{
	struct hd_plan *p = gt_plan(1);
	const int8_t said[] = { inplace };
	const struct hd_op op = { .size = sizeof(op), .name = "x", .inplace = said };
	const struct hd_shape y = { .dtype = HD_DTYPE_F32 };
	int rc = hd_shapes_check(p, &op, 2, &y, 1);

	hd_plan_destroy(p);
	return rc == HD_OK;
}

int main(void)
{
	ok(is_accepted(-1) && is_accepted(0) && is_accepted(1),
	   "an output may take the buffer of an input, or of none");
	ok(!is_accepted(-2) && !is_accepted(2), "an output may not take any other buffer");
	run(1);
	run(3);
	return done();
}
