/* SPDX-License-Identifier: Apache-2.0
 * The search. Layouts that differ only in the order of units and in keys of other sections are a family. Small plans of
 * it, its probe, show what a layer costs, a micro-batch, and a step (families.c). They serve its relatives too:
 * families with another choice of one strategy, or with other numbers of replicas and stages.
 *
 * Families that cannot fit are dropped. The most promising family is opened: replaced by its relatives with each value
 * of the keys. These are probed themselves when it is their turn, and the most promising layout is planned whole. The
 * ratio of the planned time to the guess then corrects the guesses of similar layouts. The search ends when no other
 * layout can be faster than the best by its bound, or when none is likely to come near it. It also ends after a given
 * number of plans.
 *
 * Then the layouts that differ from one of the best in one point are probed. The most promising are planned too, as
 * long as that helps. The order of a layout's units needs a plan with all its layers, so it is computed only when the
 * layout is next.
 *
 * Rounds have a fixed size, so the layouts that are looked at do not depend on the number of processors.
 */
#include <config.h>
#include "engine/models/model.h"
#include "engine/predict/here.h"
#include "engine/search/queue.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUND 16
#define ROUND_MOST 256 /* for kinds that need no plan, or many small ones at once */
#define EAGER \
	0.93 /* factor of the key of a layout that is likely the best, so that it precedes slightly better guesses */
#define LONGEST_PERIOD 6  /* most layers of a period in a small plan */
#define CLOSE 1.01        /* times the best: its neighbours with a longer guess are not planned */
#define MUCH_PATIENCE 1.3 /* in place of PATIENCE while few layouts have been planned whole */
#define PATIENCE \
	1.03 /* times the best: with a limit of tries, the search does not look at layouts that have a longer guess */

/* -- a family's layouts -------------------------------------------------------------------------------------------- */
static const char *staged_refused(const struct search_state *s, const struct space_layout *l)
{
	const char *why = NULL;

	for (int i = 0; i < s->e.space->n && !why; i++)
		if (s->e.space->strategies[i].stages)
			why = hd_search_refused(s, l, i);
	return why;
}

static const struct order_probe without_waits = { .bubble_of = 1, .chunks = 1 };

/* Queues a layout. Until its order of units is known, it is assumed to have no waits. */
static void queue_layout(struct search_state *s, const struct space_layout *l, int64_t probe)
{
	const struct probe *p = &s->probes[probe];
	struct probe_shape shape = hd_search_shape(s, l, p->micros);
	struct queued it = { .kind = QUEUED_LAYOUT, .layout = *l, .layouts = 1, .probe = probe };

	it.keys = hd_layout_keys(s->e.space, l);
	const char *why = staged_refused(s, l);

	if (why) {
		hd_search_drop_refused(s, l, 1, why);
		return;
	}
	if (hd_search_drop_if_no_room(s, l, 1, p, &shape))
		return;
	it.bound = hd_bound_step(p, &shape);
	it.key = larger_of(hd_guess_step(p, &shape, &without_waits), it.bound) *
		 hd_search_penalty(s, hd_guess_quick_memory(p, &shape, 1));
	hd_search_push(s, &it);
}

/* Queues all layouts that differ from l in the choices of stages, from strategy i on. */
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
	for (mine.choice[i] = 0; mine.choice[i] < hd_search_choices(s, i); mine.choice[i]++)
		queue_staged(s, &mine, probe, i + 1);
}

/* Returns in how many points two layouts are alike; those of stages count twice. */
static int likeness(const struct space *of, const struct space_layout *a, const struct space_layout *b)
{
	int n = 0;

	for (int i = 0; i < of->n; i++) {
		int same = a->size[i] == b->size[i];

		same += same && (!hd_layout_used(a, i) || a->choice[i] == b->choice[i]);
		n += of->strategies[i].stages ? 2 * same : same;
	}
	for (int i = 0; i < of->nkeys; i++)
		n += a->value[i] == b->value[i];
	return n;
}

