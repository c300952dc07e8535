/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/transport/request.h - a call that has been started, and communication between devices.
 */
#ifndef HD_ENGINE_COMM_TRANSPORT_REQUEST_H
#define HD_ENGINE_COMM_TRANSPORT_REQUEST_H
#include "engine/device/call.h"
#include "engine/base/err.h"

struct hd_communicator;

struct hd_request { /* one started call; belongs to the caller, who may reuse it after hd_comm_wait */
	uint64_t seq;
	struct hd_communicator *m;
	struct hd_call call;
	double started, finished;
	struct hd_request *next; /* links the started calls that the progress thread still has to issue */
	int32_t state;
};

struct hd_message_end {    /* messages of this rank with one member */
	int member, sends; /* sends: this rank sends them */
	int channel;
};
struct hd_device_comm;
struct hd_device_ops;
/* Tells a device which of the host's ranks share the devices that this rank may use. Collective on the host; call it
 * before the device is opened. d may be NULL. */
void hd_comm_share_devices(const struct hd_device_ops *d);
/* Makes devices move data between their own memories, in the order of their queues. Collective; call it before
 * groups are created. */
int hd_comm_device(const struct hd_device_comm *d, struct hd_err *err);
/* Where devices move data themselves: waits, under the watchdog, until the device has done all enqueued work. The
 * device's own waits (get, put) would not end if a rank never arrives. Returns 0, or HD_EIO with a message. */
int hd_comm_settle(const struct hd_device_ops *d, struct hd_err *err);
/* Waits like this on any device, and reports errors of the work. */
int hd_comm_finish(const struct hd_device_ops *d, struct hd_err *err);

#endif
