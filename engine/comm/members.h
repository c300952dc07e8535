/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/members.h - a group, and what carries its calls.
 *
 * A transport is a table.  A group has one: the first of device, shared memory and network that can carry it.  That is
 * the same for every call of a group, so the order of its calls is kept.
 */
#ifndef HD_ENGINE_COMM_MEMBERS_H
#define HD_ENGINE_COMM_MEMBERS_H
#include "engine/comm/state.h"

struct hd_transport {
	const char *name; /* "shared memory" */
	/* Start and wait move themselves; or a thread does, and wait waits for it; or a queue of the device does, and
	 * nobody waits: such a queue takes calls that move nothing, too. */
	enum { HD_MOVES_INLINE, HD_MOVES_BY_THREAD, HD_MOVES_BY_QUEUE } moves;
	int (*attach)(struct hd_communicator *m);    /* collective over the world.  -> 1: this group can use it */
	void (*messages)(struct hd_communicator *m); /* before sends and receives; NULL: nothing to do */
	void (*rows)(struct hd_communicator *m, int64_t experts); /* before HD_COMM_ALL_TO_ALL_V, likewise */
	int (*start)(struct hd_request *t);
	int (*wait)(struct hd_request *t);
	double (*busy)(int reset); /* seconds that calls were under way; NULL: comm.c counts them, or nobody */
	void (*stop)(void);        /* at the end; NULL: nothing to do */
};
extern const struct hd_transport hd_transport_device, hd_transport_shm, hd_transport_net;

enum { HD_REQUEST_STARTED, HD_REQUEST_DONE };

struct hd_slot; /* of one rank: shm.c */
struct hd_box;  /* of one ordered pair of local ranks: shm.c */
struct hd_net;  /* net.c */

struct hd_communicator {
	int n, me;
	int *world, *local; /* ranks of the members; local: -1 on another host */
	char *name;
	int on_host; /* all members are here */
	const struct hd_transport *transport;
	int64_t bytes;      /* sent by this rank since the statistics were reset */
	char **ins, **outs; /* scratch of a call, by member */
	struct {
		uint64_t calls, step;      /* of collectives; of barriers in them */
		uint64_t *sent, *received; /* by member and lane: messages of the pair so far */
		struct hd_slot *slots;     /* by local rank; NULL: no shared memory */
		struct hd_box *boxes;      /* [(from * local_size + to) * lanes + lane] */
	} shm;
	struct {
		struct hd_net *group; /* NULL: not attached */
		uint64_t sums;
	} net;
	struct {
		void *group;       /* communicator of the device */
		void *messages[4]; /* likewise, of sends and receives: by lane, and whether the sender's index is odd */
	} device;
	struct hd_communicator *next;
};

#endif
