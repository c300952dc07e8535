/* SPDX-License-Identifier: Apache-2.0
 * The plans of a search. Each is made in a child process, so a plugin's crash costs only that layout, and all memory is
 * given back.
 */
#include <config.h>
#include "engine/process/beside.h"
#include "engine/graph/mesh.h"
#include "engine/passes/passes.h"
#include "engine/search/evaluate.h"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SECONDS 120 /* processor time of one plan */

struct jobs {
	const struct evaluator *e;
	const struct space_layout *layouts;
	const struct order_wanted *orders;
	struct hd_conf *own;
	void *out; /* shared memory */
	int whole;
};

/* Stores an error as the reason of a refusal. The file and line in front ("conf/x.ini:12: ") are removed, since the
 * user has no such file. */
static void refuse(struct plan_verdict *j, const struct space *s, const struct hd_err *err)
{
	const char *text = err->text;
	size_t n = strlen(s->name);

	if (!strncmp(text, s->name, n) && text[n] == ':') {
		text += n + 1;
		text += strspn(text, "0123456789");
		text += strspn(text, ": ");
	}
	j->code = err->code ? err->code : HD_EBUG;
	snprintf(j->why, sizeof(j->why), "%.*s", (int)sizeof(j->why) - 1, text); /* a long text is cut */
}

unsigned hd_search_evaluate_staged(const struct space *s)
{
	unsigned bits = 0;

	for (int i = 0; i < s->n; i++)
		bits |= s->strategies[i].stages ? 1u << i : 0;
	return bits;
}

static int64_t ranks_of(const struct space *s, const struct space_layout *l, unsigned with)
{
	int64_t n = 1;

	for (int i = 0; i < s->n; i++)
		n *= with >> i & 1 ? l->size[i] : 1;
	return n;
}

/* -- whole layouts ------------------------------------------------------------------------------------------------- */
struct predicted {
	struct hd_prediction times; /* to be released if there was no error */
	int64_t micros;             /* of a step of the whole global batch; pairs if two are computed at a time */
	int64_t micro_batch;        /* sequences of a replica */
	int groups;
};

/* Plans and prices an INI. part: it is only a part of the job, whose ranks get the same share of the machine as those
 * of the whole job. */
static int predict(const struct evaluator *e, struct hd_conf *c, const struct hd_plan_options *o, int part,
		   struct predicted *r, struct hd_err *err)
{
	struct hd_machine m = *e->machine;
	struct hd_plan *p = NULL;

	m.job = part ? e->space->ranks : 0;
	*r = (struct predicted){ .times.want_spans = part };
	if (hd_plan_create(c, o, &p, err) >= 0) {
		r->micros = p->config.batch.full / p->batch / hd_micros_at_once(p);
		r->micro_batch = p->micro_batch;
		r->groups = (int)p->ngroups;
		if (hd_simulate(p, &m, e->style, &r->times, err) < 0)
			hd_prediction_release(&r->times);
	}
	hd_plan_destroy(p);
	return err->code;
}

static void evaluate_conf(const struct evaluator *e, struct hd_conf *c, struct evaluated *out, struct hd_err *err)
{
	struct predicted r;

	if (!err->code && predict(e, c, &e->options, 0, &r, err) >= 0) {
		out->step = r.times.step;
		out->micro_batch = r.micro_batch;
		out->memory = hd_prediction_memory(&r.times);
		hd_prediction_release(&r.times);
	}
	if (err->code)
		refuse(&out->verdict, e->space, err);
}

static void evaluate_job(void *ctx, int64_t i)
{
	struct jobs *j = ctx;
	struct hd_conf *c = NULL;
	struct hd_err err = { 0 };

	hd_layout_conf(j->e->space, &j->layouts[i], ~0u, NULL, 0, &c, &err);
	evaluate_conf(j->e, c, (struct evaluated *)j->out + i, &err);
	hd_conf_destroy(c);
}

static void own_job(void *ctx, int64_t i)
{
	struct jobs *j = ctx;
	struct hd_err err = { 0 };

	evaluate_conf(j->e, j->own, (struct evaluated *)j->out + i, &err);
}

static struct plan_verdict lost_job(void)
{
	return (struct plan_verdict){ HD_EBUG,
				      "its plan ended the process, or took more than two minutes of processor time" };
}

