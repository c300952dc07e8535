/* SPDX-License-Identifier: Apache-2.0
 * Ranks as threads that take turns, and the calls between them.
 */
#include <config.h>
#include "engine/inprocess/net.h"
#include "engine/base/half.h"
#include "engine/comm/transport/transport.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct call { /* one member's call */
	struct hd_call c;
	char *in; /* a copy of its input; NULL: the member has not made the call yet */
};
struct meeting { /* the calls that belong together: one collective of a group, or the send and receive of one message */
	struct meeting *next;
	int group, leader, from, to; /* from, to: members of a message; -1 for collectives */
	uint64_t number;
	struct call *by; /* by member */
	int n;
};

struct member {
	struct hd_communicator m; /* the first field: pointers to it are cast back to struct member */
	struct hd_net_in *net;
	int group, leader;
	uint64_t calls;
	struct member *next;
};

#define BUCKETS 4096
struct hd_net_in {
	int n;
	struct member *members;
	struct meeting *meetings[BUCKETS];
	pthread_mutex_t lock;
	pthread_cond_t moved;
	int turn, idle; /* the rank that runs; how often the turn was handed on since the last progress */
	char *finished;
	const char **waits_in; /* by rank */
	int (*work)(void *ctx, int rank);
	void *ctx;
	struct hd_err err;
};
static __thread int rank_here;

/* -- meetings ----------------------------------------------------------------------------------- */
static void forget(struct hd_net_in *net)
{
	for (size_t h = 0; h < BUCKETS; h++) {
		for (struct meeting *r = net->meetings[h], *next; r; r = next) {
			next = r->next;
			for (int k = 0; k < r->n; k++)
				free(r->by[k].in);
			free(r->by);
			free(r);
		}
		net->meetings[h] = NULL;
	}
}

static struct meeting *meet(const struct member *m, int from, int to, uint64_t number)
{
	size_t h = ((size_t)(m->group * 64 + m->leader) * 1000003u + (size_t)((from + 1) * 64 + to + 1) * 10007u +
		    (size_t)number) %
		   BUCKETS;
	struct meeting *r;

	for (r = m->net->meetings[h]; r; r = r->next)
		if (r->group == m->group && r->leader == m->leader && r->from == from && r->to == to &&
		    r->number == number)
			return r;
	r = hd_alloc(sizeof(*r));
	*r = (struct meeting){ m->net->meetings[h], m->group, m->leader, from, to, number, NULL, m->m.n };
	r->by = hd_alloc((size_t)r->n * sizeof(*r->by));
	m->net->meetings[h] = r;
	return r;
}

static int is_message(const struct hd_call *c)
{
	return c->kind == HD_COMM_SEND || c->kind == HD_COMM_RECV;
}

static struct meeting *meeting_of(const struct member *m, const struct hd_call *c, uint64_t number)
{
	int sends = c->kind == HD_COMM_SEND;

	if (!is_message(c))
		return meet(m, -1, -1, number);
	return meet(m, sends ? m->m.me : c->index, sends ? c->index : m->m.me, number);
}

/* -- what a call moves -------------------------------------------------------------------------- */
static size_t numbers_bytes(const struct hd_call *c, int n)
{
	return c->rows ? (size_t)(n * c->rows->experts * c->rows->samples) * sizeof(int32_t) : 0;
}

static size_t out_bytes(const struct hd_call *c, const struct hd_communicator *m)
{
	int served = hd_comm_is_push_or_pull(c->kind),
	    gets = served && (c->kind == HD_COMM_PUSH ? hd_call_serves(c, m->me) : m->me < c->workers);
	int many = hd_comm_is_all_gather(c->kind) || c->kind == HD_COMM_ALL_TO_ALL || c->kind == HD_COMM_GATHER;
	int64_t rows = 0;

	if (served)
		return !gets ? 0
			     : (size_t)(c->kind == HD_COMM_PUSH ? hd_comm_size(c->dtype, c->count)
								: hd_call_served(c, m->n));
	if (c->kind == HD_COMM_SEND || ((c->kind == HD_COMM_REDUCE || c->kind == HD_COMM_GATHER) && m->me != c->index))
		return 0;
	if (!c->rows)
		return (size_t)hd_comm_size(c->dtype, c->count) * (size_t)(many ? m->n : 1);
	for (int64_t i = 0; i < m->n * c->rows->experts * c->rows->samples; i++)
		rows += c->rows->need[i];
	return (size_t)(rows * c->rows->bytes);
}

