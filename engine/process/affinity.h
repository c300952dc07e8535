/* SPDX-License-Identifier: Apache-2.0
 * engine/process/affinity.h - chooses this process's cores and OpenMP settings, before anything else runs.
 */
#ifndef HD_ENGINE_AFFINITY_H
#define HD_ENGINE_AFFINITY_H
#include "engine/process/cores.h"
#include <stdint.h>

/* Sets cores and threads up, and returns the number of threads of this process, at least 1. main() must call it first.
 * threads_wanted 0: OMP_NUM_THREADS, or else the cores divided by the ranks of this host. It may start the program
 * again, once, in the same process; the call is then reached a second time, and returns. */
int hd_affinity_setup(int argc, char **argv, int threads_wanted);
/* Returns the cores and threads that this rank has now; 0 threads before hd_affinity_setup. */
struct hd_core_use hd_affinity_use(void);
/* Returns how many threads each process would get if a job of so many ranks were started on this host. */
int hd_affinity_threads(int threads_wanted, int64_t ranks);
/* Returns a line for the log if a launcher's binding was undone or threads have to share cores, else NULL. */
const char *hd_affinity_note(void);

#endif
