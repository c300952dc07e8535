/* SPDX-License-Identifier: Apache-2.0
 * Calls between hosts that the members execute themselves, with messages: sums in member order,
 * pushes, pulls, and rings.
 *
 * For a sum, each member gets its share of the input from all others, adds in member order (sum.c), and sends the
 * result to all. This moves as many bytes as a ring, and the result equals that of the shared-memory transport, bit
 * for bit. The second round begins at different times on different members, while collectives of one communicator must
 * be issued in the same order. So it uses messages, with the call's number as their tag.
 */
#include <config.h>
#include "engine/comm/transport/net_call.h"
#include "engine/comm/transport/sum.h"
#include <stdlib.h>

#define TAGS 8192 /* numbers of calls in tags; MPI guarantees tags up to 32767 */

static struct { /* used by the progress thread only */
	struct staging **at;
	size_t n, cap;
} stagings;

static int tag_of(const struct inflight *f)
{
	return (int)(f->t->seq % TAGS) * 2 + f->round;
}

/* Returns whether the call goes around a ring. A sum is then added on its way, so not in member order. */
static int is_ring(const struct hd_call *c)
{
	return (c->kind == HD_COMM_RING_REDUCE_SCATTER && !c->fixed) || c->kind == HD_COMM_RING_ALL_GATHER;
}

/* Returns whether the members compute the sum, because MPI does not support it, or not in a fixed order. The order
 * does not matter to a maximum. */
static int by_members(const struct hd_call *c)
{
	return c->kind == HD_COMM_ORDERED_REDUCE_SCATTER || (c->kind == HD_COMM_RING_REDUCE_SCATTER && c->fixed) ||
	       (hd_net_is_sum(c->kind) && (HD_BITS(c->dtype) == 16 || (c->fixed && c->kind != HD_COMM_ALL_MAX)));
}

int hd_net_by_members(const struct hd_call *c)
{
	return is_ring(c) || hd_comm_is_push_or_pull(c->kind) || by_members(c);
}

/* -- sums by the members ----------------------------------------------------------------------- */
/* Returns where the share of member j begins. In round 0 each member gets its share from all; in round
 * 1 all get its sum. */
static int64_t share_from(const struct hd_call *c, int n, int j)
{
	return c->count * j / n;
}

/* Returns how many elements member j adds up; they begin at element *from of the input. */
static int64_t share_of(const struct hd_communicator *m, const struct hd_call *c, int j, int64_t *from)
{
	*from = 0;
	switch (c->kind) {
	case HD_COMM_REDUCE: return j == c->index ? c->count : 0;
	case HD_COMM_REDUCE_SCATTER:
	case HD_COMM_ORDERED_REDUCE_SCATTER: *from = j * c->count; return c->count;
	case HD_COMM_RING_REDUCE_SCATTER: *from = hd_comm_mod(j + 1, m->n) * c->count; return c->count;
	default: *from = share_from(c, m->n, j); return share_from(c, m->n, j + 1) - *from;
	}
}

/* Returns the smallest free buffer that suffices, or else the largest, which it enlarges. Each step needs the same
 * sizes as the one before, so they soon suffice. */
static struct staging *staging_get(size_t bytes)
{
	struct staging *best = NULL;

	for (size_t i = 0; i < stagings.n; i++) {
		struct staging *r = stagings.at[i];

		if (r->in_use)
			continue;
		if (!best || (r->bytes >= bytes ? best->bytes < bytes || r->bytes < best->bytes
						: r->bytes > best->bytes && best->bytes < bytes))
			best = r;
	}
	if (!best) {
		best = hd_alloc(sizeof(*best));
		stagings.at = hd_grow(stagings.at, stagings.n, &stagings.cap, sizeof(*stagings.at));
		stagings.at[stagings.n++] = best;
	}
	if (best->bytes < bytes) {
		free(best->p);
		best->p = hd_alloc(bytes);
		best->bytes = bytes;
	}
	best->in_use = 1;
	return best;
}

/* Returns the data that the call sends: its input, or a copy of it in the wire's dtype. The copy is in the staging
 * buffer after the received data. */
