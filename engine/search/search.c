/* SPDX-License-Identifier: Apache-2.0
 * The search.  Layouts that differ in the order of units and in keys of other sections only are a family, and a family has
 * one probe: small plans that say what a layer costs (families.c).  Families that cannot fit are dropped; of the others the
 * most promising is opened first, into its layouts, and the most promising layout is planned whole.  That ends when no other
 * can be faster than the best by its bound, when none is likely to come near it, or after so many plans.
 * Then what differs from the best in one point is probed. It is planned too if it may be faster, as long as that helps.
 * The order of a layout's units takes a plan of all its layers: it is made when the layout is next.
 *
 * Rounds have a fixed size, so what is looked at does not depend on the number of processors.
 */
#include <config.h>
#include "engine/search/queue.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUND 16
#define PATIENCE \
	1.3 /* beside the best: what is guessed to take longer is not looked at, if there is a limit of tries */

/* -- a family's layouts ------------------------------------------------------------------------------------------------------------ */
static const char *staged_refused(const struct search_state *s, const struct space_layout *l)
{
	const char *why = NULL;

	for (int i = 0; i < s->e.space->n && !why; i++)
		if (s->e.space->strategies[i].stages)
			why = hd_search_refused(s, l, i);
	return why;
}

static const struct order_probe without_waits = { .bubble_of = 1, .chunks = 1 };

/* As long as nobody knows its order of units, it is taken for one without waits. */
static void queue_layout(struct search_state *s, const struct space_layout *l, int64_t probe)
{
	const struct probe *p = &s->probes[probe];
	struct probe_shape shape = hd_search_shape(s, l, p->micros);
	struct queued it = { .kind = QUEUED_LAYOUT, .layout = *l, .layouts = 1, .probe = probe };
	const char *why = staged_refused(s, l);
	double floor = hd_bound_memory(p, &shape);

	if (why) {
		hd_search_lost(s, l, 1, why);
		return;
	}
	if (s->limit > 0 && floor > s->limit && !s->o->unbounded) {
		hd_search_no_room(s, l, 1, floor);
		return;
	}
	it.bound = hd_bound_step(p, &shape);
	it.key = larger_of(hd_guess_step(p, &shape, &without_waits), it.bound);
	hd_search_push(s, &it);
}

/* All that differ from l in the choices of stages. */
static void queue_staged(struct search_state *s, const struct space_layout *l, int64_t probe, int i)
{
	const struct space *of = s->e.space;
	struct space_layout mine = *l;

	while (i < of->n && !(of->strategies[i].stages && hd_layout_used(l, i)))
		i++;
	if (i == of->n) {
		queue_layout(s, l, probe);
		return;
	}
	for (mine.choice[i] = 0; mine.choice[i] < of->strategies[i].nchoices; mine.choice[i]++)
		queue_staged(s, &mine, probe, i + 1);
}

static void judge_order(struct search_state *s, struct queued *it)
{
	const struct probe *p = &s->probes[it->probe];
	struct probe_shape shape = hd_search_shape(s, &it->layout, p->micros);
	const struct order_probe *o = hd_search_order(s, &it->layout, p->micros);
	double memory;

	if (o->judged.code) {
		hd_search_lost(s, &it->layout, 1, o->judged.why);
		return;
	}
	memory = hd_guess_memory(p, &shape, o);
	it->kind = QUEUED_ORDERED;
	it->key = larger_of(hd_guess_step(p, &shape, o), it->bound);
	if (s->limit > 0 && memory > s->limit) /* later */
		it->key *= 1 + 4 * (memory / s->limit - 1);
	hd_search_push(s, it);
}

static void order_layouts(struct search_state *s, struct queued *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		hd_search_want_order(s, &v[i].layout, s->probes[v[i].probe].micros);
	hd_search_make_orders(s);
	for (int64_t i = 0; i < n; i++)
		judge_order(s, &v[i]);
}

static int64_t values_of(const struct space *of, struct space_layout *l, int64_t number)
{
	for (int i = 0; i < of->nkeys; i++) {
		l->value[i] = (int)(number % of->keys[i].n);
		number /= of->keys[i].n;
	}
	return number;
}

