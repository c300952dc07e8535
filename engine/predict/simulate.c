/* SPDX-License-Identifier: Apache-2.0
 * The program of a rank, with a price on every entry instead of a kernel, run on paper by one rank of each stage at once.
 *
 * The other ranks of a stage do the same at the same time, so one stands for all of them: a collective within a stage
 * begins when it comes to it, and its queue is free.  What stages send to each other, and collectives over stages, are met
 * as in a run: a message is there when its sender has come to it and its links have carried it, a sum when the last member
 * has.  The entries are those of the run, in its order; waits stand where they stand there.
 *
 * Movements of a rank share its links, whatever their groups.  Kernels are slower while something moves, by the units that
 * moving takes.
 */
#include <config.h>
#include "engine/config/output_config.h"
#include "engine/graph/mesh.h"
#include "engine/predict/extra.h"
#include "engine/predict/here.h"
#include "engine/predict/simulate.h"
#include "engine/passes/passes.h"
#include <math.h>
#include <stdlib.h>

enum { START, SEND, RECEIVE, MEET, WAIT, MARK, END }; /* MEET: a collective over stages */
struct event {
	double compute;                      /* seconds of kernels before it */
	double seconds;                      /* of a movement */
	double occupied[HD_LINKS];           /* of them, in which a link carries nothing else */
	int64_t key;                         /* of a message or a meeting: which */
	int32_t kind, request, queue, waits; /* waits: kernels wait until it has ended */
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
	const struct hd_style *style;
	struct hd_prediction *out;
	struct events *stages;
	int64_t *index;            /* by node id: of those that more than one stage takes part in, dense; -1: others */
	struct stage_meeting *met; /* by key: index x (micros + 1) + micro + 1 */
	int64_t *members;          /* by index: stages that take part */
	int aside;                 /* a server's program is priced: it is not replayed among the stages */
	double serving; /* seconds that the servers of the stage at hand update, which its first pull waits for */
};

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

/* What was put off until all backwards have ended: begins where the update does. */
struct late {
	double seconds;
	int32_t queue;
};

static void late_now(struct events *to, struct late *l, double *compute)
{
	struct event *e;

	if (l->seconds <= 0)
		return;
	e = event_new(to, START, compute);
	e->request = to->requests++;
	e->queue = l->queue;
	e->seconds = l->seconds;
	e->waits = 1;
	l->seconds = 0;
}

static void movement(struct sim *s, const struct hd_pricing *price, struct events *to, const struct entry *x,
		     struct late *late, double *compute, struct hd_stage_price *sum)
{
	const struct node *n = x->node, *maker = n->comm.kind == HD_COMM_RECV ? N(n->ins[0]->v.node) : n;
	int apart = hd_over_stages(s->p, n->comm.group);
	struct hd_movement_price moved;
	struct event *e;
	double took;

	if (n->comm.group->v.n == 1)
		return;
	moved = hd_price_movement(price, n);
	e = event_new(to,
		      !apart                         ? START
		      : n->comm.kind == HD_COMM_SEND ? SEND
		      : n->comm.kind == HD_COMM_RECV ? RECEIVE
						     : MEET,
		      compute);
	e->request = to->requests++;
	e->queue = n->comm.group->id;
	e->seconds = moved.seconds;
	if (n->comm.kind == HD_COMM_PULL && !s->aside) {
		e->seconds += s->serving;
		s->serving = 0;
	}
	took = e->seconds;
	if (e->kind == START && price->style->sync_late && n->v.phase == HD_UNIT_S) {
		late->seconds += took;
		late->queue = e->queue;
		e->seconds = 0;
		moved.occupied[HD_LINK_NODE] = moved.occupied[HD_LINK_NETWORK] = 0;
	}
	e->waits = e->kind == START ? price->style->collectives_wait ||
					      (hd_machine_is_host(s->m) && moved.occupied[HD_LINK_NETWORK] <= 0)
		   : e->kind == SEND ? price->style->messages_wait
				     : 0;
	for (int i = 0; i < HD_LINKS; i++) {
		e->occupied[i] = moved.occupied[i];
		sum->sent[i] += moved.sent[i];
	}
	if (e->kind != START)
		e->key = s->index[maker->id] * (s->p->micros + 1) + x->micro + 1;
	if (e->kind == START || e->kind == MEET)
		sum->collective += took;
	if (e->kind == MEET && x->micro <= 0 && !s->aside)
		s->members[s->index[maker->id]]++;
}

