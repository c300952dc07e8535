/* SPDX-License-Identifier: Apache-2.0
 * t/lib/sim_ranks.h - runs all ranks of a layout in one process, instead of engine/comm/comm.c: exact, fast, and
 * stricter than a real machine.  Included by one file of a test; it defines the functions of engine/comm/comm.h that
 * programs need.
 *
 *	struct gt_run *r = gt_open(plan, sim_members);
 *	const char *why = sim_compute(r);		// NULL: all ranks reached the end
 *	why = sim_update(r);				// the update of the step, if the test needs it
 *
 * A rank is a thread, but only one runs at a time.  It runs until it waits for a peer that has not made its call yet;
 * then the next one runs.
 *
 * It also checks that all members make the same call (kind, count, dtype), and that buffers of a call under way are not
 * touched: outputs are NaN until waited for, and inputs must not change.  Sends must match receives, without a buffer
 * in between: a wait for a send ends only when its receiver has made its call.  Ranks must not wait for each other
 * forever.
 */
#ifndef HD_T_LIB_SIM_RANKS_H
#define HD_T_LIB_SIM_RANKS_H
#include "engine/base/half.h"
#include "t/lib/graph_test.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hd_communicator {
	int n, me, group, leader, ranks[GT_RANKS];
	int64_t calls, sent[2 * GT_RANKS], received[2 * GT_RANKS]; /* by member and channel */
};

struct sim_call { /* one member's call; for a message its content */
	struct hd_call c;
	char *in; /* a copy of the input; NULL: the call was not made yet */
};
struct sim_round { /* calls that belong together: the same number in one group, or in one pair of ranks for messages */
	struct sim_round *next;
	int group, leader, from, to; /* from, to: -1 for collectives */
	int64_t number;
	struct sim_call by[GT_RANKS];
};

int64_t hd_rows_segment(const struct hd_rows *r, const int32_t *numbers, int many, int n, int j, int64_t expert,
			int64_t *at);

static struct sim {
	struct sim_round *rounds[4096]; /* by hash */
	struct hd_communicator *members[2000];
	int nmembers;
	struct gt_run *run;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	int update;     /* runs the second half of a step */
	int turn, idle; /* the rank whose turn it is; the number of turns since the last progress */
	char finished[GT_RANKS], why[600];
} sim = { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER };
static __thread int sim_me;

static struct hd_communicator **sim_members(struct hd_plan *p, int64_t rank)
{
	struct hd_communicator **all = hd_plan_alloc(p, (p->ngroups + 1) * sizeof(*all));

	for (size_t i = 0; i < p->ngroups; i++) {
		struct hd_communicator *m = all[i] = hd_plan_alloc(p, sizeof(*m));

		m->group = (int)i;
		m->me = (int)hd_member_index(p, p->groups[i], rank);
		for (int64_t k = 0; k < p->ranks; k++) { /* members differ only on the group's axes */
			int same = 1;

			for (int a = 0; a < p->naxes; a++) {
				int in = 0;

				for (uint32_t x = 0; x < p->groups[i]->n; x++)
					in |= p->groups[i]->axes[x] == p->axes[a];
				same &= in || hd_plan_coord(p, k, p->axes[a]) == hd_plan_coord(p, rank, p->axes[a]);
			}
			if (same)
				m->ranks[hd_member_index(p, p->groups[i], k)] = (int)k, m->n++;
		}
		m->leader = m->ranks[0];
		sim.members[sim.nmembers++] = m;
	}
	return all;
}

static void sim_forget(void)
{
	struct sim_round *next;

	for (size_t h = 0; h < HD_LEN(sim.rounds); h++) {
		for (struct sim_round *r = sim.rounds[h]; r; r = next) {
			next = r->next;
			for (int k = 0; k < GT_RANKS; k++)
				free(r->by[k].in);
			free(r);
		}
		sim.rounds[h] = NULL;
	}
}

static struct sim_round *sim_round(const struct hd_communicator *m, int from, int to, int64_t number)
{
	size_t h = ((size_t)(m->group * 64 + m->leader) * 1000003u + (size_t)((from + 1) * 64 + to + 1) * 10007u +
		    (size_t)number) %
		   HD_LEN(sim.rounds);
	struct sim_round *r;

	for (r = sim.rounds[h]; r; r = r->next)
		if (r->group == m->group && r->leader == m->leader && r->from == from && r->to == to &&
		    r->number == number)
			return r;
	r = calloc(1, sizeof(*r));
	r->group = m->group, r->leader = m->leader, r->from = from, r->to = to, r->number = number;
	r->next = sim.rounds[h];
	sim.rounds[h] = r;
	return r;
}