static double value(const struct call *x, int64_t i)
{
	switch (x->c.dtype) {
	case HD_DTYPE_F64: return ((const double *)(const void *)x->in)[i];
	case HD_DTYPE_BF16: return hd_of_bf16(((const uint16_t *)(const void *)x->in)[i]);
	case HD_DTYPE_F16: return hd_of_f16(((const uint16_t *)(const void *)x->in)[i]);
	case HD_DTYPE_I32: return ((const int32_t *)(const void *)x->in)[i];
	case HD_DTYPE_I64: return (double)((const int64_t *)(const void *)x->in)[i];
	case HD_DTYPE_U8: return ((const uint8_t *)(const void *)x->in)[i];
	default: return ((const float *)(const void *)x->in)[i];
	}
}

static void store(void *out, uint32_t dtype, int64_t i, double v)
{
	switch (dtype) {
	case HD_DTYPE_F64: ((double *)out)[i] = v; return;
	case HD_DTYPE_BF16: ((uint16_t *)out)[i] = hd_bf16_of((float)v); return;
	case HD_DTYPE_F16: ((uint16_t *)out)[i] = hd_f16_of((float)v); return;
	case HD_DTYPE_I32: ((int32_t *)out)[i] = (int32_t)v; return;
	case HD_DTYPE_I64: ((int64_t *)out)[i] = (int64_t)v; return;
	case HD_DTYPE_U8: ((uint8_t *)out)[i] = (uint8_t)v; return;
	default: ((float *)out)[i] = (float)v;
	}
}

static void reduce(const struct meeting *r, const struct hd_call *c, int64_t from)
{
	for (int64_t i = 0; i < c->count; i++) {
		double v = value(&r->by[0], from + i);

		for (int k = 1; k < r->n; k++) {
			double x = value(&r->by[k], from + i);

			v = c->kind == HD_COMM_ALL_MAX ? (x > v ? x : v) : v + x;
		}
		store(c->out, c->dtype, i, v);
	}
}

/* Returns v as it arrives: rounded to the dtype in which it is sent. */
static double sent(double v, uint32_t wire)
{
	return wire == HD_DTYPE_BF16  ? hd_of_bf16(hd_bf16_of((float)v))
	       : wire == HD_DTYPE_F16 ? hd_of_f16(hd_f16_of((float)v * 1024.0f)) / 1024.0
				      : v;
}

/* Reduces one piece, adding from the left in the dtype of the operands, as transports do. In a ring, piece p begins at
 * member p and the running sum is sent around, so it is rounded at each hop. Otherwise the
 * other members send their terms, rounded, to the owner of the piece, which adds them in member order. */
static void reduce_ordered(const struct meeting *r, const struct hd_call *c, int me)
{
	int round = c->kind == HD_COMM_RING_REDUCE_SCATTER, piece = round ? hd_comm_mod(me + 1, r->n) : me;
	int ring = round && !c->fixed;
	int single = c->dtype == HD_DTYPE_F32;

	for (int64_t i = 0; i < c->count; i++) {
		double v = 0;

		for (int k = 0; k < r->n; k++) {
			int from = ring ? hd_comm_mod(piece + k, r->n) : k;
			double x = value(&r->by[from], piece * c->count + i);

			if (!ring && from != me)
				x = sent(x, c->wire);
			v = k ? x + (ring ? sent(v, c->wire) : v) : x;
			v = single ? (double)(float)v : v;
		}
		store(c->out, c->dtype, i, v);
	}
}

/* HD_COMM_PUSH: sums the workers' terms on a server, in member order. (pull copies from the servers to the workers.) */
static void push(const struct meeting *r, const struct hd_call *c, int me)
{
	int64_t from = c->index < 0 ? (me - c->workers) * c->count : 0;
	int single = c->dtype == HD_DTYPE_F32;

	for (int64_t i = 0; i < c->count && hd_call_serves(c, me); i++) {
		double v = 0;

		for (int k = 0; k < c->workers; k++) {
			double x = sent(value(&r->by[k], from + i), c->wire);

			v = k ? x + v : x;
			v = single ? (double)(float)v : v;
		}
		store(c->out, c->dtype, i, v);
	}
}