static const char *members_sent(struct inflight *f, int64_t received)
{
	const struct hd_call *c = &f->t->call;

	if (!c->wire)
		return c->in;
	hd_to_wire(f->staging->p + received, c->in, c->count * f->t->m->n, c->wire);
	return f->staging->p + received;
}

static uint32_t sent_dtype(const struct hd_call *c)
{
	return c->wire ? c->wire : c->dtype;
}

static void members_gather(struct inflight *f, int tag)
{
	struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t from, mine = hd_comm_size(sent_dtype(c), share_of(m, c, m->me, &from));
	const char *in;

	f->staging = staging_get((size_t)(mine * m->n * (c->wire ? 2 : 1)));
	in = members_sent(f, mine * m->n);
	/* Each member begins with its neighbour, so that not all send to member 0 first. */
	for (int k = 1; k < m->n; k++) {
		int j = hd_comm_mod(m->me - k, m->n);

		hd_net_get(f, j, f->staging->p + j * mine, mine, tag);
	}
	for (int k = 1; k < m->n; k++) {
		int j = hd_comm_mod(m->me + k, m->n);
		int64_t theirs = hd_comm_size(sent_dtype(c), share_of(m, c, j, &from));

		hd_net_put(f, j, in + hd_comm_size(sent_dtype(c), from), theirs, tag);
	}
}

static void members_sum(struct inflight *f)
{
	struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t from, count = share_of(m, c, m->me, &from), mine = hd_comm_size(sent_dtype(c), count);
	int64_t at = hd_comm_size(c->dtype, from);
	char *out = (char *)c->out + (hd_comm_is_reduce_scatter(c->kind) ? 0 : at);

	for (int j = 0; j < m->n; j++)
		m->ins[j] = j == m->me ? (char *)(uintptr_t)c->in + at : f->staging->p + j * mine;
	if (count && c->wire)
		hd_sum_sent(out, m->ins, m->n, m->me, 1, count, c->wire);
	else if (count)
		hd_sum(&out, 1, m->ins, m->n, count, c->dtype, c->kind == HD_COMM_ALL_MAX);
}

static void members_spread(struct inflight *f, int tag)
{
	struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t from, mine = share_of(m, c, m->me, &from), at = hd_comm_size(c->dtype, from);
	char *out = c->out;

	for (int k = 1; k < m->n; k++) {
		int j = hd_comm_mod(m->me - k, m->n);
		int64_t theirs = share_of(m, c, j, &from);

		hd_net_get(f, j, out + hd_comm_size(c->dtype, from), hd_comm_size(c->dtype, theirs), tag);
	}
	for (int k = 1; k < m->n; k++)
		hd_net_put(f, hd_comm_mod(m->me + k, m->n), out + at, hd_comm_size(c->dtype, mine), tag);
}

/* -- pushes and pulls -------------------------------------------------------------------------- */
static void push_begin(struct inflight *f, int tag)
{
	const struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t s = hd_comm_size(sent_dtype(c), c->count), of_servers = c->index < 0 ? m->n - c->workers : 1;
	const char *in = c->in;

	if (m->me >= c->workers) {
		if (!hd_call_serves(c, m->me))
			return;
		f->staging = staging_get((size_t)(s * c->workers));
		for (int j = 0; j < c->workers; j++)
			hd_net_get(f, j, f->staging->p + j * s, s, tag);
		return;
	}
	if (c->wire) {
		f->staging = staging_get((size_t)(s * of_servers));
		hd_to_wire(f->staging->p, c->in, c->count * of_servers, c->wire);
		in = f->staging->p;
	}
	for (int j = c->workers; j < m->n; j++)
		if (hd_call_serves(c, j))
			hd_net_put(f, j, in + (c->index < 0 ? (j - c->workers) * s : 0), s, tag);
}

static void push_sum(struct inflight *f)
{
	struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t s = hd_comm_size(sent_dtype(c), c->count);
	char *out = c->out;

	for (int j = 0; j < c->workers; j++)
		m->ins[j] = f->staging->p + j * s;
	if (c->wire)
		hd_sum_sent(out, m->ins, c->workers, -1, 1, c->count, c->wire);
	else
		hd_sum(&out, 1, m->ins, c->workers, c->count, c->dtype, 0);
}

