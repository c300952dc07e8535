/* SPDX-License-Identifier: Apache-2.0
 * Messages of a pair of ranks of one host. They go through a ring of descriptors (mailboxes): the receiver copies, then
 * marks the descriptor as taken.
 */
#include <config.h>
#include "engine/comm/transport/shm.h"
#include "engine/comm/transport/sum.h"
#include "engine/comm/world/mpi.h"
#include "engine/comm/world/shared_memory.h"
#include "engine/comm/wait/wait.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAILBOXES 64    /* messages of a pair in a channel that are outstanding at once; later ones are posted late */
#define MAX_PENDING 512 /* maximum number of receives that other waits of this rank complete */

struct hd_mailbox {
	/* 1 + the number of the last message that was put into this mailbox, and of the last one copied out. */
	_Atomic uint64_t posted, taken;
	int64_t in, bytes;
	int32_t fd, pid;
} HD_ALIGNED;

static struct {
	struct hd_request *pending[MAX_PENDING]; /* receives that have been started */
	int npending;
	struct hd_request **late; /* sends that wait for a mailbox, in the order of their start */
	size_t nlate, cap_late;
} msg;

size_t hd_shm_mailboxes_bytes(void)
{
	return HD_CHANNELS * MAILBOXES * sizeof(struct hd_mailbox);
}

static struct hd_mailbox *mailbox_of(const struct hd_communicator *m, int from, int to, uint32_t channel, uint64_t seq)
{
	int64_t pair = m->local[from] * hd_here.w.local_size + m->local[to];

	return &m->shm.mailboxes[(pair * HD_CHANNELS + channel) * MAILBOXES + (int64_t)(seq % MAILBOXES)];
}

/* Returns the counter of messages with a member in the call's channel. */
static uint64_t *counter(uint64_t *of, const struct hd_request *t, int member)
{
	return &of[member * HD_CHANNELS + (int)t->call.channel];
}

/* Returns the full number of a message from its low 32 bits, which are all that a request stores. `now` is the current
 * number; fewer than 2^31 messages are under way. */
static uint64_t widen(uint64_t now, uint32_t low)
{
	return now - (uint32_t)((uint32_t)now - low);
}

static int send_to(const struct hd_request *t)
{
	return hd_call_to(&t->call, t->m->n, t->m->me);
}

static int receive_from(const struct hd_request *t)
{
	return hd_call_from(&t->call, t->m->n, t->m->me);
}

static void mailbox_drop_memory(struct hd_mailbox *b)
{
	if (b->fd > 0) /* it is 0 in a mailbox that was never used */
		close(b->fd);
	b->fd = -1;
}

/* Touches all mailboxes of a pair at its first message, so that memory does not grow after the
 * first steps of a run. */
static void mailboxes_touch(struct hd_communicator *m, int from, int to, uint32_t channel)
{
	for (uint64_t seq = 0; seq < MAILBOXES; seq++)
		(void)atomic_load_explicit(&mailbox_of(m, from, to, channel, seq)->taken, memory_order_relaxed);
}

/* Returns the number of a send that has been started. */
static uint64_t sent_number(const struct hd_request *t)
{
	return widen(*counter(t->m->shm.sent, t, send_to(t)), (uint32_t)t->seq);
}

/* Puts a message into its mailbox. Returns 0 if that still has an earlier message. */
static int try_post(struct hd_request *t)
{
	struct hd_communicator *m = t->m;
	uint64_t seq = sent_number(t), before = seq < MAILBOXES ? 0 : seq - MAILBOXES + 1;
	struct hd_mailbox *b = mailbox_of(m, m->me, send_to(t), t->call.channel, seq);
	void *map;

	if (atomic_load_explicit(&b->taken, memory_order_acquire) != before)
		return 0;
	mailbox_drop_memory(b);
	b->bytes = hd_comm_size(t->call.dtype, t->call.count);
	b->in = hd_shm_offset(t->call.in, b->bytes);
	if (b->in < 0) {
		b->pid = (int32_t)getpid();
		b->fd = hd_memfd((size_t)b->bytes, &map);
		if (b->fd < 0)
			hd_shm_broken(m, &t->call, m->me, "cannot share memory for a buffer outside the arena");
		hd_move(map, t->call.in, b->bytes);
		munmap(map, (size_t)b->bytes);
	}
	atomic_store_explicit(&b->posted, seq + 1, memory_order_release);
	return 1;
}

