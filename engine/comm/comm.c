/* SPDX-License-Identifier: Apache-2.0
 * The communication's life, the choice of a transport for each call, and what is counted.
 *
 * A group whose members are all on this host moves its data through shared memory, inline; all
 * others over MPI, by the progress thread.  The choice is the same for every call of a group, so
 * the order of its calls is kept.
 */
#include <config.h>
#include "engine/comm/state.h"
#include "engine/device.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hd_comm_here hd_here = {.w = {0, 1, 0, 1, 1}};
static struct hd_comm_stats stats;
static struct hd_members *all_members;
static const struct hd_device_comm *on_device;
static struct hd_err device_error; /* of a group that could not be made: found by hd_comm_finish */
static int64_t device_tickets;

int hd_comm_open(struct hd_world *w, struct hd_err *err)
{
	if (hd_mpi_launched())
		HD_TRY(hd_mpi_open(err));
	if (!hd_here.world_of) {
		hd_here.world_of = hd_alloc(sizeof(int));
		hd_here.local_of = hd_alloc(sizeof(int));
	}
	hd_control_open();
	hd_watch_open();
	hd_ask_open();
	*w = hd_here.w;
	return 0;
}

static void say_end(int how)
{
	if (hd_here.control)
		atomic_store(&hd_here.control->rank[hd_here.w.local_rank].state, how);
}

void hd_comm_close(void)
{
	hd_comm_barrier();
	say_end(HD_RANK_LEFT);
	hd_net_stop();
	hd_ask_close();
	hd_mpi_close();
}

void hd_comm_abort(int status)
{
	say_end(HD_RANK_ENDS);
	if (hd_here.mpi)
		hd_mpi_abort(status);
	_exit(status);
}

void hd_comm_leave(int status)
{
	hd_comm_barrier();
	say_end(HD_RANK_LEFT);
	_exit(status);
}

int hd_comm_may_speak(void)
{
	static _Atomic int32_t alone;

	return atomic_exchange(hd_here.control ? &hd_here.control->spoken : &alone, 1) == 0 && hd_ask_speak();
}

/* -- groups ------------------------------------------------------------------------------------ */
struct hd_members *hd_members_create(const int *ranks, int n, const char *name)
{
	struct hd_members *m = hd_alloc(sizeof(*m));
	size_t k = (size_t)n;

	m->n = n;
	m->me = -1;
	m->name = hd_strdup(name ? name : "");
	m->world = hd_alloc(k * sizeof(int));
	m->local = hd_alloc(k * sizeof(int));
	m->sent = hd_alloc(k * HD_LANES * sizeof(uint64_t));
	m->received = hd_alloc(k * HD_LANES * sizeof(uint64_t));
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
	m->next = all_members;
	all_members = m;
	if (on_device) {
		m->device = on_device->split(m->world[0], m->me, &device_error);
		return m;
	}
	if (hd_here.mpi) {
		int local = hd_shm_attach(m);

		if (!hd_mpi_all(local && !hd_here.private))
			hd_net_attach(m);
	}
	return m;
}

/* Oldest first: the order is the same on all ranks, and each is a collective. */
static void attach_all(struct hd_members *m)
{
	if (!m)
		return;
	attach_all(m->next);
	hd_net_attach(m);
}

void hd_members_network(void)
{
	attach_all(all_members);
}

int hd_members_n(const struct hd_members *m)
{
	return m->n;
}

int hd_members_me(const struct hd_members *m)
{
	return m->me;
}

int64_t hd_members_bytes(const struct hd_members *m)
{
	return m->bytes;
}

const char *hd_members_name(const struct hd_members *m)
{
	return m->name;
}

/* -- sizes ------------------------------------------------------------------------------------- */
const char *hd_comm_kind_name(uint32_t kind)
{
	static const char *const names[] = {
		"?",      "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast",
		"reduce", "gather",     "scatter",        "shift",      "all-max"};

	return kind == HD_ALL_TO_ALL_ROWS ? "all-to-all"
	       : kind == HD_SEND ? "send"
	       : kind == HD_RECV ? "receive"
				 : names[kind < HD_LEN(names) ? kind : 0];
}

int64_t hd_comm_size(uint32_t dtype, int64_t count)
{
	return (count * (int64_t)HD_BITS(dtype) + 7) / 8;
}

int64_t hd_comm_in_bytes(const struct hd_call *c, int n, int me)
{
	int64_t s = hd_comm_size(c->dtype, c->count);

	switch (c->kind) {
	case HD_REDUCE_SCATTER:
	case HD_ALL_TO_ALL:
		return n * s;
	case HD_SCATTER:
		return me == c->index ? n * s : 0;
	case HD_BROADCAST:
		return me == c->index ? s : 0;
	case HD_RECV:
		return 0;
	default:
		return s;
	}
}

/* What a ring would make this member send.  A broadcast is a pipeline along the ring, which ends in
 * front of its root. */
int64_t hd_comm_bytes(uint32_t kind, uint32_t dtype, int64_t count, int n, int me, int index)
{
	int64_t s = hd_comm_size(dtype, count);

	if (n <= 1)
		return 0;
	switch (kind) {
	case HD_ALL_REDUCE:
	case HD_ALL_MAX:
		return (2 * (n - 1) * s + n - 1) / n;
	case HD_REDUCE_SCATTER:
	case HD_ALL_GATHER:
	case HD_ALL_TO_ALL:
		return (n - 1) * s;
	case HD_BROADCAST:
		return me == hd_comm_mod(index - 1, n) ? 0 : s;
	case HD_REDUCE:
	case HD_GATHER:
		return me == index ? 0 : s;
	case HD_SCATTER:
		return me == index ? (n - 1) * s : 0;
	case HD_SHIFT:
		return hd_comm_mod(index, n) ? s : 0;
	case HD_SEND:
		return s;
	default:
		return 0;
	}
}

