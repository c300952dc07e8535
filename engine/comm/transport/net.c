/* SPDX-License-Identifier: Apache-2.0
 * Movement between hosts: one progress thread per process issues the calls in the order they were
 * started and drives them by tests with backoff. So the wire works under the products of the
 * compute threads.  The thread is made when the first group that leaves the host is.
 *
 * Most kinds are one non-blocking MPI collective.  Sums of 16-bit types, and all sums when the
 * call asks for a fixed order, are made by the members themselves: each gets its share from all,
 * adds in member order (sum.c), and hands the result to all.  These bytes are those of a
 * ring, and the result is that of the shared-memory transport, bit for bit.  They are messages
 * with a tag of the sum's number, because their second round begins at different times on
 * different members. But collectives of one communicator must be issued in one order.
 */
#include <config.h>
#include "engine/comm/transport/transport.h"
#include "engine/comm/world/mpi_calls.h"
#include "engine/comm/transport/sum.h"
#include "engine/comm/wait/wait.h"
#include "engine/comm/wait/watchdog_net.h"
#include <limits.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_INFLIGHT 256 /* calls under way; start() waits for room beyond that */
#define TAGS 8192        /* of sums; MPI guarantees 32767 */
#define TAG_ROWS 30000
#define TAG_MESSAGE 20000 /* and channel: sends, receives and shifts are matched in the order they are made */

struct hd_net {
	MPI_Comm comm;
};
struct inflight {
	struct hd_request *t;
	MPI_Request *req;
	int nreq, cap, round;
	struct staging *staging; /* sums: shares of the other members */
	double due;
};
struct staging { /* as many as sums were ever under way at once */
	char *p;
	size_t bytes;
	int in_use;
};

static struct {
	struct inflight inflight[MAX_INFLIGHT]; /* a ring; from completed to issued: of the thread */
	struct staging staging[MAX_INFLIGHT];   /* of the thread */
	uint64_t queued, issued, completed;     /* numbers of calls */
	pthread_mutex_t lock;                   /* of these, stop and busy */
	pthread_cond_t more;
	pthread_t thread;
	int running, stop;
	int waiting; /* a compute thread waits: answer at once */
	double busy, busy_from, delay;
} net = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER };

/* -- issuing ----------------------------------------------------------------------------------- */
static MPI_Datatype type_of(uint32_t dtype)
{
	switch (dtype) {
	case HD_DTYPE_F32: return MPI_FLOAT;
	case HD_DTYPE_F64: return MPI_DOUBLE;
	case HD_DTYPE_I32: return MPI_INT32_T;
	case HD_DTYPE_I64: return MPI_INT64_T;
	case HD_DTYPE_F16:
	case HD_DTYPE_BF16: return MPI_UINT16_T;
	default: return MPI_UINT8_T;
	}
}

static int is_sum(uint32_t kind)
{
	return kind == HD_COMM_ALL_REDUCE || kind == HD_COMM_ALL_MAX || kind == HD_COMM_REDUCE ||
	       kind == HD_COMM_REDUCE_SCATTER || kind == HD_COMM_ORDERED_REDUCE_SCATTER;
}

static int is_ring(uint32_t kind)
{
	return kind == HD_COMM_RING_REDUCE_SCATTER || kind == HD_COMM_RING_ALL_GATHER;
}

/* Sums that MPI does not make, or not in a fixed order.  A maximum of fp32 has no order. */
static int by_members(const struct hd_call *c)
{
	return c->kind == HD_COMM_ORDERED_REDUCE_SCATTER ||
	       (is_sum(c->kind) && (HD_BITS(c->dtype) == 16 || (c->fixed && c->kind != HD_COMM_ALL_MAX)));
}

static int64_t share_from(const struct hd_call *c, int n, int j)
{
	return c->count * j / n;
}

static void *in_place(const struct hd_call *c, const char *out)
{
	return c->in == (const void *)out ? MPI_IN_PLACE : (void *)(uintptr_t)c->in;
}

