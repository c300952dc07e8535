/* SPDX-License-Identifier: Apache-2.0
 * Start and end of communication, the choice of a transport for each group, and statistics.
 */
#include <config.h>
#include "engine/comm/comm.h"
#include "engine/comm/transport/transport.h"
#include "engine/comm/world/mpi.h"
#include "engine/comm/world/shared_memory.h"
#include "engine/comm/transport/sum.h"
#include "engine/comm/wait/watchdog.h"
#include "engine/comm/wait/watchdog_net.h"
#include "engine/process/affinity.h"
#include "engine/process/launch.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct hd_transport *const transports[] = { &hd_transport_device, &hd_transport_shm, &hd_transport_net };
static struct {
	struct hd_comm_stats stats;
	struct hd_communicator *all; /* newest first */
} comm;

/* Returns whether each thread of this rank, and of the ranks that share cores with it, can have a core to itself. The
 * masks of ranks may overlap in any way, so the ranks of the host exchange them. */
static int fits(void)
{
	struct hd_core_use mine = hd_affinity_use(), *all;
	int n = hd_here.w.local_size, enough;

	all = hd_alloc((size_t)n * sizeof(*all));
	hd_host_gather(all, &mine, sizeof(mine));
	enough = mine.threads > 0 && hd_cores_suffice(all, n, hd_here.w.local_rank);
	free(all);
	return enough;
}

int hd_comm_open(struct hd_world *w, struct hd_err *err)
{
	if (hd_launch_mpi())
		HD_TRY(hd_mpi_open(err));
	if (!hd_here.world_of)
		hd_here_alone();
	hd_here.fits = fits();
	hd_control_open();
	hd_watchdog_open();
	hd_watchdog_net_open();
	*w = hd_here.w;
	return 0;
}

void hd_comm_close(void)
{
	hd_comm_barrier();
	hd_here_leaves(HD_RANK_LEFT);
	for (size_t i = 0; i < HD_LEN(transports); i++)
		if (transports[i]->stop)
			transports[i]->stop();
	hd_watchdog_net_close();
	hd_mpi_close();
}

void hd_comm_leave(int status)
{
	hd_comm_barrier();
	hd_here_leaves(HD_RANK_LEFT);
	_exit(status);
}

/* -- groups ------------------------------------------------------------------------------------ */
/* Chooses the first usable transport: the device, shared memory, or the network. All members of a group choose the same
 * one. Without a device, that is shared memory if they are all on one host whose ranks can share it, else the network.
 * Attaching to the network is collective over the world, so if any group needs it, all ranks attach. */
static void choose(struct hd_communicator *m)
{
	int local;

	m->transport = &hd_transport_shm;
	if (hd_transport_device.attach(m)) {
		m->transport = &hd_transport_device;
	} else if (hd_here.mpi) {
		local = hd_transport_shm.attach(m) && !hd_here.private;
		if (!hd_mpi_all(local))
			hd_transport_net.attach(m);
		if (!local)
			m->transport = &hd_transport_net;
	}
}

struct hd_communicator *hd_communicator_create(const int *ranks, int n, const char *name)
{
	struct hd_communicator *m = hd_alloc(sizeof(*m));
	size_t k = (size_t)n;

	m->n = n;
	m->me = -1;
	m->name = hd_strdup(name ? name : "");
	m->world = hd_alloc(k * sizeof(int));
	m->local = hd_alloc(k * sizeof(int));
	m->shm.sent = hd_alloc(k * HD_CHANNELS * sizeof(uint64_t));
	m->shm.received = hd_alloc(k * HD_CHANNELS * sizeof(uint64_t));
	m->ins = hd_alloc(k * sizeof(char *));
	m->outs = hd_alloc(k * sizeof(char *));
	m->on_host = 1;
	for (int i = 0; i < n; i++) {
		m->world[i] = ranks[i];
		m->local[i] = hd_here.local_of[ranks[i]];
		m->on_host &= m->local[i] >= 0;
		if (ranks[i] == hd_here.w.rank)
			m->me = i;
	}
	m->next = comm.all;
	comm.all = m;
	choose(m);
	return m;
}

/* Attaches all groups to the network, oldest first. Each attachment is a collective, and this order is the same on all
 * ranks. */
static void attach_all(struct hd_communicator *m)
{
	if (!m)
		return;
	attach_all(m->next);
	hd_transport_net.attach(m);
	if (hd_here.private && m->transport == &hd_transport_shm)
		m->transport = &hd_transport_net;
}

void *hd_comm_arena(size_t bytes, struct hd_err *err)
{
	void *p = hd_arena_map(bytes, err);

	if (!hd_mpi_all(!hd_here.private))
		attach_all(comm.all);
	return p;
}

int64_t hd_comm_arena_taken(void)
{
	return hd_arena_taken();
}

void hd_communicator_messages(struct hd_communicator *m, const struct hd_message_end *ends, size_t n)
{
	if (m->transport->messages)
		m->transport->messages(m, ends, n);
}

void hd_comm_rows_reserve(struct hd_communicator *m, int64_t experts)
{
	if (m->transport->rows)
		m->transport->rows(m, experts);
}