/* -- memory of devices ------------------------------------------------------------------------- */
int hd_comm_device(const struct hd_device_comm *d, struct hd_err *err)
{
	void *id = hd_alloc(d->id_bytes);

	if (hd_here.w.rank == 0)
		d->id(id, err);
	HD_TRY(hd_comm_agree(err));
	hd_comm_bcast(id, d->id_bytes, 0);
	d->open(id, hd_here.w.rank, hd_here.w.size, err);
	free(id);
	HD_TRY(hd_comm_agree(err));
	on_device = d;
	return HD_OK;
}

/* A device's communicator does one thing after the other.  Between neighbours, what a rank sends and what it receives are on
 * two, so a send never waits behind a receive that was posted ahead. */
void hd_members_messages(struct hd_members *m)
{
	for (int i = 0; m->device && i < 4 && !m->messages[i]; i++)
		m->messages[i] = on_device->split(m->world[0], m->me, &device_error);
}

int hd_comm_finish(const struct hd_device_ops *d, struct hd_err *err)
{
	struct hd_pause p;

	if (!on_device)
		return d->finish(err);
	hd_pause_begin(&p, NULL, "the kernels and movements of the device");
	while (!device_error.code && !d->ready() && on_device->poll(&device_error) >= 0)
		hd_pause(&p, -1);
	hd_pause_end(&p);
	if (!device_error.code)
		on_device->poll(&device_error);
	if (device_error.code) {
		on_device->abort();
		return hd_err_set(err, device_error.code, "%s", device_error.text);
	}
	return d->finish(err);
}

/* -- calls ------------------------------------------------------------------------------------- */
static int refuse(const struct hd_members *m, const struct hd_call *c)
{
	int rooted = c->kind == HD_BROADCAST || c->kind == HD_REDUCE || c->kind == HD_GATHER ||
		     c->kind == HD_SCATTER || c->kind >= HD_SEND;
	int sums = c->kind == HD_ALL_REDUCE || c->kind == HD_ALL_MAX ||
		   c->kind == HD_REDUCE_SCATTER || c->kind == HD_REDUCE;

	if (c->kind == 0 || (c->kind > HD_ALL_MAX && c->kind != HD_SEND && c->kind != HD_RECV &&
			     (c->kind != HD_ALL_TO_ALL_ROWS || !c->rows)))
		return HD_EINVAL;
	if (c->lane >= HD_LANES)
		return HD_EINVAL;
	if (c->count < 0 || (rooted && (c->index < 0 || c->index >= m->n)) ||
	    (m->n == 1 && c->kind >= HD_SEND))
		return HD_EINVAL;
	return sums && !hd_sum_knows(c->dtype) ? HD_ENOTSUP : 0;
}

void hd_comm_rows_room(struct hd_members *m, int64_t experts)
{
	hd_net_room(m, experts);
}

int hd_comm_start(struct hd_members *m, const struct hd_call *c, struct hd_ticket *t)
{
	int64_t bytes;

	HD_TRY(refuse(m, c));
	t->m = m;
	t->call = *c;
	t->seq = 0;
	t->state = HD_TICKET_STARTED;
	t->started = hd_seconds();
	bytes = c->kind == HD_ALL_TO_ALL_ROWS ? hd_rows_sent(c->rows, c->index, m->n, m->me)
		: hd_comm_bytes(c->kind, c->dtype, c->count, m->n, m->me, c->index);
	stats.bytes += bytes;
	m->bytes += bytes;
	if (m->device) {
		int sender = c->kind == HD_SEND ? m->me : c->index;

		t->seq = (uint64_t)++device_tickets;
		t->finished = t->started;
		return on_device->start(c->kind >= HD_SEND ? m->messages[(c->lane & 1) * 2 + (sender & 1)] : m->device, c, m->n,
					m->me, device_tickets);
	}
	if (!c->count || m->n == 1) {
		hd_move(c->out, c->in, hd_comm_size(c->dtype, c->count));
		t->state = HD_TICKET_DONE;
		t->finished = t->started;
	} else if (m->slots && !hd_here.private) {
		HD_TRY(hd_shm_start(t));
		t->finished = hd_seconds();
		stats.busy += t->finished - t->started;
		stats.exposed += t->finished - t->started;
	} else {
		HD_TRY(hd_net_start(t));
	}
	return 0;
}

int hd_comm_wait(struct hd_ticket *t)
{
	struct hd_members *m = t->m;
	int shm = m->slots && !hd_here.private;
	double from, took;

	if (m->device)
		return on_device->wait((int64_t)t->seq);
	if (__atomic_load_n(&t->state, __ATOMIC_ACQUIRE) == HD_TICKET_DONE)
		return 0;
	from = hd_seconds();
	if (shm)
		hd_shm_wait(t);
	else
		hd_net_wait(t);
	took = hd_seconds() - from;
	stats.exposed += took;
	if (shm)
		stats.busy += took;
	return 0;
}

struct hd_comm_stats hd_comm_stats(int reset)
{
	struct hd_comm_stats s = stats;

	s.busy += hd_net_busy(reset);
	if (!reset)
		return s;
	memset(&stats, 0, sizeof(stats));
	for (struct hd_members *m = all_members; m; m = m->next)
		m->bytes = 0;
	return s;
}