/* Returns whether the choices of stages are the same, and the keys with rare values. They decide the order of units, and
 * so by how much a guess of memory is off. */
static int same_order_of_units(const struct space *of, const struct space_layout *a, const struct space_layout *b)
{
	for (int i = 0; i < of->n; i++)
		if (of->strategies[i].stages && hd_layout_used(a, i) != hd_layout_used(b, i))
			return 0;
		else if (of->strategies[i].stages && hd_layout_used(a, i) && a->choice[i] != b->choice[i])
			return 0;
	for (int i = 0; i < of->nkeys; i++)
		if (of->keys[i].nfirst < of->keys[i].n && a->value[i] != b->value[i])
			return 0;
	return 1;
}

/* Returns the layout most like l among those that were guessed and planned whole, or NULL if there is none. */
static const struct found_layout *most_like(const struct search_state *s, const struct space_layout *l)
{
	const struct found_layout *best = NULL;
	int most = -1;

	for (int64_t i = 0; i < s->out->nfound; i++) {
		int n = likeness(s->e.space, &s->out->found[i].layout, l);

		if (n <= most || s->out->found[i].guess <= 0 ||
		    !same_order_of_units(s->e.space, &s->out->found[i].layout, l))
			continue;
		best = &s->out->found[i];
		most = n;
	}
	return best;
}

/* Sets the key of a layout: its guess, corrected by how far off the guess of a similar layout was. A layout that is
 * unlikely to fit comes later. */
static void set_key(struct search_state *s, struct queued *it)
{
	const struct found_layout *like = most_like(s, &it->layout);
	double memory = it->memory * (like ? like->result.memory / like->guessed_memory : 1);

	it->key = larger_of(it->guess * (like ? like->result.step / like->guess : 1), it->bound) *
		  hd_search_penalty(s, memory);
	if (it->deferred)
		it->key *= PATIENCE;
	it->likely = it->key;
	if (it->key < s->best)
		it->key *= EAGER;
	it->seen = s->out->nfound;
}

/* Returns 0, or an error code if the order is refused. */
static int guess_ordered(struct search_state *s, struct queued *it)
{
	const struct probe *p = &s->probes[it->probe];
	struct probe_shape shape = hd_search_shape(s, &it->layout, p->micros);
	const struct order_probe *o = hd_search_order(s, &it->layout, p->micros);

	if (o->verdict.code)
		return o->verdict.code;
	it->kind = QUEUED_ORDERED;
	it->guess = hd_guess_step(p, &shape, o);
	it->memory = hd_guess_memory(p, &shape, o);
	set_key(s, it);
	return 0;
}

static void queue_ordered(struct search_state *s, struct queued *it)
{
	if (guess_ordered(s, it))
		hd_search_drop_refused(s, &it->layout, 1,
				       hd_search_order(s, &it->layout, s->probes[it->probe].micros)->verdict.why);
	else
		hd_search_push(s, it);
}

static void order_layouts(struct search_state *s, struct queued *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		hd_search_want_order(s, &v[i].layout, s->probes[v[i].probe].micros);
	hd_search_make_orders(s);
	for (int64_t i = 0; i < n; i++)
		queue_ordered(s, &v[i]);
}

static void open_values(struct search_state *s, const struct queued *v, int64_t n)
{
	struct space_layout *l = hd_alloc(((size_t)n + 1) * sizeof(*l));
	struct probe *p = hd_alloc(((size_t)n + 1) * sizeof(*p));

	for (int64_t i = 0; i < n; i++)
		l[i] = v[i].layout;
	hd_search_evaluate_probes(&s->e, l, n, 1, p);
	for (int64_t i = 0; i < n; i++)
		if (p[i].verdict.code)
			hd_search_drop_refused(s, &l[i], v[i].layouts, p[i].verdict.why);
		else
			queue_staged(s, &l[i], hd_search_add_probe(s, &p[i]), 0);
	free(l), free(p);
}

