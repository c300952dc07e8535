/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/transport/request.h - a call that has been started, and the devices that carry calls themselves.
 */
#ifndef HD_ENGINE_COMM_TRANSPORT_REQUEST_H
#define HD_ENGINE_COMM_TRANSPORT_REQUEST_H
#include "engine/device/call.h"
#include "engine/base/err.h"

struct hd_communicator;

struct hd_request { /* of one started call; belongs to the caller, fixed size, reusable after wait */
	uint64_t seq;
	struct hd_communicator *m;
	struct hd_call call;
	double started, finished;
	int32_t state;
};

/* Collective, before groups are made: from now on devices move between their own memories, in the order of their queues. */
struct hd_device_comm;
struct hd_device_ops;
int hd_comm_device(const struct hd_device_comm *d, struct hd_err *err);
/* Waits until the device has done all that was enqueued, under the watchdog.  0, or HD_EIO and what went wrong. */
int hd_comm_finish(const struct hd_device_ops *d, struct hd_err *err);

#endif
