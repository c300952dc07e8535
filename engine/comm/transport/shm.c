/* SPDX-License-Identifier: Apache-2.0
 * Movement between ranks of one host, through memory that all of them have mapped.
 *
 * Each member publishes where its buffers are in the shared arena. After a barrier, each reads what it needs
 * directly from the others. A sum is computed only once: each member sums its share over all members, in member
 * order, and writes it to all of them. So a sum of 42 MB over two ranks costs each rank 42 MB of reads and
 * writes, and nothing is sent.
 *
 * Calls of up to SMALL bytes store their data next to the flags and need one barrier instead of two. Messages of a
 * pair go through a ring of descriptors: the receiver copies, then marks the descriptor as taken. Buffers outside the
 * arena are allowed but slower: they are copied to shared memory that is allocated for them.
 */
#include <config.h>
#include "engine/comm/transport/transport.h"
#include "engine/comm/world/mpi.h"
#include "engine/comm/world/shared_memory.h"
#include "engine/comm/transport/sum.h"
#include "engine/comm/wait/wait.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALL 4096
#define MAILBOXES 64    /* maximum number of outstanding messages of a pair in a channel */
#define MAX_PENDING 512 /* maximum number of receives that other waits of this rank complete */

struct shm_address {
	int64_t in, out; /* offsets in the arena of the host; -1: no buffer, or it is in the memory of fd */
	int32_t fd;      /* of memory that replaces both buffers; -1: none */
	int32_t pid;
};
/* The flags and the data of one rank in a group. */
struct hd_shm_member {
	_Atomic uint64_t step HD_ALIGNED; /* number of barriers that it has reached */
	uint64_t sign[2];                 /* signature of its call, by parity of the call's number: see small() */
	struct shm_address address HD_ALIGNED;
	char data[2][SMALL] HD_ALIGNED;
};
struct hd_mailbox {
	/* 1 + the number of the last message that was put into this mailbox, and of the last one copied out. */
	_Atomic uint64_t posted, taken;
	int64_t in, bytes;
	int32_t fd, pid;
} HD_ALIGNED;

static struct {
	struct hd_request *pending[MAX_PENDING]; /* receives that have been started */
	int npending;
	struct { /* memory for buffers outside the arena */
		void *map;
		size_t bytes;
		int fd;
	} bounce;
} shm = { .bounce = { NULL, 0, -1 } };

static struct hd_shm_member *member_of(const struct hd_communicator *m, int member)
{
	return &m->shm.members[m->local[member]];
}

static void broken(const struct hd_communicator *m, const struct hd_call *c, int other, const char *how)
	__attribute__((noreturn));
static void broken(const struct hd_communicator *m, const struct hd_call *c, int other, const char *how)
{
	if (hd_comm_may_report()) {
		char *me = hd_rank_text(hd_here.w.rank), *who = hd_rank_text(m->world[other]);

		hd_log(HD_LOG_ERROR, "%s on %s: %s and %s %s", hd_call_what(c), m->name, me, who, how);
	}
	hd_comm_abort(1);
}

/* -- where buffers are ------------------------------------------------------------------------- */
static int64_t offset_of(const void *p, int64_t bytes)
{
	const char *q = p;

	if (!hd_here.arena_bytes || q < hd_here.arena || q + bytes > hd_here.arena + hd_here.arena_bytes)
		return -1;
	return q - hd_here.arena;
}

/* Returns memory for buffers outside the arena. It is kept for the next call, which begins when all members have
 * left the last one. */
static void *bounce_get(const struct hd_communicator *m, const struct hd_call *c, size_t bytes)
{
	if (bytes <= shm.bounce.bytes)
		return shm.bounce.map;
	if (shm.bounce.fd >= 0) {
		munmap(shm.bounce.map, shm.bounce.bytes);
		close(shm.bounce.fd);
	}
	shm.bounce.fd = hd_memfd(bytes, &shm.bounce.map);
	shm.bounce.bytes = bytes;
	if (shm.bounce.fd < 0)
		broken(m, c, m->me, "cannot share memory for a buffer outside the arena");
	return shm.bounce.map;
}

static int sums_to_all(const struct hd_call *c)
{
	return c->kind == HD_COMM_ALL_REDUCE || c->kind == HD_COMM_ALL_MAX;
}

static int64_t counts_bytes(const struct hd_call *c, int n)
{
	return c->rows ? n * c->rows->experts * c->rows->samples * (int64_t)sizeof(int32_t) : 0;
}