/* -- rounds -------------------------------------------------------------------------------------------------------- */
static void evaluate(struct search_state *s, const struct queued *v, int64_t n)
{
	struct space_layout *l = hd_alloc(((size_t)n + 1) * sizeof(*l));
	struct evaluated *r = hd_alloc(((size_t)n + 1) * sizeof(*r));

	for (int64_t i = 0; i < n; i++)
		l[i] = v[i].layout;
	hd_search_evaluate(&s->e, l, n, r);
	for (int64_t i = 0; i < n; i++)
		hd_search_add_found(s, &v[i], &r[i]);
	free(l), free(r);
}

/* Returns whether nothing that is left is likely to be better, so that a limited search ends. */
static int is_hopeless(const struct search_state *s, const struct queued *it)
{
	double patience = s->out->nfits < ROUND ? MUCH_PATIENCE : it->kind == QUEUED_ORDERED ? PATIENCE : 1;

	return s->o->tries && !s->o->patient && it->key > patience * s->best;
}

/* The most entries of each kind in a round. Kinds that cost more have fewer, so each entry is chosen with more results
 * of the others. */
static const int64_t most_of[QUEUED_KINDS] = { ROUND / 2, 2 * ROUND, ROUND_MOST, ROUND / 4 };

struct round {
	struct queued v[QUEUED_KINDS][ROUND_MOST];
	int64_t n[QUEUED_KINDS];
};

/* Returns whether a layout that small plans cannot tell from it was planned, or is about to be. The two are likely to
 * be the same in all. */
static int has_twin(const struct search_state *s, const struct round *r, const struct queued *it)
{
	if (hd_search_has_twin(s, it))
		return 1;
	for (int64_t i = 0; i < r->n[QUEUED_ORDERED]; i++)
		if (r->v[QUEUED_ORDERED][i].guess == it->guess && r->v[QUEUED_ORDERED][i].bound == it->bound)
			return 1;
	return 0;
}

/* Returns 1 if an entry is not to be taken now: it is known, or was dropped or queued again. */
static int is_settled(struct search_state *s, const struct round *r, struct queued *it)
{
	int deferred = it->kind == QUEUED_ORDERED && (it->deferred || has_twin(s, r, it));

	if (it->kind >= QUEUED_LAYOUT && hd_search_is_planned(s, &it->layout)) /* it is the INI's own */
		return 1;
	if (it->bound >= s->best && !s->o->unbounded) {
		hd_search_drop_slower(s, it);
		return 1;
	}
	if (it->kind == QUEUED_ORDERED && hd_search_is_same(s, it)) {
		hd_search_drop_same(s, it);
		return 1;
	}
	if (it->kind == QUEUED_ORDERED && (it->seen != s->out->nfound || it->deferred != deferred)) {
		it->deferred = deferred;
		set_key(s, it);
		hd_search_push(s, it);
		return 1;
	}
	return 0;
}

/* Takes the most promising entries. Drops layouts on the way whose bound is not below the best. Returns how
 * many were taken. */
static int64_t take_round(struct search_state *s, struct round *r)
{
	int64_t taken = 0;
	struct queued it;

	memset(r->n, 0, sizeof(r->n));
	while (hd_search_pop(s, &it)) {
		if (is_settled(s, r, &it))
			continue;
		/* The second of two twins waits a round: the result of the first may show that they are the same. */
		if (is_hopeless(s, &it) || r->n[it.kind] == most_of[it.kind] || (it.deferred && r->n[QUEUED_ORDERED])) {
			hd_search_push(s, &it);
			break;
		}
		r->v[it.kind][r->n[it.kind]++] = it;
		taken++;
	}
	return taken;
}

