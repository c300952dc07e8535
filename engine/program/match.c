/* SPDX-License-Identifier: Apache-2.0
 * Checks that the communication of all ranks matches, by simulating their programs with nothing but their
 * communication.
 *
 * Ranks of a class run the same nodes at the same time. So one number stands for all ranks that differ only in other
 * coordinates, and movements among those always match. That leaves the movements over axes of classes: over stages,
 * and over axes along which some members run nodes that others do not.
 *
 * Each transport is assumed to be as strict as possible. A collective holds a rank until all its members have arrived
 * (as in shared memory). The wait for a send ends only when the receive has begun (as between hosts). Each rank's next
 * step depends only on what other ranks have reached, so simulating one order shows what happens in all orders.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/graph/traffic.h"
#include "engine/program/match.h"
#include <stdlib.h>
#include <string.h>

enum { SEND, RECEIVE, COLLECTIVE, WAIT };
struct comm_event {
	const struct node *node;
	int32_t kind, micro;
	int64_t request; /* identifies a send or receive; for WAIT, the one that is waited for */
};
struct class_events { /* events of a class, in order */
	struct comm_event *v;
	size_t n, cap;
	int64_t requests;
};

struct arrival { /* an event that a rank has reached */
	const struct comm_event *event;
	int64_t rank; /* number of the rank that arrived first */
};
struct arrivals {
	struct arrival *v;
	size_t n, cap;
};

/* A meeting point: a pair of ranks and a channel, or the members of a communicator. It lists what has arrived, in
 * order. */
struct meeting_point {
	const struct group *group;
	int64_t from, to; /* messages: numbers of the ranks; communicator: number of its first member, and -1 */
	int channel;
	struct arrivals sent, received; /* a communicator uses only `sent`, once for each movement */
	int64_t *narrived;              /* communicator: by movement, how many members have arrived */
	size_t cap_narrived;
	struct meeting_point *next;
};

struct request { /* a send or receive: arrival `at` of its meeting point */
	const struct meeting_point *on;
	size_t at;
	int sends;
};

struct rank_progress {
	size_t at;
	struct request *requests;
	size_t *passed; /* by group: how many movements of its communicator the rank has passed */
	int arrived;    /* the rank has arrived at its current movement, and waits for the other members */
};

#define BUCKETS 4096
struct hd_match_run {
	const struct hd_plan *p;
	const struct hd_classes *c;
	struct class_events *classes;
	struct rank_progress *progress;
	struct meeting_point *meetings[BUCKETS];
};

/* -- what a class does ------------------------------------------------------------------------------------------- */
/* Returns the group's axes, one bit per axis. */
static uint32_t axes_of(const struct group *g)
{
	uint32_t axes = 0;

	for (uint32_t i = 0; i < g->n; i++)
		axes |= 1u << g->axes[i]->id;
	return axes;
}

static struct comm_event *event_new(struct class_events *s, int kind, const struct entry *x)
{
	s->v = hd_grow(s->v, s->n, &s->cap, sizeof(*s->v));
	s->v[s->n] = (struct comm_event){ x ? x->node : NULL, kind, x ? x->micro : HD_STEP, 0 };
	return &s->v[s->n++];
}

struct entry_waits {
	int64_t *v;
	size_t n, cap;
};

static void add_movement(struct class_events *to, const struct entry *x, struct entry_waits *waits)
{
	uint32_t kind = x->node->comm.kind;
	struct comm_event *e;

	if (kind != HD_COMM_SEND && kind != HD_COMM_RECV) {
		event_new(to, COLLECTIVE, x);
		return;
	}
	e = event_new(to, kind == HD_COMM_SEND ? SEND : RECEIVE, x);
	e->request = to->requests++;
	if (x->wait < 0)
		return;
	waits += x->wait;
	waits->v = hd_grow(waits->v, waits->n, &waits->cap, sizeof(*waits->v));
	waits->v[waits->n++] = e->request;
}

struct hd_match_run *hd_match_create(const struct hd_plan *p, const struct hd_classes *c)
{
	struct hd_match_run *m = hd_alloc(sizeof(*m));

	m->p = p;
	m->c = c;
	m->classes = hd_alloc((size_t)c->n * sizeof(*m->classes));
	m->progress = hd_alloc((size_t)c->nranks * sizeof(*m->progress));
	return m;
}