/* Returns where the row counts are in shared memory outside the arena, where they follow `in`. */
static int64_t counts_at(const struct hd_call *c, int n, int j)
{
	return (hd_comm_in_bytes(c, n, j) + HD_LINE - 1) / HD_LINE * HD_LINE;
}

/* Returns where this member's data are. `out` is where the result of a sum to all goes, or where
 * the row counts are. */
static struct shm_address address_make(const struct hd_communicator *m, const struct hd_call *c)
{
	int64_t bytes = hd_comm_in_bytes(c, m->n, m->me), counts = counts_bytes(c, m->n),
		at = counts_at(c, m->n, m->me);
	struct shm_address p = { -1, -1, -1, 0 };

	if (!bytes)
		return p;
	p.in = offset_of(c->in, bytes);
	if (sums_to_all(c))
		p.out = offset_of(c->out, bytes);
	if (c->rows)
		p.out = offset_of(c->rows->have, counts);
	if (p.in >= 0 && (p.out >= 0 || !(sums_to_all(c) || c->rows)))
		return p;
	hd_move(bounce_get(m, c, (size_t)(at + counts)), c->in, bytes);
	if (c->rows)
		memcpy((char *)shm.bounce.map + at, c->rows->have, (size_t)counts);
	p.in = p.out = -1;
	p.fd = shm.bounce.fd;
	p.pid = (int32_t)getpid();
	return p;
}

/* Sets m->ins[j] and m->outs[j] to the addresses of member j's data in this process. */
static void address_open(struct hd_communicator *m, const struct hd_call *c, int j)
{
	struct shm_address p = member_of(m, j)->address;
	int64_t bytes = counts_at(c, m->n, j) + counts_bytes(c, m->n);

	m->ins[j] = p.in >= 0 ? hd_here.arena + p.in : NULL;
	m->outs[j] = p.out >= 0 ? hd_here.arena + p.out : NULL;
	if (p.fd < 0)
		return;
	m->ins[j] = m->outs[j] = j == m->me ? shm.bounce.map : hd_memfd_peer(p.pid, p.fd, (size_t)bytes);
	if (!m->ins[j])
		broken(m, c, j, "cannot share memory for a buffer outside the arena");
	if (c->rows)
		m->outs[j] = m->ins[j] + counts_at(c, m->n, j);
}

static void address_close(struct hd_communicator *m, const struct hd_call *c, int j)
{
	if (member_of(m, j)->address.fd >= 0 && j != m->me)
		munmap(m->ins[j], (size_t)(counts_at(c, m->n, j) + counts_bytes(c, m->n)));
}

/* -- barriers ---------------------------------------------------------------------------------- */
static void barrier(struct hd_communicator *m, const struct hd_call *c)
{
	uint64_t step = ++m->shm.step;
	struct hd_backoff p;

	atomic_store_explicit(&member_of(m, m->me)->step, step, memory_order_release);
	hd_backoff_begin_here(&p, m, hd_call_what(c));
	for (int j = 0; j < m->n; j++)
		while (atomic_load_explicit(&member_of(m, j)->step, memory_order_acquire) < step)
			hd_backoff_wait(&p, j);
	hd_backoff_end(&p);
}

static uint64_t call_signature(const struct hd_call *c)
{
	uint64_t h = (uint64_t)c->count * 0x9e3779b97f4a7c15u;

	return (h ^ c->dtype ^ (uint64_t)c->wire << 8 ^ (uint64_t)c->kind << 32) * 0xd6e8feb86659fd93u +
	       (uint32_t)c->index;
}

/* A barrier that also checks that all members make the same call. A difference is a bug and would
 * give wrong results. */
static void barrier_checked(struct hd_communicator *m, const struct hd_call *c)
{
	uint64_t mine = call_signature(c);

	member_of(m, m->me)->sign[m->shm.calls & 1] = mine;
	barrier(m, c);
	for (int j = 0; j < m->n; j++)
		if (member_of(m, j)->sign[m->shm.calls & 1] != mine)
			broken(m, c, j, "do not issue the same call");
}

/* -- what each kind of call reads -------------------------------------------------------------- */
static void pull_sum(struct hd_communicator *m, const struct hd_call *c, char *out, int64_t from)
{
	for (int j = 0; j < m->n; j++)
		m->ins[j] += from;
	hd_sum(&out, 1, m->ins, m->n, c->count, c->dtype, c->kind == HD_COMM_ALL_MAX);
	for (int j = 0; j < m->n; j++)
		m->ins[j] -= from;
}