static void pull(const struct meeting *r, const struct hd_call *c, int me)
{
	size_t piece = (size_t)hd_comm_size(c->dtype, c->count);

	for (int k = c->workers; k < r->n && me < c->workers; k++)
		if (hd_call_serves(c, k))
			memcpy((char *)c->out + (c->index < 0 ? (size_t)(k - c->workers) * piece : 0), r->by[k].in,
			       piece);
}

/* Delivers the rows of HD_COMM_ALL_TO_ALL_V. In the copy of a member's input, its row counts follow the data. */
static int deliver_rows(const struct hd_communicator *m, const struct meeting *r, const struct hd_call *c)
{
	for (int k = 0; k < m->n; k++)
		for (int64_t e = 0; e < c->rows->experts; e++) {
			const struct hd_rows *mine = c->rows, *theirs = r->by[k].c.rows;
			size_t bytes = (size_t)hd_comm_in_bytes(&r->by[k].c, m->n, k);
			int64_t from, to, n;

			n = hd_rows_segment(theirs, (const int32_t *)(const void *)(r->by[k].in + bytes), c->index,
					    m->n, m->me, e, &from);
			if (hd_rows_segment(mine, mine->need, !c->index, m->n, k, e, &to) != n)
				return HD_EINVAL;
			memcpy((char *)c->out + to * mine->bytes, r->by[k].in + from * mine->bytes,
			       (size_t)(n * mine->bytes));
		}
	return HD_OK;
}

static int deliver(const struct hd_communicator *m, const struct meeting *r, const struct hd_call *c)
{
	size_t piece = (size_t)hd_comm_size(c->dtype, c->count);
	char *out = c->out;

	switch (c->kind) {
	case HD_COMM_ALL_REDUCE:
	case HD_COMM_ALL_MAX: reduce(r, c, 0); break;
	case HD_COMM_REDUCE:
		if (m->me == c->index)
			reduce(r, c, 0);
		break;
	case HD_COMM_REDUCE_SCATTER: reduce(r, c, m->me * c->count); break;
	case HD_COMM_RING_REDUCE_SCATTER:
	case HD_COMM_ORDERED_REDUCE_SCATTER: reduce_ordered(r, c, m->me); break;
	case HD_COMM_PUSH: push(r, c, m->me); break;
	case HD_COMM_PULL: pull(r, c, m->me); break;
	case HD_COMM_RING_ALL_GATHER:
		for (int k = 0; k < m->n; k++)
			memcpy(out + (size_t)hd_comm_mod(k + 1, m->n) * piece, r->by[k].in, piece);
		break;
	case HD_COMM_ALL_GATHER:
	case HD_COMM_GATHER:
		for (int k = 0; k < m->n && (c->kind == HD_COMM_ALL_GATHER || m->me == c->index); k++)
			memcpy(out + (size_t)k * piece, r->by[k].in, piece);
		break;
	case HD_COMM_ALL_TO_ALL:
		for (int k = 0; k < m->n; k++)
			memcpy(out + (size_t)k * piece, r->by[k].in + (size_t)m->me * piece, piece);
		break;
	case HD_COMM_ALL_TO_ALL_V: return deliver_rows(m, r, c);
	case HD_COMM_SCATTER: memcpy(out, r->by[c->index].in + (size_t)m->me * piece, piece); break;
	case HD_COMM_SHIFT:
	case HD_COMM_PERMUTE: memcpy(out, r->by[hd_call_from(c, m->n, m->me)].in, piece); break;
	case HD_COMM_BROADCAST:
	case HD_COMM_RECV: memmove(out, r->by[c->index].in, piece); break;
	default: break;
	}
	return HD_OK;
}

/* -- turns ---------------------------------------------------------------------------------------- */
static void wait_for_each_other(struct hd_net_in *net)
{
	char *text = NULL;

	for (int k = 0; k < net->n && k < 4; k++)
		if (!net->finished[k])
			hd_append(&text, "%srank %d in %s", text ? ", " : "", k,
				  net->waits_in[k] ? net->waits_in[k] : "nothing");
	hd_err_set(&net->err, HD_EIO, "ranks wait for each other: %s", text ? text : "");
	free(text);
}

