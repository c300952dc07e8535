/* SPDX-License-Identifier: Apache-2.0
 * Kernels by a rank that has all cores of its host: its threads divide each kernel, and meet at its end.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine/measure/measure.h"
#include <sched.h>
#include <unistd.h>

/* This thread, and those that begin from now on, on the cores that any rank has; `was`: its own. */
static void cores_of_all(cpu_set_t *was)
{
	long n = sysconf(_SC_NPROCESSORS_CONF);
	cpu_set_t all;

	CPU_ZERO(&all);
	if (sched_getaffinity(0, sizeof(*was), was))
		CPU_ZERO(was);
	for (int i = 0; i < n && i < CPU_SETSIZE; i++)
		if (hd_comm_max(CPU_ISSET(i, was) ? 1 : 0) > 0)
			CPU_SET(i, &all);
	sched_setaffinity(0, sizeof(all), &all);
}

int hd_measure_team(struct hd_measuring *m, struct hd_err *err)
{
	struct hd_job *j = m->j;
	int threads = j->threads, team = (int)m->rates->cores;
	cpu_set_t was;

	if (!hd_device_in_host(j->device) || hd_comm_max(team > threads && j->world.local_size > 1) <= 0)
		return HD_OK;
	cores_of_all(&was);
	m->rates->team = m->team = team;
	j->threads = team;
	j->device->open(team, err);
	if (hd_comm_agree(err) >= 0)
		hd_measure_programs(m, err);
	m->team = 0;
	j->threads = threads;
	if (!err->code)
		j->device->open(threads, err);
	sched_setaffinity(0, sizeof(was), &was);
	return hd_comm_agree(err);
}