/* Computes a piece of the sum: this member's own, or in a ring the next member's. A ring adds it in the order of the
 * ring, from that member on, unless the order is fixed. */
static void pull_piece(struct hd_communicator *m, const struct hd_call *c, char *out)
{
	int round = c->kind == HD_COMM_RING_REDUCE_SCATTER, piece = round ? hd_comm_mod(m->me + 1, m->n) : m->me;
	int64_t at = piece * hd_comm_size(c->dtype, c->count);

	for (int k = 0; k < m->n; k++)
		m->outs[k] = m->ins[round && !c->fixed ? hd_comm_mod(piece + k, m->n) : k] + at;
	if (!c->wire)
		hd_sum(&out, 1, m->outs, m->n, c->count, c->dtype, 0);
	else if (round && !c->fixed)
		hd_sum_ring(out, m->outs, m->n, c->count, c->wire);
	else
		hd_sum_sent(out, m->outs, m->n, m->me, 0, c->count, c->wire);
}

/* HD_COMM_PUSH: a server sums its piece over the workers, or everything if it is the only one that serves. */
static void pull_push(struct hd_communicator *m, const struct hd_call *c, char *out)
{
	int64_t from = c->index < 0 ? (m->me - c->workers) * hd_comm_size(c->dtype, c->count) : 0;

	if (!hd_call_serves(c, m->me))
		return;
	for (int j = 0; j < c->workers; j++)
		m->outs[j] = m->ins[j] + from;
	if (c->wire)
		hd_sum_sent(out, m->outs, c->workers, -1, 0, c->count, c->wire);
	else
		hd_sum(&out, 1, m->outs, c->workers, c->count, c->dtype, 0);
}

static void pull_pull(const struct hd_communicator *m, const struct hd_call *c, char *out)
{
	int64_t s = hd_comm_size(c->dtype, c->count);

	for (int j = c->workers; j < m->n && m->me < c->workers; j++)
		if (hd_call_serves(c, j))
			hd_move(out + (c->index < 0 ? (j - c->workers) * s : 0), m->ins[j], s);
}

/* Copies each segment from where its sender's counts say that it is. */
static void pull_rows(struct hd_communicator *m, const struct hd_call *c)
{
	const struct hd_rows *r = c->rows;
	int many = c->index;

	for (int j = 0; j < m->n; j++)
		for (int64_t e = 0; e < r->experts; e++) {
			int64_t from, to,
				rows = hd_rows_segment(r, (const int32_t *)m->outs[j], many, m->n, m->me, e, &from);

			if (hd_rows_segment(r, r->need, !many, m->n, j, e, &to) != rows)
				broken(m, c, j, "do not agree on the number of rows");
			hd_move((char *)c->out + to * r->bytes, m->ins[j] + from * r->bytes, rows * r->bytes);
		}
}

static void pull(struct hd_communicator *m, const struct hd_call *c)
{
	int64_t s = hd_comm_size(c->dtype, c->count);
	char *out = c->out;
	int root = c->index, me = m->me;

	switch (c->kind) {
	case HD_COMM_ALL_REDUCE:
	case HD_COMM_ALL_MAX: pull_sum(m, c, out, 0); break;
	case HD_COMM_REDUCE_SCATTER: pull_sum(m, c, out, me * s); break;
	case HD_COMM_RING_REDUCE_SCATTER:
	case HD_COMM_ORDERED_REDUCE_SCATTER: pull_piece(m, c, out); break;
	case HD_COMM_PUSH: pull_push(m, c, out); break;
	case HD_COMM_PULL: pull_pull(m, c, out); break;
	case HD_COMM_REDUCE:
		if (me == root)
			pull_sum(m, c, out, 0);
		break;
	case HD_COMM_RING_ALL_GATHER:
		for (int j = 0; j < m->n; j++)
			hd_move(out + hd_comm_mod(j + 1, m->n) * s, m->ins[j], s);
		break;
	case HD_COMM_ALL_GATHER:
	case HD_COMM_GATHER:
		for (int j = 0; j < m->n && (c->kind == HD_COMM_ALL_GATHER || me == root); j++)
			hd_move(out + j * s, m->ins[j], s);
		break;
	case HD_COMM_ALL_TO_ALL:
		for (int j = 0; j < m->n; j++)
			hd_move(out + j * s, m->ins[j] + me * s, s);
		break;
	case HD_COMM_ALL_TO_ALL_V: pull_rows(m, c); break;
	case HD_COMM_BROADCAST: hd_move(out, m->ins[root], s); break;
	case HD_COMM_SCATTER: hd_move(out, m->ins[root] + me * s, s); break;
	}
}

