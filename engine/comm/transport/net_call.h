/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/transport/net_call.h - a call between hosts that is under way, and functions with which the progress
 * thread (net.c) issues it.
 */
#ifndef HD_ENGINE_COMM_TRANSPORT_NET_CALL_H
#define HD_ENGINE_COMM_TRANSPORT_NET_CALL_H
#include "engine/comm/transport/transport.h"
#include "engine/comm/world/mpi_calls.h"

struct hd_net {
	MPI_Comm comm;
};
struct staging { /* a buffer for one sum that is under way; kept for later sums */
	char *p;
	size_t bytes;
	int in_use;
};
struct inflight {
	struct hd_request *t;
	MPI_Request *req; /* its address changes when hd_net_put or hd_net_get needs more of them */
	size_t cap;
	int nreq, round;
	struct staging *staging; /* for sums: what other members send, and converted copies of what is sent */
	double due;
};

static inline int hd_net_is_sum(uint32_t kind)
{
	return kind == HD_COMM_ALL_REDUCE || kind == HD_COMM_ALL_MAX || kind == HD_COMM_REDUCE ||
	       kind == HD_COMM_REDUCE_SCATTER || kind == HD_COMM_ORDERED_REDUCE_SCATTER;
}

/* -- net_issue.c: under hd_mpi_lock ---------------------------------------------------------------- */
void hd_net_issue(struct inflight *f);
/* Returns how many elements MPI is told of, if the call is one of MPI's collectives; 0 if it consists of messages. */
int64_t hd_net_elements(const struct hd_call *c);
/* Messages may have any length. Both ends cut them into the same pieces. */
void hd_net_put(struct inflight *f, int to, const void *p, int64_t bytes, int tag);
void hd_net_get(struct inflight *f, int from, void *p, int64_t bytes, int tag);

/* -- net_members.c --------------------------------------------------------------------------------- */
int hd_net_by_members(const struct hd_call *c);
void hd_net_members_begin(struct inflight *f); /* under hd_mpi_lock */
/* Continues when all messages of a round have arrived. Returns 0 if it has started another round. */
int hd_net_members_next(struct inflight *f);

#endif
