/* SPDX-License-Identifier: Apache-2.0
 * The program of a rank, with a price on every entry instead of a kernel, run on paper by one rank of each stage at once.
 *
 * The other ranks of a stage do the same at the same time, so one stands for all of them: a collective within a stage
 * begins when it comes to it, and its queue is free.  What stages send to each other, and collectives over stages, are met
 * as in a run: a message is there when its sender has come to it and its links have carried it, a sum when the last member
 * has.  The entries are those of the run, in its order; waits stand where they stand there.
 *
 * A kernel takes the longer of its arithmetic and its memory traffic.  A collective takes the bytes that a rank sends over
 * its link, and a latency for each of its steps (ring or tree, what is faster); the link is the node's if all members are
 * on one node.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/predict/simulate.h"
#include "engine/graph/traffic.h"
#include "engine/passes/passes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { START, SEND, RECEIVE, MEET, WAIT, END }; /* MEET: a collective over stages */
struct event {
	double compute; /* seconds of kernels before it */
	double seconds; /* of a movement */
	int64_t key;    /* of a message or a meeting: which */
	int32_t kind, request, queue;
};
struct events { /* of one stage's rank */
	struct event *v;
	size_t n, cap;
	int32_t requests;
};
struct stage_meeting {
	double last;
	int64_t come;
};
struct sim {
	struct hd_plan *p;
	const struct hd_machine *m;
	struct hd_prediction *out;
	struct events *stages;
	int64_t *index;            /* by node id: of those that more than one stage takes part in, dense; -1: others */
	struct stage_meeting *met; /* by key: index x (micros + 1) + micro + 1 */
	int64_t *members;          /* by index: stages that take part */
};

/* -- prices --------------------------------------------------------------------------------------------------------------- */
static int64_t bytes_elsewhere(const struct hd_program *g, const struct tensor *t, const struct tensor *root)
{
	return g->at[t->id].root == root ? 0 : hd_local_bytes(t);
}

/* What only puts together or takes apart, and is not where the memory plan has put it, is copied: read and written once. */
static double copied(const struct hd_program *g, const struct node *n)
{
	const struct tensor *root = g->at[n->outs[0]->id].root;
	int64_t bytes = 0;

	if (n->is->role == OP_ROLE_ACCUMULATE) /* its entries have added */
		return 0;
	if (n->chooses.group || n->is->role == OP_ROLE_PICK)
		return 2 * (double)bytes_elsewhere(g, n->ins[hd_piece_index(g, n, 0)], root);
	if (n->v.nin == 1 || n->is->role == OP_ROLE_SYNC) /* a piece; or a gradient, whose home the other input says */
		return g->at[n->ins[0]->id].root == root ? 0 : 2 * (double)hd_local_bytes(n->outs[0]);
	for (uint32_t i = 0; i < n->v.nin; i++)
		bytes += bytes_elsewhere(g, n->ins[i], root);
	return 2 * (double)bytes;
}

static double traffic(const struct hd_program *g, const struct node *n)
{
	double bytes = 0;

	if (n->is->flags & OP_FLAG_NAMES)
		return copied(g, n);
	for (uint32_t i = 0; i < n->v.nin; i++)
		bytes += (double)hd_local_bytes(n->ins[i]);
	for (uint32_t i = 0; i < n->v.nout; i++)
		bytes += (double)hd_local_bytes(n->outs[i]);
	return bytes;
}

/* Of a node that runs in some steps alone: its part of each. */
static double of_steps(const struct node *n)
{
	return n->period > 1 ? 1 / (double)n->period : 1;
}

static double kernel_seconds(const struct hd_machine *m, const struct hd_program *g, const struct node *n)
{
	struct hd_cost c = { .size = sizeof(c) };
	double rate = n->v.nin && n->ins[0]->v.dtype == HD_DTYPE_BF16 ? m->flops_bf16 : m->flops_fp32, compute, memory;

	hd_node_cost(n, &c);
	if (!n->v.op->cost && n->is->flags & OP_FLAG_NAMES && traffic(g, n) <= 0)
		return 0;
	compute = c.matmul_flops / (rate * m->efficiency) + c.other_flops / m->flops_fp32;
	memory = (c.bytes > 0 ? c.bytes : traffic(g, n)) / m->memory_bandwidth;
	return of_steps(n) * (m->kernel_latency + (compute > memory ? compute : memory));
}