/* Computes this member's share of the sum, and writes it to all. Shares end at cache lines, so that no line is
 * written by two members. */
static void sum_share(struct hd_communicator *m, const struct hd_call *c)
{
	int64_t line = HD_LINE * 8 / HD_BITS(c->dtype), lines = (c->count + line - 1) / line;
	int64_t from = lines * m->me / m->n * line, to = lines * (m->me + 1) / m->n * line;
	int64_t at = hd_comm_size(c->dtype, from);

	if (to > c->count)
		to = c->count;
	for (int j = 0; j < m->n; j++) {
		m->ins[j] += at;
		m->outs[j] += at;
	}
	if (to > from)
		hd_sum(m->outs, m->n, m->ins, m->n, to - from, c->dtype, c->kind == HD_COMM_ALL_MAX);
	for (int j = 0; j < m->n; j++) {
		m->ins[j] -= at;
		m->outs[j] -= at;
	}
}

/* A call whose data fit next to the flags. Two data areas are enough: before a member writes one again, it has met all
 * others in the call between, so they have read it. */
static void small(struct hd_communicator *m, const struct hd_call *c)
{
	int64_t bytes = hd_comm_in_bytes(c, m->n, m->me);

	if (bytes)
		memcpy(member_of(m, m->me)->data[m->shm.calls & 1], c->in, (size_t)bytes);
	barrier_checked(m, c);
	for (int j = 0; j < m->n; j++)
		m->ins[j] = member_of(m, j)->data[m->shm.calls & 1];
	pull(m, c);
}

static void large(struct hd_communicator *m, const struct hd_call *c)
{
	member_of(m, m->me)->address = address_make(m, c);
	barrier_checked(m, c);
	for (int j = 0; j < m->n; j++)
		address_open(m, c, j);
	if (sums_to_all(c))
		sum_share(m, c);
	else
		pull(m, c);
	for (int j = 0; j < m->n; j++)
		address_close(m, c, j);
	barrier(m, c);
	if (sums_to_all(c) && member_of(m, m->me)->address.fd >= 0)
		hd_move(c->out, shm.bounce.map, hd_comm_size(c->dtype, c->count));
}

/* Returns the size of the largest input of any member, which is the same on all. */
static int64_t largest_bytes(const struct hd_call *c, int n)
{
	int of_root = c->kind == HD_COMM_SCATTER || c->kind == HD_COMM_BROADCAST || c->kind == HD_COMM_PULL;

	return hd_comm_in_bytes(c, n, !of_root ? 0 : c->index < 0 ? n - 1 : c->index);
}

/* -- messages of a pair ------------------------------------------------------------------------ */
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

static void post(struct hd_request *t)
{
	struct hd_communicator *m = t->m;
	int to = send_to(t);
	uint64_t seq = (*counter(m->shm.sent, t, to))++, before = seq < MAILBOXES ? 0 : seq - MAILBOXES + 1;
	struct hd_mailbox *b = mailbox_of(m, m->me, to, t->call.channel, seq);
	struct hd_backoff p;
	void *map;

	if (!seq)
		mailboxes_touch(m, m->me, to, t->call.channel);
	hd_backoff_begin_here(&p, m, hd_call_what(&t->call));
	while (atomic_load_explicit(&b->taken, memory_order_acquire) != before)
		hd_backoff_wait(&p, to);
	hd_backoff_end(&p);
	mailbox_drop_memory(b);
	b->bytes = hd_comm_size(t->call.dtype, t->call.count);
	b->in = offset_of(t->call.in, b->bytes);
	if (b->in < 0) {
		b->pid = (int32_t)getpid();
		b->fd = hd_memfd((size_t)b->bytes, &map);
		if (b->fd < 0)
			broken(m, &t->call, m->me, "cannot share memory for a buffer outside the arena");
		hd_move(map, t->call.in, b->bytes);
		munmap(map, (size_t)b->bytes);
	}
	atomic_store_explicit(&b->posted, seq + 1, memory_order_release);
	t->seq |= (uint32_t)seq;
}