int hd_communicator_n(const struct hd_communicator *m)
{
	return m->n;
}

int hd_communicator_me(const struct hd_communicator *m)
{
	return m->me;
}

int64_t hd_communicator_bytes(const struct hd_communicator *m)
{
	return m->bytes;
}

const char *hd_communicator_name(const struct hd_communicator *m)
{
	return m->name;
}

const char *hd_communicator_transport(const struct hd_communicator *m)
{
	return m->transport->name;
}

/* -- calls ------------------------------------------------------------------------------------- */
static int refuse(const struct hd_communicator *m, const struct hd_call *c)
{
	int rooted = c->kind == HD_COMM_BROADCAST || c->kind == HD_COMM_REDUCE || c->kind == HD_COMM_GATHER ||
		     c->kind == HD_COMM_SCATTER || c->kind >= HD_COMM_SEND;
	int sums = c->kind == HD_COMM_ALL_REDUCE || c->kind == HD_COMM_ALL_MAX || hd_comm_is_reduce_scatter(c->kind) ||
		   c->kind == HD_COMM_REDUCE || c->kind == HD_COMM_PUSH;

	if (c->wire && ((c->dtype != HD_DTYPE_F32 && c->dtype != HD_DTYPE_F64) ||
			(c->wire != HD_DTYPE_BF16 && c->wire != HD_DTYPE_F16)))
		return HD_ENOTSUP;
	if (hd_comm_is_push_or_pull(c->kind) &&
	    (c->workers < 1 || c->workers >= m->n || c->index >= m->n || (c->index >= 0 && c->index < c->workers)))
		return HD_EINVAL;
	if (c->kind == 0 || (c->kind > HD_COMM_PULL && c->kind != HD_COMM_SEND && c->kind != HD_COMM_RECV &&
			     (c->kind != HD_COMM_ALL_TO_ALL_V || !c->rows)))
		return HD_EINVAL;
	if (c->channel >= HD_CHANNELS || (c->kind == HD_COMM_PERMUTE && hd_comm_inverse(c->mul, m->n) < 0))
		return HD_EINVAL;
	if (c->count < 0 || (rooted && (c->index < 0 || c->index >= m->n)) || (m->n == 1 && c->kind >= HD_COMM_SEND))
		return HD_EINVAL;
	return sums && !hd_sum_knows(c->dtype) ? HD_ENOTSUP : 0;
}

/* Returns whether a shift or permutation gives this member its own data. The others match their messages without
 * it. */
static int is_own_message(const struct hd_communicator *m, const struct hd_call *c)
{
	return (c->kind == HD_COMM_SHIFT || c->kind == HD_COMM_PERMUTE) && hd_call_to(c, m->n, m->me) == m->me;
}

int hd_comm_check(const struct hd_communicator *m, const struct hd_call *c, struct hd_err *err)
{
	return m->transport->check && m->n > 1 ? m->transport->check(m, c, err) : HD_OK;
}

int hd_comm_start(struct hd_communicator *m, const struct hd_call *c, struct hd_request *t)
{
	const struct hd_transport *tr = m->transport;
	int64_t bytes;

	HD_TRY(refuse(m, c));
	*t = (struct hd_request){ .m = m, .call = *c, .state = HD_REQUEST_STARTED, .started = hd_seconds() };
	t->finished = t->started;
	bytes = hd_call_sent(c, m->n, m->me);
	comm.stats.bytes += bytes;
	m->bytes += bytes;
	if (tr->moves != HD_MOVES_BY_QUEUE && (!c->count || m->n == 1 || is_own_message(m, c))) {
		hd_move(c->out, c->in, hd_comm_size(c->dtype, c->count));
		t->state = HD_REQUEST_DONE;
		return 0;
	}
	HD_TRY(tr->start(t));
	if (tr->moves == HD_MOVES_INLINE) {
		t->finished = hd_seconds();
		comm.stats.busy += t->finished - t->started;
		comm.stats.exposed += t->finished - t->started;
	}
	return 0;
}

int hd_comm_wait(struct hd_request *t)
{
	const struct hd_transport *tr = t->m->transport;
	double from, took;

	if (tr->moves == HD_MOVES_BY_QUEUE)
		return tr->wait(t);
	if (__atomic_load_n(&t->state, __ATOMIC_ACQUIRE) == HD_REQUEST_DONE)
		return 0;
	from = hd_seconds();
	HD_TRY(tr->wait(t));
	took = hd_seconds() - from;
	comm.stats.exposed += took;
	if (tr->moves == HD_MOVES_INLINE)
		comm.stats.busy += took;
	return 0;
}

struct hd_comm_stats hd_comm_stats_take(int reset)
{
	struct hd_comm_stats s = comm.stats;

	for (size_t i = 0; i < HD_LEN(transports); i++)
		if (transports[i]->busy)
			s.busy += transports[i]->busy(reset);
	if (!reset)
		return s;
	memset(&comm.stats, 0, sizeof(comm.stats));
	for (struct hd_communicator *m = comm.all; m; m = m->next)
		m->bytes = 0;
	return s;
}