static void issue_sum(const struct hd_communicator *m, const struct hd_call *c, MPI_Request *r)
{
	MPI_Comm comm = m->net.group->comm;
	MPI_Datatype type = type_of(c->dtype);
	int count = (int)c->count;

	if (c->kind == HD_COMM_REDUCE_SCATTER)
		MPI_Ireduce_scatter_block(c->in, c->out, count, type, MPI_SUM, comm, r);
	else if (c->kind == HD_COMM_REDUCE)
		MPI_Ireduce(m->me == c->index ? in_place(c, c->out) : c->in, c->out, count, type, MPI_SUM, c->index,
			    comm, r);
	else
		MPI_Iallreduce(in_place(c, c->out), c->out, count, type, c->kind == HD_COMM_ALL_MAX ? MPI_MAX : MPI_SUM,
			       comm, r);
}

static void issue_move(const struct hd_communicator *m, const struct hd_call *c, MPI_Request *r)
{
	MPI_Comm comm = m->net.group->comm;
	MPI_Datatype type = type_of(c->dtype);
	int n = type == MPI_UINT8_T ? (int)hd_comm_size(c->dtype, c->count) : (int)c->count;
	int64_t mine = m->me * hd_comm_size(c->dtype, c->count);
	int root = m->me == c->index;

	switch (c->kind) {
	case HD_COMM_ALL_GATHER:
		MPI_Iallgather(in_place(c, (char *)c->out + mine), n, type, c->out, n, type, comm, r);
		break;
	case HD_COMM_ALL_TO_ALL: MPI_Ialltoall(c->in, n, type, c->out, n, type, comm, r); break;
	case HD_COMM_BROADCAST:
		if (root)
			hd_move(c->out, c->in, hd_comm_size(c->dtype, c->count));
		MPI_Ibcast(c->out, n, type, c->index, comm, r);
		break;
	case HD_COMM_GATHER:
		MPI_Igather(root ? in_place(c, (char *)c->out + mine) : c->in, n, type, c->out, n, type, c->index, comm,
			    r);
		break;
	case HD_COMM_SCATTER:
		MPI_Iscatter(c->in, n, type, root && (const char *)c->in + mine == c->out ? MPI_IN_PLACE : c->out, n,
			     type, c->index, comm, r);
		break;
	}
}

static void put(struct inflight *f, int to, const void *p, int64_t bytes, int tag)
{
	if (bytes)
		MPI_Isend(p, (int)bytes, MPI_BYTE, to, tag, f->t->m->net.group->comm, &f->req[f->nreq++]);
}

static void get(struct inflight *f, int from, void *p, int64_t bytes, int tag)
{
	if (bytes)
		MPI_Irecv(p, (int)bytes, MPI_BYTE, from, tag, f->t->m->net.group->comm, &f->req[f->nreq++]);
}

static void issue_message(struct inflight *f)
{
	const struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t bytes = hd_comm_size(c->dtype, c->count);
	int tag = TAG_MESSAGE + (int)c->channel;

	if (c->kind != HD_COMM_SEND)
		get(f, hd_call_from(c, m->n, m->me), c->out, bytes, tag);
	if (c->kind != HD_COMM_RECV)
		put(f, hd_call_to(c, m->n, m->me), c->in, bytes, tag);
}

/* Both ends know how many rows a segment has, so an empty one is no message. */
static void issue_rows(struct inflight *f)
{
	const struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	const struct hd_rows *r = c->rows;
	const char *in = c->in;
	char *out = c->out;
	int64_t from, to, rows;

	for (int k = 0; k < m->n; k++) {
		int j = hd_comm_mod(m->me - k, m->n);

		for (int64_t e = 0; e < r->experts; e++) {
			rows = hd_rows_segment(r, r->need, !c->index, m->n, j, e, &to);
			if (k) {
				get(f, j, out + to * r->bytes, rows * r->bytes, TAG_ROWS);
				continue;
			}
			hd_rows_segment(r, r->have, c->index, m->n, j, e, &from);
			hd_move(out + to * r->bytes, in + from * r->bytes, rows * r->bytes);
		}
	}
	for (int k = 1; k < m->n; k++) {
		int j = hd_comm_mod(m->me + k, m->n);

		for (int64_t e = 0; e < r->experts; e++) {
			rows = hd_rows_segment(r, r->have, c->index, m->n, j, e, &from);
			put(f, j, in + from * r->bytes, rows * r->bytes, TAG_ROWS);
		}
	}
}

