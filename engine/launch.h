/* SPDX-License-Identifier: Apache-2.0
 * engine/launch.h - what a process can tell of how it was started, and what to type instead.
 */
#ifndef HD_ENGINE_LAUNCH_H
#define HD_ENGINE_LAUNCH_H
#include <stdint.h>

/* Before MPI is up.  1: the launcher calls this rank 0, or there is no launcher. */
int hd_launch_first(void);
/* Whether what is printed ends on a terminal: the pseudo-terminal that mpirun gives to its ranks is not one. */
int hd_launch_terminal(void);
/* The command that starts argv on so many ranks, quoted for a shell; malloc'ed. */
char *hd_launch_command(int64_t ranks, int argc, char **argv);

#endif
