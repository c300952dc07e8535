/* SPDX-License-Identifier: Apache-2.0
 * Simulates a step: runs the programs of one rank of each stage together, with a price in place of each entry's kernel.
 *
 * The other ranks of a stage do the same at the same time, so one rank stands for all of them. A collective within a
 * stage begins when this rank reaches it and its queue is free. Messages between stages and collectives over stages are
 * matched as in a run. A message has arrived when its sender has reached it and its links have carried it. A collective
 * begins when its last member has reached it. The entries are those of a run, in the same order, and so are the waits.
 *
 * Movements of a rank share its links, whatever their groups. Kernels are slower while something moves, by the compute
 * units that the movement takes.
 */
#include <config.h>
#include "engine/config/output_config.h"
#include "engine/graph/mesh.h"
#include "engine/predict/events.h"
#include "engine/predict/here.h"
#include "engine/predict/simulate.h"
#include "engine/predict/whole_layers.h"
#include "engine/passes/passes.h"
#include "engine/run/run.h"
#include <math.h>
#include <omp.h>
#include <stdlib.h>

struct stage_meeting {
	double last;
	int64_t come;
};
struct sim {
	struct event_source source;
	struct hd_plan *p;
	const struct hd_machine *m;
	const struct hd_style *style;
	struct hd_prediction *out;
	struct events *stages;
	struct stage_meeting *met; /* by key: index x (micros + 1) + micro + 1 */
	struct hd_checkpoint_config saved;
};

/* -- the run ------------------------------------------------------------------------------------------------------- */
struct replay { /* how far the rank of a stage has got */
	const struct events *of;
	size_t at;
	double clock;
	double *done;          /* by request: when the movement ends; < 0: it is a meeting with key -done - 1 */
	double *queue;         /* by group id: when it is free */
	double *length;        /* by request */
	double busy[HD_LINKS]; /* when a link has carried all that has been started */
	double *until;         /* by link and group: the same for the group's movements */
};

static struct stage_meeting *meeting_of(const struct sim *s, const struct event *e)
{
	return &s->met[e->key];
}

/* Returns when kernels end that take so long alone. They are slower while a link is busy. */
static double computed(const struct sim *s, const struct replay *w, double compute)
{
	double until = w->clock, rate = 1 - s->m->overlap_cost, beside;

	for (int i = 0; i < HD_LINKS; i++)
		until = w->busy[i] > until ? w->busy[i] : until;
	beside = (until - w->clock) * rate; /* this much work is done until then */
	return compute <= beside ? w->clock + compute / rate : until + compute - beside;
}

/* Puts a movement on a link. Returns by how much it is delayed there. Groups share a link equally: a movement that
 * begins while n others are under way takes n + 1 times as long. It ends at the latest when the link has carried all
 * that has been started. A group's own movements follow each other. */
static double carried_at(struct replay *w, const struct event_price *e, int link, size_t ngroups, double from)
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

static const struct event_price *price_of(const struct replay *w, const struct event *e)
{
	return &w->of->prices[e->number];
}

static double starts(const struct replay *w, const struct event_price *e)
{
	return w->queue[e->queue] > w->clock ? w->queue[e->queue] : w->clock;
}

static void occupy(const struct sim *s, struct replay *w, const struct event *e, double from)
{
	const struct event_price *price = price_of(w, e);
	double late = 0, more;

	for (int i = 0; i < HD_LINKS; i++) {
		more = carried_at(w, price, i, s->p->ngroups, from);
		late = more > late ? more : late;
	}
	w->done[e->request] = w->queue[price->queue] = from + price->seconds + late;
}

static void begin(struct sim *s, struct replay *w, const struct event *e)
{
	struct stage_meeting *t;
	double from = starts(w, price_of(w, e));

	switch (e->kind) {
	case HD_EVENT_START: occupy(s, w, e, from); return;
	case HD_EVENT_SEND:
		t = meeting_of(s, e);
		occupy(s, w, e, from);
		t->last = w->done[e->request];
		t->come = 1;
		return;
	case HD_EVENT_MEET:
		t = meeting_of(s, e);
		t->last = from > t->last ? from : t->last;
		t->come++;
		/* fall through */
	default: w->done[e->request] = -1 - (double)e->key; w->length[e->request] = price_of(w, e)->seconds;
	}
}

