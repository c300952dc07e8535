/* SPDX-License-Identifier: Apache-2.0
 * Work hides a slow network.  If this broke, every step of a run over several hosts
 * would pay in full for moving its gradients.  Here each movement takes 60 ms longer.  The work between
 * start and wait lasts until all movements are over, and does nothing to advance them.
 */
#include <config.h>
#include "engine/comm/transport/transport.h"
#include "lib/comm_test.h"
#include "lib/mpi.h"
#include "lib/tap.h"

#define DELAY 0.06

static int done_of(const struct hd_request *t, int n)
{
	int done = 0;

	for (int k = 0; k < n; k++)
		done += __atomic_load_n(&t[k].state, __ATOMIC_ACQUIRE) == HD_REQUEST_DONE;
	return done;
}

/* Works until `done` of n movements are over, without advancing them, or for at most a minute. */
static void work(const struct hd_request *t, int n, int done, double seconds)
{
	double begin = hd_seconds();
	volatile double x = 1;

	while (hd_seconds() < begin + seconds || (done_of(t, n) < done && hd_seconds() < begin + 60))
		for (int i = 0; i < 1000; i++)
			x = x * 1.0000001;
}

/* Runs `many` sums at once, with or without work meanwhile; *done: how many were over before they were waited
 * for. */
static struct hd_comm_stats sums(struct hd_communicator *m, int many, int hide, int *done)
{
	struct hd_request t[8];
	float *x = (float *)(void *)arena;

	for (int i = 0; i < 10000 * many; i++)
		x[i] = 1;
	hd_comm_barrier();
	hd_comm_stats_take(1);
	for (int k = 0; k < many; k++) {
		struct hd_call c = {
			.kind = HD_COMM_ALL_REDUCE, .dtype = HD_DTYPE_F32, .count = 10000, .fixed = (uint32_t)(k & 1)
		};

		c.in = c.out = x + 10000 * k;
		hd_comm_start(m, &c, &t[k]);
		if (hide)
			work(t, 0, 0, 0.02);
	}
	if (hide)
		work(t, many, many, 0);
	*done = done_of(t, many);
	for (int k = 0; k < many; k++)
		hd_comm_wait(&t[k]);
	return hd_comm_stats_take(0);
}

static int rank_main(void)
{
	int ranks[2] = { 0, 1 };
	struct hd_comm_stats s = { 0 };
	struct hd_communicator *m;
	float *x;
	int done;

	if (!open_all(8 * 40000))
		return 1;
	x = (float *)(void *)arena;
	m = hd_communicator_create(ranks, 2, "all");
	/* A busy machine may stop the caller, or start movements late, so try several times. */
	for (int try = 0; try < 5 && hd_comm_max(s.exposed < 0.9 * DELAY || s.busy < 0.9 * DELAY) > 0; try++)
		s = sums(m, 4, 0, &done);
	if (s.exposed < 0.9 * DELAY || s.busy < 0.9 * DELAY)
		WRONG("rank %d: nothing to hide: exposed %.4f s, busy %.4f s", world.rank, s.exposed, s.busy);
	s = sums(m, 4, 1, &done);
	if (done != 4 || s.exposed != 0 || s.busy < 1.5 * DELAY)
		WRONG("rank %d: not hidden: %d of 4 are done before they are waited for, exposed %.4f s, busy %.4f s",
		      world.rank, done, s.exposed, s.busy);
	for (int i = 0; i < 40000; i++)
		if (x[i] != 2) {
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
	is_int(mpi_run(2, 18, "%s rank", argv[0]), 0, "work between start and wait hides a slow network");
	return done();
}