static void open_families(struct search_state *s, const struct space_layout *l, int64_t n)
{
	const struct space *of = s->e.space;
	struct space_layout *v = NULL, now;
	struct probe *p;
	size_t cap = 0;
	int64_t all = 0;

	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; now = l[i], values_of(of, &now, k) == 0; k++) {
			v = hd_grow(v, (size_t)all, &cap, sizeof(*v));
			v[all++] = now;
		}
	p = hd_alloc(((size_t)all + 1) * sizeof(*p));
	hd_search_evaluate_probes(&s->e, v, all, 1, p);
	for (int64_t i = 0; i < all; i++) {
		if (p[i].judged.code)
			hd_search_lost(s, &v[i], hd_search_staged_choices(s, &v[i]), p[i].judged.why);
		else
			queue_staged(s, &v[i], hd_search_probe(s, &p[i]), 0);
	}
	free(v), free(p);
}

/* -- rounds -------------------------------------------------------------------------------------------------------------------------- */
static void evaluate(struct search_state *s, const struct queued *v, int64_t n)
{
	struct space_layout *l = hd_alloc(((size_t)n + 1) * sizeof(*l));
	struct evaluated *r = hd_alloc(((size_t)n + 1) * sizeof(*r));

	for (int64_t i = 0; i < n; i++)
		l[i] = v[i].layout;
	hd_search_evaluate(&s->e, l, n, r);
	for (int64_t i = 0; i < n; i++)
		hd_search_found(s, &v[i], &r[i]);
	free(l), free(r);
}

/* Nothing that is left is likely to be better: a limited search ends. */
static int is_hopeless(const struct search_state *s, const struct queued *it)
{
	return s->o->tries && s->out->nfound >= ROUND && it->key > PATIENCE * s->best;
}

/* The most promising items, families among them or not; layouts whose bound is over the best are lost on the way. */
static int64_t take(struct search_state *s, struct queued *v, int64_t n)
{
	int64_t taken = 0;
	struct queued it;

	while (taken < n && hd_search_pop(s, &it)) {
		if (it.kind > QUEUED_FAMILY && hd_search_known(s, &it.layout)) /* the INI's own */
			continue;
		if (is_hopeless(s, &it)) {
			hd_search_push(s, &it);
			break;
		}
		if (it.bound >= s->best && !s->o->unbounded)
			hd_search_slower(s, &it);
		else
			v[taken++] = it;
	}
	return taken;
}

static void rounds(struct search_state *s)
{
	struct queued v[ROUND], ordered[ROUND], layouts[ROUND];
	struct space_layout families[ROUND], relatives[ROUND];
	int64_t n;

	while ((!s->o->tries || s->out->nfound < s->o->tries) && (n = take(s, v, ROUND)) > 0) {
		int64_t nr = 0, nf = 0, nl = 0, no = 0;

		for (int64_t i = 0; i < n; i++)
			if (v[i].kind == QUEUED_RELATIVE)
				relatives[nr++] = v[i].layout;
			else if (v[i].kind == QUEUED_FAMILY)
				families[nf++] = v[i].layout;
			else if (v[i].kind == QUEUED_LAYOUT)
				layouts[nl++] = v[i];
			else
				ordered[no++] = v[i];
		if (nr)
			hd_search_judge_relatives(s, relatives, nr);
		if (nf)
			open_families(s, families, nf);
		if (nl)
			order_layouts(s, layouts, nl);
		if (no)
			evaluate(s, ordered, no);
	}
}

/* -- what is near the best ------------------------------------------------------------------------------------------------------------- */
static void near(struct search_state *s, const struct space_layout *l, struct queued *v, int64_t *n, int64_t most)
{
	if (*n == most || hd_search_known(s, l))
		return;
	for (int64_t i = 0; i < *n; i++)
		if (hd_layout_same(s->e.space, &v[i].layout, l))
			return;
	v[(*n)++] = (struct queued){ .layout = *l, .layouts = 1 };
}

static void near_keys(struct search_state *s, const struct space_layout *best, struct queued *v, int64_t *n,
		      int64_t most)
{
	const struct space *of = s->e.space;

	for (int i = 0; i < of->n; i++)
		for (int k = 0; k < of->strategies[i].nchoices && hd_layout_used(best, i); k++) {
			struct space_layout l = *best;

			l.choice[i] = k;
			near(s, &l, v, n, most);
		}
	for (int i = 0; i < of->nkeys; i++)
		for (int k = 0; k < of->keys[i].n; k++) {
			struct space_layout l = *best;

			l.value[i] = k;
			near(s, &l, v, n, most);
		}
}

static int allowed(const struct space_strategy *s, int64_t size, int64_t layers)
{
	return size >= s->least && size <= s->most && !(s->stages && size > layers);
}