/* Lets the next unfinished rank run. Returns when it is this rank's turn again, or at once if this
 * rank has finished. */
static void hand_on(struct hd_net_in *net, int finished)
{
	int next = net->turn, left = 0;

	net->finished[rank_here] = (char)finished;
	for (int k = 0; k < net->n; k++)
		left += !net->finished[k];
	do {
		next = (next + 1) % net->n;
	} while (left && net->finished[next]);
	net->turn = next;
	net->idle = finished ? 0 : net->idle + 1;
	if (net->idle > 2 * left && !net->err.code)
		wait_for_each_other(net);
	pthread_cond_broadcast(&net->moved);
	while (!finished && net->turn != rank_here)
		pthread_cond_wait(&net->moved, &net->lock);
}

/* -- the transport -------------------------------------------------------------------------------- */
static int start(struct hd_request *t)
{
	struct member *m = (struct member *)(void *)t->m;
	const struct hd_call *c = &t->call;
	size_t bytes = (size_t)hd_comm_in_bytes(c, m->m.n, m->m.me), numbers = numbers_bytes(c, m->m.n);
	struct call *mine;

	if (c->kind == HD_COMM_SEND)
		t->seq = 2 * m->m.shm.sent[2 * c->index + (int)c->channel]++ + c->channel;
	else if (c->kind == HD_COMM_RECV)
		t->seq = 2 * m->m.shm.received[2 * c->index + (int)c->channel]++ + c->channel;
	else
		t->seq = m->calls++;
	mine = &meeting_of(m, c, t->seq)->by[m->m.me];
	if (!mine->in) {
		mine->c = *c;
		mine->in = hd_alloc(bytes + numbers + 1);
		if (numbers)
			memcpy(mine->in + bytes, c->rows->have, numbers);
		if (bytes)
			memcpy(mine->in, c->in, bytes);
		m->net->idle = 0;
	}
	if (c->out && c->out != c->in)
		memset(c->out, 0xff, out_bytes(c, &m->m));
	return HD_OK;
}

static int has_arrived(const struct meeting *r, const struct hd_call *c)
{
	if (is_message(c)) /* a send waits for its receive, as if nothing buffered it */
		return r->by[c->index].in != NULL;
	for (int k = 0; k < r->n; k++)
		if (!r->by[k].in)
			return 0;
	return 1;
}

static int agree(struct hd_net_in *net, const struct meeting *r, const struct hd_call *c)
{
	for (int k = 0; k < r->n; k++) {
		const struct call *x = &r->by[k];

		if (x->in &&
		    (x->c.count != c->count || x->c.dtype != c->dtype ||
		     (!is_message(c) && (x->c.kind != c->kind || x->c.wire != c->wire || x->c.index != c->index))))
			return hd_err_set(
				&net->err, HD_EIO,
				"members issue different calls: %s of %lld elements, and member %d %s of %lld",
				hd_call_what(c), (long long)c->count, k, hd_call_what(&x->c), (long long)x->c.count);
	}
	return HD_OK;
}

static int finish(struct hd_request *t)
{
	struct member *m = (struct member *)(void *)t->m;
	struct hd_net_in *net = m->net;
	const struct hd_call *c = &t->call;
	struct meeting *r = meeting_of(m, c, t->seq);
	size_t bytes = (size_t)hd_comm_in_bytes(c, m->m.n, m->m.me);

	net->waits_in[rank_here] = hd_call_what(c);
	while (!has_arrived(r, c) && !net->err.code)
		hand_on(net, 0);
	HD_TRY(net->err.code);
	HD_TRY(agree(net, r, c));
	if (bytes && c->in != c->out && memcmp(c->in, r->by[m->m.me].in, bytes))
		return hd_err_set(&net->err, HD_EIO, "%s: data were overwritten while they were being sent",
				  hd_call_what(c));
	if (c->out && deliver(&m->m, r, c) < 0)
		return hd_err_set(&net->err, HD_EIO, "%s: members do not agree on the number of rows", hd_call_what(c));
	return HD_OK;
}

static const struct hd_transport threads = {
	.name = "threads of a process", .moves = HD_MOVES_INLINE, .start = start, .wait = finish
};

