/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/transport/transport.h - the table of functions that execute the calls of a group.
 *
 * A group has one transport: the first of device, shared memory and network that can be used. All calls of the group
 * use it, so their order is kept.
 */
#ifndef HD_ENGINE_COMM_TRANSPORT_TRANSPORT_H
#define HD_ENGINE_COMM_TRANSPORT_TRANSPORT_H
#include "engine/comm/transport/request.h"
#include "engine/comm/world/communicator.h"

struct hd_transport {
	const char *name; /* "shared memory" */
	/* Tells who moves the data: start and wait themselves, a thread for which wait waits, or a queue of the device.
	 * The host does not wait for the queue, which is also given calls that move nothing. */
	enum { HD_MOVES_INLINE, HD_MOVES_BY_THREAD, HD_MOVES_BY_QUEUE } moves;
	int (*attach)(struct hd_communicator *m); /* collective over the world; returns 1 if the group can use it */
	/* Prepares sends and receives, and connects these ends; NULL: nothing to do */
	void (*messages)(struct hd_communicator *m, const struct hd_message_end *ends, size_t n);
	void (*rows)(struct hd_communicator *m, int64_t experts); /* prepares HD_COMM_ALL_TO_ALL_V; may be NULL */
	/* Says whether `start` would refuse the call for its size; may be NULL. */
	int (*check)(const struct hd_communicator *m, const struct hd_call *c, struct hd_err *err);
	int (*start)(struct hd_request *t);
	int (*wait)(struct hd_request *t);
	double (*busy)(int reset); /* returns the seconds that calls were under way; NULL: inline, or not counted */
	void (*stop)(void);        /* called at the end; NULL: nothing to do */
};
extern const struct hd_transport hd_transport_device, hd_transport_shm, hd_transport_net;

enum { HD_REQUEST_STARTED, HD_REQUEST_DONE };

#endif
