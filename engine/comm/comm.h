/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/comm.h - movement between ranks: one transport table for the program's communication nodes, and the control
 * channel (start-up, agreement on errors, watchdog), which always goes over MPI.
 *
 * Data.  A group's calls are made in the same order by all its members.  Buffers are contiguous; the collectives work on
 * whole buffers of `count` elements.  Sums and maxima of floats are made in member order, in fp32 (fp64 for HD_F64).
 *
 *   kind               in                       out
 *   HD_ALL_REDUCE      count                    count (out may equal in)
 *   HD_ALL_MAX         count                    count (out may equal in)
 *   HD_REDUCE_SCATTER  n * count                count: piece `me` of the sum
 *   HD_ALL_GATHER      count                    n * count, in member order
 *   HD_ALL_TO_ALL      n * count                n * count: piece j goes to member j
 *   HD_BROADCAST       count (root only)        count (out of the root may equal in)
 *   HD_REDUCE          count                    count (root only)
 *   HD_GATHER          count                    n * count (root only)
 *   HD_SCATTER         n * count (root only)    count
 *   HD_SHIFT           count to me + index      count from me - index (cyclic)
 *   HD_SEND            count to member index    -
 *   HD_RECV            -                        count from member index
 *   HD_ALL_TO_ALL_ROWS rows of all experts      rows of this member's experts, or the other way round: struct hd_rows
 *
 * start() may return before the movement is done; `in` must stay and `out` must not be touched until wait() returns.
 * Between ranks of one host the movement is made inline through shared memory (the arena of hd_comm_arena is mapped by
 * all of them, so it is read in place); between hosts one progress thread per process drives non-blocking MPI calls.
 * SEND never waits for its receiver inside start(): the sends of a pair are received in the order they were made, in each
 * of two lanes (what goes forward through the stages, and what comes back).
 */
#ifndef HD_ENGINE_COMM_COMM_H
#define HD_ENGINE_COMM_COMM_H
#include <heddle/graph.h>
#include "engine/err.h"

enum { HD_ALL_TO_ALL_ROWS = 50, HD_SEND = 100, HD_RECV };

/* Rows whose numbers are known at run time, by expert, then by sample.  index 1: `in` has all experts' rows of this
 * member's samples and `out` gets this member's experts' rows of all members' samples; index 0: the other way round. */
struct hd_rows {
	const int32_t *have, *need;	/* numbers of the rows of `in` and of `out`, (expert, sample) */
	int64_t experts, samples;	/* of one member */
	int64_t bytes;			/* of a row */
};

/* Rows of `expert` of member j (of those of one member) and what begins where in memory: numbers as in struct hd_rows; many:
 * this is memory with all experts.  -> their number; *at: rows in front of them. */
int64_t hd_rows_segment(const struct hd_rows *r, const int32_t *numbers, int many, int n, int j, int64_t expert, int64_t *at);

struct hd_world {		/* this process among all */
	int rank, size, local_rank, local_size, hosts;
};

struct hd_members;		/* a communicator: the ranks of one group */

struct hd_call {
	uint32_t kind, dtype;
	int32_t index;		/* root, shift or peer: a member index */
	uint32_t lane;		/* of sends and receives, 0 or 1: a pair's messages keep their order within a lane */
	uint32_t fixed;		/* 1: sum exactly in member order on every transport (train.reduce = rank_order) */
	int64_t count;
	const void *in;
	void *out;
	const struct hd_rows *rows;	/* HD_ALL_TO_ALL_ROWS; lives as long as the program */
	const char *what;	/* for messages: "all-reduce of grad:h.0.mlp.fc.weight"; lives as long as the program */
};
struct hd_ticket {		/* of one started call; belongs to the caller, fixed size, reusable after wait */
	uint64_t seq;
	struct hd_members *m;
	struct hd_call call;
	double started, finished;
	int32_t state;
};