static void rounds(struct search_state *s)
{
	struct round *r = hd_alloc(sizeof(*r));

	int64_t before = s->out->nfound; /* the INI's own layout does not count as a try */

	while ((!s->o->tries || s->out->nfound - before < s->o->tries) && take_round(s, r) > 0) {
		if (r->n[QUEUED_FAMILY])
			hd_search_open_families(s, r->v[QUEUED_FAMILY], r->n[QUEUED_FAMILY]);
		if (r->n[QUEUED_VALUES])
			open_values(s, r->v[QUEUED_VALUES], r->n[QUEUED_VALUES]);
		if (r->n[QUEUED_LAYOUT])
			order_layouts(s, r->v[QUEUED_LAYOUT], r->n[QUEUED_LAYOUT]);
		if (r->n[QUEUED_ORDERED])
			evaluate(s, r->v[QUEUED_ORDERED], r->n[QUEUED_ORDERED]);
	}
	free(r);
}

/* -- near the best ------------------------------------------------------------------------------------------------- */
struct nearby { /* layouts, each once */
	struct queued *v;
	int64_t n;
	size_t cap;
};

static void add_near(struct search_state *s, const struct space_layout *l, struct nearby *to)
{
	if (hd_search_is_planned(s, l))
		return;
	for (int64_t i = 0; i < to->n; i++)
		if (hd_layout_same(s->e.space, &to->v[i].layout, l))
			return;
	to->v = hd_grow(to->v, (size_t)to->n, &to->cap, sizeof(*to->v));
	to->v[to->n++] = (struct queued){ .layout = *l, .layouts = 1, .keys = hd_layout_keys(s->e.space, l) };
}

static void add_near_keys(struct search_state *s, const struct space_layout *best, struct nearby *to)
{
	const struct space *of = s->e.space;

	for (int i = 0; i < of->n; i++)
		for (int k = 0; k < of->strategies[i].nchoices && hd_layout_used(best, i); k++) {
			struct space_layout l = *best;

			l.choice[i] = k;
			if (!hd_search_refused(s, &l, i))
				add_near(s, &l, to);
		}
	for (int i = 0; i < of->nkeys; i++)
		for (int k = 0; k < of->keys[i].n; k++) {
			struct space_layout l = *best;

			l.value[i] = k;
			add_near(s, &l, to);
		}
}

static int is_allowed(const struct search_state *s, const struct space_layout *l, int i)
{
	return hd_space_allows(s->e.space, i, l->size[i]) && !hd_search_refused(s, l, i);
}

/* Adds the layouts in which a factor of two or three moves from one strategy's size to another's. */
static void add_near_sizes(struct search_state *s, const struct space_layout *best, struct nearby *to)
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
				if (is_allowed(s, &l, i) && is_allowed(s, &l, k))
					add_near(s, &l, to);
			}
}

/* Adds all layouts that differ from l in one point. */
static void add_neighbours(struct search_state *s, const struct space_layout *l, struct nearby *to)
{
	struct space_layout *orders;
	int n;

	orders = hd_layout_orders(s->e.space, l, &n);
	for (int i = 0; i < n; i++)
		add_near(s, &orders[i], to);
	free(orders);
	add_near_keys(s, l, to);
	add_near_sizes(s, l, to);
}

/* Probes the layouts of x, and keeps those that the small plans and their bounds do not exclude. */
static void probe_near(struct search_state *s, struct nearby *x)
{
	struct space_layout *l = hd_alloc(((size_t)x->n + 1) * sizeof(*l));
	struct probe *p = hd_alloc(((size_t)x->n + 1) * sizeof(*p));
	int64_t some = 0;

	for (int64_t i = 0; i < x->n; i++)
		l[i] = x->v[i].layout;
	hd_search_evaluate_probes(&s->e, l, x->n, 1, p);
	for (int64_t i = 0; i < x->n; i++) {
		struct probe_shape shape = hd_search_shape(s, &l[i], p[i].micros);
		struct queued it = x->v[i];

		if (p[i].verdict.code || staged_refused(s, &l[i]))
			continue;
		it.bound = hd_bound_step(&p[i], &shape);
		it.probe = hd_search_add_probe(s, &p[i]);
		if (it.bound < s->best && hd_guess_step(&p[i], &shape, &without_waits) < PATIENCE * s->best &&
		    (s->limit <= 0 || hd_bound_memory(&p[i], &shape) <= s->limit))
			x->v[some++] = it;
	}
	x->n = some;
	free(l), free(p);
}

