/* SPDX-License-Identifier: Apache-2.0
 * engine/process/cores.h - which cores the ranks of a host may use.
 */
#ifndef HD_ENGINE_CORES_H
#define HD_ENGINE_CORES_H
#include <sched.h>

struct hd_core_use { /* of a rank */
	cpu_set_t mask;
	int threads;
	int allowed; /* cores whose time its control group may use; 0: all */
};

/* The launcher (mpirun, srun) is an ancestor of this process.  Its mask is what the container, the batch system or the
 * user gives to all its ranks together.  -> 0: there is none */
int hd_cores_of_launcher(cpu_set_t *set);
/* Whole cores whose time the control groups above this process allow, at least 1; 0: all. */
int hd_cores_whole(void);
/* 1: each thread of rank `me`, and of all ranks that share cores with it, directly or through others, can have a core. */
int hd_cores_suffice(const struct hd_core_use *all, int n, int me);

#endif