/* A product adds to its accumulator as it goes; others read, add and write. */
static double accumulate_seconds(const struct hd_machine *m, const struct entry *e)
{
	const struct tensor *x = e->node->ins[e->input];

	if (x->v.node && N(x->v.node)->is->role == OP_ROLE_EINSUM)
		return 0;
	return m->kernel_latency + 3 * (double)hd_local_bytes(x) / m->memory_bandwidth;
}

static int link_of(const struct hd_machine *m, const struct hd_plan *p, const struct group *g, int64_t rank)
{
	int64_t first = rank, last = rank;

	for (uint32_t i = 0; i < g->n; i++) {
		const struct axis *a = g->axes[i];

		first -= hd_plan_coord(p, rank, a) * a->stride;
		last += (a->v.n - 1 - hd_plan_coord(p, rank, a)) * a->stride;
	}
	return first / m->ranks_per_node == last / m->ranks_per_node ? HD_LINK_NODE : HD_LINK_NETWORK;
}

/* index 0 of a message's peer: the member it goes to. */
static int message_link(const struct hd_machine *m, const struct hd_plan *p, const struct node *n, int64_t rank)
{
	int64_t there = rank + (n->comm.index - hd_plan_coord(p, rank, p->stages)) * p->stages->stride;

	return there / m->ranks_per_node == rank / m->ranks_per_node ? HD_LINK_NODE : HD_LINK_NETWORK;
}

static double collective_seconds(const struct hd_link *l, const struct node *n, double sent)
{
	double members = (double)n->comm.group->v.n, tree = ceil(log2(members)), ring, halves;

	switch (n->comm.kind) {
	case HD_COMM_ALL_REDUCE:
	case HD_COMM_ALL_MAX:
		ring = 2 * (members - 1) * l->latency + sent / l->bandwidth;
		halves = 2 * tree * l->latency + 2 * (double)hd_local_bytes(n->ins[0]) / l->bandwidth;
		return ring < halves ? ring : halves;
	case HD_COMM_BROADCAST:
	case HD_COMM_REDUCE: return tree * l->latency + (double)hd_local_bytes(n->ins[0]) / l->bandwidth;
	case HD_COMM_SHIFT:
	case HD_COMM_PERMUTE: return l->latency + sent / l->bandwidth;
	default: return (members - 1) * l->latency + sent / l->bandwidth;
	}
}

/* -- the entries of a rank as events ------------------------------------------------------------------------------------------ */
static struct event *event_new(struct events *s, int kind, double *compute)
{
	struct event *e;

	s->v = hd_grow(s->v, s->n, &s->cap, sizeof(*s->v));
	e = &s->v[s->n++];
	*e = (struct event){ .compute = *compute, .kind = kind, .request = -1, .queue = -1 };
	*compute = 0;
	return e;
}

static int over_stages(const struct hd_plan *p, const struct group *g)
{
	for (uint32_t i = 0; i < g->n; i++)
		if (g->axes[i] == p->stages)
			return 1;
	return 0;
}

static void movement(struct sim *s, const struct hd_program *g, struct events *to, const struct entry *x,
		     double *compute, struct hd_stage_price *sum)
{
	const struct node *n = x->node, *maker = n->comm.kind == HD_COMM_RECV ? N(n->ins[0]->v.node) : n;
	double sent = (double)hd_comm_node_sent(s->p, n, g->rank) * of_steps(n);
	int apart = over_stages(s->p, n->comm.group), link = apart && n->comm.kind == HD_COMM_SEND
								     ? message_link(s->m, s->p, n, g->rank)
								     : link_of(s->m, s->p, n->comm.group, g->rank);
	struct event *e;

	if (n->comm.group->v.n == 1)
		return;
	e = event_new(to,
		      !apart                         ? START
		      : n->comm.kind == HD_COMM_SEND ? SEND
		      : n->comm.kind == HD_COMM_RECV ? RECEIVE
						     : MEET,
		      compute);
	sum->sent[link] += sent;
	e->request = to->requests++;
	e->queue = n->comm.group->id;
	e->seconds = e->kind == SEND      ? s->m->links[link].latency + sent / s->m->links[link].bandwidth
		     : e->kind == RECEIVE ? 0
					  : of_steps(n) * collective_seconds(&s->m->links[link], n, sent / of_steps(n));
	if (e->kind != START)
		e->key = s->index[maker->id] * (s->p->micros + 1) + x->micro + 1;
	if (e->kind == START || e->kind == MEET)
		sum->collective += e->seconds;
	if (e->kind == MEET && x->micro <= 0)
		s->members[s->index[maker->id]]++;
}

