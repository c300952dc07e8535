/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/transport/shm.h - what the files of the shared-memory transport have in common.
 */
#ifndef HD_ENGINE_COMM_TRANSPORT_SHM_H
#define HD_ENGINE_COMM_TRANSPORT_SHM_H
#include "engine/comm/transport/transport.h"

/* Ends the run: member `other` and this rank do not agree about the call. */
void hd_shm_broken(const struct hd_communicator *m, const struct hd_call *c, int other, const char *how)
	__attribute__((noreturn));
/* Returns the offset of a buffer in the arena of the host, or -1 if it is outside. */
int64_t hd_shm_offset(const void *p, int64_t bytes);

/* -- shm_messages.c -------------------------------------------------------------------------------- */
size_t hd_shm_mailboxes_bytes(void); /* of the messages from one rank to another */
/* Starts a message. Never waits for the receiver: schedules are proven free of deadlock on that condition. */
void hd_shm_message_start(struct hd_request *t);
void hd_shm_message_wait(struct hd_request *t);
/* Takes and posts messages that could not be moved at once. Every wait of this rank calls it. */
void hd_shm_work_for_others(void);

#endif
