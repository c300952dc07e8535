/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/comm.h - movement between ranks: groups whose calls (engine/device/call.h) are made for the program's
 * communication nodes. And the control channel (start-up, agreement on errors, watchdog), which always goes over MPI.
 *
 * start() may return before the movement is done; `in` must stay and `out` must not be touched until wait() returns.
 * Between ranks of one host the movement is made inline through shared memory. All of them map the arena
 * of hd_comm_arena, so it is read in place. Between hosts one progress thread per process drives non-blocking MPI calls.
 * SEND never waits for its receiver inside start(). The sends of a pair are received in the order they were made, in
 * each of two channels. One goes forward through the stages, one back.
 */
#ifndef HD_ENGINE_COMM_COMM_H
#define HD_ENGINE_COMM_COMM_H
#include "engine/comm/transport/request.h"
#include "engine/comm/wait/control.h"
#include "engine/comm/world/world.h"

struct hd_comm_stats {
	double exposed, busy; /* seconds: that wait() (or an inline movement) took; that movements were under way */
	int64_t bytes;        /* sent by this rank, counted as a ring would: see hd_comm_bytes */
};

/* MPI_Init_thread and shared memory between the ranks of a host.  Without mpirun: a world of one.  Called once. */
int hd_comm_open(struct hd_world *w, struct hd_err *err);
void hd_comm_close(void); /* MPI_Finalize; all ranks */
/* All ranks; ends this process without MPI_Finalize, which needs a launcher that listens. */
void hd_comm_leave(int status) __attribute__((noreturn));

/* -- data ------------------------------------------------------------------------------------------------------------ */
/* The arena: zeroed memory that the local ranks read in place.  Collective; called once a process before groups are
 * used; falls back to private memory (and to MPI between local ranks) with one warning where shared memory is short. */
void *hd_comm_arena(size_t bytes, struct hd_err *err);
/* Bytes of this rank's part of it that are in memory, whichever rank has written them; 0 if its memory is private. */
int64_t hd_comm_arena_taken(void);
/* Collective over the world: every rank passes its own member list, in the same order of calls. (World ranks; lists of
 * different groups are disjoint and cover the world; n = 1 is allowed.) */
struct hd_communicator *hd_communicator_create(const int *ranks, int n, const char *name);
/* Before sends and receives of a group; collective over the world, as create. */
void hd_communicator_messages(struct hd_communicator *m);
int hd_communicator_n(const struct hd_communicator *m);
int hd_communicator_me(const struct hd_communicator *m);
const char *hd_communicator_name(const struct hd_communicator *m);
const char *hd_communicator_transport(const struct hd_communicator *m); /* "shared memory", "network", "device" */
/* Sent since hd_comm_stats was asked to reset, as counted there. */
int64_t hd_communicator_bytes(const struct hd_communicator *m);
/* Before the first HD_COMM_ALL_TO_ALL_V of a group: experts of one member.  Nothing is under way. */
void hd_comm_rows_reserve(struct hd_communicator *m, int64_t experts);
int hd_comm_start(struct hd_communicator *m, const struct hd_call *c, struct hd_request *t);
int hd_comm_wait(struct hd_request *t); /* 0, or HD_EIO: a peer is gone (already reported) */
struct hd_comm_stats hd_comm_stats_take(int reset);

#endif