void hd_match_add(struct hd_match_run *m, int64_t class_number, const struct hd_program *g)
{
	struct class_events *to = &m->classes[class_number];
	struct entry_waits *w = hd_alloc((g->n + 1) * sizeof(*w));

	for (size_t i = 0; i <= g->n; i++) {
		const struct entry *x = i < g->n ? &g->entries[i] : NULL;

		for (size_t k = 0; k < w[i].n; k++)
			event_new(to, WAIT, NULL)->request = w[i].v[k];
		free(w[i].v);
		if (x && x->type == HD_ENTRY_NODE && x->node->comm.kind && x->node->comm.group->v.n > 1 &&
		    axes_of(x->node->comm.group) & m->c->axes)
			add_movement(to, x, w);
	}
	free(w);
}

/* -- which ranks meet -------------------------------------------------------------------------------------------- */
/* Returns the number of the rank with rank i's coordinates, except those of number k on the given axes. */
static int64_t number_at(const struct hd_match_run *m, int64_t i, uint32_t axes, int64_t k)
{
	int64_t number = 0, each = 1;

	for (int a = 0; a < m->p->naxes; a++) {
		int64_t n = hd_role_count(m->p->axes[a], HD_ROLE_ALL);

		if (!(m->c->axes >> a & 1))
			continue;
		number += (axes >> a & 1 ? k % n : i % n) * each;
		k /= axes >> a & 1 ? n : 1;
		i /= n;
		each *= n;
	}
	return number;
}

static int64_t peer(const struct hd_match_run *m, int64_t rank, const struct node *n)
{
	return number_at(m, rank, axes_of(n->comm.group), n->comm.index);
}

static struct meeting_point *get_meeting(struct hd_match_run *m, const struct group *g, int64_t from, int64_t to,
					 int channel)
{
	uint64_t key = (uint64_t)from * 31 + (uint64_t)to * 1009 + (uint64_t)g->id * 7919 + (uint64_t)channel;
	struct meeting_point **at = &m->meetings[key % BUCKETS];

	while (*at && ((*at)->group != g || (*at)->from != from || (*at)->to != to || (*at)->channel != channel))
		at = &(*at)->next;
	if (!*at) {
		*at = hd_alloc(sizeof(**at));
		**at = (struct meeting_point){ .group = g, .from = from, .to = to, .channel = channel };
	}
	return *at;
}

static struct meeting_point *message_meeting(struct hd_match_run *m, int64_t rank, const struct comm_event *e)
{
	const struct node *n = e->node;
	int channel = hd_message_channel(n);
	int64_t other = peer(m, rank, n);

	return e->kind == SEND ? get_meeting(m, n->comm.group, rank, other, channel)
			       : get_meeting(m, n->comm.group, other, rank, channel);
}

static size_t arrive(struct arrivals *to, const struct comm_event *e, int64_t rank)
{
	to->v = hd_grow(to->v, to->n, &to->cap, sizeof(*to->v));
	to->v[to->n] = (struct arrival){ e, rank };
	return to->n++;
}

/* -- what is wrong ----------------------------------------------------------------------------------------------- */
static const char *maker_name(const struct hd_plan *p, const struct node *n)
{
	int who = n->made_by >= 0 ? n->made_by : n->asked_by - 1;

	return who >= 0 ? p->inst[who].name : "the engine";
}

/* Describes an event: "send of x (batch,embed) of layer 1 on p (64 f32, micro-batch 2, made by w)". The caller frees
 * it. */
static char *describe(const struct hd_match_run *m, const struct comm_event *e)
{
	const struct node *n = e->node;
	const struct tensor *x = n->comm.kind == HD_COMM_RECV ? n->outs[0] : n->ins[0];
	char micro[80] = "";

	if (e->micro != HD_STEP)
		snprintf(micro, sizeof(micro), ", micro-batch %d", (int)e->micro);
	else if (n->period)
		snprintf(micro, sizeof(micro), ", every %lld steps", (long long)n->period);
	return hd_format("%s of %s (%s)%s%s on %s (%lld %s%s, made by %s)", hd_comm_kind_name(n->comm.kind),
			 hd_comm_node_subject_name(n), hd_comm_node_subject(n)->v.spec, n->v.block[0] ? " of " : "",
			 n->v.block, n->comm.group->name, (long long)hd_local_count(x), hd_dtype_name(x->v.dtype),
			 micro, maker_name(m->p, n));
}

/* Reports what two ranks have reached; how: what is wrong about it. */
static int refuse(const struct hd_match_run *m, struct hd_err *err, const char *how, const struct arrival *a,
		  const struct arrival *b)
{
	char *x = describe(m, a->event), *y = describe(m, b->event);

	hd_err_set(err, HD_EINVAL, "%s: rank %lld reaches %s, and rank %lld reaches %s", how,
		   (long long)m->c->ranks[a->rank], x, (long long)m->c->ranks[b->rank], y);
	free(x), free(y);
	return err->code;
}