static void copy_message(struct hd_request *t, struct hd_mailbox *b, int from)
{
	int64_t bytes = hd_comm_size(t->call.dtype, t->call.count);
	void *map;

	if (b->bytes != bytes)
		broken(t->m, &t->call, from, "do not agree on the size of a message");
	if (b->in >= 0) {
		hd_move(t->call.out, hd_here.arena + b->in, bytes);
	} else {
		map = hd_memfd_peer(b->pid, b->fd, (size_t)bytes);
		if (!map)
			broken(t->m, &t->call, from, "cannot share memory for a buffer outside the arena");
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
	if (shm.npending < MAX_PENDING)
		shm.pending[shm.npending++] = t;
}

/* Takes messages of pending receives: two ranks that both wait for their sends to be taken then take each other's. */
static void receive_pending(void)
{
	for (int i = shm.npending; i-- > 0;)
		if (try_receive(shm.pending[i], receive_from(shm.pending[i])))
			shm.pending[i] = shm.pending[--shm.npending];
}

static void receive_wait(struct hd_request *t)
{
	int from = receive_from(t);
	struct hd_backoff p;

	for (int i = shm.npending; i-- > 0;)
		if (shm.pending[i] == t)
			shm.pending[i] = shm.pending[--shm.npending];
	hd_backoff_begin_here(&p, t->m, hd_call_what(&t->call));
	while (!try_receive(t, from))
		hd_backoff_wait(&p, from);
	hd_backoff_end(&p);
}

static void send_wait(struct hd_request *t)
{
	struct hd_communicator *m = t->m;
	int to = send_to(t);
	uint64_t seq = widen(*counter(m->shm.sent, t, to), (uint32_t)t->seq);
	struct hd_mailbox *b = mailbox_of(m, m->me, to, t->call.channel, seq);
	struct hd_backoff p;

	hd_backoff_begin_here(&p, m, hd_call_what(&t->call));
	while (atomic_load_explicit(&b->taken, memory_order_acquire) <= seq)
		hd_backoff_wait(&p, to);
	hd_backoff_end(&p);
	if (atomic_load_explicit(&b->posted, memory_order_relaxed) == seq + 1)
		mailbox_drop_memory(b);
}

/* -- calls ------------------------------------------------------------------------------------- */
static void start_message(struct hd_request *t)
{
	/* The receive comes first: post() may wait, and meanwhile the message can be taken. */
	if (t->call.kind != HD_COMM_SEND)
		receive_begin(t);
	if (t->call.kind != HD_COMM_RECV)
		post(t);
}

static int start(struct hd_request *t)
{
	struct hd_communicator *m = t->m;

	if (hd_call_is_message(&t->call)) {
		start_message(t);
		return 0;
	}
	if (t->call.wire && t->call.dtype != HD_DTYPE_F32)
		return HD_ENOTSUP;
	m->shm.calls++;
	if (!t->call.rows && largest_bytes(&t->call, m->n) <= SMALL)
		small(m, &t->call);
	else
		large(m, &t->call);
	t->state = HD_REQUEST_DONE;
	return 0;
}

static int wait(struct hd_request *t)
{
	if (t->call.kind != HD_COMM_SEND)
		receive_wait(t);
	if (t->call.kind != HD_COMM_RECV)
		send_wait(t);
	t->state = HD_REQUEST_DONE;
	t->finished = hd_seconds();
	return 0;
}

/* -- the transport ----------------------------------------------------------------------------- */
static int attach(struct hd_communicator *m)
{
	size_t L = (size_t)hd_here.w.local_size;
	size_t members = L * sizeof(struct hd_shm_member),
	       mailboxes = L * L * HD_CHANNELS * MAILBOXES * sizeof(struct hd_mailbox);
	char *p;

	if (hd_host_all(m->n == 1 || !m->on_host) || !hd_here.control)
		return m->n == 1;
	/* On a host with many ranks, most of these pages are never touched. */
	p = hd_shared_map(members + mailboxes);
	if (!p || m->n == 1 || !m->on_host)
		return m->n == 1;
	m->shm.members = (struct hd_shm_member *)p;
	m->shm.mailboxes = (struct hd_mailbox *)(p + members);
	hd_backoff_progress(receive_pending);
	return 1;
}

const struct hd_transport hd_transport_shm = {
	.name = "shared memory",
	.moves = HD_MOVES_INLINE,
	.attach = attach,
	.start = start,
	.wait = wait,
};
