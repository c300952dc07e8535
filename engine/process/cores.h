/* SPDX-License-Identifier: Apache-2.0
 * engine/process/cores.h - which cores the ranks of a host may use.
 */
#ifndef HD_ENGINE_CORES_H
#define HD_ENGINE_CORES_H
#include <sched.h>

struct hd_core_use { /* one rank's cores and threads */
	cpu_set_t mask;
	int threads;
	int allowed; /* the number of cores whose full time its control group may use; 0: no limit */
};

/* Gets the mask of the launcher (mpirun, srun), which is an ancestor of this process. It is what the container, the
 * batch system or the user gives to all ranks together. Returns 0 if there is no launcher. */
int hd_cores_of_launcher(cpu_set_t *set);
/* Returns how many cores the control groups above this process allow it to use in full, at least 1. Returns 0 if
 * they set no limit. */
int hd_cores_quota(void);
/* Returns 1 if rank `me`, and all ranks that share cores with it, directly or through others, have a
 * core for each thread. */
int hd_cores_suffice(const struct hd_core_use *all, int n, int me);

#endif