/* Plans the most promising layouts of x whole. */
static void plan_near(struct search_state *s, struct nearby *x)
{
	int64_t some = 0;

	probe_near(s, x);
	for (int64_t i = 0; i < x->n; i++)
		hd_search_want_order(s, &x->v[i].layout, s->probes[x->v[i].probe].micros);
	hd_search_make_orders(s);
	for (int64_t i = 0; i < x->n; i++) {
		struct queued it = x->v[i];

		it.serial = i;
		if (!guess_ordered(s, &it) && it.likely < CLOSE * s->best && !hd_search_is_same(s, &it))
			x->v[some++] = it;
	}
	if (some)
		qsort(x->v, (size_t)some, sizeof(*x->v), hd_search_by_key);
	evaluate(s, x->v, some < ROUND / 2 ? some : ROUND / 2);
}

static int by_step(const void *va, const void *vb)
{
	const struct found_layout *a = *(const struct found_layout *const *)va,
				  *b = *(const struct found_layout *const *)vb;

	if (a->result.step != b->result.step)
		return a->result.step < b->result.step ? -1 : 1;
	return a < b ? -1 : a > b; /* in the order in which they were found */
}

/* Copies the fastest layouts that fit, at most `most`, and only one of several that take as long.
 * Returns their number. */
static int64_t fastest(const struct search_state *s, struct space_layout *to, int64_t most)
{
	const struct found_layout **v = hd_alloc(((size_t)s->out->nfound + 1) * sizeof(*v));
	int64_t n = 0, some = 0;

	for (int64_t i = 0; i < s->out->nfound; i++)
		if (s->out->found[i].fits)
			v[n++] = &s->out->found[i];
	qsort(v, (size_t)n, sizeof(*v), by_step);
	for (int64_t i = 0; i < n && some < most; i++)
		if (!i || v[i]->result.step != v[i - 1]->result.step)
			to[some++] = v[i]->layout;
	free(v);
	return some;
}

/* Plans the neighbours of the best layouts, as long as that finds a better one. It starts from several, since the way
 * to a better layout may begin at the second best. */
static void climb(struct search_state *s)
{
	enum { TIMES = 6, BEST = 3 };
	double was = INFINITY;

	for (int t = 0; t < TIMES && s->best < was; t++) {
		struct space_layout best[BEST];
		struct nearby x = { .n = 0 };
		int64_t n = fastest(s, best, BEST);

		was = s->best;
		for (int64_t i = 0; i < n; i++)
			add_neighbours(s, &best[i], &x);
		plan_near(s, &x);
		free(x.v);
	}
}

/* -- the whole ----------------------------------------------------------------------------------------------------- */
/* Evaluates the INI's own layout as the point of the space that seems to be it. Returns whether the two are the same:
 * the INI may have values that the space does not list. */
static int is_own_point(struct search_state *s)
{
	const struct evaluated *own = &s->out->own;
	struct queued it = { .layouts = 1 };

	if (!hd_space_point(s->e.space, s->o->conf, own->micro_batch, &it.layout))
		return 0;
	evaluate(s, &it, 1);
	return s->out->nfound && s->out->found[0].result.step == own->step &&
	       s->out->found[0].result.memory == own->memory;
}

/* Evaluates the INI as it stands, if it has a layout, and as a point of the space, if it is one. So the best found is
 * at least as fast. */