/* Returns when the movement of a request ends, or < 0 if a member has yet to reach it. *met: when its last
 * member reached it. */
static double ends(const struct sim *s, const struct replay *w, const struct event *e, double *met)
{
	double done = w->done[e->request];
	const struct stage_meeting *t;
	int64_t key = (int64_t)(-done - 1), all;

	*met = 0;
	if (done >= 0)
		return done;
	t = &s->met[key];
	all = s->source.members[key / (s->p->micros + 1)];
	*met = t->last;
	return t->come < (all ? all : 1) ? -1 : t->last + w->length[e->request];
}

/* Records that the unit `key` begins and the one before it ends. After the last unit, key is the number of units. */
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

/* Runs a rank until it waits for a rank that has yet to get there, or to the end. Returns 1 if it got any further. */
static int advance(struct sim *s, struct replay *w, struct hd_stage_price *sum, struct hd_unit_spans *spans)
{
	int moved = 0;

	for (; w->at < w->of->n; w->at++, moved = 1) {
		const struct event *e = &w->of->v[w->at];
		double before = w->of->seconds[e->compute], now = computed(s, w, before);

		if (e->kind == HD_EVENT_WAIT) {
			double met, until = ends(s, w, e, &met);

			if (until < 0)
				return moved;
			sum->compute += now - w->clock - before;
			met = met > now ? met : now; /* until then this rank waits for others, and then for the links */
			until = until > met ? until : met;
			sum->idle += met - now;
			sum->exposed += until - met;
			mark_wait(spans, now, until);
			w->clock = until;
		} else {
			sum->compute += now - w->clock - before; /* the delay by movements under way */
			w->clock = now;
			if (e->kind == HD_EVENT_MARK || e->kind == HD_EVENT_END)
				mark_time(spans, e->kind == HD_EVENT_END && spans ? (int64_t)spans->nunits : e->key,
					  now);
			else
				begin(s, w, e);
			if (e->number >= 0 && price_of(w, e)->waits) {
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
		w[i].of = &s->stages[i];
		w[i].done = hd_alloc(((size_t)s->stages[i].requests + 1) * sizeof(double));
		w[i].length = hd_alloc(((size_t)s->stages[i].requests + 1) * sizeof(double));
		w[i].queue = hd_alloc((s->p->ngroups + 2) * sizeof(double));
		w[i].until = hd_alloc((HD_LINKS * s->p->ngroups + 1) * sizeof(double));
	}
	while (moved) {
		moved = 0;
		for (int64_t i = 0; i < n; i++)
			moved |= advance(s, &w[i], &s->out->stages[i], s->out->spans ? &s->out->spans[i] : NULL);
	}
	for (int64_t i = 0; i < n; i++)
		s->out->step = w[i].clock > s->out->step ? w[i].clock : s->out->step;
	for (int64_t i = 0; i < n; i++) {
		ended += w[i].at == s->stages[i].n;
		s->out->stages[i].idle += s->out->step - w[i].clock; /* until the last stage has ended */
		free(w[i].done), free(w[i].length), free(w[i].queue), free(w[i].until);
	}
	free(w);
	return ended == n ? HD_OK
			  : hd_err_set(err, HD_EBUG, "plan: deadlock: %lld of %lld stages wait for each other",
				       (long long)(n - ended), (long long)n);
}

/* Returns the memory of a rank that is not planned: of the device, of libraries, and of each communicator
 * that it uses. */
static double beside_plan(const struct sim *s, const struct events *of)
{
	char *seen = hd_alloc(s->p->ngroups + 1);
	double bytes = s->m->context_memory + s->m->workspace_memory;

	for (size_t i = 0; i < of->nprices; i++)
		if (of->prices[i].queue < (int32_t)s->p->ngroups && !seen[of->prices[i].queue]) {
			seen[of->prices[i].queue] = 1;
			bytes += s->m->communicator_memory;
		}
	free(seen);
	return bytes;
}

/* Adds the working memory of kernels on a host. On a device with its own memory, the machine file counts that
 * with the libraries. */
static int add_scratch(const struct sim *s, struct hd_program *g, struct hd_err *err)
{
	return hd_machine_is_host(s->m) ? hd_program_scratch(g, hd_device_cpu(), s->m->threads, err) : HD_OK;
}

static int is_slow(const struct sim *s, int64_t rank)
{
	return s->m->slow > 0 && s->m->slow_rank == rank;
}

/* Prices the servers of a stage: what they hold, send and compute. The one that takes longest delays all workers. */
static int serve(struct sim *s, int64_t coord, struct hd_err *err)
{
	const struct axis *a = hd_spare_axis(s->p);
	struct hd_server_price *all = &s->out->servers;

	s->source.serving = 0;
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
		s->source.aside = 1;
		hd_events_make(&s->source, &price, &of, &sum, NULL);
		s->source.aside = 0;
		HD_TRY(add_scratch(s, g, err));
		memory = (double)(g->memory.persistent + g->memory.transient + hd_program_kernel_bytes(&g->memory)) +
			 beside_plan(s, &of);
		sum.compute *= is_slow(s, o.rank) ? s->m->slow : 1;
		s->source.serving = fmax(s->source.serving, sum.compute);
		all->n = s->p->ranks - hd_plan_workers(s->p);
		all->compute = fmax(all->compute, sum.compute);
		all->link = fmax(all->link, sum.collective);
		for (int k = 0; k < HD_LINKS; k++)
			all->sent[k] = fmax(all->sent[k], sum.sent[k]);
		if (memory > all->memory)
			all->memory = memory, all->rank = o.rank;
		hd_pricing_end(&price);
		hd_program_destroy(g);
		hd_events_release(&of);
	}
	return HD_OK;
}

/* Slows down the stage of the slow rank, since all others wait for it in every sum. */
static void slow_down(const struct sim *s, int64_t coord, struct hd_stage_price *sum)
{
	const struct hd_plan *p = s->p;
	struct events *e = &s->stages[coord];

	if (s->m->slow <= 0 || !hd_is_worker(p, s->m->slow_rank) ||
	    (p->stages && hd_plan_coord(p, s->m->slow_rank, p->stages) != coord))
		return;
	for (size_t i = 0; i < e->nseconds; i++)
		e->seconds[i] *= s->m->slow;
	sum->compute *= s->m->slow;
	sum->rank = s->m->slow_rank;
}

static struct hd_program *stage_program(const struct sim *s, int64_t coord, struct hd_err *err)
{
	struct hd_program_options o = { .rank = hd_busiest_rank(s->p, coord),
					.device = hd_device_cpu(),
					.keep_gradients = s->saved.gradients,
					.snapshot = s->saved.async };
	struct hd_program *g = NULL;

	hd_program_build(s->p, &o, &g, err);
	return g;
}

static int stage(struct sim *s, int64_t coord, struct hd_program *g, struct hd_err *err)
{
	struct hd_stage_price *sum = &s->out->stages[coord];
	struct hd_pricing price;

	HD_TRY(serve(s, coord, err));
	HD_TRY(add_scratch(s, g, err));
	hd_pricing_begin(&price, s->m, s->style, g);
	sum->rank = g->rank;
	sum->parameters = hd_program_parameters(g);
	hd_events_make(&s->source, &price, &s->stages[coord], sum, s->out->spans ? &s->out->spans[coord] : NULL);
	sum->memory = (double)(g->memory.persistent + g->memory.transient + g->memory.snapshot +
			       hd_program_kernel_bytes(&g->memory)) +
		      beside_plan(s, &s->stages[coord]);
	sum->state = (double)g->memory.persistent;
	sum->host_memory = (double)(g->memory.host_persistent + g->memory.host_transient);
	sum->memory += hd_saved_besides(&price);
	slow_down(s, coord, sum);
	hd_pricing_end(&price);
	return HD_OK;
}

#define MOST_THREADS 4 /* each holds the program of a stage in memory */

/* Builds the programs of all stages in parallel, and prices them in order. */
static int stages(struct sim *s, struct hd_err *err)
{
	int threads = omp_get_max_threads() < MOST_THREADS ? omp_get_max_threads() : MOST_THREADS;

#pragma omp parallel for ordered schedule(dynamic, 1) num_threads(threads)
	for (int64_t i = 0; i < s->out->nstages; i++) {
		struct hd_err why = { 0 };
		struct hd_program *g = stage_program(s, i, &why);

#pragma omp ordered
		if (!err->code && g)
			stage(s, i, g, err);
		else if (!err->code)
			*err = why;
		hd_program_destroy(g);
	}
	return err->code;
}

int hd_simulate(struct hd_plan *p, const struct hd_machine *m, const struct hd_style *style, struct hd_prediction *out,
		struct hd_err *err)
{
	struct hd_machine mine = *m;
	struct sim s = { .p = p, .m = &mine, .style = style, .out = out };
	int64_t n = p->stages ? p->stages->v.n : 1;
	int between_nodes = 0;

	hd_machine_share(&mine, p);
	*out = (struct hd_prediction){ .stages = hd_alloc((size_t)n * sizeof(*out->stages)),
				       .nstages = n,
				       .host = m->rates ? fmax(m->rates->step, 0) : 0,
				       .spans = out->want_spans ? hd_alloc((size_t)n * sizeof(*out->spans)) : NULL };
	HD_TRY(hd_checkpoint_config_read(p->conf, &s.saved, err));
	hd_event_source_begin(&s.source, p, &mine);
	if ((s.source.meetings + 1) * (p->micros + 1) > UINT32_MAX) { /* keys of events are 32 bits */
		hd_event_source_end(&s.source);
		return hd_err_set(err, HD_EINVAL, "plan: %lld messages between stages x %lld micro-batches: too many",
				  (long long)s.source.meetings, (long long)p->micros);
	}
	s.met = hd_alloc((size_t)((s.source.meetings + 1) * (p->micros + 1)) * sizeof(*s.met));
	s.stages = hd_alloc((size_t)n * sizeof(*s.stages));
	if (stages(&s, err) >= 0 && walk_all(&s, err) >= 0) {
		out->ended = out->step;
		hd_machine_busy(&mine, p, out);
	}
	out->step += out->host;
	for (int64_t i = 0; i < n; i++) {
		between_nodes |= out->stages[i].between_nodes;
		hd_events_release(&s.stages[i]);
	}
	out->step += between_nodes ? style->step : 0;
	hd_event_source_end(&s.source);
	free(s.met), free(s.stages);
	return err->code;
}

void hd_prediction_release(struct hd_prediction *r)
{
	for (int64_t i = 0; r->spans && i < r->nstages; i++)
		free(r->spans[i].units), free(r->spans[i].waits);
	free(r->spans), free(r->stages);
	r->stages = NULL;
	r->spans = NULL;
}

double hd_prediction_memory(const struct hd_prediction *r)
{
	double most = r->servers.memory;

	for (int64_t i = 0; i < r->nstages; i++)
		most = fmax(most, r->stages[i].memory);
	return most;
}

double hd_plan_tokens(const struct hd_plan *p)
{
	return (double)(p->micros * p->batch * p->model.seq);
}

double hd_plan_peak(const struct hd_plan *p, const struct hd_machine *m)
{
	return (double)hd_plan_workers(p) * (p->compute_dtype == HD_DTYPE_BF16 ? m->flops_bf16 : m->flops_fp32);
}
