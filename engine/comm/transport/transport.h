/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/transport/transport.h - what carries the calls of a group.
 *
 * A transport is a table.  A group has one: the first of device, shared memory and network that can carry it.  That is
 * the same for every call of a group, so the order of its calls is kept.
 */
#ifndef HD_ENGINE_COMM_TRANSPORT_TRANSPORT_H
#define HD_ENGINE_COMM_TRANSPORT_TRANSPORT_H
#include "engine/comm/transport/request.h"
#include "engine/comm/world/communicator.h"

struct hd_transport {
	const char *name; /* "shared memory" */
	/* Start and wait move themselves; or a thread does, and wait waits for it; or a queue of the device does, and
	 * nobody waits. Such a queue takes calls that move nothing, too. */
	enum { HD_MOVES_INLINE, HD_MOVES_BY_THREAD, HD_MOVES_BY_QUEUE } moves;
	int (*attach)(struct hd_communicator *m);    /* collective over the world.  -> 1: this group can use it */
	void (*messages)(struct hd_communicator *m); /* before sends and receives; NULL: nothing to do */
	void (*rows)(struct hd_communicator *m, int64_t experts); /* before HD_COMM_ALL_TO_ALL_V, likewise */
	int (*start)(struct hd_request *t);
	int (*wait)(struct hd_request *t);
	double (*busy)(int reset); /* seconds that calls were under way; NULL: comm.c counts them, or nothing does */
	void (*stop)(void);        /* at the end; NULL: nothing to do */
};
extern const struct hd_transport hd_transport_device, hd_transport_shm, hd_transport_net;

enum { HD_REQUEST_STARTED, HD_REQUEST_DONE };

#endif
