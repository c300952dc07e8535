/* SPDX-License-Identifier: Apache-2.0
 * engine/process/affinity.h - cores and OpenMP's settings, before anything else.
 */
#ifndef HD_ENGINE_AFFINITY_H
#define HD_ENGINE_AFFINITY_H
#include "engine/process/cores.h"
#include <stdint.h>

/* The first call of main().  threads_wanted 0: OMP_NUM_THREADS, else cores / ranks of this host.  May start the program
 * again, once, in the same process: it then comes back here and returns.  -> threads of this
 * process, at least 1. */
int hd_affinity_setup(int argc, char **argv, int threads_wanted);
/* What this rank has now; no threads before the setup. */
struct hd_core_use hd_affinity_use(void);
/* What it would make of this in a process of its own, with so many ranks on this host. */
int hd_affinity_threads(int threads_wanted, int64_t ranks);
/* One line for the log if a launcher's binding was undone, else NULL. */
const char *hd_affinity_note(void);

#endif
