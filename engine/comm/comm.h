/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/comm.h - movement between ranks: groups and their calls (engine/device/call.h), which execute the
 * program's communication nodes. The control channel (start-up, agreement on errors, watchdog) always uses MPI.
 *
 * hd_comm_start may return before the movement is done: until hd_comm_wait returns, `in` must not change and `out`
 * must not be touched. Ranks of one host move data inline through shared memory. All of them map the arena of
 * hd_comm_arena, so operands are read in place. Between hosts, one progress thread per process drives non-blocking MPI
 * calls. HD_COMM_SEND never waits for its receiver inside hd_comm_start. A pair of ranks has two channels, one for
 * each direction through the stages. Within a channel, messages are received in the order in which they were sent.
 */
#ifndef HD_ENGINE_COMM_COMM_H
#define HD_ENGINE_COMM_COMM_H
#include "engine/comm/transport/request.h"
#include "engine/comm/wait/control.h"
#include "engine/comm/world/world.h"

struct hd_comm_stats {
	/* Seconds spent in hd_comm_wait and in inline movements; seconds during which movements were under way. */
	double exposed, busy;
	int64_t bytes; /* sent by this rank, counted as if all collectives were rings: see hd_comm_bytes */
};

/* Calls MPI_Init_thread and sets up shared memory between the ranks of a host. Without mpirun, the world is this rank
 * alone. Call it once. */
int hd_comm_open(struct hd_world *w, struct hd_err *err);
void hd_comm_close(void); /* collective; calls MPI_Finalize */
/* Ends this process without MPI_Finalize, which needs a launcher that still responds. Collective over the world. */
void hd_comm_leave(int status) __attribute__((noreturn));

/* -- data ---------------------------------------------------------------------------------------------------------- */
/* Allocates the arena: zeroed memory that the local ranks read in place. Collective; call it once per process before
 * groups are used. If ranks of a host cannot share memory, the arena is private there, and these ranks communicate over
 * MPI. Rank 0 warns if it is one of them. */
void *hd_comm_arena(size_t bytes, struct hd_err *err);
/* Returns how many bytes of this rank's part of the arena are resident, whichever rank wrote them; 0 if it is
 * private. */
int64_t hd_comm_arena_taken(void);
/* Creates a group. Collective over the world: all ranks create their groups in the same order, and each passes the
 * member list of its own group. A list contains world ranks; the lists of one call are disjoint and cover the world. n
 * may be 1. */
struct hd_communicator *hd_communicator_create(const int *ranks, int n, const char *name);
/* Prepares a group for sends and receives, and connects the n ends that are known. Other pairs are connected by their first
 * message. Collective over the world, like hd_communicator_create; both ends of a pair are given, or none. */
void hd_communicator_messages(struct hd_communicator *m, const struct hd_message_end *ends, size_t n);
int hd_communicator_n(const struct hd_communicator *m);
int hd_communicator_me(const struct hd_communicator *m);
const char *hd_communicator_name(const struct hd_communicator *m);
const char *hd_communicator_transport(const struct hd_communicator *m); /* "shared memory", "network", "device" */
/* Returns the bytes that this rank has sent in the group since the last hd_comm_stats_take(1), counted as in
 * hd_comm_stats. */
int64_t hd_communicator_bytes(const struct hd_communicator *m);
/* Prepares a group for HD_COMM_ALL_TO_ALL_V with so many experts per member. Call it before the first one, while
 * nothing is under way. */
void hd_comm_rows_reserve(struct hd_communicator *m, int64_t experts);
/* Refuses a call that is too long for the group's transport, before anything is started. */
int hd_comm_check(const struct hd_communicator *m, const struct hd_call *c, struct hd_err *err);
int hd_comm_start(struct hd_communicator *m, const struct hd_call *c, struct hd_request *t);
int hd_comm_wait(struct hd_request *t); /* returns 0, or HD_EIO if a peer is gone, which has been reported */
struct hd_comm_stats hd_comm_stats_take(int reset);

#endif