static int64_t sim_in_count(const struct hd_call *c, const struct hd_communicator *m)
{
	int all = hd_comm_is_reduce_scatter(c->kind) || c->kind == HD_COMM_ALL_TO_ALL;
	int root = m->me == c->index;

	if (c->kind == HD_COMM_BROADCAST)
		return root ? c->count : 0;
	if (c->kind == HD_COMM_SCATTER)
		return root ? c->count * m->n : 0;
	return c->kind == HD_COMM_RECV ? 0 : c->count * (all ? m->n : 1);
}

static int64_t sim_rows(const struct hd_call *c, const struct hd_communicator *m)
{
	int64_t sum = 0;

	for (int64_t i = 0; i < m->n * c->rows->experts * c->rows->samples; i++)
		sum += c->rows->need[i];
	return sum;
}

static int64_t sim_out_count(const struct hd_call *c, const struct hd_communicator *m)
{
	int all = hd_comm_is_all_gather(c->kind) || c->kind == HD_COMM_ALL_TO_ALL;

	if (c->kind == HD_COMM_SEND || (c->kind == HD_COMM_REDUCE && m->me != c->index))
		return 0;
	if (c->kind == HD_COMM_GATHER)
		return m->me == c->index ? c->count * m->n : 0;
	if (c->rows)
		return sim_rows(c, m) * c->rows->bytes * 8 / HD_BITS(c->dtype);
	return c->count * (all ? m->n : 1);
}

static size_t sim_bytes(const struct hd_call *c, int64_t count)
{
	return (size_t)count * HD_BITS(c->dtype) / 8;
}

static int sim_fault(const char *what, const struct hd_call *c)
{
	if (!sim.why[0])
		snprintf(sim.why, sizeof(sim.why), "%s: %s", c->what ? c->what : "?", what);
	return HD_EIO;
}

int hd_communicator_me(const struct hd_communicator *m)
{
	return m->me;
}
int hd_communicator_n(const struct hd_communicator *m)
{
	return m->n;
}

void hd_comm_rows_reserve(struct hd_communicator *m, int64_t experts)
{
	(void)m, (void)experts;
}

int hd_comm_check(const struct hd_communicator *m, const struct hd_call *c, struct hd_err *err)
{
	(void)m;
	(void)c;
	(void)err;
	return HD_OK;
}

int hd_comm_start(struct hd_communicator *m, const struct hd_call *c, struct hd_request *t)
{
	int p2p = c->kind == HD_COMM_SEND || c->kind == HD_COMM_RECV, sends = c->kind == HD_COMM_SEND;
	int pair = 2 * c->index + (int)c->channel;
	int64_t number = !p2p ? m->calls++ : 2 * (sends ? m->sent[pair]++ : m->received[pair]++) + c->channel;
	struct sim_round *r =
		sim_round(m, p2p ? (sends ? m->me : c->index) : -1, p2p ? (sends ? c->index : m->me) : -1, number);
	size_t bytes = sim_bytes(c, sim_in_count(c, m));

	*t = (struct hd_request){ .m = m, .call = *c, .seq = (uint64_t)number };
	if (!r->by[m->me].in) {
		r->by[m->me].c = *c;
		size_t numbers = c->rows ? (size_t)(m->n * c->rows->experts * c->rows->samples) * 4 : 0;

		r->by[m->me].in = calloc(1, bytes + numbers + 1); /* followed by the numbers of rows */
		if (numbers)
			memcpy(r->by[m->me].in + bytes, c->rows->have, numbers);
		if (bytes)
			memcpy(r->by[m->me].in, c->in, bytes);
		sim.idle = 0;
	}
	if (c->out && c->out != c->in)
		memset(c->out, 0xff, sim_bytes(c, sim_out_count(c, m)));
	return HD_OK;
}

static double sim_value(const struct sim_call *x, int64_t i)
{
	switch (x->c.dtype) {
	case HD_DTYPE_F64: return ((const double *)(const void *)x->in)[i];
	case HD_DTYPE_BF16: return hd_of_bf16(((const uint16_t *)(const void *)x->in)[i]);
	case HD_DTYPE_F16: return hd_of_f16(((const uint16_t *)(const void *)x->in)[i]);
	default: return ((const float *)(const void *)x->in)[i];
	}
}

static void sim_put(void *out, uint32_t dtype, int64_t i, double v)
{
	switch (dtype) {
	case HD_DTYPE_F64: ((double *)out)[i] = v; return;
	case HD_DTYPE_BF16: ((uint16_t *)out)[i] = hd_bf16_of((float)v); return;
	case HD_DTYPE_F16: ((uint16_t *)out)[i] = hd_f16_of((float)v); return;
	default: ((float *)out)[i] = (float)v;
	}
}