/* -- sums by the members ----------------------------------------------------------------------- */
/* Round 0 brings each its share from all, round 1 brings the sums to all. */
/* What member j adds up: `count` elements that begin at element *from of the input. */
static int64_t share_of(const struct hd_communicator *m, const struct hd_call *c, int j, int64_t *from)
{
	*from = 0;
	switch (c->kind) {
	case HD_COMM_REDUCE: return j == c->index ? c->count : 0;
	case HD_COMM_REDUCE_SCATTER:
	case HD_COMM_ORDERED_REDUCE_SCATTER: *from = j * c->count; return c->count;
	default: *from = share_from(c, m->n, j); return share_from(c, m->n, j + 1) - *from;
	}
}

/* The smallest that suffices, else the largest, which grows: a step needs what the one before it needed. */
static struct staging *staging_get(size_t bytes)
{
	struct staging *best = NULL;

	for (int i = 0; i < MAX_INFLIGHT; i++) {
		struct staging *r = &net.staging[i];

		if (r->in_use)
			continue;
		if (!best || (r->bytes >= bytes ? best->bytes < bytes || r->bytes < best->bytes
						: r->bytes > best->bytes && best->bytes < bytes))
			best = r;
	}
	if (best->bytes < bytes) {
		free(best->p);
		best->p = hd_alloc(bytes);
		best->bytes = bytes;
	}
	best->in_use = 1;
	return best;
}

/* What is sent of a call's input: the input, or its copy behind what is received. */
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
	/* Each begins with its neighbour, so that not all send to member 0 first. */
	for (int k = 1; k < m->n; k++) {
		int j = hd_comm_mod(m->me - k, m->n);

		get(f, j, f->staging->p + j * mine, mine, tag);
	}
	for (int k = 1; k < m->n; k++) {
		int j = hd_comm_mod(m->me + k, m->n);
		int64_t theirs = hd_comm_size(sent_dtype(c), share_of(m, c, j, &from));

		put(f, j, in + hd_comm_size(sent_dtype(c), from), theirs, tag);
	}
}

static void members_sum(struct inflight *f)
{
	struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t from, count = share_of(m, c, m->me, &from), mine = hd_comm_size(sent_dtype(c), count);
	int64_t at = hd_comm_size(c->dtype, from);
	char *out = (char *)c->out + (hd_comm_is_split(c->kind) ? 0 : at);

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

		get(f, j, out + hd_comm_size(c->dtype, from), hd_comm_size(c->dtype, theirs), tag);
	}
	for (int k = 1; k < m->n; k++)
		put(f, hd_comm_mod(m->me + k, m->n), out + at, hd_comm_size(c->dtype, mine), tag);
}

/* -- pushes and pulls -------------------------------------------------------------------------- */
static void push_begin(struct inflight *f, int tag)
{
	const struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t s = hd_comm_size(sent_dtype(c), c->count), of_servers = c->index < 0 ? m->n - c->cores : 1;
	const char *in = c->in;

	if (m->me >= c->cores) {
		if (!hd_call_serves(c, m->me))
			return;
		f->staging = staging_get((size_t)(s * c->cores));
		for (int j = 0; j < c->cores; j++)
			get(f, j, f->staging->p + j * s, s, tag);
		return;
	}
	if (c->wire) {
		f->staging = staging_get((size_t)(s * of_servers));
		hd_to_wire(f->staging->p, c->in, c->count * of_servers, c->wire);
		in = f->staging->p;
	}
	for (int j = c->cores; j < m->n; j++)
		if (hd_call_serves(c, j))
			put(f, j, in + (c->index < 0 ? (j - c->cores) * s : 0), s, tag);
}

