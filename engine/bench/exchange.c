/* SPDX-License-Identifier: Apache-2.0
 * Measures the distance between a process' cores: two threads, each on its own core, pass a cache line back and forth.
 * The host of a virtual machine may move its cores. Within a group of cores that share a cache, a handover took 27 ns;
 * between groups, 175 ns.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine/bench/bench.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

enum {
	SAMPLES = 8, /* samples per pair; the minimum counts, because other processes may have used a core in between */
	TRIPS = 500, /* round trips per sample */
	PAIRS = 8    /* the first core with some of the others */
};
#define MOVED 2     /* ratio of two times that shows that the cores moved */
#define LONGEST 0.1 /* limit per pair, in seconds: a core that needs longer has other work */

struct core_pair {
	_Atomic long turn; /* odd: the answering thread's turn */
	_Atomic int over;
	int core[2];
	double until, least; /* the deadline of the pair; the least seconds of one handover */
};

static void pin_to_core(int core)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET((size_t)core, &one);
	pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

/* Waits for this turn. Returns 0 if the measurement is over. */
static int wait_for_turn(struct core_pair *p, long turn)
{
	for (long spins = 1; atomic_load_explicit(&p->turn, memory_order_acquire) != turn; spins++)
		if (atomic_load_explicit(&p->over, memory_order_relaxed) ||
		    (spins % 4096 == 0 && hd_seconds() > p->until))
			return 0;
	return 1;
}

static void *answer(void *ctx)
{
	struct core_pair *p = ctx;

	pin_to_core(p->core[1]);
	for (long turn = 1; wait_for_turn(p, turn); turn += 2)
		atomic_store_explicit(&p->turn, turn + 1, memory_order_release);
	return NULL;
}

static void *ask(void *ctx)
{
	struct core_pair *p = ctx;
	long turn = 0;
	int going = 1;

	pin_to_core(p->core[0]);
	for (int s = 0; s < SAMPLES && going; s++) {
		double begin = hd_seconds();

		for (int i = 0; i < TRIPS && going; i++) {
			atomic_store_explicit(&p->turn, turn + 1, memory_order_release);
			going = wait_for_turn(p, turn += 2);
		}
		if (going)
			p->least = fmin(p->least, (hd_seconds() - begin) / (2 * TRIPS));
	}
	atomic_store(&p->over, 1);
	return NULL;
}

/* Returns the seconds of a handover between two cores, or INFINITY if it was not measured. */
static double exchange_of(int one, int other)
{
	struct core_pair p = { .core = { one, other }, .until = hd_seconds() + LONGEST, .least = INFINITY };
	pthread_t asks, answers;

	if (pthread_create(&answers, NULL, answer, &p))
		return INFINITY;
	if (pthread_create(&asks, NULL, ask, &p))
		atomic_store(&p.over, 1);
	else
		pthread_join(asks, NULL);
	pthread_join(answers, NULL);
	return p.least;
}

/* Returns the mean over pairs of cores, or 0 if only one core is available or no pair could be measured. */
static double measure(void)
{
	cpu_set_t mine;
	sigset_t all, was;
	int core[CPU_SETSIZE], n = 0, pairs = 0;
	double sum = 0;

	if (sched_getaffinity(0, sizeof(mine), &mine))
		return 0;
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET((size_t)i, &mine))
			core[n++] = i;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was); /* the main thread handles signals */
	for (int k = 0, most = n - 1 < PAIRS ? n - 1 : PAIRS; k < most; k++) {
		double s = exchange_of(core[0], core[1 + (int64_t)k * (n - 1) / most]);

		pairs += s < INFINITY;
		sum += s < INFINITY ? s : 0;
	}
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return pairs ? sum / pairs : 0;
}

double hd_bench_exchange(const struct hd_job *j)
{
	int measures = hd_device_in_host(j->device) && j->world.local_rank == 0;

	hd_comm_barrier(); /* the other ranks wait, which leaves the cores free */
	return hd_comm_max(measures ? measure() : 0);
}

int hd_bench_cores_moved(double then, double now)
{
	return then > 0 && now > 0 && (now > MOVED * then || then > MOVED * now);
}
