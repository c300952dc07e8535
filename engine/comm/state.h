/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/state.h - what the files of the communication share.
 *
 *   comm.c           life, dispatch to a transport, byte counts
 *   mpi.c            start of MPI, the control channel
 *   shared_memory.c  memory shared by the ranks of one host: control block, arena
 *   shm.c            data between ranks of one host
 *   net.c            data between hosts: the progress thread
 *   sum.c            sums and maxima in member order
 *   ragged.c         rows whose numbers are known at run time
 *   watchdog.c       waiting: backoff, dead peers, the watchdog
 *   watchdog_net.c   who is late, between hosts
 */
#ifndef HD_ENGINE_COMM_STATE_H
#define HD_ENGINE_COMM_STATE_H
#include "engine/comm/comm.h"
#include <stdatomic.h>

#define HD_LINE 64 /* bytes of a cache line */
#define HD_LANES 2
#define HD_ALIGNED __attribute__((aligned(HD_LINE)))

/* Ends: has said why and takes all others with it.  Left: its part of the run is done. */
enum { HD_RANK_RUNS, HD_RANK_ENDS, HD_RANK_LEFT };
enum { HD_TICKET_STARTED, HD_TICKET_DONE };

/* One local rank, as the others of its host see it. */
struct hd_control_rank {
	_Atomic int32_t pid, state;
	_Atomic int32_t waits_for; /* local rank + 1, -1: not known, once it has waited for long; else 0 */
	char doing[180]; /* valid while waits_for: what it waits in */
} HD_ALIGNED;

struct hd_control {
	_Atomic int32_t spoken;
	struct hd_control_rank rank[]; /* by local rank */
};

struct hd_comm_here { /* this process; set by hd_comm_open */
	struct hd_world w;
	int mpi; /* MPI is running */
	int *world_of; /* by local rank */
	int *local_of; /* by world rank; -1: on another host */
	struct hd_control *control; /* NULL: no shared memory on this host */
	char *arena; /* the arenas of all local ranks, one after the other */
	size_t arena_bytes; /* 0: not shared (not made, or private) */
	int private; /* the arena had to be private: local ranks use the network transport too */
};
extern struct hd_comm_here hd_here;

struct hd_box; /* of one ordered pair of local ranks: shm.c */
struct hd_slot;
struct hd_net; /* net.c */

struct hd_members {
	int n, me;
	int *world, *local; /* ranks of the members; local: -1 on another host */
	char *name;
	int on_host; /* all members are here */
	uint64_t calls, step; /* of collectives through shared memory; of barriers in them */
	uint64_t *sent, *received; /* by member and lane: messages of the pair so far */
	struct hd_slot *slots; /* by local rank; NULL: no shared memory */
	struct hd_box *boxes; /* [(from * local_size + to) * lanes + lane] */
	char **ins, **outs; /* scratch of a call, by member */
	uint64_t net_sums;
	int64_t bytes; /* sent by this rank since the statistics were reset */
	struct hd_net *net;
	void *device; /* communicator of the device, or NULL */
	void *messages[4]; /* likewise, of sends and receives: by lane, and whether the sender's index is odd */
	struct hd_members *next;
};

/* -- comm.c ------------------------------------------------------------------------------------ */
int64_t hd_comm_size(uint32_t dtype, int64_t count); /* bytes */
int64_t hd_comm_in_bytes(const struct hd_call *c, int n, int me); /* of what this member puts in */
const char *hd_comm_kind_name(uint32_t kind);
int64_t hd_rows_sent(const struct hd_rows *r, int to_experts, int n, int me); /* bytes */
/* Gives every group the network transport; collective over the world. */
void hd_members_network(void);
static inline int hd_comm_mod(int64_t a, int n)
{
	int r = (int)(a % n);

	return r < 0 ? r + n : r;
}

/* -- mpi.c: blocking calls, used while nothing else runs ---------------------------------- */
int hd_mpi_launched(void);
int hd_mpi_open(struct hd_err *err); /* fills hd_here, but not its shared memory */
void hd_mpi_close(void);
void hd_mpi_abort(int status) __attribute__((noreturn));
int hd_mpi_all(int yes); /* over the world: 1 if all say yes */
int hd_host_all(int yes); /* over the ranks of this host */
void hd_host_bcast(void *p, size_t bytes); /* from local rank 0 */
void hd_host_gather(void *all, const void *mine, size_t bytes); /* to all */
void hd_host_barrier(void);

/* -- shared_memory.c ---------------------------------------------------------------------------- */
/* Collective over the host, zeroed; NULL on all its ranks: not available. */
void *hd_segment_map(size_t bytes);
void hd_control_open(void);
int hd_memfd(size_t bytes, void **map); /* -> fd, or -1 */
void *hd_memfd_peer(int pid, int fd, size_t bytes); /* NULL: cannot be mapped */

/* -- sum.c -------------------------------------------------------------------------------- */
int hd_sum_knows(uint32_t dtype);
/* Each of the outs gets the sum (max: the maximum) of the ins in their order.  An out may be one
 * of the ins. */
void hd_sum(char *const *outs, int nout, char *const *ins, int nin, int64_t count, uint32_t dtype,
	    int max);
/* A copy, by all threads where it is large; out may be in. */
void hd_move(void *out, const void *in, int64_t bytes);

/* -- shm.c -------------------------------------------------------------------------------- */
int hd_shm_attach(struct hd_members *m); /* collective over the world */
int hd_shm_start(struct hd_ticket *t);
void hd_shm_wait(struct hd_ticket *t);
/* Makes the receives that were started and whose message is there. */
void hd_shm_receive_early(void);

/* -- net.c -------------------------------------------------------------------------------- */
void hd_net_attach(struct hd_members *m); /* collective over the world */
int hd_net_start(struct hd_ticket *t);
void hd_net_room(const struct hd_members *m, int64_t experts); /* for rows of so many experts of a member */
void hd_net_wait(struct hd_ticket *t);
double hd_net_busy(int reset);
void hd_net_stop(void);

/* -- watchdog.c ------------------------------------------------------------------------------ */
struct hd_pause {
	const struct hd_members *m; /* NULL: the control channel */
	const char *what;
	double since, nap;
	int turns, told;
};
void hd_watch_open(void); /* after the control block */
void hd_pause_begin(struct hd_pause *p, const struct hd_members *m, const char *what);
/* Once around a waiting loop.  late: the member it waits for, -1: not known.  Ends the run if a
 * peer is dead or the watchdog's time is over. */
void hd_pause(struct hd_pause *p, int late);
void hd_pause_end(struct hd_pause *p);

/* -- watchdog_net.c: nothing where there is one host ------------------------------------------------ */
void hd_ask_open(void); /* collective over the world */
void hd_ask_close(void);
void hd_ask_waiting(const struct hd_pause *p, int late, const char *doing); /* once, when it has waited for long */
void hd_ask_not_waiting(void);
void hd_ask_poll(void); /* answers */
/* Asks, or looks whether all have answered.  over: this rank's time is over, which ends the run; else only a rank that does
 * not answer does. */
void hd_ask(int over);
int hd_ask_speak(void); /* 1: no other host has spoken; they now know that this one does */

#endif