static void push_sum(struct inflight *f)
{
	struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t s = hd_comm_size(sent_dtype(c), c->count);
	char *out = c->out;

	for (int j = 0; j < c->cores; j++)
		m->ins[j] = f->staging->p + j * s;
	if (c->wire)
		hd_sum_sent(out, m->ins, c->cores, -1, 1, c->count, c->wire);
	else
		hd_sum(&out, 1, m->ins, c->cores, c->count, c->dtype, 0);
}

static void pull_begin(struct inflight *f, int tag)
{
	const struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t s = hd_comm_size(c->dtype, c->count);

	for (int j = 0; j < c->cores && hd_call_serves(c, m->me); j++)
		put(f, j, c->in, s, tag);
	for (int j = c->cores; j < m->n && m->me < c->cores; j++)
		if (hd_call_serves(c, j))
			get(f, j, (char *)c->out + (c->index < 0 ? (j - c->cores) * s : 0), s, tag);
}

/* -- rings ------------------------------------------------------------------------------------- */
/* Each turn sends one piece to the right, and gets one from the left.  Of a sum the piece that is sent is the sum so far, and
 * what comes is added to this member's own; the staging holds what comes, then, rounded, what goes. */
static char *ring_piece(const struct hd_communicator *m, const struct hd_call *c, const void *of, int64_t k)
{
	return (char *)(uintptr_t)of + hd_comm_mod(k, m->n) * hd_comm_size(c->dtype, c->count);
}

static void ring_turn(struct inflight *f)
{
	struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t bytes = hd_comm_size(sent_dtype(c), c->count), k = m->me - f->round;
	int right = hd_comm_mod(m->me + 1, m->n), left = hd_comm_mod(m->me - 1, m->n);
	int tag = (int)(f->t->seq % TAGS) * 2;
	const char *send;

	if (c->kind == HD_COMM_RING_ALL_GATHER) {
		get(f, left, ring_piece(m, c, c->out, k), bytes, tag);
		put(f, right, ring_piece(m, c, c->out, k + 1), bytes, tag);
		return;
	}
	send = f->round ? c->out : ring_piece(m, c, c->in, k);
	if (c->wire) {
		hd_to_wire(f->staging->p + bytes, send, c->count, c->wire);
		send = f->staging->p + bytes;
	}
	get(f, left, f->staging->p, bytes, tag);
	put(f, right, send, bytes, tag);
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
	ring_turn(f);
}

/* A turn is over.  -> 1: the last one. */
static int ring_next(struct inflight *f)
{
	f->round++;
	if (f->t->call.kind == HD_COMM_RING_REDUCE_SCATTER)
		ring_add(f);
	if (f->round == f->t->m->n - 1)
		return 1;
	HD_MPI(ring_turn(f));
	return 0;
}

/* -- one call ---------------------------------------------------------------------------------- */
/* For the calls of a new group, or for rows; nothing is under way. */
static void requests_reserve(int members)
{
	for (int i = 0; i < MAX_INFLIGHT; i++) {
		struct inflight *f = &net.inflight[i];

		if (2 * members <= f->cap)
			continue;
		free(f->req);
		f->cap = 2 * members;
		f->req = hd_alloc((size_t)f->cap * sizeof(*f->req));
	}
}

static int tag_of(const struct inflight *f)
{
	return (int)(f->t->seq % TAGS) * 2 + f->round;
}

