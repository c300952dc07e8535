/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/world/state.h - this process among the others: what all files of the communication know.  The folders stand
 * on each other in this order, and the files of each too; none calls one below it:
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
 *   comm.c                         life, groups, calls
 */
#ifndef HD_ENGINE_COMM_WORLD_STATE_H
#define HD_ENGINE_COMM_WORLD_STATE_H
#include "engine/comm/world/world.h"
#include <stdatomic.h>

#define HD_LINE 64 /* bytes of a cache line */
#define HD_ALIGNED __attribute__((aligned(HD_LINE)))
#define HD_HOST_NAME 64  /* bytes of a host's name */
#define HD_LONG_WAIT 0.2 /* seconds after which a wait is shown to others */

/* Ends: has said why and takes all others with it.  Left: its part of the run is done. */
enum { HD_RANK_RUNS, HD_RANK_ENDS, HD_RANK_LEFT };

/* One local rank, as the others of its host see it. */
struct hd_control_rank {
	_Atomic int32_t pid, state;
	_Atomic int32_t waits_for; /* local rank + 1, -1: not known, once it has waited for long; else 0 */
	char doing[180];           /* valid while waits_for: what it waits in */
} HD_ALIGNED;

struct hd_control {
	_Atomic int32_t spoken;
	struct hd_control_rank rank[]; /* by local rank */
};

struct hd_comm_here { /* this process; set by hd_comm_open */
	struct hd_world w;
	int mpi;                       /* MPI is running */
	int *world_of;                 /* by local rank */
	int *local_of;                 /* by world rank; -1: on another host */
	char (*host_of)[HD_HOST_NAME]; /* by world rank; NULL: all are on one host */
	struct hd_control *control;    /* NULL: no shared memory on this host */
	char *arena;                   /* the arenas of all local ranks, one after the other */
	size_t arena_bytes;            /* 0: not shared (not made, or private) */
	char *mine;                    /* this rank's part of it */
	size_t mine_bytes;
	int fits;    /* each thread of this host's ranks has a core */
	int private; /* the arena had to be private: local ranks use the network transport too */
};
extern struct hd_comm_here hd_here;

/* What this rank waits in, as messages say it. */
struct hd_waiting {
	const struct hd_communicator *m; /* NULL: the control channel */
	const char *what;
	double since;
	int announced; /* the others know */
};
char *hd_waiting_text(const struct hd_waiting *w); /* "all-reduce of x on g", malloc'ed */

void hd_here_alone(void);                      /* the numbers of a world of one */
void hd_here_leaves(int how);                  /* for the others of this host: HD_RANK_ENDS, HD_RANK_LEFT */
struct hd_control_rank *hd_here_control(void); /* this rank's own; NULL: no shared memory */

#endif