static void pull_begin(struct inflight *f, int tag)
{
	const struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t s = hd_comm_size(c->dtype, c->count);

	for (int j = 0; j < c->workers && hd_call_serves(c, m->me); j++)
		hd_net_put(f, j, c->in, s, tag);
	for (int j = c->workers; j < m->n && m->me < c->workers; j++)
		if (hd_call_serves(c, j))
			hd_net_get(f, j, (char *)c->out + (c->index < 0 ? (j - c->workers) * s : 0), s, tag);
}

/* -- rings ------------------------------------------------------------------------------------- */
/* Each round sends one piece to the right, and gets one from the left. For a sum, the sum so far is sent, and what
 * arrives is added to this member's own term. The staging buffer contains what arrives, followed by a rounded
 * copy of what is sent. */
static char *ring_piece(const struct hd_communicator *m, const struct hd_call *c, const void *of, int64_t k)
{
	return (char *)(uintptr_t)of + hd_comm_mod(k, m->n) * hd_comm_size(c->dtype, c->count);
}

static void ring_round(struct inflight *f)
{
	struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t bytes = hd_comm_size(sent_dtype(c), c->count), k = m->me - f->round;
	int right = hd_comm_mod(m->me + 1, m->n), left = hd_comm_mod(m->me - 1, m->n);
	int tag = (int)(f->t->seq % TAGS) * 2;
	const char *send;

	if (c->kind == HD_COMM_RING_ALL_GATHER) {
		hd_net_get(f, left, ring_piece(m, c, c->out, k), bytes, tag);
		hd_net_put(f, right, ring_piece(m, c, c->out, k + 1), bytes, tag);
		return;
	}
	send = f->round ? c->out : ring_piece(m, c, c->in, k);
	if (c->wire) {
		hd_to_wire(f->staging->p + bytes, send, c->count, c->wire);
		send = f->staging->p + bytes;
	}
	hd_net_get(f, left, f->staging->p, bytes, tag);
	hd_net_put(f, right, send, bytes, tag);
}

static void ring_add(struct inflight *f)
{
	const struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	char *own = ring_piece(m, c, c->in, m->me - f->round), *two[] = { own, f->staging->p }, *out = c->out;

	if (c->wire)
		hd_add_wire(out, own, f->staging->p, c->count, c->wire);
	else
		hd_sum(&out, 1, two, 2, c->count, c->dtype, 0);
}

static void ring_begin(struct inflight *f)
{
	struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t bytes = hd_comm_size(sent_dtype(c), c->count);

	if (c->kind == HD_COMM_RING_ALL_GATHER)
		hd_move(ring_piece(m, c, c->out, m->me + 1), c->in, bytes);
	else
		f->staging = staging_get((size_t)(2 * bytes));
	ring_round(f);
}

/* Completes a round. Returns 1 if it was the last one; otherwise begins the next. */
static int ring_next(struct inflight *f)
{
	f->round++;
	if (f->t->call.kind == HD_COMM_RING_REDUCE_SCATTER)
		ring_add(f);
	if (f->round == f->t->m->n - 1)
		return 1;
	HD_MPI(ring_round(f));
	return 0;
}

/* -- all kinds ----------------------------------------------------------------------------------- */
void hd_net_members_begin(struct inflight *f)
{
	const struct hd_call *c = &f->t->call;

	if (is_ring(c))
		ring_begin(f);
	else if (hd_comm_is_push_or_pull(c->kind))
		(c->kind == HD_COMM_PUSH ? push_begin : pull_begin)(f, tag_of(f));
	else
		members_gather(f, tag_of(f));
}

int hd_net_members_next(struct inflight *f)
{
	const struct hd_call *c = &f->t->call;

	if (is_ring(c) && f->round < f->t->m->n - 1 && !ring_next(f))
		return 0;
	if (c->kind == HD_COMM_PUSH && f->round == 0) {
		if (hd_call_serves(c, f->t->m->me))
			push_sum(f);
		f->round = 1;
	}
	if (by_members(c) && f->round == 0) {
		members_sum(f);
		f->round = 1;
		if (c->kind == HD_COMM_ALL_REDUCE || c->kind == HD_COMM_ALL_MAX) {
			HD_MPI(members_spread(f, tag_of(f)));
			return 0;
		}
	}
	return 1;
}