struct hd_comm_stats {
	double exposed, busy;	/* seconds: that wait() (or an inline movement) took; that movements were under way */
	int64_t bytes;		/* sent by this rank, counted as a ring would: see hd_comm_bytes */
};

/* MPI_Init_thread and shared memory between the ranks of a host.  Without mpirun: a world of one.  Called once. */
int hd_comm_open(struct hd_world *w, struct hd_err *err);
void hd_comm_close(void);			/* MPI_Finalize; all ranks */
void hd_comm_abort(int status) __attribute__((noreturn));	/* end all ranks now */
/* All ranks; ends this process without MPI_Finalize, which needs a launcher that listens. */
void hd_comm_leave(int status) __attribute__((noreturn));

/* -- control: blocking, all ranks ------------------------------------------------------------------------------------ */
void hd_comm_barrier(void);
void hd_comm_bcast(void *buf, size_t bytes, int root);
char *hd_comm_bcast_text(const char *text, int root);		/* malloc'ed on all */
char **hd_comm_gather_text(const char *text);			/* rank 0: one malloc'ed text a rank; else NULL */
double hd_comm_max(double x);
double hd_comm_sum(double x);
/* All ranks pass their err; if any failed, the lowest failing rank's code and text end up in every err.  -> code */
int hd_comm_agree(struct hd_err *err);
/* One message of a run whatever the number of ranks: 1 for the first local caller, 0 for all others. */
int hd_comm_may_speak(void);

/* -- data ------------------------------------------------------------------------------------------------------------ */
/* The arena: zeroed memory that the local ranks read in place.  Collective; called once a process before groups are
 * used; falls back to private memory (and to MPI between local ranks) with one warning where shared memory is short. */
void *hd_comm_arena(size_t bytes, struct hd_err *err);
/* Collective over the world: every rank passes its own member list (world ranks; lists of different groups are disjoint
 * and cover the world; n = 1 is allowed), in the same order of calls. */
struct hd_members *hd_members_create(const int *ranks, int n, const char *name);
/* Before sends and receives of a group; collective over the world, as create. */
void hd_members_messages(struct hd_members *m);
int hd_members_n(const struct hd_members *m);
int hd_members_me(const struct hd_members *m);
const char *hd_members_name(const struct hd_members *m);
int64_t hd_members_bytes(const struct hd_members *m);		/* sent since hd_comm_stats was asked to reset, as counted there */
/* Before the first HD_ALL_TO_ALL_ROWS of a group: experts of one member.  Nothing is under way. */
void hd_comm_rows_room(struct hd_members *m, int64_t experts);
int hd_comm_start(struct hd_members *m, const struct hd_call *c, struct hd_ticket *t);
int hd_comm_wait(struct hd_ticket *t);		/* 0, or HD_EIO: a peer is gone (already reported) */
int64_t hd_comm_bytes(uint32_t kind, uint32_t dtype, int64_t count, int n, int me, int index);	/* sent by member me */
const char *hd_comm_kind_name(uint32_t kind);	/* "all-reduce" */
struct hd_comm_stats hd_comm_stats(int reset);

/* Movements of device memory.  d NULL: groups move host memory.  Else, collective, before groups are made: the device moves
 * between its own memories, in the order of its queues. */
struct hd_device_comm;
struct hd_device_ops;
int hd_comm_device(const struct hd_device_comm *d, struct hd_err *err);
/* Waits until the device has done all that was enqueued, under the watchdog.  0, or HD_EIO and what went wrong. */
int hd_comm_finish(const struct hd_device_ops *d, struct hd_err *err);

/* Seconds without progress after which a waiting rank names what it waits for and whom, and ends the run. */
/* describe_rank: its place in the mesh, "(x 1, y 0)", malloc'ed or NULL; NULL: as before. */
void hd_comm_watchdog(double seconds, char *(*describe_rank)(int rank));
void hd_comm_ending(void);		/* of a signal's handler: the launcher ends the run */
char *hd_rank_text(int rank);		/* "rank 3 (x 1, y 0)", malloc'ed */

#endif