static void evaluate_own_layout(struct search_state *s)
{
	struct evaluated *own = &s->out->own;
	int same;

	own->verdict.code = HD_EINVAL;
	s->out->own_text = hd_conf_text(s->o->conf);
	if (hd_conf_next(s->o->conf, "strategy", NULL) || s->e.space->ranks == 1)
		hd_search_evaluate_own(&s->e, s->o->conf, own);
	same = is_own_point(s);
	s->own_apart = !own->verdict.code && !same && (s->limit <= 0 || own->memory <= s->limit);
	if (s->own_apart && own->step < s->best)
		s->best = own->step;
}

/* Nothing fits: plans the layout that is guessed to need the least memory, to know how much is missing. */
static void plan_nearest(struct search_state *s)
{
	struct queued it = { .layout = s->nearest, .layouts = 1 };

	if (!s->nearest_memory || hd_search_is_planned(s, &s->nearest))
		return;
	evaluate(s, &it, 1);
	hd_search_uncount_no_room(s, 1);
}

static int is_period(const char *letters, size_t n, size_t layers, size_t period)
{
	for (size_t i = period; i < n && i < layers; i++)
		if (letters[i] != letters[i % period])
			return 0;
	return n % period == 0 || layers <= n;
}

/* Returns the number of layers after which the pattern of layers with and without a window repeats. */
static int64_t window_period(const struct hd_model *m)
{
	size_t n = m->window && m->window < m->seq && m->window_layers ? strlen(m->window_layers) : 0, period = 1;

	while (period < n && !is_period(m->window_layers, n, (size_t)m->layers, period))
		period++;
	return (int64_t)period;
}

static int64_t common(int64_t a, int64_t b)
{
	int64_t n = a;

	while (n % b)
		n += a;
	return n;
}

/* Finds how layers repeat. Layers with experts are at intervals, after those at the beginning without experts, and so
 * are layers with a window. If the pattern is too long for a small plan, all layers count as if they had the window.
 * That takes less time, so bounds remain bounds. If the model is refused, its plans report it. */
static void set_period(struct evaluator *e, struct hd_conf *conf)
{
	struct hd_model m = { 0 };
	struct hd_err ignored = { 0 };
	int64_t experts, windows;

	if (hd_families_load(conf, &ignored) >= 0)
		hd_model_read(conf, e->options.data_vocab, &m, &ignored);
	experts = m.experts && m.moe_every > 0 ? m.moe_every : 1;
	e->dense = m.experts ? m.dense_layers : 0;
	windows = window_period(&m);
	e->period = common(experts, windows);
	if (windows > 1 && e->period > LONGEST_PERIOD) {
		e->period = experts;
		e->all_windows = 1;
	}
}

int hd_search(const struct search_options *o, struct search_result *out, struct hd_err *err)
{
	struct search_state s = { .o = o, .out = out, .best = INFINITY };

	*out = (struct search_result){ .layouts = 0 };
	HD_TRY(hd_space_read(o->space, o->conf, &out->space, err));
	out->space.ranks = o->plan.ranks;
	out->space.node = o->plan.node_size;
	s.limit = out->limit = o->memory ? (double)o->memory : hd_machine_memory(o->machine, o->plan.ranks);
	s.e = (struct evaluator){ &out->space, o->machine, o->style, o->plan, 0, 1, 0 };
	set_period(&s.e, o->conf);
	s.batch = hd_section_int(hd_conf_section(o->conf, NULL, "train"), "global_batch");
	for (int i = 0; i < out->space.n; i++)
		hd_search_evaluate_alone(&s.e, &out->space, i);
	hd_search_add_families(&s);
	evaluate_own_layout(&s);
	hd_search_probe_families(&s);
	rounds(&s);
	if (o->tries && s.best < INFINITY)
		climb(&s);
	hd_search_add_own(&s);
	if (!out->nfits)
		plan_nearest(&s);
	hd_search_end(&s);
	return HD_OK;
}
