/* SPDX-License-Identifier: Apache-2.0
 * A slow network is hidden under work: if this breaks, every step of a run over several hosts
 * pays for its gradients' way in full.  Each movement takes 60 ms longer here; the work between
 * start and wait takes longer than that.
 */
#include <config.h>
#include "lib/comm_test.h"
#include "lib/mpi.h"
#include "lib/tap.h"

#define DELAY 0.06

static void work(double seconds)
{
	double end = hd_seconds() + seconds;
	volatile double x = 1;

	while (hd_seconds() < end)
		for (int i = 0; i < 1000; i++)
			x = x * 1.0000001;
}

/* -> exposed seconds of `many` sums under way at once, with or without work under them. */
static struct hd_comm_stats sums(struct hd_members *m, int many, int hide)
{
	struct hd_ticket t[8];
	float *x = (float *)(void *)arena;

	hd_comm_barrier();
	hd_comm_stats(1);
	for (int k = 0; k < many; k++) {
		struct hd_call c = {.kind = HD_ALL_REDUCE,
				    .dtype = HD_F32,
				    .count = 10000,
				    .fixed = (uint32_t)(k & 1)};

		c.in = c.out = x + 10000 * k;
		hd_comm_start(m, &c, &t[k]);
		if (hide)
			work(0.02);
	}
	if (hide)
		work(2 * DELAY);
	for (int k = 0; k < many; k++)
		hd_comm_wait(&t[k]);
	return hd_comm_stats(0);
}

static int rank_main(void)
{
	int ranks[2] = {0, 1};
	struct hd_comm_stats s;
	struct hd_members *m;
	float *x;

	if (!open_all(8 * 40000))
		return 1;
	x = (float *)(void *)arena;
	m = hd_members_create(ranks, 2, "all");
	for (int i = 0; i < 80000; i++)
		x[i] = 1;
	s = sums(m, 4, 0);
	if (s.exposed < 0.9 * DELAY || s.busy < 0.9 * DELAY)
		WRONG("rank %d: nothing to hide: exposed %.4f s, busy %.4f s", world.rank,
		      s.exposed, s.busy);
	s = sums(m, 4, 1);
	if (s.exposed > 0.25 * DELAY || s.busy < 1.5 * DELAY)
		WRONG("rank %d: not hidden: exposed %.4f s, busy %.4f s", world.rank, s.exposed,
		      s.busy);
	for (int i = 0; i < 40000; i++)
		if (x[i] != 4) {
			WRONG("rank %d: element %d is %g", world.rank, i, x[i]);
			break;
		}
	if (s.bytes != 4 * 40000)
		WRONG("rank %d: counted %lld bytes", world.rank, (long long)s.bytes);
	hd_comm_close();
	return wrong != 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return rank_main();
	setenv("HD_TEST_COMM", "mpi", 1);
	setenv("HD_TEST_COMM_DELAY_US", "60000", 1);
	is_int(mpi_run(2, 18, "%s rank", argv[0]), 0,
	       "work between start and wait hides a slow network");
	return done();
}
