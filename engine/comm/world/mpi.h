/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/world/mpi.h - start and end of MPI, and blocking exchanges that are used while nothing else runs.
 */
#ifndef HD_ENGINE_COMM_WORLD_MPI_H
#define HD_ENGINE_COMM_WORLD_MPI_H
#include "engine/comm/world/state.h"

int hd_mpi_open(struct hd_err *err); /* fills hd_here, but not its shared memory */
void hd_mpi_close(void);
int hd_mpi_all(int yes);                                        /* returns 1 if all ranks of the world say yes */
int hd_host_all(int yes);                                       /* returns 1 if all ranks of this host say yes */
void hd_host_bcast(void *p, size_t bytes);                      /* from local rank 0 */
void hd_host_gather(void *all, const void *mine, size_t bytes); /* an all-gather */
void hd_host_barrier(void);

#endif