/* -- life ----------------------------------------------------------------------------------------- */
struct hd_net_in *hd_net_in_open(int ranks)
{
	struct hd_net_in *net = hd_alloc(sizeof(*net));

	net->n = ranks;
	net->finished = hd_alloc((size_t)ranks);
	net->waits_in = hd_alloc((size_t)ranks * sizeof(*net->waits_in));
	pthread_mutex_init(&net->lock, NULL);
	pthread_cond_init(&net->moved, NULL);
	return net;
}

void hd_net_in_close(struct hd_net_in *net)
{
	if (!net)
		return;
	forget(net);
	for (struct member *m = net->members, *next; m; m = next) {
		next = m->next;
		free(m->m.name), free(m->m.world), free(m->m.shm.sent), free(m->m.shm.received);
		free(m);
	}
	free(net->finished), free(net->waits_in);
	pthread_mutex_destroy(&net->lock);
	pthread_cond_destroy(&net->moved);
	free(net);
}

struct hd_communicator *hd_net_in_join(struct hd_net_in *net, const int *ranks, int n, int me, int group,
				       const char *name)
{
	struct member *m = hd_alloc(sizeof(*m));

	m->m = (struct hd_communicator){ .n = n, .name = hd_strdup(name), .on_host = 1, .transport = &threads };
	m->m.world = hd_alloc((size_t)n * sizeof(int));
	m->m.shm.sent = hd_alloc((size_t)n * HD_CHANNELS * sizeof(uint64_t));
	m->m.shm.received = hd_alloc((size_t)n * HD_CHANNELS * sizeof(uint64_t));
	for (int k = 0; k < n; k++) {
		m->m.world[k] = ranks[k];
		m->m.me = ranks[k] == me ? k : m->m.me;
	}
	m->net = net;
	m->group = group;
	m->leader = ranks[0];
	m->next = net->members;
	net->members = m;
	return &m->m;
}

struct thread {
	struct hd_net_in *net;
	int rank;
	pthread_t id;
};

static void *run(void *arg)
{
	struct thread *t = arg;
	struct hd_net_in *net = t->net;

	rank_here = t->rank;
	pthread_mutex_lock(&net->lock);
	while (net->turn != rank_here)
		pthread_cond_wait(&net->moved, &net->lock);
	if (!net->err.code && net->work(net->ctx, rank_here) < 0)
		hd_err_set(&net->err, HD_EIO, "rank %d failed", rank_here);
	hand_on(net, 1);
	pthread_mutex_unlock(&net->lock);
	return NULL;
}

int hd_net_in_run(struct hd_net_in *net, int (*work)(void *ctx, int rank), void *ctx, struct hd_err *err)
{
	struct thread *t = hd_alloc((size_t)net->n * sizeof(*t));
	int made = 0;

	forget(net);
	for (struct member *m = net->members; m; m = m->next) {
		m->calls = 0;
		memset(m->m.shm.sent, 0, (size_t)m->m.n * HD_CHANNELS * sizeof(uint64_t));
		memset(m->m.shm.received, 0, (size_t)m->m.n * HD_CHANNELS * sizeof(uint64_t));
	}
	net->err = (struct hd_err){ 0 };
	net->turn = net->idle = 0;
	net->work = work;
	net->ctx = ctx;
	memset(net->finished, 0, (size_t)net->n);
	memset(net->waits_in, 0, (size_t)net->n * sizeof(*net->waits_in));
	for (; made < net->n; made++) {
		t[made] = (struct thread){ .net = net, .rank = made };
		if (pthread_create(&t[made].id, NULL, run, &t[made]))
			break;
	}
	if (made < net->n) { /* missing threads count as finished, so that those that were started can finish */
		pthread_mutex_lock(&net->lock);
		hd_err_set(&net->err, HD_ENOMEM, "only %d threads could be started for %d ranks", made, net->n);
		for (int k = made; k < net->n; k++)
			net->finished[k] = 1;
		pthread_mutex_unlock(&net->lock);
	}
	for (int k = 0; k < made; k++)
		pthread_join(t[k].id, NULL);
	free(t);
	return net->err.code ? hd_err_set(err, net->err.code, "%s", net->err.text) : HD_OK;
}