struct wait_list {
	int32_t *v;
	size_t n, cap;
};

static void events_of(struct sim *s, const struct hd_program *g, struct events *to, struct hd_stage_price *sum)
{
	struct wait_list *w = hd_alloc((g->n + 1) * sizeof(*w));
	double compute = 0;

	for (size_t i = 0; i <= g->n; i++) {
		const struct entry *x = &g->entries[i];
		int32_t request = to->requests;

		for (size_t k = 0; k < w[i].n; k++)
			event_new(to, WAIT, &compute)->request = w[i].v[k];
		free(w[i].v);
		if (i == g->n)
			break;
		if (x->type == HD_ENTRY_NODE && x->node->comm.kind) {
			movement(s, g, to, x, &compute, sum);
			if (to->requests > request && x->wait >= 0) {
				struct wait_list *at = &w[x->wait];

				at->v = hd_grow(at->v, at->n, &at->cap, sizeof(*at->v));
				at->v[at->n++] = request;
			}
		} else if (x->type != HD_ENTRY_LOAD) {
			double seconds = x->type == HD_ENTRY_ACC ? accumulate_seconds(s->m, x)
								 : kernel_seconds(s->m, g, x->node);

			compute += seconds;
			sum->compute += seconds;
		}
	}
	event_new(to, END, &compute);
	free(w);
}

/* -- the run --------------------------------------------------------------------------------------------------------------------- */
struct replay { /* a stage's rank, on its way */
	size_t at;
	double clock;
	double *done;   /* by request: when the movement ends; < 0: it is met at key -done - 1 */
	double *queue;  /* by group id: when it is free */
	double *length; /* by request */
};

static struct stage_meeting *meeting_of(const struct sim *s, const struct event *e)
{
	return &s->met[e->key];
}

static void begin(struct sim *s, struct replay *w, const struct event *e)
{
	struct stage_meeting *t;
	double from = w->queue[e->queue] > w->clock ? w->queue[e->queue] : w->clock;

	switch (e->kind) {
	case START: w->done[e->request] = w->queue[e->queue] = from + e->seconds; return;
	case SEND:
		t = meeting_of(s, e);
		w->done[e->request] = w->queue[e->queue] = t->last = from + e->seconds;
		t->come = 1;
		return;
	case MEET:
		t = meeting_of(s, e);
		t->last = from > t->last ? from : t->last;
		t->come++;
		/* fall through */
	default: w->done[e->request] = -1 - (double)e->key; w->length[e->request] = e->seconds;
	}
}

/* When the movement of a request ends, and when its last member came to it; < 0: somebody has yet to come. */
static double ends(const struct sim *s, const struct replay *w, const struct event *e, double *met)
{
	double done = w->done[e->request];
	const struct stage_meeting *t;
	int64_t key = (int64_t)(-done - 1), all;

	*met = 0;
	if (done >= 0)
		return done;
	t = &s->met[key];
	all = s->members[key / (s->p->micros + 1)];
	*met = t->last;
	return t->come < (all ? all : 1) ? -1 : t->last + w->length[e->request];
}