static void sim_reduce(const struct hd_communicator *m, const struct sim_round *r, const struct hd_call *c,
		       int64_t from)
{
	for (int64_t i = 0; i < c->count; i++) {
		double v = sim_value(&r->by[0], from + i);

		for (int k = 1; k < m->n; k++) {
			double x = sim_value(&r->by[k], from + i);

			v = c->kind == HD_COMM_ALL_MAX ? (x > v ? x : v) : v + x;
		}
		sim_put(c->out, c->dtype, i, v);
	}
}

/* Returns v as it arrives if it is sent in the type `wire` (for fp16, multiplied by 1024). */
static double sim_sent(double v, uint32_t wire)
{
	return wire == HD_DTYPE_BF16  ? hd_of_bf16(hd_bf16_of((float)v))
	       : wire == HD_DTYPE_F16 ? hd_of_f16(hd_f16_of((float)v * 1024)) / 1024
				      : v;
}

/* Adds the members' pieces.  Either the owner of a piece receives the others' terms and adds them in the order of
 * members, or the sum so far is sent along a ring that begins with the piece's own member. */
static void sim_reduce_sent(const struct hd_communicator *m, const struct sim_round *r, const struct hd_call *c)
{
	int ring = c->kind == HD_COMM_RING_REDUCE_SCATTER, piece = ring ? (m->me + 1) % m->n : m->me;

	for (int64_t i = 0; i < c->count; i++) {
		double v = 0;

		for (int k = 0; k < m->n; k++) {
			int from = ring ? (piece + k) % m->n : k;
			double x = sim_value(&r->by[from], piece * c->count + i);

			if (ring)
				v = (k ? sim_sent(v, c->wire) : 0) + x;
			else
				v += from == m->me ? x : sim_sent(x, c->wire);
		}
		sim_put(c->out, c->dtype, i, v);
	}
}

static void sim_deliver(const struct hd_communicator *m, const struct sim_round *r, const struct hd_call *c)
{
	size_t piece = sim_bytes(c, c->count);
	char *out = c->out;

	switch (c->kind) {
	case HD_COMM_ALL_REDUCE:
	case HD_COMM_ALL_MAX:
	case HD_COMM_REDUCE:
		if (out)
			sim_reduce(m, r, c, 0);
		return;
	case HD_COMM_REDUCE_SCATTER: sim_reduce(m, r, c, m->me * c->count); return;
	case HD_COMM_ORDERED_REDUCE_SCATTER:
	case HD_COMM_RING_REDUCE_SCATTER: sim_reduce_sent(m, r, c); return;
	case HD_COMM_RING_ALL_GATHER:
		for (int k = 0; k < m->n; k++)
			memcpy(out + (size_t)((k + 1) % m->n) * piece, r->by[k].in, piece);
		return;
	case HD_COMM_ALL_GATHER:
	case HD_COMM_GATHER:
		for (int k = 0; out && k < m->n; k++)
			memcpy(out + (size_t)k * piece, r->by[k].in, piece);
		return;
	case HD_COMM_ALL_TO_ALL:
		for (int k = 0; k < m->n; k++)
			memcpy(out + (size_t)k * piece, r->by[k].in + (size_t)m->me * piece, piece);
		return;
	case HD_COMM_ALL_TO_ALL_V:
		for (int k = 0; k < m->n; k++)
			for (int64_t e = 0; e < c->rows->experts; e++) {
				const struct hd_rows *mine = c->rows, *theirs = r->by[k].c.rows;
				int64_t from, to, n;

				n = hd_rows_segment(theirs, (const int32_t *)(void *)(r->by[k].in + piece), c->index,
						    m->n, m->me, e, &from);
				if (hd_rows_segment(mine, mine->need, !c->index, m->n, k, e, &to) != n)
					snprintf(sim.why, sizeof(sim.why),
						 "members do not agree on the number of rows");
				else
					memcpy(out + to * mine->bytes, r->by[k].in + from * mine->bytes,
					       (size_t)(n * mine->bytes));
			}
		return;
	case HD_COMM_BROADCAST: memmove(out, r->by[c->index].in, piece); return;
	case HD_COMM_SCATTER: memcpy(out, r->by[c->index].in + (size_t)m->me * piece, piece); return;
	case HD_COMM_SHIFT: memcpy(out, r->by[((m->me - c->index) % m->n + m->n) % m->n].in, piece); return;
	case HD_COMM_PERMUTE:
		for (int k = 0; k < m->n; k++)
			if ((c->mul * k + c->index) % m->n == m->me)
				memcpy(out, r->by[k].in, piece);
		return;
	case HD_COMM_RECV: memcpy(out, r->by[c->index].in, piece); return;
	default: return;
	}
}

