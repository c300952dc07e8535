/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/world/mpi.h - start and end of MPI, and blocking exchanges, used while nothing else runs.
 */
#ifndef HD_ENGINE_COMM_WORLD_MPI_H
#define HD_ENGINE_COMM_WORLD_MPI_H
#include "engine/comm/world/state.h"

int hd_mpi_open(struct hd_err *err); /* fills hd_here, but not its shared memory */
void hd_mpi_close(void);
int hd_mpi_all(int yes);                                        /* over the world: 1 if all say yes */
int hd_host_all(int yes);                                       /* over the ranks of this host */
void hd_host_bcast(void *p, size_t bytes);                      /* from local rank 0 */
void hd_host_gather(void *all, const void *mine, size_t bytes); /* to all */
void hd_host_barrier(void);

#endif