/* Returns whether a send and a receive are the same movement of the plan. */
static int is_same_message(const struct comm_event *send, const struct comm_event *receive)
{
	const struct node *s = send->node, *r = receive->node;

	return N(r->ins[0]->v.node) == s && send->micro == receive->micro && s->period == r->period &&
	       s->ins[0]->v.dtype == r->outs[0]->v.dtype && hd_local_count(s->ins[0]) == hd_local_count(r->outs[0]);
}

static int check_pair(const struct hd_match_run *m, const struct meeting_point *t, size_t at, struct hd_err *err)
{
	if (at >= t->sent.n || at >= t->received.n || is_same_message(t->sent.v[at].event, t->received.v[at].event))
		return HD_OK;
	return refuse(m, err, "a send and the receive in its place are not the same", &t->sent.v[at],
		      &t->received.v[at]);
}

/* -- the walk ---------------------------------------------------------------------------------------------------- */
static const struct comm_event *next_event(const struct hd_match_run *m, int64_t rank)
{
	const struct class_events *s = &m->classes[m->c->of[rank]];

	return m->progress[rank].at < s->n ? &s->v[m->progress[rank].at] : NULL;
}

static int send_or_receive(struct hd_match_run *m, int64_t rank, const struct comm_event *e, struct hd_err *err)
{
	struct meeting_point *t = message_meeting(m, rank, e);
	struct request *r = &m->progress[rank].requests[e->request];

	*r = (struct request){ t, arrive(e->kind == SEND ? &t->sent : &t->received, e, rank), e->kind == SEND };
	HD_TRY(check_pair(m, t, r->at, err));
	return 1;
}

/* Returns how many members of the group have different numbers. Each of them stands for the ranks that have the same
 * number. */
static int64_t members_of(const struct hd_match_run *m, const struct group *g)
{
	int64_t all = 1;

	for (uint32_t i = 0; i < g->n; i++)
		all *= m->c->axes >> g->axes[i]->id & 1 ? hd_role_count(g->axes[i], g->role) : 1;
	return all;
}

static struct meeting_point *communicator(struct hd_match_run *m, int64_t rank, const struct group *g)
{
	return get_meeting(m, g, number_at(m, rank, axes_of(g), 0), -1, 0);
}

/* Returns 1 if all members have arrived. */
static int join_collective(struct hd_match_run *m, int64_t rank, const struct comm_event *e, struct hd_err *err)
{
	const struct group *g = e->node->comm.group;
	struct rank_progress *w = &m->progress[rank];
	struct meeting_point *t = communicator(m, rank, g);
	size_t at = w->passed[g->id];

	if (!w->arrived) {
		if (at == t->sent.n) {
			arrive(&t->sent, e, rank);
			t->narrived = hd_grow(t->narrived, at, &t->cap_narrived, sizeof(*t->narrived));
			t->narrived[at] = 0;
		}
		if (t->sent.v[at].event->node != e->node || t->sent.v[at].event->micro != e->micro)
			return refuse(m, err, "two members of a communicator differ", &t->sent.v[at],
				      &(struct arrival){ e, rank });
		t->narrived[at]++;
		w->arrived = 1;
	}
	if (t->narrived[at] < members_of(m, g))
		return 0;
	w->arrived = 0;
	w->passed[g->id]++;
	return 1;
}

/* Returns 1 if the rank proceeds, 0 if it waits. */
static int step(struct hd_match_run *m, int64_t rank, const struct comm_event *e, struct hd_err *err)
{
	const struct request *r;

	if (e->kind == COLLECTIVE)
		return join_collective(m, rank, e, err);
	if (e->kind != WAIT)
		return send_or_receive(m, rank, e, err);
	r = &m->progress[rank].requests[e->request];
	return (r->sends ? r->on->received.n : r->on->sent.n) > r->at;
}

static int walk_ranks(struct hd_match_run *m, struct hd_err *err)
{
	int moved = 1;

	while (moved) {
		moved = 0;
		for (int64_t i = 0; i < m->c->nranks; i++)
			for (const struct comm_event *e; (e = next_event(m, i)); m->progress[i].at++) {
				int rc = step(m, i, e, err);

				if (rc < 0)
					return rc;
				if (!rc)
					break;
				moved = 1;
			}
	}
	return HD_OK;
}

/* -- which ranks wait forever ------------------------------------------------------------------------------------ */
static int64_t absent_member(struct hd_match_run *m, int64_t rank, const struct group *g)
{
	int64_t first = number_at(m, rank, axes_of(g), 0);
	size_t at = m->progress[rank].passed[g->id];

	for (int64_t i = 0; i < m->c->nranks; i++) {
		const struct comm_event *e = next_event(m, i);

		if (!g->role && !hd_is_worker(m->p, m->c->ranks[i]))
			continue;
		if (number_at(m, i, axes_of(g), 0) == first && m->progress[i].passed[g->id] <= at &&
		    !(m->progress[i].arrived && e && e->node->comm.group == g))
			return i;
	}
	return rank;
}

