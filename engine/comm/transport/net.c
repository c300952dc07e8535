/* SPDX-License-Identifier: Apache-2.0
 * Movement between hosts: one progress thread per process issues the calls in the order of their start, and drives
 * them by tests with backoff. So communication overlaps with the compute threads' matrix products. The thread is
 * created when the first group is attached to the network.
 *
 * Most kinds of calls are one non-blocking MPI collective (net_issue.c). Sums of 16-bit types, and all sums for which
 * the call asks for a fixed order, are computed by the members themselves (net_members.c).
 */
#include <config.h>
#include "engine/comm/transport/net_call.h"
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

static struct {
	struct hd_request *first, **last; /* calls that were started and not issued yet, in this order */
	uint64_t queued, completed;       /* numbers of calls so far */
	int room;                         /* MPI requests that a call needs if no message is cut */
	pthread_mutex_t lock;             /* protects all of these, stop and busy */
	pthread_cond_t more;
	pthread_t thread;
	int running, stop;
	int waiting; /* a compute thread waits, so the thread must react at once */
	double busy, busy_from, delay;
} net = { .last = &net.first, .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER };

/* Calls under way, in any order; only the thread uses them. There is no limit: a stage may have a receive under way
 * while it makes hundreds of other calls. */
static struct {
	struct inflight *at;
	size_t n, cap;
	int room; /* MPI requests that each of the first AT_ONCE entries has */
} under_way;
#define AT_ONCE 128 /* how many are under way depends on timing; with fewer, no step allocates */

/* -- one call ---------------------------------------------------------------------------------- */
/* Makes room for the MPI requests of a new group's calls, or of its rows. */
static void requests_reserve(int members)
{
	pthread_mutex_lock(&net.lock);
	net.room = 2 * members > net.room ? 2 * members : net.room;
	pthread_mutex_unlock(&net.lock);
}

/* Gives the entry, which is not in use, room for so many MPI requests. */
static void make_room(struct inflight *f, int room)
{
	if (f->cap >= (size_t)room)
		return;
	free(f->req);
	f->cap = (size_t)room;
	f->req = hd_alloc((size_t)room * sizeof(*f->req));
}

static void make_room_at_once(int room)
{
	if (!under_way.at) {
		under_way.at = hd_alloc(AT_ONCE * sizeof(*under_way.at));
		under_way.cap = AT_ONCE;
	}
	for (size_t i = under_way.n; i < AT_ONCE; i++)
		make_room(&under_way.at[i], room);
	under_way.room = room;
}

static void issue(struct hd_request *t, int room)
{
	const struct hd_call *c = &t->call;
	struct inflight *f;

	if (room > under_way.room)
		make_room_at_once(room);
	under_way.at = hd_grow(under_way.at, under_way.n, &under_way.cap, sizeof(*under_way.at));
	f = &under_way.at[under_way.n++];
	make_room(f, room);
	f->t = t;
	f->round = f->nreq = 0;
	f->due = t->started + net.delay;
	pthread_mutex_lock(&hd_mpi_lock);
	(hd_net_by_members(c) ? hd_net_members_begin : hd_net_issue)(f);
	pthread_mutex_unlock(&hd_mpi_lock);
}

/* Returns 1 if the call is done. */
static int test(struct inflight *f)
{
	const struct hd_call *c = &f->t->call;
	int done = 1;

	HD_MPI(MPI_Testall(f->nreq, f->req, &done, MPI_STATUSES_IGNORE));
	if (!done)
		return 0;
	f->nreq = 0;
	if (hd_net_by_members(c) && !hd_net_members_next(f))
		return 0;
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
	/* From here on the request belongs to the caller. */
	__atomic_store_n(&t->state, HD_REQUEST_DONE, __ATOMIC_RELEASE);
}

/* -- the thread -------------------------------------------------------------------------------- */
/* Waits up to 100 ms for a new call. If none comes, answers ranks that ask whether this rank works. */
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

/* Waits while there is nothing to do. Returns 0 when the thread is to stop. *calls: those to issue. */
static int next_work(struct hd_request **calls, int *room)
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
	*calls = net.first;
	net.first = NULL;
	net.last = &net.first;
	*room = net.room;
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
	uint64_t done = 0;

	for (size_t i = 0; i < under_way.n;) {
		struct inflight f;

		if (!test(&under_way.at[i])) {
			i++;
			continue;
		}
		complete(&under_way.at[i]);
		f = under_way.at[i];
		under_way.at[i] = under_way.at[--under_way.n];
		under_way.at[under_way.n] = f; /* for its requests */
		done++;
	}
	pthread_mutex_lock(&net.lock);
	net.completed += done;
	pthread_mutex_unlock(&net.lock);
	return done > 0;
}

static void *progress(void *unused)
{
	struct hd_request *calls, *next;
	int idle = 0, room;

	(void)unused;
#ifdef _OPENMP
	omp_set_num_threads(1); /* for this thread only: its sums must not start a second team of threads */
#endif
	while (next_work(&calls, &room)) {
		for (; calls; calls = next) {
			next = calls->next;
			issue(calls, room);
			idle = 0;
		}
		if (test_all())
			idle = 0;
		else
			back_off(&idle);
	}
	return NULL;
}

static void thread_start(void)
{
	const char *test_delay = getenv("HD_TEST_COMM_DELAY_US"); /* for tests only: acts like a slow network */

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
/* The color of a group is the world rank of its first member: colors need only differ within one call. */
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

/* The collectives of MPI count in int. */
static int check(const struct hd_communicator *m, const struct hd_call *c, struct hd_err *err)
{
	int64_t n = hd_net_elements(c);

	if (n <= INT_MAX)
		return HD_OK;
	return hd_err_set(err, HD_ENOTSUP,
			  "%s on group %s has %lld elements; a call of MPI between hosts has at most 2^31-1 = %d%s",
			  hd_call_what(c), m->name, (long long)n, INT_MAX,
			  hd_net_is_sum(c->kind) && c->kind != HD_COMM_ALL_MAX
				  ? " (train.reduce = rank_order: no limit)"
				  : "");
}

static void rows(struct hd_communicator *m, int64_t experts)
{
	requests_reserve(m->n * (int)experts);
}

static int start(struct hd_request *t)
{
	if (hd_net_elements(&t->call) > INT_MAX || (t->call.wire && t->call.dtype != HD_DTYPE_F32))
		return HD_ENOTSUP;
	if (hd_net_by_members(&t->call)) /* the number becomes a tag, so only calls of all members are counted */
		t->seq = t->m->net.sums++;
	t->next = NULL;
	pthread_mutex_lock(&net.lock);
	*net.last = t;
	net.last = &t->next;
	net.queued++;
	pthread_cond_signal(&net.more);
	pthread_mutex_unlock(&net.lock);
	return 0;
}

static int wait(struct hd_request *t)
{
	int late = t->call.kind >= HD_COMM_SEND ? t->call.index : -1; /* in a collective, any member may be late */
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
	.check = check,
	.start = start,
	.wait = wait,
	.busy = busy,
	.stop = stop,
};
