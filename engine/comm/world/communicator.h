/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/world/communicator.h - a group, with the data that each transport stores for it.
 */
#ifndef HD_ENGINE_COMM_WORLD_COMMUNICATOR_H
#define HD_ENGINE_COMM_WORLD_COMMUNICATOR_H
#include "engine/comm/world/state.h"

struct hd_transport;  /* engine/comm/transport/transport.h */
struct hd_shm_member; /* flags of one rank: shm.c */
struct hd_mailbox;    /* for messages of one ordered pair of local ranks: shm.c */
struct hd_net;        /* net.c */

struct hd_communicator {
	int n, me;
	int *world, *local; /* by member: its world rank, and its local rank or -1 if it is on another host */
	char *name;
	int on_host; /* all members are on this host */
	const struct hd_transport *transport;
	int64_t bytes;      /* sent by this rank since the statistics were reset */
	char **ins, **outs; /* scratch of a call, by member */
	struct {
		uint64_t calls, step;          /* numbers of collectives, and of barriers in them, so far */
		uint64_t *sent, *received;     /* by member and channel: messages of the pair so far */
		struct hd_shm_member *members; /* by local rank; NULL: no shared memory */
		struct hd_mailbox *mailboxes;  /* [(from * local_size + to) * channels + channel] */
	} shm;
	struct {
		struct hd_net *group; /* NULL: not attached */
		uint64_t sums;
	} net;
	struct {
		void *group; /* the device's communicator */
		/* communicators for sends and receives: [2 * channel + (1 if the sender's index is odd)] */
		void *messages[4];
	} device;
	struct hd_communicator *next;
};

#endif