struct wait_list {
	int32_t *v;
	size_t n, cap;
};

static int same_unit(const struct hd_schedule_unit *a, const struct hd_schedule_unit *b)
{
	return a->kind == b->kind && a->chunk == b->chunk && a->micro == b->micro;
}

/* Entry i of a program begins a unit, or is another one of it. */
static void mark(struct hd_unit_spans *spans, const struct hd_program *g, size_t i, const struct hd_memory_use *use,
		 struct events *to, double *compute)
{
	struct hd_unit_span *at = spans->nunits ? &spans->units[spans->nunits - 1] : NULL;

	if (!at || !same_unit(&at->unit, &g->entries[i].unit)) {
		spans->units = hd_grow(spans->units, spans->nunits, &spans->cap_units, sizeof(*at));
		at = &spans->units[spans->nunits++];
		at->unit = g->entries[i].unit;
		event_new(to, MARK, compute)->key = (int64_t)spans->nunits - 1;
	}
	if (hd_memory_use_sum(&use[i]) > hd_memory_use_sum(&at->use))
		at->use = use[i];
}

/* A layer that is made again whole: before its backward. */
static void again(struct events *to, struct hd_again *a, const struct entry *x, double *compute,
		  struct hd_stage_price *sum)
{
	struct event *e;

	if (!a || x->type != HD_ENTRY_NODE || x->node->block < 0 || x->node->v.phase != HD_UNIT_B)
		return;
	a += x->node->block;
	if (a->micro == x->micro + 1)
		return;
	a->micro = x->micro + 1;
	*compute += a->kernels;
	sum->compute += a->kernels;
	sum->more_flops += a->flops;
	if (a->collectives <= 0)
		return;
	e = event_new(to, START, compute);
	e->request = to->requests++;
	e->queue = a->queue;
	e->seconds = a->collectives;
	e->waits = 1;
	sum->collective += a->collectives;
}

static void events_of(struct sim *s, const struct hd_pricing *price, struct events *to, struct hd_stage_price *sum)
{
	const struct hd_program *g = price->g;
	struct wait_list *w = hd_alloc((g->n + 1) * sizeof(*w));
	struct hd_unit_spans *spans = s->out->spans ? &s->out->spans[g->coord] : NULL;
	struct hd_memory_use *use = spans ? hd_program_memory_use(g) : NULL;
	struct hd_again *layers = hd_again_find(price);
	struct late late = { 0, 0 };
	double compute = 0;

	for (size_t i = 0; i <= g->n; i++) {
		const struct entry *x = &g->entries[i];
		int32_t request;

		for (size_t k = 0; k < w[i].n; k++)
			event_new(to, WAIT, &compute)->request = w[i].v[k];
		free(w[i].v);
		if (i == g->n)
			break;
		if (spans)
			mark(spans, g, i, use, to, &compute);
		if (x->type == HD_ENTRY_NODE && x->node->v.phase == HD_UNIT_U)
			late_now(to, &late, &compute);
		again(to, layers, x, &compute, sum);
		request = to->requests;
		if (x->type == HD_ENTRY_NODE && x->node->comm.kind) {
			movement(s, price, to, x, &late, &compute, sum);
			if (to->requests > request && x->wait >= 0) {
				struct wait_list *at = &w[x->wait];

				at->v = hd_grow(at->v, at->n, &at->cap, sizeof(*at->v));
				at->v[at->n++] = request;
			}
		} else if (x->type != HD_ENTRY_LOAD) {
			double seconds = x->type == HD_ENTRY_ACC ? hd_price_accumulate(price, x)
								 : hd_price_kernel(price, x->node);

			compute += seconds;
			sum->compute += seconds;
			sum->kinds[hd_work_kind(x->node)] += seconds;
			sum->more_flops += x->type == HD_ENTRY_NODE ? hd_price_more_flops(price, x->node) : 0;
		}
	}
	event_new(to, END, &compute);
	free(layers);
	free(w), free(use);
}