/* Starting a send never waits for the receiver: schedules are proven free of deadlock on that condition. */
static void post(struct hd_request *t)
{
	uint64_t seq = (*counter(t->m->shm.sent, t, send_to(t)))++;

	if (!seq)
		mailboxes_touch(t->m, t->m->me, send_to(t), t->call.channel);
	t->seq |= (uint32_t)seq;
	if (try_post(t))
		return;
	msg.late = hd_grow(msg.late, msg.nlate, &msg.cap_late, sizeof(*msg.late));
	msg.late[msg.nlate++] = t;
}

static void post_late(void)
{
	size_t n = 0;

	for (size_t i = 0; i < msg.nlate; i++)
		if (!try_post(msg.late[i]))
			msg.late[n++] = msg.late[i];
	msg.nlate = n;
}

static void copy_message(struct hd_request *t, struct hd_mailbox *b, int from)
{
	int64_t bytes = hd_comm_size(t->call.dtype, t->call.count);
	void *map;

	if (b->bytes != bytes)
		hd_shm_broken(t->m, &t->call, from, "do not agree on the size of a message");
	if (b->in >= 0) {
		hd_move(t->call.out, hd_here.arena + b->in, bytes);
	} else {
		map = hd_memfd_peer(b->pid, b->fd, (size_t)bytes);
		if (!map)
			hd_shm_broken(t->m, &t->call, from, "cannot share memory for a buffer outside the arena");
		hd_move(t->call.out, map, bytes);
		munmap(map, (size_t)bytes);
	}
}

/* Takes the message if it has arrived. Returns 1 if it is in `out`. */
static int try_receive(struct hd_request *t, int from)
{
	uint64_t seq = widen(*counter(t->m->shm.received, t, from), (uint32_t)(t->seq >> 32));
	struct hd_mailbox *b = mailbox_of(t->m, from, t->m->me, t->call.channel, seq);

	if (atomic_load_explicit(&b->taken, memory_order_relaxed) > seq)
		return 1;
	if (atomic_load_explicit(&b->posted, memory_order_acquire) != seq + 1)
		return 0;
	copy_message(t, b, from);
	atomic_store_explicit(&b->taken, seq + 1, memory_order_release);
	return 1;
}

static void receive_begin(struct hd_request *t)
{
	uint64_t seq = (*counter(t->m->shm.received, t, receive_from(t)))++;

	if (!seq)
		mailboxes_touch(t->m, receive_from(t), t->m->me, t->call.channel);
	t->seq |= (seq & 0xffffffff) << 32;
	if (msg.npending < MAX_PENDING)
		msg.pending[msg.npending++] = t;
}

/* Takes messages of pending receives: two ranks that both wait for their sends to be taken then take each other's. */
static void receive_pending(void)
{
	for (int i = msg.npending; i-- > 0;)
		if (try_receive(msg.pending[i], receive_from(msg.pending[i])))
			msg.pending[i] = msg.pending[--msg.npending];
}

void hd_shm_work_for_others(void)
{
	receive_pending();
	post_late();
}

static void receive_wait(struct hd_request *t)
{
	int from = receive_from(t);
	struct hd_backoff p;

	for (int i = msg.npending; i-- > 0;)
		if (msg.pending[i] == t)
			msg.pending[i] = msg.pending[--msg.npending];
	hd_backoff_begin_here(&p, t->m, hd_call_what(&t->call));
	while (!try_receive(t, from))
		hd_backoff_wait(&p, from);
	hd_backoff_end(&p);
}

static void send_wait(struct hd_request *t)
{
	struct hd_communicator *m = t->m;
	int to = send_to(t);
	uint64_t seq = sent_number(t);
	struct hd_mailbox *b = mailbox_of(m, m->me, to, t->call.channel, seq);
	struct hd_backoff p;

	hd_backoff_begin_here(&p, m, hd_call_what(&t->call));
	while (atomic_load_explicit(&b->taken, memory_order_acquire) <= seq)
		hd_backoff_wait(&p, to);
	hd_backoff_end(&p);
	if (atomic_load_explicit(&b->posted, memory_order_relaxed) == seq + 1)
		mailbox_drop_memory(b);
}

void hd_shm_message_start(struct hd_request *t)
{
	if (t->call.kind != HD_COMM_SEND)
		receive_begin(t);
	if (t->call.kind != HD_COMM_RECV)
		post(t);
}

void hd_shm_message_wait(struct hd_request *t)
{
	if (t->call.kind != HD_COMM_SEND)
		receive_wait(t);
	if (t->call.kind != HD_COMM_RECV)
		send_wait(t);
}
