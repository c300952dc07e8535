/* SPDX-License-Identifier: Apache-2.0
 * Movement between ranks of one host, through memory that all of them have mapped.
 *
 * Each member publishes where its buffers are in the shared arena. After a barrier, each reads what it needs
 * directly from the others. A sum is computed only once: each member sums its share over all members, in member
 * order, and writes it to all of them. So a sum of 42 MB over two ranks costs each rank 42 MB of reads and
 * writes, and nothing is sent.
 *
 * Calls of up to SMALL bytes store their data next to the flags and need one barrier instead of two. Messages of a
 * pair are in shm_messages.c. Buffers outside the
 * arena are allowed but slower: they are copied to shared memory that is allocated for them.
 */
#include <config.h>
#include "engine/comm/transport/shm.h"
#include "engine/comm/world/mpi.h"
#include "engine/comm/world/shared_memory.h"
#include "engine/comm/transport/sum.h"
#include "engine/comm/wait/wait.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALL 4096

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
static struct { /* memory for buffers outside the arena */
	void *map;
	size_t bytes;
	int fd;
} bounce = { NULL, 0, -1 };

static struct hd_shm_member *member_of(const struct hd_communicator *m, int member)
{
	return &m->shm.members[m->local[member]];
}

void hd_shm_broken(const struct hd_communicator *m, const struct hd_call *c, int other, const char *how)
{
	if (hd_comm_may_report()) {
		char *me = hd_rank_text(hd_here.w.rank), *who = hd_rank_text(m->world[other]);

		hd_log(HD_LOG_ERROR, "%s on %s: %s and %s %s", hd_call_what(c), m->name, me, who, how);
	}
	hd_comm_abort(1);
}

/* -- where buffers are ------------------------------------------------------------------------- */
int64_t hd_shm_offset(const void *p, int64_t bytes)
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
	if (bytes <= bounce.bytes)
		return bounce.map;
	if (bounce.fd >= 0) {
		munmap(bounce.map, bounce.bytes);
		close(bounce.fd);
	}
	bounce.fd = hd_memfd(bytes, &bounce.map);
	bounce.bytes = bytes;
	if (bounce.fd < 0)
		hd_shm_broken(m, c, m->me, "cannot share memory for a buffer outside the arena");
	return bounce.map;
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
	p.in = hd_shm_offset(c->in, bytes);
	if (sums_to_all(c))
		p.out = hd_shm_offset(c->out, bytes);
	if (c->rows)
		p.out = hd_shm_offset(c->rows->have, counts);
	if (p.in >= 0 && (p.out >= 0 || !(sums_to_all(c) || c->rows)))
		return p;
	hd_move(bounce_get(m, c, (size_t)(at + counts)), c->in, bytes);
	if (c->rows)
		memcpy((char *)bounce.map + at, c->rows->have, (size_t)counts);
	p.in = p.out = -1;
	p.fd = bounce.fd;
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
	m->ins[j] = m->outs[j] = j == m->me ? bounce.map : hd_memfd_peer(p.pid, p.fd, (size_t)bytes);
	if (!m->ins[j])
		hd_shm_broken(m, c, j, "cannot share memory for a buffer outside the arena");
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
			hd_shm_broken(m, c, j, "do not issue the same call");
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
				hd_shm_broken(m, c, j, "do not agree on the number of rows");
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
		hd_move(c->out, bounce.map, hd_comm_size(c->dtype, c->count));
}

/* Returns the size of the largest input of any member, which is the same on all. */
static int64_t largest_bytes(const struct hd_call *c, int n)
{
	int of_root = c->kind == HD_COMM_SCATTER || c->kind == HD_COMM_BROADCAST || c->kind == HD_COMM_PULL;

	return hd_comm_in_bytes(c, n, !of_root ? 0 : c->index < 0 ? n - 1 : c->index);
}

/* -- calls ------------------------------------------------------------------------------------- */
static int start(struct hd_request *t)
{
	struct hd_communicator *m = t->m;

	if (hd_call_is_message(&t->call)) {
		hd_shm_message_start(t);
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
	hd_shm_message_wait(t);
	t->state = HD_REQUEST_DONE;
	t->finished = hd_seconds();
	return 0;
}

/* -- the transport ----------------------------------------------------------------------------- */
static int attach(struct hd_communicator *m)
{
	size_t L = (size_t)hd_here.w.local_size;
	size_t members = L * sizeof(struct hd_shm_member), mailboxes = L * L * hd_shm_mailboxes_bytes();
	char *p;

	if (hd_host_all(m->n == 1 || !m->on_host) || !hd_here.control)
		return m->n == 1;
	/* On a host with many ranks, most of these pages are never touched. */
	p = hd_shared_map(members + mailboxes);
	if (!p || m->n == 1 || !m->on_host)
		return m->n == 1;
	m->shm.members = (struct hd_shm_member *)p;
	m->shm.mailboxes = (struct hd_mailbox *)(p + members);
	hd_backoff_progress(hd_shm_work_for_others);
	return 1;
}

const struct hd_transport hd_transport_shm = {
	.name = "shared memory",
	.moves = HD_MOVES_INLINE,
	.attach = attach,
	.start = start,
	.wait = wait,
};