/* Runs job(j, i) for all i < n. They change the `bytes` bytes at out, through a shared copy. Returns which jobs were
 * lost: a 1 for each that was. The caller frees it. */
static char *run_shared(struct jobs *j, void (*job)(void *, int64_t), int64_t n, void *out, size_t bytes)
{
	char *lost = hd_alloc((size_t)n + 1);

	if (!n)
		return lost;
	j->out = hd_shared_create(bytes);
	memcpy(j->out, out, bytes);
	hd_side_jobs_run(n, job, j, MOST_SECONDS, lost);
	memcpy(out, j->out, bytes);
	hd_shared_destroy(j->out, bytes);
	return lost;
}

/* Runs job(j, i) for all i < n. out: n results of `each` bytes. Each result begins with a struct plan_verdict, which
 * tells if its job was lost. */
static void run(struct jobs *j, void (*job)(void *, int64_t), int64_t n, void *out, size_t each)
{
	char *lost;

	memset(out, 0, (size_t)n * each);
	lost = run_shared(j, job, n, out, (size_t)n * each);
	for (int64_t i = 0; i < n; i++)
		if (lost[i])
			*(struct plan_verdict *)(void *)((char *)out + (size_t)i * each) = lost_job();
	free(lost);
}

void hd_search_evaluate_own(const struct evaluator *e, struct hd_conf *c, struct evaluated *out)
{
	struct jobs j = { .e = e, .own = c };

	run(&j, own_job, 1, out, sizeof(*out));
}

void hd_search_evaluate(const struct evaluator *e, const struct space_layout *l, int64_t n, struct evaluated *out)
{
	struct jobs j = { .e = e, .layouts = l };

	run(&j, evaluate_job, n, out, sizeof(*out));
}

/* -- probes -------------------------------------------------------------------------------------------------------- */
static int probe_conf(const struct evaluator *e, const struct space_layout *l, int64_t layers, struct hd_conf **c,
		      struct hd_err *err)
{
	char *set = hd_format("model.layers=%lld", (long long)layers);
	const char *sets[] = { set, "model.load=", "model.window_layers=w" };
	int rc =
		hd_layout_conf(e->space, l, ~hd_search_evaluate_staged(e->space), sets, e->all_windows ? 3 : 2, c, err);

	free(set);
	return rc;
}

/* Returns the rate of a rank's share of a link for messages of so many bytes. */
static double link_rate(const struct hd_machine *m, int link, double bytes)
{
	double share = link == HD_LINK_NETWORK ? (double)m->cards / (double)m->ranks_per_node : 1;

	return m->links[link].bandwidth * hd_curve_at(&m->links[link].efficiency, bytes) * (share < 1 ? share : 1);
}

/* Returns whether links within a node have at least twice the rate of the network, for messages of any size. Between
 * two points of both curves, rates are linear in the logarithm of the size, so the points decide. */
static int nodes_are_faster(const struct hd_machine *m)
{
	for (int k = 0; k < HD_LINKS; k++) {
		const struct hd_size_curve *c = &m->links[k].efficiency;

		for (int i = 0; i < c->n; i++)
			if (link_rate(m, HD_LINK_NODE, c->size[i]) < 2 * link_rate(m, HD_LINK_NETWORK, c->size[i]))
				return 0;
	}
	return 1;
}

/* Returns whether no collective takes less time across nodes than within one. A probe has its groups on neighbouring
 * ranks, within a node where they fit. In the whole layout, stages between them may place them across nodes. If that may
 * take less time, the collectives of a probe give no bound. A member that sends to all sends more than half of that to
 * other nodes, at the same time as the rest. So half the rate of a node is enough. */
static int nodes_are_closer(const struct evaluator *e)
{
	const struct hd_machine *m = e->machine;

	return m->ranks_per_node <= 1 || e->space->ranks <= m->ranks_per_node ||
	       (m->links[HD_LINK_NODE].latency <= m->links[HD_LINK_NETWORK].latency && nodes_are_faster(m));
}

/* Returns the seconds that a rank spends in forward and backward units. */
static double in_units(const struct hd_unit_spans *s)
{
	double sum = 0;

	for (size_t i = 0; i < s->nunits; i++)
		if (s->units[i].unit.kind & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W))
			sum += s->units[i].to - s->units[i].from;
	return sum;
}