/* -- the run --------------------------------------------------------------------------------------------------------------------- */
struct replay { /* a stage's rank, on its way */
	size_t at;
	double clock;
	double *done;          /* by request: when the movement ends; < 0: it is met at key -done - 1 */
	double *queue;         /* by group id: when it is free */
	double *length;        /* by request */
	double busy[HD_LINKS]; /* until then a link carries what has been started */
	double *until;         /* by link and group: of its part of it */
};

static struct stage_meeting *meeting_of(const struct sim *s, const struct event *e)
{
	return &s->met[e->key];
}

/* Kernels that take so long alone: slower while a link is busy. */
static double computed(const struct sim *s, const struct replay *w, double compute)
{
	double until = w->clock, rate = 1 - s->m->overlap_cost, beside;

	for (int i = 0; i < HD_LINKS; i++)
		until = w->busy[i] > until ? w->busy[i] : until;
	beside = (until - w->clock) * rate; /* as much is done until then */
	return compute <= beside ? w->clock + compute / rate : until + compute - beside;
}

/* Groups share a link alike: what begins beside n others takes n + 1 times as long, and at most until the link has carried all
 * that has been started.  A group's own movements follow each other. */
static double carried_at(struct replay *w, const struct event *e, int link, size_t ngroups, double from)
{
	double *until = &w->until[(size_t)link * ngroups], left = w->busy[link] > from ? w->busy[link] - from : 0,
	       shared;
	int beside = 0;

	if (e->occupied[link] <= 0)
		return 0;
	for (size_t i = 0; i < ngroups; i++)
		beside += (int32_t)i != e->queue && until[i] > from;
	left += e->occupied[link];
	shared = (1 + beside) * e->occupied[link];
	w->busy[link] = from + left;
	until[e->queue] = from + (shared < left ? shared : left);
	return until[e->queue] - from - e->occupied[link];
}

static double starts(const struct replay *w, const struct event *e)
{
	return w->queue[e->queue] > w->clock ? w->queue[e->queue] : w->clock;
}

static void occupy(const struct sim *s, struct replay *w, const struct event *e, double from)
{
	double late = 0, more;

	for (int i = 0; i < HD_LINKS; i++) {
		more = carried_at(w, e, i, s->p->ngroups, from);
		late = more > late ? more : late;
	}
	w->done[e->request] = w->queue[e->queue] = from + e->seconds + late;
}

