/* SPDX-License-Identifier: Apache-2.0
 * Sends gradients in 16 bits among 3, 5, 6, 7 and 8 members, summed in every way.  If this broke, five machines would
 * train a different model than four, or five models.
 *
 * The bound is that of t1243.  k roundings to a type of unit u err by at most k u of the sum of the norms of the
 * members' gradients.  fp16 travels scaled by 2^10 and errs by another 2^-35 per element where it is smallest.  An
 * element of bf16 is off by up to 2^-8, but many of them by 0.41 of that in the root mean square, so u is 2^-9.  All
 * members must keep the same bits, since they continue from them.
 *
 * All ranks in this process; data that does not travel is double.
 */
#include <config.h>
#include "engine/run/job.h"
#include "t/lib/one_rank.h"

#define SEQ 5

static const int members[] = { 3, 5, 6, 7, 8 };

/* roundings: each member's term once, then sums on their way; 0: the number of members */
static const struct way {
	const char *name, *keys;
	int roundings, node;
} ways[] = {
	{ "ring", "sync = ring\nbucket = 1K\n", 0, 1 },
	{ "all-reduce", "sync = allreduce\nbucket = 1K\n", 2, 1 },
	{ "two levels of nodes of 2", "sync = hierarchical\nnode_size = 2\n", 3, 2 },
	{ "two levels of nodes of 3", "sync = hierarchical\nnode_size = 3\n", 3, 3 },
	{ "servers", "sync = server\n", 1, 1 },
	{ "pieces of states", "zero = 1\nbucket = 1K\n", 2, 1 },
	{ "pieces of gradients", "zero = 2\n", 2, 1 },
	{ "pieces of parameters", "zero = 3\n", 2, 1 },
};

static struct gt_run *opened(int n, int samples, const char *strategy)
{
	char ini[1500];
	struct hd_plan *p;
	struct gt_run *r;

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 1\nheads = 2\nembed = %d\nmlp = %d\nvocab = 19\ninit_std = 0.1\n"
		 "[data]\ntrain = none\n"
		 "[train]\nseq = %d\nglobal_batch = %d\nmicro_batch = 1\nsteps = 1\noptimizer = sgd\nclip = 0\n%s",
		 2 * n, 3 * n, SEQ, samples, strategy);
	p = gt_plan_of(ini, *strategy ? n : 1, HD_DTYPE_F64);
	r = p ? gt_open(p, *strategy ? sim_members : NULL) : NULL;
	if (r)
		r->run.loss_scale = 1.0 / (n * SEQ);
	return r;
}

static double norm_of(struct gt_run *r)
{
	return *gt_address(r, r->plan->norm, 0);
}

static int64_t member;

static int fill_member(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out)
{
	return gt_fill(ctx, g, t, micro + member, out);
}

/* Returns the sum of the norms of the members' gradients, from one rank that runs a sample of each. */
static double norms_of_members(int n)
{
	struct gt_run *r = opened(n, 1, "");
	double sum = 0;

	for (member = 0; r && member < n; member++) {
		gt_poison(r);
		sum += hd_program_compute(r->g[0], &r->run, fill_member, r) < 0 ? NAN : norm_of(r);
	}
	gt_close(r);
	return sum;
}

struct distance {
	double squares;
	int64_t elements;
	int same_bits;
};

static void add_gradient(struct gt_run *r, const struct tensor *g, const struct tensor *whole, struct distance *d)
{
	for (int k = 0; k < r->n; k++) {
		double squares;

		compare_part(r, g, whole, k, &squares);
		d->squares += hd_owns(r->g[k], g) ? squares : 0;
		if (hd_local_count(g) == hd_global_count(g)) /* replicated: every member has it */
			d->same_bits &= !memcmp(gt_address(r, g, k), gt_address(r, g, 0), (size_t)hd_local_bytes(g));
	}
	d->elements += hd_global_count(whole);
}

static void run(const struct way *w, const char *wire, double unit, double least, int n, double norms)
{
	struct distance d = { .same_bits = 1 };
	char strategy[400];
	struct gt_run *r;
	const char *why;
	double off, bound;

	snprintf(strategy, sizeof(strategy), "[strategy dp]\nplugin = %s/plugins/dp/.libs/dp.so\nwire = %s\n%s",
		 HD_TEST_BUILD, wire, w->keys);
	r = opened(n, n, strategy);
	why = r ? sim_compute(r) : gt_why();
	for (size_t i = 0; !why && i < one->plan->ntensors; i++) {
		const struct tensor *t = one->plan->tensors[i];

		if (!t->v.node && t->v.what == HD_TENSOR_PARAM)
			add_gradient(r, gt_gradient_of(r->plan, gt_param_named(r->plan, t->v.name)),
				     gt_gradient_of(one->plan, t), &d);
	}
	off = why ? NAN : sqrt(d.squares);
	bound = (w->roundings ? w->roundings : n) * (unit * (1 + 4 * unit) * norms + least * sqrt((double)d.elements));
	if (!ok(off <= bound && off > unit * norm_of(one) / 16 && d.same_bits,
		"%d members, %s, %s: rounded, within the bound, and the same bits everywhere", n, w->name, wire))
		note("%s: off by %.3g of the bound, %.3g units of the norm; bits %s", why ? why : "it ran", off / bound,
		     off / unit / norm_of(one), d.same_bits ? "are the same" : "differ");
	sim_close(r);
}

int main(void)
{
	for (size_t i = 0; i < HD_LEN(members); i++) {
		int n = members[i];
		double norms = norms_of_members(n), sum = NAN;

		one = opened(n, n, "");
		if (one && gt_compute(one) > 0)
			sum = norm_of(one);
		if (!ok(norms >= sum, "%d members: the norms sum to %.3g, at least the norm of the total, %.3g", n,
			norms, sum)) {
			note("%s", gt_why());
			continue;
		}
		for (size_t k = 0; k < HD_LEN(ways); k++) {
			if (n % ways[k].node || n == ways[k].node)
				continue;
			run(&ways[k], "bf16", 0x1p-9, 0, n, norms);
			run(&ways[k], "fp16", 0x1p-11, 0x1p-35, n, norms);
		}
		gt_close(one);
	}
	return done();
}