/* -> 1: it went on. */
static int advance(struct sim *s, const struct events *of, struct replay *w, struct hd_stage_price *sum)
{
	int moved = 0;

	for (; w->at < of->n; w->at++, moved = 1) {
		const struct event *e = &of->v[w->at];
		double now = w->clock + e->compute;

		if (e->kind == WAIT) {
			double met, until = ends(s, w, e, &met);

			if (until < 0)
				return moved;
			met = met > now ? met : now; /* up to there this rank waits for others, then for the links */
			until = until > met ? until : met;
			sum->idle += met - now;
			sum->exposed += until - met;
			w->clock = until;
		} else {
			w->clock = now;
			if (e->kind != END)
				begin(s, w, e);
		}
	}
	return moved;
}

static int walk_all(struct sim *s, struct hd_err *err)
{
	int64_t n = s->out->nstages, ended = 0;
	struct replay *w = hd_alloc((size_t)n * sizeof(*w));
	int moved = 1;

	for (int64_t i = 0; i < n; i++) {
		w[i].done = hd_alloc(((size_t)s->stages[i].requests + 1) * sizeof(double));
		w[i].length = hd_alloc(((size_t)s->stages[i].requests + 1) * sizeof(double));
		w[i].queue = hd_alloc((s->p->ngroups + 1) * sizeof(double));
	}
	while (moved) {
		moved = 0;
		for (int64_t i = 0; i < n; i++)
			moved |= advance(s, &s->stages[i], &w[i], &s->out->stages[i]);
	}
	for (int64_t i = 0; i < n; i++) {
		ended += w[i].at == s->stages[i].n;
		s->out->step = w[i].clock > s->out->step ? w[i].clock : s->out->step;
		free(w[i].done), free(w[i].length), free(w[i].queue);
	}
	free(w);
	return ended == n ? HD_OK
			  : hd_err_set(err, HD_EBUG, "plan: deadlock: %lld of %lld stages wait for each other",
				       (long long)(n - ended), (long long)n);
}

static int stage(struct sim *s, int64_t coord, struct hd_err *err)
{
	struct hd_stage_price *sum = &s->out->stages[coord];
	struct hd_program_options o = { .rank = hd_busiest_rank(s->p, coord), .device = hd_device_cpu() };
	struct hd_program *g = NULL;

	HD_TRY(hd_program_build(s->p, &o, &g, err));
	sum->rank = o.rank;
	sum->parameters = hd_program_parameters(g);
	sum->memory = (double)(g->memory.persistent + g->memory.transient);
	events_of(s, g, &s->stages[coord], sum);
	hd_program_destroy(g);
	return HD_OK;
}

/* Nodes that stages meet at: messages, by their send, and collectives over stages. */
static int64_t number_meetings(struct sim *s)
{
	int64_t n = 0;

	for (const struct node *x = s->p->first; x; x = x->next)
		s->index[x->id] =
			x->comm.kind && x->comm.kind != HD_COMM_RECV && over_stages(s->p, x->comm.group) ? n++ : -1;
	return n;
}

int hd_simulate(struct hd_plan *p, const struct hd_machine *m, struct hd_prediction *out, struct hd_err *err)
{
	struct sim s = { .p = p, .m = m, .out = out };
	int64_t n = p->stages ? p->stages->v.n : 1, meetings;
	int rc = HD_OK;

	*out = (struct hd_prediction){ .stages = hd_alloc((size_t)n * sizeof(*out->stages)), .nstages = n };
	s.index = hd_alloc(((size_t)p->nnodes + 1) * sizeof(*s.index));
	meetings = number_meetings(&s) + 1;
	s.members = hd_alloc((size_t)meetings * sizeof(*s.members));
	s.met = hd_alloc((size_t)(meetings * (p->micros + 1)) * sizeof(*s.met));
	s.stages = hd_alloc((size_t)n * sizeof(*s.stages));
	for (int64_t i = 0; i < n && rc >= 0; i++)
		rc = stage(&s, i, err);
	if (rc >= 0)
		rc = walk_all(&s, err);
	for (int64_t i = 0; i < n; i++)
		free(s.stages[i].v);
	free(s.index), free(s.members), free(s.met), free(s.stages);
	return rc;
}

void hd_price_release(struct hd_prediction *r)
{
	free(r->stages);
	r->stages = NULL;
}
