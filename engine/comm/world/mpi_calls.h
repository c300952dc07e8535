/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/world/mpi_calls.h - the lock and the communicator for files that call MPI.
 */
#ifndef HD_ENGINE_COMM_WORLD_MPI_CALLS_H
#define HD_ENGINE_COMM_WORLD_MPI_CALLS_H
#include "engine/comm/world/mpi.h"
#include <mpi.h>
#include <pthread.h>

extern pthread_mutex_t hd_mpi_lock;
extern MPI_Comm hd_mpi_world;

/* Calls MPI under its lock. Errors end the run inside MPI (MPI_ERRORS_ARE_FATAL), so return codes are not checked. */
#define HD_MPI(call) \
	do { \
		pthread_mutex_lock(&hd_mpi_lock); \
		call; \
		pthread_mutex_unlock(&hd_mpi_lock); \
	} while (0)

#endif