static void issue(struct inflight *f)
{
	const struct hd_call *c = &f->t->call;

	f->round = f->nreq = 0;
	f->due = f->t->started + net.delay;
	pthread_mutex_lock(&hd_mpi_lock);
	if (hd_call_is_message(c)) {
		issue_message(f);
	} else if (c->rows) {
		issue_rows(f);
	} else if (is_ring(c->kind)) {
		ring_begin(f);
	} else if (hd_comm_is_served(c->kind)) {
		(c->kind == HD_COMM_PUSH ? push_begin : pull_begin)(f, tag_of(f));
	} else if (by_members(c)) {
		members_gather(f, tag_of(f));
	} else {
		f->nreq = 1;
		(is_sum(c->kind) ? issue_sum : issue_move)(f->t->m, c, f->req);
	}
	pthread_mutex_unlock(&hd_mpi_lock);
}

/* -> 1: the call is done. */
static int test(struct inflight *f)
{
	const struct hd_call *c = &f->t->call;
	int done = 1;

	HD_MPI(MPI_Testall(f->nreq, f->req, &done, MPI_STATUSES_IGNORE));
	if (!done)
		return 0;
	f->nreq = 0;
	if (is_ring(c->kind) && f->round < f->t->m->n - 1 && !ring_next(f))
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
	return !net.delay || hd_seconds() >= f->due;
}

static void complete(struct inflight *f)
{
	struct hd_request *t = f->t;

	f->t = NULL;
	if (f->staging)
		f->staging->in_use = 0;
	f->staging = NULL;
	t->finished = hd_seconds();
	/* From here on the request is the caller's. */
	__atomic_store_n(&t->state, HD_REQUEST_DONE, __ATOMIC_RELEASE);
}

/* -- the thread -------------------------------------------------------------------------------- */
static struct inflight *inflight_of(uint64_t i)
{
	return &net.inflight[i % MAX_INFLIGHT];
}

/* Now and then somebody may ask whether this rank works. */
static void wait_for_more(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 100000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	if (!pthread_cond_timedwait(&net.more, &net.lock, &until))
		return;
	pthread_mutex_unlock(&net.lock);
	hd_watchdog_net_poll();
	pthread_mutex_lock(&net.lock);
}

/* Waits while there is nothing to do.  -> 0: the end. */
static int next_work(uint64_t *until)
{
	int go;

	pthread_mutex_lock(&net.lock);
	if (net.completed == net.queued && net.busy_from) {
		net.busy += hd_seconds() - net.busy_from;
		net.busy_from = 0;
	}
	while (net.completed == net.queued && !net.stop)
		wait_for_more();
	if (net.completed != net.queued && !net.busy_from)
		net.busy_from = hd_seconds();
	*until = net.queued;
	go = net.completed != net.queued;
	pthread_mutex_unlock(&net.lock);
	return go;
}

static void back_off(int *idle)
{
	struct timespec ts = { 0, *idle < 1000 ? 20000 : 200000 };

	if (++*idle % 64 == 0)
		hd_watchdog_net_poll();
	if (__atomic_load_n(&net.waiting, __ATOMIC_RELAXED) && *idle < 200)
		sched_yield();
	else
		nanosleep(&ts, NULL);
}

static int test_all(void)
{
	int any = 0;

	for (uint64_t i = net.completed; i < net.issued; i++) {
		struct inflight *f = inflight_of(i);

		if (!f->t || !test(f))
			continue;
		complete(f);
		any = 1;
	}
	pthread_mutex_lock(&net.lock);
	while (net.completed < net.issued && !inflight_of(net.completed)->t)
		net.completed++;
	pthread_mutex_unlock(&net.lock);
	return any;
}

static void *progress(void *unused)
{
	uint64_t until;
	int idle = 0;

	(void)unused;
#ifdef _OPENMP
	omp_set_num_threads(1); /* here only: its sums must not bring a second team of threads */
#endif
	while (next_work(&until)) {
		if (net.issued < until)
			idle = 0;
		while (net.issued < until)
			issue(inflight_of(net.issued++));
		if (test_all())
			idle = 0;
		else
			back_off(&idle);
	}
	return NULL;
}

