/* SPDX-License-Identifier: Apache-2.0
 * t/plugins/permute.c adds collective permutations (HD_COMM_PERMUTE) around gelu in slot rewrite: shifts, reversals
 * and multiples among 2, 3, 5 and 7 members; in some a member keeps its own data.  Loss, norm and every gradient must
 * be those of one rank: a gradient sent back the wrong way would meet another sample's gelu.  All ranks in this
 * process, in double.
 */
#include <config.h>
#include "engine/device/call.h"
#include "t/lib/one_rank.h"

#define SO HD_TEST_BUILD "/t/plugins/.libs/permute.so"

static struct hd_plan *plan(int n, int ranks, const char *more)
{
	char ini[2000];

	snprintf(ini, sizeof(ini),
		 "[model]\nfamily = gpt2\nlayers = 2\nheads = 2\nembed = 8\nmlp = 12\nvocab = 11\ninit_std = 0.2\n"
		 "dropout = 0.1\n[data]\ntrain = none\n"
		 "[train]\nseq = 4\nglobal_batch = %d\nmicro_batch = %d\nsteps = 1\noptimizer = sgd\nclip = 0\n%s",
		 2 * n, ranks > 1 ? 1 : 2 * n, more);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

static int permutations(const struct hd_plan *p, uint32_t phase)
{
	int k = 0;

	for (const struct node *n = p->first; n; n = n->next)
		k += n->comm.kind == HD_COMM_PERMUTE && n->v.phase == phase;
	return k;
}

static void permuted(int n, int mul, int add, const char *train)
{
	char more[600], name[100];
	struct hd_plan *p;
	struct gt_run *r;

	snprintf(more, sizeof(more), "%s[strategy r]\nplugin = " SO "\nsize = %d\nmul = %d\nadd = %d\nback = %lld\n",
		 train, n, mul, add, (long long)hd_comm_inverse(mul, n));
	snprintf(name, sizeof(name), "%d members, to %d i + %d%s%s", n, mul, add, *train ? ", " : "", train);
	name[strcspn(name, "\n")] = 0;
	p = plan(n, n, more);
	ok(p && permutations(p, HD_UNIT_F) == 4 && permutations(p, HD_UNIT_B) >= 4,
	   "%s: a permutation and its inverse, twice per layer", name);
	r = p ? gt_open(p, sim_members) : NULL;
	if (!r)
		note("%s", gt_why());
	like_one_rank(r, name, "gpt2");
	sim_close(r);
}

static void with(int n)
{
	one = gt_open(plan(n, 1, ""), NULL);
	ok(one && gt_compute(one) > 0, "one rank, %d samples", 2 * n);
	permuted(n, 1, 1, "");
	permuted(n, n - 1, n - 1, ""); /* reversed */
	if (n > 2)
		permuted(n, 2, 1, "");
	if (n == 5)
		permuted(n, 3, 0, "recompute = full\n"); /* member 0 keeps its own */
}

static void inverses(void)
{
	int wrong = 0;

	for (int64_t n = 1; n <= 64; n++)
		for (int64_t mul = -70; mul <= 70; mul++) {
			int64_t want = -1, got = hd_comm_inverse(mul, n);

			for (int64_t k = 0; k < n && want < 0; k++)
				want = hd_comm_mod(mul * k, (int)n) == 1 % n ? k : -1;
			wrong += got != want;
		}
	ok(!wrong, "inverses modulo 1 to 64 are right, or absent where none exists");
}

int main(void)
{
	static const int members[] = { 2, 3, 5, 7 };

	inverses();
	for (size_t i = 0; i < HD_LEN(members); i++)
		with(members[i]);
	return done();
}