/* Returns the event in which a waiting rank waits; *other: the rank that it waits for. */
static struct arrival waiting_event(struct hd_match_run *m, int64_t rank, int64_t *other)
{
	const struct comm_event *e = next_event(m, rank);
	const struct request *r;
	const struct arrivals *mine;

	if (e->kind == COLLECTIVE) {
		*other = absent_member(m, rank, e->node->comm.group);
		return (struct arrival){ e, rank };
	}
	r = &m->progress[rank].requests[e->request];
	mine = r->sends ? &r->on->sent : &r->on->received;
	*other = r->sends ? r->on->to : r->on->from;
	return (struct arrival){ mine->v[r->at].event, rank };
}

static int waits_for_ended(struct hd_match_run *m, const struct arrival *a, int64_t other, struct hd_err *err)
{
	char *x = describe(m, a->event);

	hd_err_set(err, HD_EINVAL, "rank %lld waits in %s for rank %lld, which never gets there",
		   (long long)m->c->ranks[a->rank], x, (long long)m->c->ranks[other]);
	free(x);
	return err->code;
}

/* Returns whether a rank still has, among its later events, the one that other ranks wait for. */
static int will_reach(struct hd_match_run *m, int64_t rank, const struct arrival *a)
{
	const struct class_events *s = &m->classes[m->c->of[rank]];

	for (size_t i = m->progress[rank].at; i < s->n; i++) {
		const struct node *n = s->v[i].node;
		const struct comm_event *e = a->event;

		if (e->kind == COLLECTIVE
			    ? n && n == e->node
			    : n && s->v[i].kind == (e->kind == SEND ? RECEIVE : SEND) &&
				      message_meeting(m, rank, &s->v[i]) == message_meeting(m, a->rank, e))
			return 1;
	}
	return 0;
}

/* Follows the chain from a waiting rank to the one it waits for, until two wait for each other, or one has ended. */
static int find_circle(struct hd_match_run *m, int64_t rank, struct hd_err *err)
{
	int64_t other = rank, next;
	struct arrival a = waiting_event(m, rank, &other), b;

	for (int64_t i = 0; i < m->c->nranks && will_reach(m, other, &a); i++)
		a = waiting_event(m, other, &next), other = next;
	if (!will_reach(m, other, &a))
		return waits_for_ended(m, &a, other, err);
	b = waiting_event(m, other, &next);
	return refuse(m, err, "two ranks wait for each other forever", &a, &b);
}

/* Checks sends that nothing waits for: each must still have its receive. */
static int check_unmatched(const struct hd_match_run *m, struct hd_err *err)
{
	for (int i = 0; i < BUCKETS; i++)
		for (const struct meeting_point *t = m->meetings[i]; t; t = t->next) {
			const struct arrivals *more = t->sent.n > t->received.n ? &t->sent : &t->received;
			size_t less = t->sent.n < t->received.n ? t->sent.n : t->received.n;

			if (t->to >= 0 && t->sent.n != t->received.n)
				return waits_for_ended((struct hd_match_run *)m, &more->v[less],
						       more == &t->sent ? t->to : t->from, err);
		}
	return HD_OK;
}

int hd_match_all(struct hd_match_run *m, struct hd_err *err)
{
	for (int64_t i = 0; i < m->c->nranks; i++) {
		m->progress[i].requests =
			hd_alloc((size_t)(m->classes[m->c->of[i]].requests + 1) * sizeof(struct request));
		m->progress[i].passed = hd_alloc((m->p->ngroups + 1) * sizeof(size_t));
	}
	HD_TRY(walk_ranks(m, err));
	for (int64_t i = 0; i < m->c->nranks; i++)
		if (next_event(m, i))
			return find_circle(m, i, err);
	return check_unmatched(m, err);
}

void hd_match_destroy(struct hd_match_run *m)
{
	for (int i = 0; i < BUCKETS; i++)
		for (struct meeting_point *t = m->meetings[i], *next; t; t = next) {
			next = t->next;
			free(t->sent.v), free(t->received.v), free(t->narrived), free(t);
		}
	for (int64_t i = 0; i < m->c->n; i++)
		free(m->classes[i].v);
	for (int64_t i = 0; i < m->c->nranks; i++)
		free(m->progress[i].requests), free(m->progress[i].passed);
	free(m->classes), free(m->progress);
	free(m);
}