static void thread_start(void)
{
	const char *test_delay = getenv("HD_TEST_COMM_DELAY_US"); /* tests only: a slow network */

	if (net.running)
		return;
	if (test_delay)
		net.delay = 1e-6 * atof(test_delay);
	if (pthread_create(&net.thread, NULL, progress, NULL)) {
		hd_log(HD_LOG_ERROR, "rank %d: cannot create the thread that moves data between hosts", hd_here.w.rank);
		hd_comm_abort(1);
	}
	net.running = 1;
}

static void stop(void)
{
	if (!net.running)
		return;
	pthread_mutex_lock(&net.lock);
	net.stop = 1;
	pthread_cond_signal(&net.more);
	pthread_mutex_unlock(&net.lock);
	pthread_join(net.thread, NULL);
	net.running = 0;
}

/* -- the transport ----------------------------------------------------------------------------- */
/* The group's first member numbers it: colours need only differ within one call. */
static int attach(struct hd_communicator *m)
{
	if (m->net.group)
		return 1;
	m->net.group = hd_alloc(sizeof(*m->net.group));
	requests_reserve(m->n);
	HD_MPI(MPI_Comm_split(hd_mpi_world, m->world[0], m->me, &m->net.group->comm));
	thread_start();
	return 1;
}

/* MPI counts in int. */
static int too_long(const struct hd_call *c)
{
	int bytes = c->rows || hd_call_is_message(c) || hd_comm_is_served(c->kind) || by_members(c) || is_ring(c->kind);

	return (bytes ? hd_comm_size(c->dtype, c->count) : c->count) > INT_MAX;
}

static void rows(struct hd_communicator *m, int64_t experts)
{
	requests_reserve(m->n * (int)experts);
}

static int start(struct hd_request *t)
{
	struct hd_backoff p;
	int full;

	if (too_long(&t->call) || (t->call.wire && t->call.dtype != HD_DTYPE_F32))
		return HD_ENOTSUP;
	if (by_members(&t->call) || hd_comm_is_served(t->call.kind) ||
	    is_ring(t->call.kind)) /* only what all members make may be counted: it becomes a tag */
		t->seq = t->m->net.sums++;
	hd_backoff_begin(&p, t->m, "the start of a call between hosts");
	for (;;) {
		pthread_mutex_lock(&net.lock);
		full = net.queued - net.completed == MAX_INFLIGHT;
		if (!full) {
			inflight_of(net.queued++)->t = t;
			pthread_cond_signal(&net.more);
		}
		pthread_mutex_unlock(&net.lock);
		if (!full)
			break;
		hd_backoff_wait(&p, -1);
	}
	hd_backoff_end(&p);
	return 0;
}

static int wait(struct hd_request *t)
{
	int late = t->call.kind >= HD_COMM_SEND ? t->call.index : -1; /* in a collective any may be it */
	struct hd_backoff p;

	__atomic_store_n(&net.waiting, 1, __ATOMIC_RELAXED);
	hd_backoff_begin(&p, t->m, hd_call_what(&t->call));
	while (__atomic_load_n(&t->state, __ATOMIC_ACQUIRE) != HD_REQUEST_DONE)
		hd_backoff_wait(&p, late);
	hd_backoff_end(&p);
	__atomic_store_n(&net.waiting, 0, __ATOMIC_RELAXED);
	return 0;
}

static double busy(int reset)
{
	double s, now = hd_seconds();

	pthread_mutex_lock(&net.lock);
	s = net.busy + (net.busy_from ? now - net.busy_from : 0);
	if (reset) {
		net.busy = 0;
		net.busy_from = net.busy_from ? now : 0;
	}
	pthread_mutex_unlock(&net.lock);
	return s;
}

const struct hd_transport hd_transport_net = {
	.name = "network",
	.moves = HD_MOVES_BY_THREAD,
	.attach = attach,
	.rows = rows,
	.start = start,
	.wait = wait,
	.busy = busy,
	.stop = stop,
};