/* A factor of two or three goes from one strategy to another. */
static void near_sizes(struct search_state *s, const struct space_layout *best, struct queued *v, int64_t *n,
		       int64_t most)
{
	const struct space *of = s->e.space;

	for (int i = 0; i < of->n; i++)
		for (int k = 0; k < of->n; k++)
			for (int64_t f = 2; f <= 3; f++) {
				struct space_layout l = *best;

				if (i == k || l.size[i] % f)
					continue;
				l.size[i] /= f;
				l.size[k] *= f;
				if (allowed(&of->strategies[i], l.size[i], of->layers) &&
				    allowed(&of->strategies[k], l.size[k], of->layers))
					near(s, &l, v, n, most);
			}
}

#define CLOSE \
	0.95 /* what is guessed to take longer than this, beside the best, without any wait of a stage is not faster */

/* Of those near the best, what may be faster and fit, by small plans; the others are not planned whole. */
static int64_t promising(struct search_state *s, struct queued *v, int64_t n)
{
	struct space_layout *l = hd_alloc(((size_t)n + 1) * sizeof(*l));
	struct probe *p = hd_alloc(((size_t)n + 1) * sizeof(*p));
	int64_t some = 0;

	for (int64_t i = 0; i < n; i++)
		l[i] = v[i].layout;
	hd_search_evaluate_probes(&s->e, l, n, 1, p);
	for (int64_t i = 0; i < n; i++) {
		struct probe_shape shape = hd_search_shape(s, &l[i], p[i].micros);

		if (p[i].judged.code || staged_refused(s, &l[i]))
			continue;
		v[i].bound = hd_bound_step(&p[i], &shape);
		if (v[i].bound < s->best && CLOSE * hd_guess_step(&p[i], &shape, &without_waits) < s->best &&
		    (s->limit <= 0 || hd_bound_memory(&p[i], &shape) <= s->limit))
			v[some++] = v[i];
	}
	free(l), free(p);
	return some;
}

static void climb(struct search_state *s)
{
	enum { MOST = 24, TIMES = 8 };
	struct queued *v = hd_alloc(MOST * sizeof(*v));
	double was = INFINITY;

	for (int t = 0; t < TIMES && s->best < was; t++) {
		struct space_layout best = *hd_search_best(s), *orders;
		int64_t n = 0;
		int norders;

		was = s->best;
		orders = hd_layout_orders(s->e.space, &best, &norders);
		for (int i = 0; i < norders; i++)
			near(s, &orders[i], v, &n, MOST);
		free(orders);
		near_keys(s, &best, v, &n, MOST);
		near_sizes(s, &best, v, &n, MOST);
		evaluate(s, v, promising(s, v, n));
	}
	free(v);
}

/* -- the whole ------------------------------------------------------------------------------------------------------------------------- */
/* As it is, if it has a layout; and as a point of the space, if it is one. What is found is at least as fast. */
static void given(struct search_state *s)
{
	struct queued it = { .layouts = 1 };

	s->out->given.judged.code = HD_EINVAL;
	if (hd_conf_next(s->o->conf, "strategy", NULL) || s->e.space->ranks == 1)
		hd_search_evaluate_given(&s->e, s->o->conf, &s->out->given);
	if (hd_space_point(s->e.space, s->o->conf, &it.layout))
		evaluate(s, &it, 1);
}

/* Layers that repeat: those with experts stand at intervals. */
static int64_t period_of(struct hd_conf *conf)
{
	struct hd_section *m = hd_conf_section(conf, NULL, "model");
	int64_t every = hd_section_int(m, "experts") ? hd_section_int(m, "moe_every") : 1;

	return every > 0 ? every : 2;
}

int hd_search(const struct search_options *o, struct search_result *out, struct hd_err *err)
{
	struct search_state s = { .o = o, .out = out, .best = INFINITY };

	*out = (struct search_result){ .layouts = 0 };
	HD_TRY(hd_space_read(o->space, o->conf, &out->space, err));
	out->space.ranks = o->plan.ranks;
	out->space.node = o->plan.node_size;
	s.limit = out->limit = o->memory ? (double)o->memory : o->machine->memory;
	s.e = (struct evaluator){ &out->space, o->machine, o->style, o->plan, period_of(o->conf) };
	s.batch = hd_section_int(hd_conf_section(o->conf, NULL, "train"), "global_batch");
	for (int i = 0; i < out->space.n; i++)
		hd_search_evaluate_alone(&s.e, &out->space, i);
	hd_search_add_families(&s);
	given(&s);
	hd_search_judge_families(&s);
	rounds(&s);
	if (s.nitems && s.best < INFINITY)
		climb(&s);
	hd_search_end(&s);
	return HD_OK;
}
