/* SPDX-License-Identifier: Apache-2.0
 * Third-party strategies may use buckets (heddle/bucket.h, here by t/plugins/buckets.c).  Loss, norm and every
 * gradient are those of one rank, and the bucket size determines the number of sums; the strategy may supply the sum. 
 * If this broke, such a strategy would train a different model, or sum each gradient on its own.
 */
#include <config.h>
#include "t/lib/one_rank.h"

static struct hd_plan *plan(int ranks, const char *more)
{
	char ini[2000];

	snprintf(
		ini, sizeof(ini),
		"[model]\nfamily = gpt2\nlayers = 2\nheads = 2\nembed = 8\nmlp = 12\nvocab = 11\ninit_std = 0.2\n[data]\n"
		"train = none\n[train]\nseq = 4\nglobal_batch = 30\nmicro_batch = %d\nsteps = 1\noptimizer = sgd\nclip = 0\n%s",
		ranks > 1 ? 1 : 30, more);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

/* Counts collectives of this kind on gradients or on the buckets that hold them. */
static int sums(const struct hd_plan *p, uint32_t kind)
{
	int k = 0;

	for (const struct node *n = p->first; n; n = n->next)
		k += n->comm.kind == kind && n->v.phase == HD_UNIT_S && hd_local_count(n->ins[0]) > 1;
	return k;
}

static int parameters(const struct hd_plan *p)
{
	int k = 0;

	for (size_t i = 0; i < p->ntensors; i++)
		k += !p->tensors[i]->v.node && p->tensors[i]->v.what == HD_TENSOR_PARAM;
	return k;
}

static void bucketed(int n, const char *keys, uint32_t kind, int least, int most)
{
	char more[400], name[80];
	struct hd_plan *p;
	struct gt_run *r;
	int k;

	snprintf(more, sizeof(more),
		 "[strategy r]\nplugin = " HD_TEST_BUILD "/t/plugins/.libs/buckets.so\nsize = %d\n%s", n, keys);
	snprintf(name, sizeof(name), "%d members, %.*s", n, (int)strcspn(keys, "\n"), keys);
	p = plan(n, more);
	k = p ? sums(p, kind) : -1;
	ok(k >= least && k <= most, "%s: %d sums of gradients", name, k);
	r = p ? gt_open(p, sim_members) : NULL;
	if (!r)
		note("%s", gt_why());
	like_one_rank(r, name, "gpt2");
	sim_close(r);
}

int main(void)
{
	int all;

	one = gt_open(plan(1, ""), NULL);
	ok(one && gt_compute(one) > 0, "one rank");
	all = parameters(one->plan);
	for (int n = 2; n <= 5; n += n == 3 ? 2 : 1) {
		bucketed(n, "bytes = 1\n", HD_COMM_ALL_REDUCE, all, all + 1); /* a tied parameter has two terms */
		bucketed(n, "bytes = 1000000\n", HD_COMM_ALL_REDUCE, 1, 1);
		bucketed(n, "bytes = 1000\n", HD_COMM_ALL_REDUCE, 3, all / 2);
		bucketed(n, "bytes = 1000000\nscattered = 1\n", HD_COMM_REDUCE_SCATTER, 1, 1);
	}
	return done();
}