/* Returns the most bytes that a rank keeps from forward to backward. */
static double most_kept(const struct hd_unit_spans *s)
{
	double most = 0;

	for (size_t i = 0; i < s->nunits; i++)
		most = larger_of(most, s->units[i].use.kept);
	return most;
}

static int probe_one(const struct evaluator *e, const struct space_layout *l, struct hd_plan_options *o, int k,
		     struct probe *out, struct hd_err *err)
{
	struct predicted r;
	struct hd_conf *c = NULL;

	o->micros = 1 + (k >> 1);
	if (probe_conf(e, l, e->dense + e->period * (1 + (k & 1)), &c, err) >= 0 && predict(e, c, o, 1, &r, err) >= 0) {
		out->micros = r.micros;
		out->queues = r.groups;
		out->crowd = r.times.crowd;
		out->step[k] = r.times.step;
		out->units[k] = in_units(r.times.spans);
		out->compute[k] = r.times.stages[0].compute;
		out->collective[k] = nodes_are_closer(e) ? r.times.stages[0].collective : 0;
		out->memory[k] = r.times.stages[0].memory;
		out->kept[k] = most_kept(r.times.spans);
		hd_prediction_release(&r.times);
	}
	hd_conf_destroy(c);
	return err->code;
}

static void probe_job(void *ctx, int64_t i)
{
	struct jobs *j = ctx;
	const struct evaluator *e = j->e;
	struct probe *out = (struct probe *)j->out + i;
	struct hd_plan_options o = e->options;
	struct hd_err err = { 0 };

	o.ranks = ranks_of(e->space, &j->layouts[i], ~hd_search_evaluate_staged(e->space));
	out->whole = j->whole;
	for (int k = 0; k < (j->whole ? HD_PROBES : HD_PROBES / 2) && !err.code; k++)
		probe_one(e, &j->layouts[i], &o, k, out, &err);
	if (err.code)
		refuse(&out->verdict, e->space, &err);
}

void hd_search_evaluate_probes(const struct evaluator *e, const struct space_layout *l, int64_t n, int whole,
			       struct probe *out)
{
	struct jobs j = { .e = e, .layouts = l, .whole = whole };

	run(&j, probe_job, n, out, sizeof(*out));
}

/* -- orders of units ----------------------------------------------------------------------------------------------- */
/* Plans only the strategies of stages, up to the schedule, with micro-batches of one sequence. */
static int order_plan(const struct evaluator *e, const struct space_layout *l, int64_t micros, struct hd_plan **p,
		      struct hd_conf **c, struct hd_err *err)
{
	unsigned staged = hd_search_evaluate_staged(e->space);
	struct hd_plan_options o = e->options;
	char *set = hd_format("train.global_batch=%lld", (long long)micros);
	const char *sets[] = { set, "train.global_batch_ramp=", "train.micro_batch=1" };

	o.ranks = ranks_of(e->space, l, staged);
	o.after = "schedule";
	o.global_batch = 0;
	if (hd_layout_conf(e->space, l, staged, sets, 3, c, err) >= 0)
		hd_plan_create(*c, &o, p, err);
	free(set);
	return err->code;
}

static double most_in_flight(const struct hd_plan *p)
{
	double most = 1;

	for (int k = 0; k < p->timing.p; k++)
		most = larger_of(most, p->timing.in_flight[k]);
	return most;
}

/* Computes the order for `micros` micro-batches, on a plan that has one for a different number. */
static int order_again(struct hd_plan *p, int64_t micros)
{
	hd_schedule_report_release(&p->timing);
	p->timing = (struct hd_schedule_report){ .p = 0 };
	p->micros = micros;
	return hd_pass_schedule(p);
}

/* Describes the order of m micro-batches by the orders of two smaller numbers. Beyond two or three times the stages,
 * more micro-batches only lengthen the steady part in the middle. Both numbers leave the same remainder as m when
 * divided by the stages. */
static void order_of_micros(struct hd_plan *p, int64_t stages, int64_t m, struct order_probe *out)
{
	int64_t rest = m % stages, few = 2 * stages + rest, more = 3 * stages + rest;

	few = few < m ? few : m;
	more = more < m ? more : m;
	out->in_flight_of = (double)few;
	out->in_flight_more_of = out->bubble_of = (double)more;
	if (order_again(p, few) < 0)
		return;
	out->in_flight = most_in_flight(p);
	if (more > few && order_again(p, more) < 0)
		return;
	out->in_flight_more = most_in_flight(p);
	out->bubble = p->timing.bubble;
	out->chunks = (double)p->chunks;
}

