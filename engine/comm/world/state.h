/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/world/state.h - this process and its peers: the state that all files of the communication share. The
 * folders, and the files in each, are listed from the bottom layer to the top. None calls one that is listed after it:
 *
 *   world/      state.c            which rank this process is
 *               mpi.c              start and end of MPI, exchanges while nothing else runs
 *               shared_memory.c    memory shared by the ranks of one host: control block, arena
 *   wait/       watchdog_net.c     which rank is late, between hosts
 *               watchdog.c         which rank is dead or late, on one host
 *               wait.c             the waiting loop: spins, yields, naps
 *               control.c          the control channel
 *   transport/  sum.c              sums and maxima in member order
 *               shm.c, net.c, device.c   between ranks of one host, between hosts, between devices
 *   comm.c                         start and end, groups, calls
 */
#ifndef HD_ENGINE_COMM_WORLD_STATE_H
#define HD_ENGINE_COMM_WORLD_STATE_H
#include "engine/comm/world/world.h"
#include <stdatomic.h>

#define HD_LINE 64 /* bytes of a cache line */
#define HD_ALIGNED __attribute__((aligned(HD_LINE)))
#define HD_HOST_NAME 64  /* bytes of a host's name */
#define HD_LONG_WAIT 0.2 /* seconds after which a wait is made known to others */

/* HD_RANK_ENDS: the rank has reported why it ends, and ends all others. HD_RANK_LEFT: its part of the run is done. */
enum { HD_RANK_RUNS, HD_RANK_ENDS, HD_RANK_LEFT };

/* The state of one local rank that the others of its host can read. */
struct hd_control_rank {
	_Atomic int32_t pid, state;
	_Atomic int32_t waits_for; /* once it has waited for long: local rank + 1, or -1 if unknown; else 0 */
	_Atomic uint32_t naps;     /* counts up while it waits for long, so that others notice if it is stopped */
	char doing[180];           /* the call in which it waits; valid while waits_for is not 0 */
} HD_ALIGNED;

struct hd_control {
	_Atomic int32_t reported;
	struct hd_control_rank rank[]; /* by local rank */
};

struct hd_comm_here { /* this process; set by hd_comm_open */
	struct hd_world w;
	int mpi;                       /* MPI is running */
	int *world_of;                 /* world ranks, by local rank */
	int *local_of;                 /* local ranks, by world rank; -1: on another host */
	char (*host_of)[HD_HOST_NAME]; /* names of hosts, by world rank; NULL: all are the same */
	struct hd_control *control;    /* NULL: no shared memory on this host */
	char *arena;                   /* the arenas of all local ranks, one after another */
	size_t arena_bytes;            /* 0: not shared (not allocated yet, or private) */
	char *mine;                    /* this rank's part of the arena */
	size_t mine_bytes;
	int fits;    /* this rank's threads, and those of ranks that share its cores, have a core each */
	int private; /* the arena had to be private: local ranks use the network transport too */
};
extern struct hd_comm_here hd_here;

/* A wait of this rank, for messages. */
struct hd_waiting {
	const struct hd_communicator *m; /* NULL: the control channel */
	const char *what;
	double since;
	int announced; /* the other ranks have been told */
};
char *hd_waiting_text(const struct hd_waiting *w); /* returns "all-reduce of x on g"; the caller frees it */

void hd_here_alone(void);                      /* fills in the tables for a world of one rank */
void hd_here_leaves(int how);                  /* tells the others of this host: HD_RANK_ENDS or HD_RANK_LEFT */
struct hd_control_rank *hd_here_control(void); /* returns this rank's own, or NULL without shared memory */

#endif