/* Lets the next unfinished rank run, and returns when it is this rank's turn again. */
static void sim_yield(int finished)
{
	int next = sim.turn, left = 0;

	sim.finished[sim_me] = (char)finished;
	for (int k = 0; k < sim.run->n; k++)
		left += !sim.finished[k];
	do {
		next = (next + 1) % sim.run->n;
	} while (left && sim.finished[next]);
	sim.turn = next;
	sim.idle = finished ? 0 : sim.idle + 1;
	if (sim.idle > 2 * left && !sim.why[0])
		snprintf(sim.why, sizeof(sim.why), "ranks wait for each other");
	pthread_cond_broadcast(&sim.moved);
	while (!finished && sim.turn != sim_me)
		pthread_cond_wait(&sim.moved, &sim.lock);
}

static int sim_has_come(const struct sim_round *r, const struct hd_communicator *m, const struct hd_call *c)
{
	if (c->kind == HD_COMM_SEND || c->kind == HD_COMM_RECV) /* a send waits for its receive: no buffer in between */
		return r->by[c->index].in != NULL;
	for (int k = 0; k < m->n; k++)
		if (!r->by[k].in)
			return 0;
	return 1;
}

int hd_comm_wait(struct hd_request *t)
{
	struct hd_communicator *m = t->m;
	const struct hd_call *c = &t->call;
	int p2p = c->kind == HD_COMM_SEND || c->kind == HD_COMM_RECV, sends = c->kind == HD_COMM_SEND;
	struct sim_round *r = sim_round(m, p2p ? (sends ? m->me : c->index) : -1, p2p ? (sends ? c->index : m->me) : -1,
					(int64_t)t->seq);
	size_t bytes = sim_bytes(c, sim_in_count(c, m));

	while (!sim_has_come(r, m, c) && !sim.why[0])
		sim_yield(0);
	if (sim.why[0])
		return HD_EIO;
	for (int k = 0; k < m->n; k++) {
		const struct sim_call *x = &r->by[k];

		if (x->in && (x->c.count != c->count || x->c.dtype != c->dtype ||
			      (!p2p && (x->c.kind != c->kind || x->c.index != c->index))))
			return sim_fault("members make different calls", c);
	}
	if (bytes && c->in != c->out && memcmp(c->in, r->by[m->me].in, bytes))
		return sim_fault("what was being sent was overwritten", c);
	if (c->out)
		sim_deliver(m, r, c);
	return HD_OK;
}

static void *sim_rank(void *arg)
{
	int rc;

	sim_me = *(int *)arg;
	pthread_mutex_lock(&sim.lock);
	while (sim.turn != sim_me)
		pthread_cond_wait(&sim.moved, &sim.lock);
	if (sim.why[0])
		rc = HD_EIO;
	else if (sim.update)
		rc = hd_program_update(sim.run->g[sim_me], &sim.run->run);
	else
		rc = hd_program_compute(sim.run->g[sim_me], &sim.run->run, gt_fill, sim.run);
	if (rc < 0 && !sim.why[0])
		snprintf(sim.why, sizeof(sim.why), "rank %d failed", sim_me);
	sim_yield(1);
	pthread_mutex_unlock(&sim.lock);
	return NULL;
}

static const char *sim_all(struct gt_run *r, int update)
{
	pthread_t thread[GT_RANKS];
	int number[GT_RANKS];

	sim.run = r;
	sim.update = update;
	sim.turn = sim.idle = 0;
	memset(sim.finished, 0, sizeof(sim.finished));
	for (int k = 0; k < r->n; k++) {
		number[k] = k;
		if (pthread_create(&thread[k], NULL, sim_rank, &number[k]))
			abort();
	}
	for (int k = 0; k < r->n; k++)
		pthread_join(thread[k], NULL);
	return sim.why[0] ? sim.why : NULL;
}

/* Runs a step of all ranks, up to the update.  Returns NULL, or the reason of a failure. */
static __attribute__((unused)) const char *sim_compute(struct gt_run *r)
{
	sim.why[0] = 0;
	sim_forget();
	for (int i = 0; i < sim.nmembers; i++) {
		sim.members[i]->calls = 0;
		memset(sim.members[i]->sent, 0, sizeof(sim.members[i]->sent));
		memset(sim.members[i]->received, 0, sizeof(sim.members[i]->received));
	}
	gt_poison(r);
	return sim_all(r, 0);
}

/* Runs the update of the computed step. */
static __attribute__((unused)) const char *sim_update(struct gt_run *r)
{
	return sim_all(r, 1);
}

static __attribute__((unused)) void sim_close(struct gt_run *r)
{
	sim.nmembers = 0;
	sim_forget();
	gt_close(r);
}

/* -- other functions of engine/comm/comm.h ---------------------------------------------------------------------- */
int hd_comm_settle(const struct hd_device_ops *d, struct hd_err *err)
{
	return (void)d, (void)err, HD_OK;
}

int hd_comm_finish(const struct hd_device_ops *d, struct hd_err *err)
{
	return d->finish(err);
}

#endif