/* Plans the stages of a layout once, and computes their order for each number of micro-batches. */
static void order_job(void *ctx, int64_t i)
{
	struct jobs *j = ctx;
	const struct order_wanted *w = &j->orders[i];
	int64_t stages = ranks_of(j->e->space, &w->layout, hd_search_evaluate_staged(j->e->space));
	struct hd_conf *c = NULL;
	struct hd_plan *p = NULL;

	for (int64_t k = 0; k < w->n; k++) {
		struct order_probe *out = (struct order_probe *)j->out + w->first + k;
		struct hd_err err = { 0 };

		if (p || order_plan(j->e, &w->layout, w->micros[k], &p, &c, &err) >= 0)
			order_of_micros(p, stages, w->micros[k], out);
		if (!err.code && !p->err->code)
			continue;
		refuse(&out->verdict, j->e->space, err.code ? &err : p->err);
		hd_plan_destroy(p);
		hd_conf_destroy(c);
		p = NULL, c = NULL;
	}
	hd_plan_destroy(p);
	hd_conf_destroy(c);
}

void hd_search_evaluate_orders(const struct evaluator *e, const struct order_wanted *w, int64_t n,
			       struct order_probe *out)
{
	struct jobs j = { .e = e, .orders = w };
	int64_t all = n ? w[n - 1].first + w[n - 1].n : 0;
	char *lost;

	memset(out, 0, (size_t)all * sizeof(*out));
	lost = run_shared(&j, order_job, n, out, (size_t)all * sizeof(*out));
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; lost[i] && k < w[i].n; k++)
			out[w[i].first + k].verdict = lost_job();
	free(lost);
}

/* -- strategies by themselves -------------------------------------------------------------------------------------- */
#define MOST_BATCH 1000000000 /* the most of train.global_batch */

/* Plans a strategy alone as `a` says. Its batch is divisible by everything that divides the ranks. If that is too many
 * sequences, there is one for each rank, and the engine chooses the micro-batch. The plan has all layers if j->whole is
 * set, else as few as the smallest probe. */
static int alone_plan(const struct jobs *j, const struct space_layout *l, struct space_alone *a, struct hd_plan **p,
		      struct hd_conf **c, struct hd_err *err)
{
	const struct evaluator *e = j->e;
	struct hd_plan_options o = e->options;
	int64_t each = a->size <= MOST_BATCH / a->size ? a->size : 0;
	char *batch = hd_format("train.global_batch=%lld", (long long)(each ? a->size * each : a->size));
	char *micro = hd_format("train.micro_batch=%lld", (long long)each);
	char *layers = hd_format("model.layers=%lld", (long long)(e->dense + e->period));
	const char *sets[] = { batch, micro, "train.global_batch_ramp=", layers, "model.load=" };

	o.ranks = a->size;
	o.node_size = a->node ? a->node : o.node_size;
	o.node_asked = &a->node_asked;
	o.after = "schedule";
	if (hd_layout_conf(e->space, l, ~0u, sets, j->whole ? 3 : 5, c, err) >= 0)
		hd_plan_create(*c, &o, p, err);
	free(batch), free(micro), free(layers);
	return err->code;
}

static void alone_job(void *ctx, int64_t i)
{
	struct jobs *j = ctx;
	struct space_alone *out = (struct space_alone *)j->out + i;
	struct hd_conf *c = NULL;
	struct hd_plan *p = NULL;
	struct hd_err err = { 0 };
	struct plan_verdict why = { 0 };

	if (alone_plan(j, &j->layouts[i], out, &p, &c, &err) >= 0) {
		out->stages = p->stages != NULL;
		out->replicas = p->replicas == out->size;
	}
	if (err.code)
		refuse(&why, j->e->space, &err);
	out->refused = why.code != 0;
	memcpy(out->why, why.why, sizeof(out->why));
	hd_plan_destroy(p);
	hd_conf_destroy(c);
}

