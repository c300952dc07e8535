/* SPDX-License-Identifier: Apache-2.0
 * Measures by how much longer a launch takes on the threads of one rank than on as many ranks of one thread.
 *
 * Each rank keeps what it has written in the cache of its core. The threads of one rank read what others of them wrote,
 * launch by launch, and all wait for the last. That adds a tenth or more to launches of a hundred microseconds, and
 * nothing to long ones. So it is a time for each launch. Small models are run by all ranks, each alone, and then by one
 * rank with all cores.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine/bench/bench.h"
#include "engine/measure/measure.h"
#include <math.h>
#include <sched.h>
#include <stdlib.h>

enum { ROUNDS = 3 }; /* the median of them counts, since machines drift */

/* Returns whether this process may use all cores. If it was bound to some of them, libgomp has counted only these, and
 * lets further threads sleep. */
static int may_have_all(const struct hd_measuring *m)
{
	cpu_set_t mine;

	return !sched_getaffinity(0, sizeof(mine), &mine) && CPU_COUNT(&mine) >= m->rates->cores;
}

static int run(struct hd_measuring *m, int threads, int by_team, struct hd_err *err)
{
	m->j->threads = threads;
	m->launches->by_team = by_team;
	m->launches->at = 0;
	m->j->device->open(threads, err);
	if (hd_comm_agree(err) >= 0)
		hd_measure_small(m, err);
	return hd_comm_agree(err);
}

/* Returns the additional seconds of a launch. */
static double compare(struct hd_measuring *m, int threads, int team, struct hd_err *err)
{
	struct hd_launches x = { .team = team };

	m->launches = &x;
	if (run(m, threads, 0, err) >= 0)
		run(m, team, 1, err);
	m->launches = NULL;
	free(x.alone);
	return hd_launch_fit_extra(&x.fit);
}

struct team_round {
	double more, exchange;
};

static struct team_round compare_in_a_round(struct hd_measuring *m, int threads, int team, struct hd_err *err)
{
	double more = compare(m, threads, team, err);

	return (struct team_round){ more, err->code ? 0 : hd_bench_exchange(m->j) };
}

static int by_more(const void *a, const void *b)
{
	double x = ((const struct team_round *)a)->more, y = ((const struct team_round *)b)->more;

	return (x > y) - (x < y);
}

int hd_measure_team(struct hd_measuring *m, struct hd_err *err)
{
	struct hd_job *j = m->j;
	int threads = j->threads, team = (int)m->rates->cores, most = m->quick ? 1 : ROUNDS, n = 0;
	struct team_round round[ROUNDS] = { { 0 } };

	if (!hd_device_in_host(j->device) || hd_comm_max(team > threads && j->world.local_size > 1) <= 0)
		return HD_OK;
	/* Ranks that share cores do not get all that a core can do. */
	if (hd_comm_max((double)j->world.local_size * threads) > (double)team)
		return HD_OK;
	if (hd_comm_max(may_have_all(m) ? 0 : 1) > 0) {
		hd_log(HD_LOG_WARN,
		       "launches by one rank with all cores are not measured, since each rank is bound to some of "
		       "them: mpirun --bind-to none allows it");
		return HD_OK;
	}
	while (n < most && !err->code && (!n || hd_comm_max(hd_seconds() > m->until) <= 0))
		round[n++] = compare_in_a_round(m, threads, team, err);
	qsort(round, (size_t)n, sizeof(*round), by_more);
	m->rates->launch = fmax(round[n / 2].more, 0);
	m->rates->exchange = round[n / 2].exchange;
	j->threads = threads;
	if (!err->code)
		j->device->open(threads, err);
	return hd_comm_agree(err);
}