static void begin(struct sim *s, struct replay *w, const struct event *e)
{
	struct stage_meeting *t;
	double from = starts(w, e);

	switch (e->kind) {
	case START: occupy(s, w, e, from); return;
	case SEND:
		t = meeting_of(s, e);
		occupy(s, w, e, from);
		t->last = w->done[e->request];
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

/* A unit begins, and the one before ends; key: which, or behind the last. */
static void mark_time(struct hd_unit_spans *spans, int64_t key, double clock)
{
	if (!spans)
		return;
	if (key > 0)
		spans->units[key - 1].to = clock;
	if (key < (int64_t)spans->nunits)
		spans->units[key].from = clock;
}

static void mark_wait(struct hd_unit_spans *spans, double from, double to)
{
	if (!spans || to <= from)
		return;
	spans->waits = hd_grow(spans->waits, spans->nwaits, &spans->cap_waits, sizeof(*spans->waits));
	spans->waits[spans->nwaits++] = (struct hd_unit_span){ .from = from, .to = to };
}

/* -> 1: it went on. */
static int advance(struct sim *s, const struct events *of, struct replay *w, struct hd_stage_price *sum,
		   struct hd_unit_spans *spans)
{
	int moved = 0;

	for (; w->at < of->n; w->at++, moved = 1) {
		const struct event *e = &of->v[w->at];
		double now = computed(s, w, e->compute);

		if (e->kind == WAIT) {
			double met, until = ends(s, w, e, &met);

			if (until < 0)
				return moved;
			sum->compute += now - w->clock - e->compute;
			met = met > now ? met : now; /* up to there this rank waits for others, then for the links */
			until = until > met ? until : met;
			sum->idle += met - now;
			sum->exposed += until - met;
			mark_wait(spans, now, until);
			w->clock = until;
		} else {
			sum->compute += now - w->clock - e->compute; /* by what moved beside */
			w->clock = now;
			if (e->kind == MARK || e->kind == END)
				mark_time(spans, e->kind == END && spans ? (int64_t)spans->nunits : e->key, now);
			else
				begin(s, w, e);
			if (e->waits) {
				sum->exposed += w->done[e->request] - now;
				mark_wait(spans, now, w->done[e->request]);
				w->clock = w->done[e->request];
			}
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
		w[i].until = hd_alloc((HD_LINKS * s->p->ngroups + 1) * sizeof(double));
	}
	while (moved) {
		moved = 0;
		for (int64_t i = 0; i < n; i++)
			moved |= advance(s, &s->stages[i], &w[i], &s->out->stages[i],
					 s->out->spans ? &s->out->spans[i] : NULL);
	}
	for (int64_t i = 0; i < n; i++) {
		ended += w[i].at == s->stages[i].n;
		s->out->step = w[i].clock > s->out->step ? w[i].clock : s->out->step;
		free(w[i].done), free(w[i].length), free(w[i].queue), free(w[i].until);
	}
	free(w);
	return ended == n ? HD_OK
			  : hd_err_set(err, HD_EBUG, "plan: deadlock: %lld of %lld stages wait for each other",
				       (long long)(n - ended), (long long)n);
}

/* Memory of a rank that nobody plans: of the device, of libraries, and of each communicator that it moves something over. */
static double beside_plan(const struct sim *s, const struct events *of)
{
	char *seen = hd_alloc(s->p->ngroups + 1);
	double bytes = s->m->context_memory + s->m->workspace_memory;

	for (size_t i = 0; i < of->n; i++)
		if (of->v[i].queue >= 0 && !seen[of->v[i].queue]) {
			seen[of->v[i].queue] = 1;
			bytes += s->m->communicator_memory;
		}
	free(seen);
	return bytes;
}

static int is_slow(const struct sim *s, int64_t rank)
{
	return s->m->slow > 0 && s->m->slow_rank == rank;
}

/* The servers of a stage: what they hold, send and compute; the one that takes longest holds all workers. */
static int serve(struct sim *s, int64_t coord, struct hd_err *err)
{
	const struct axis *a = hd_spare_axis(s->p);
	struct hd_server_price *all = &s->out->servers;

	s->serving = 0;
	for (int64_t j = 0; a && j < a->v.spare; j++) {
		struct hd_program_options o = { .device = hd_device_cpu() };
		struct hd_stage_price sum = { .rank = 0 };
		struct events of = { .n = 0 };
		struct hd_program *g = NULL;
		struct hd_pricing price;
		double memory;

		o.rank = (a->v.n + j) * a->stride + (s->p->stages ? coord * s->p->stages->stride : 0);
		HD_TRY(hd_program_build(s->p, &o, &g, err));
		hd_pricing_begin(&price, s->m, s->style, g);
		s->aside = 1;
		events_of(s, &price, &of, &sum);
		s->aside = 0;
		memory = (double)(g->memory.persistent + g->memory.transient) + beside_plan(s, &of);
		sum.compute *= is_slow(s, o.rank) ? s->m->slow : 1;
		s->serving = fmax(s->serving, sum.compute);
		all->n++;
		all->compute = fmax(all->compute, sum.compute);
		all->link = fmax(all->link, sum.collective);
		for (int k = 0; k < HD_LINKS; k++)
			all->sent[k] = fmax(all->sent[k], sum.sent[k]);
		if (memory > all->memory)
			all->memory = memory, all->rank = o.rank;
		hd_pricing_end(&price);
		hd_program_destroy(g);
		free(of.v);
	}
	return HD_OK;
}

/* The rank of a stage that is slow stands for all of it: the others wait for it in every sum. */
static void slow_down(const struct sim *s, int64_t coord, struct hd_stage_price *sum)
{
	const struct hd_plan *p = s->p;
	struct events *e = &s->stages[coord];

	if (s->m->slow <= 0 || !hd_is_worker(p, s->m->slow_rank) ||
	    (p->stages && hd_plan_coord(p, s->m->slow_rank, p->stages) != coord))
		return;
	for (size_t i = 0; i < e->n; i++)
		e->v[i].compute *= s->m->slow;
	sum->compute *= s->m->slow;
	sum->rank = s->m->slow_rank;
}

static int stage(struct sim *s, int64_t coord, struct hd_err *err)
{
	struct hd_stage_price *sum = &s->out->stages[coord];
	struct hd_program_options o = { .rank = hd_busiest_rank(s->p, coord), .device = hd_device_cpu() };
	struct hd_checkpoint_config k;
	struct hd_program *g = NULL;
	struct hd_pricing price;

	HD_TRY(hd_checkpoint_config_read(s->p->conf, &k, err));
	o.keep_gradients = k.gradients;
	o.snapshot = k.async;
	HD_TRY(serve(s, coord, err));
	HD_TRY(hd_program_build(s->p, &o, &g, err));
	hd_pricing_begin(&price, s->m, s->style, g);
	sum->rank = o.rank;
	sum->parameters = hd_program_parameters(g);
	events_of(s, &price, &s->stages[coord], sum);
	sum->memory = (double)(g->memory.persistent + g->memory.transient + g->memory.snapshot) +
		      beside_plan(s, &s->stages[coord]);
	sum->state = (double)g->memory.persistent;
	sum->memory += hd_saved_besides(&price);
	slow_down(s, coord, sum);
	hd_pricing_end(&price);
	hd_program_destroy(g);
	return HD_OK;
}

/* Nodes that stages meet at: messages, by their send, and collectives over stages. */
static int64_t number_meetings(struct sim *s)
{
	int64_t n = 0;

	for (const struct node *x = s->p->first; x; x = x->next)
		s->index[x->id] =
			x->comm.kind && x->comm.kind != HD_COMM_RECV && hd_over_stages(s->p, x->comm.group) ? n++ : -1;
	return n;
}

int hd_simulate(struct hd_plan *p, const struct hd_machine *m, const struct hd_style *style, struct hd_prediction *out,
		struct hd_err *err)
{
	struct hd_machine mine = *m;
	struct sim s = { .p = p, .m = &mine, .style = style, .out = out };
	int64_t n = p->stages ? p->stages->v.n : 1, meetings;
	int rc = HD_OK;

	hd_machine_share(&mine, p);
	*out = (struct hd_prediction){ .stages = hd_alloc((size_t)n * sizeof(*out->stages)),
				       .nstages = n,
				       .spans = out->want_spans ? hd_alloc((size_t)n * sizeof(*out->spans)) : NULL };
	s.index = hd_alloc(((size_t)p->nnodes + 1) * sizeof(*s.index));
	meetings = number_meetings(&s) + 1;
	s.members = hd_alloc((size_t)meetings * sizeof(*s.members));
	s.met = hd_alloc((size_t)(meetings * (p->micros + 1)) * sizeof(*s.met));
	s.stages = hd_alloc((size_t)n * sizeof(*s.stages));
	for (int64_t i = 0; i < n && rc >= 0; i++)
		rc = stage(&s, i, err);
	if (rc >= 0)
		rc = walk_all(&s, err);
	if (rc >= 0)
		hd_machine_busy(&mine, p, out);
	for (int64_t i = 0; i < n; i++)
		free(s.stages[i].v);
	free(s.index), free(s.members), free(s.met), free(s.stages);
	return rc;
}

void hd_price_release(struct hd_prediction *r)
{
	for (int64_t i = 0; r->spans && i < r->nstages; i++)
		free(r->spans[i].units), free(r->spans[i].waits);
	free(r->spans), free(r->stages);
	r->stages = NULL;
	r->spans = NULL;
}