static void add_alone(const struct space *s, struct space_strategy *of)
{
	size_t cap = 0;

	for (int64_t n = 2; n <= s->ranks && n <= of->most; n++)
		for (int k = 0; k < of->nchoices && s->ranks % n == 0 && n >= of->least; k++) {
			of->alone = hd_grow(of->alone, (size_t)of->nalone, &cap, sizeof(*of->alone));
			of->alone[of->nalone++] = (struct space_alone){ .size = n, .choice = k };
		}
}

/* Plans strategy i alone, as each of n entries says. */
static void plan_alone(const struct evaluator *e, const struct space *s, int i, struct space_alone *at, int64_t n,
		       int whole)
{
	struct jobs j = { .e = e, .whole = whole };
	struct space_layout *l = hd_alloc(((size_t)n + 1) * sizeof(*l));
	char *lost;

	for (int64_t k = 0; k < n; k++) {
		for (int a = 0; a < s->n; a++) {
			l[k].size[a] = a == i ? at[k].size : 1;
			l[k].order[a] = a;
		}
		l[k].choice[i] = at[k].choice;
	}
	j.layouts = l;
	lost = run_shared(&j, alone_job, n, at, (size_t)n * sizeof(*at));
	for (int64_t k = 0; k < n; k++)
		at[k].refused |= lost[k];
	free(l), free(lost);
}

/* Adds to v entry `a` with other strides. If only every k-th rank of a node belongs to the strategy, its nodes have
 * fewer ranks. Returns the list. */
static struct space_alone *add_strides(const struct space *s, const struct space_alone *a, struct space_alone *v,
				       int64_t *n, size_t *cap)
{
	for (int64_t node = 1; node < s->node && s->ranks > s->node; node++) {
		if (s->node % node || s->ranks / a->size % (s->node / node))
			continue;
		v = hd_grow(v, (size_t)*n, cap, sizeof(*v));
		v[*n] = *a;
		v[(*n)++].node = node;
	}
	return v;
}

/* Tries refused entries with other strides, if a plugin asks for the ranks of a node. What is possible with one of them
 * is left to the families' probes, since only they have the strategies between its ranks. Lost jobs have no reason, and
 * are not tried again. */
static void try_strides(const struct evaluator *e, const struct space *s, int i, struct space_alone *at, int64_t n,
			int whole)
{
	struct space_alone *v = NULL;
	int64_t m = 0;
	size_t cap = 0;

	for (int64_t k = 0; k < n; k++)
		if (at[k].refused && at[k].node_asked && *at[k].why)
			v = add_strides(s, &at[k], v, &m, &cap);
	if (m)
		plan_alone(e, s, i, v, m, whole);
	for (int64_t k = 0; k < n; k++)
		for (int64_t t = 0; t < m; t++) {
			if (v[t].refused || v[t].size != at[k].size || v[t].choice != at[k].choice)
				continue;
			at[k] = v[t];
			at[k].node = 0;
		}
	free(v);
}

/* Evaluates entries from .. to - 1 of strategy i's list `alone`. */
static void evaluate_some_alone(const struct evaluator *e, const struct space *s, int i, int from, int to, int whole)
{
	struct space_alone *at = &s->strategies[i].alone[from];

	plan_alone(e, s, i, at, to - from, whole);
	try_strides(e, s, i, at, to - from, whole);
}

/* Plans the smallest sizes with all layers until one is possible. That shows whether blocks are distributed along the
 * strategy's axis; if they are, sizes above the number of layers are removed. If they are not, the layers of the
 * smallest probe show which of the other sizes are refused. */
void hd_search_evaluate_alone(const struct evaluator *e, struct space *s, int i)
{
	struct space_strategy *of = &s->strategies[i];
	int from = 0, to = 0, known = 0;

	add_alone(s, of);
	while (!known && from < of->nalone) {
		for (to = from; to < of->nalone && of->alone[to].size == of->alone[from].size;)
			to++;
		evaluate_some_alone(e, s, i, from, to, 1);
		for (; from < to; from++) {
			of->stages |= of->alone[from].stages;
			known |= !of->alone[from].refused;
		}
	}
	while (of->stages && of->nalone > to && of->alone[of->nalone - 1].size > s->layers)
		of->nalone--;
	evaluate_some_alone(e, s, i, to, of->nalone, of->stages);
	for (int k = 0; k < of->nalone; k++)
		of->replicas |= of->alone[k].replicas;
}
