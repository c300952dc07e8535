/* SPDX-License-Identifier: Apache-2.0
 * Ranks of one host communicate.  If this broke, gradients of ranks that share a machine would be silently wrong,
 * or a step would hang.
 */
#include <config.h>
#include "engine/comm/world/state.h"
#include "engine/process/affinity.h"
#include "engine/train/progress.h"
#include "lib/comm_test.h"
#include "lib/mpi.h"
#include "lib/tap.h"
#include <sys/resource.h>
#include <unistd.h>

static void check_bytes(void)
{
	is_int(hd_comm_bytes(HD_COMM_ALL_REDUCE, HD_DTYPE_F32, 100, 4, 0, 0), 600,
	       "an all-reduce sends 2 (n - 1) / n of the bytes");
	is_int(hd_comm_bytes(HD_COMM_ALL_REDUCE, HD_DTYPE_F32, 100, 1, 0, 0), 0, "a single rank sends nothing");
	is_int(hd_comm_bytes(HD_COMM_REDUCE_SCATTER, HD_DTYPE_BF16, 100, 4, 0, 0), 600,
	       "a reduce-scatter sends (n - 1) / n of n pieces");
	is_int(hd_comm_bytes(HD_COMM_SCATTER, HD_DTYPE_U8, 10, 3, 1, 1), 20,
	       "the root of a scatter sends n - 1 pieces");
	is_int(hd_comm_bytes(HD_COMM_SCATTER, HD_DTYPE_U8, 10, 3, 0, 1), 0, "... and the others send nothing");
	is_int(hd_comm_bytes(HD_COMM_SHIFT, HD_DTYPE_F32, 10, 3, 0, -3), 0, "a shift by n sends nothing");
	is_int(hd_call_from(&(struct hd_call){ .kind = HD_COMM_RECV, .index = 2 }, 4, 1), 2,
	       "hd_call_from gives the sender of a receive");
	is_int(hd_call_from(&(struct hd_call){ .kind = HD_COMM_SHIFT, .index = 1 }, 4, 0), 3, "... and of a shift");
	is_int(hd_comm_bytes(HD_COMM_SEND, HD_DTYPE_B1, 10, 3, 0, 1), 2, "signs are sent as bits");
}

/* Rank 0 writes into rank 1's part of the arena. The pages count for rank 1, though it has not mapped them. */
static int check_taken(void)
{
	const int64_t written = 8 << 20, none = 1 << 20;
	int64_t own, peak;

	if (!open_all(16 << 20))
		return 1;
	own = hd_own_peak_bytes();
	peak = hd_peak_bytes();
	if (hd_comm_arena_taken() > none)
		WRONG("%lld bytes are taken at the start", (long long)hd_comm_arena_taken());
	hd_comm_barrier();
	if (world.rank == 0)
		memset(arena + arena_size, 1, (size_t)written);
	hd_comm_barrier();
	own = hd_own_peak_bytes() - own;
	peak = hd_peak_bytes() - peak;
	if (world.rank == 1 && (hd_comm_arena_taken() < written || hd_comm_arena_taken() > written + none))
		WRONG("%lld bytes are taken, and %lld written", (long long)hd_comm_arena_taken(), (long long)written);
	if (world.rank == 0 && hd_comm_arena_taken() > none)
		WRONG("%lld bytes are taken by what another rank has", (long long)hd_comm_arena_taken());
	if (world.rank == 1 ? own < written || peak > none : peak < written - none || own > none)
		WRONG("rank %d: the peak has grown by %lld, without other ranks' pages by %lld", world.rank,
		      (long long)peak, (long long)own);
	hd_comm_barrier();
	hd_comm_close();
	return wrong != 0;
}

#define MEETINGS 50

/* Returns how often rank 1 sleeps while rank 0 is a millisecond late to each meeting. */
static long naps(void)
{
	const int ranks[] = { 0, 1 };
	struct hd_communicator *m = hd_communicator_create(ranks, 2, "both");
	struct rusage before, after;
	float x = 1;
	struct hd_call call = {
		.kind = HD_COMM_ALL_REDUCE, .dtype = HD_DTYPE_F32, .count = 1, .in = &x, .out = &x, .what = "x"
	};

	hd_comm_barrier();
	getrusage(RUSAGE_SELF, &before);
	for (int i = 0; i < MEETINGS; i++) {
		struct hd_request t;
		double late = hd_seconds() + 1e-3;

		while (world.rank == 0 && hd_seconds() < late)
			;
		hd_comm_start(m, &call, &t);
		hd_comm_wait(&t);
	}
	getrusage(RUSAGE_SELF, &after);
	return world.rank ? after.ru_nvcsw - before.ru_nvcsw : 0;
}

/* A nap ends late, so a rank with its own core takes none for a millisecond. A rank that shares its core yields at
 * once, but how often it then sleeps depends on the other users of the core. */
static int check_naps(int argc, char **argv)
{
	int threads = atoi(argv[2]), fit = 2 * threads <= sysconf(_SC_NPROCESSORS_ONLN);
	long n;

	hd_affinity_setup(argc, argv, threads);
	if (!open_all(1 << 20))
		return 1;
	if (hd_here.fits != fit)
		WRONG("%d threads in each of two ranks: fits is %d", threads, !fit);
	n = naps();
	if (fit && n > MEETINGS)
		WRONG("%ld naps in %d meetings", n, MEETINGS);
	hd_comm_barrier();
	hd_comm_close();
	return wrong != 0;
}

static int rank_main(int argc, char **argv)
{
	const char *what = argv[1];

	return !strcmp(what, "taken")    ? check_taken()
	       : !strcmp(what, "naps")   ? check_naps(argc, argv)
	       : !strcmp(what, "orders") ? check_orders_alone()
					 : check_everything();
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return rank_main(argc, argv);
	check_bytes();
	for (int n = 1; n <= 4; n++) {
		char name[80];

		snprintf(name, sizeof(name), "every kind and type works on %d rank%s", n, n > 1 ? "s" : "");
		is_int(mpi_run(n, 18, "%s rank", argv[0]), 0, name);
	}
	is_int(mpi_run(7, 18, "%s orders", argv[0]), 0, "sums of 7 members follow a given order");
	is_int(mpi_run(2, 18, "%s taken", argv[0]), 0, "a page counts for the rank that owns its part of the arena");
	is_int(mpi_run(2, 18, "%s naps 1", argv[0]), 0, "ranks with their own cores wait without sleeping");
	is_int(mpi_run(2, 18, "%s naps %ld", argv[0], sysconf(_SC_NPROCESSORS_ONLN)), 0,
	       "ranks that share cores yield");
	setenv("HD_TEST_COMM", "private", 1);
	is_int(mpi_run(2, 18, "%s rank", argv[0]), 0, "ranks of a host without shared memory communicate");
	return done();
}
