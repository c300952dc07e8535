/* SPDX-License-Identifier: Apache-2.0
 * Families of layouts: lists them, and finds those that are worth opening. Families differ in sizes, in the order of
 * the axes or in keys of strategies. Two small plans show what a layer of a family costs. Families that differ only in
 * the choice of one strategy are relatives. One of them is probed; the others wait for their turn, and count as equally
 * fast until then.
 */
#include <config.h>
#include "engine/search/queue.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 512 /* families that are probed at once */
#define MANY 4096 /* all orders on the mesh are tried from the start if the families are no more than this */

struct probe_shape hd_search_shape(const struct search_state *s, const struct space_layout *l, int64_t micros)
{
	struct probe_shape shape = {
		.stages = 1,
		.layers = s->e.space->layers,
		.micros = micros,
		.dense = s->e.dense,
		.period = s->e.period,
	};

	for (int i = 0; i < s->e.space->n; i++)
		shape.stages *= s->e.space->strategies[i].stages ? l->size[i] : 1;
	return shape;
}

int64_t hd_search_staged_choices(const struct search_state *s, const struct space_layout *l)
{
	const struct space *of = s->e.space;
	int64_t n = 1;

	for (int i = 0; i < of->n; i++)
		if (of->strategies[i].stages && hd_layout_used(l, i))
			n *= hd_search_choices(s, i);
	return n;
}

static int64_t members(const struct search_state *s, const struct space_layout *l)
{
	int64_t n = hd_search_staged_choices(s, l);

	for (int i = 0; i < s->e.space->nkeys; i++)
		n *= hd_search_values(s, i);
	return n;
}

/* Families that differ only in the choice of this strategy are relatives. */
int hd_search_last_used(const struct space *of, const struct space_layout *l)
{
	int last = -1;

	for (int i = 0; i < of->n; i++)
		if (hd_layout_used(l, i) && !of->strategies[i].stages)
			last = i;
	return last;
}

int hd_search_choices(const struct search_state *s, int i)
{
	const struct space_strategy *of = &s->e.space->strategies[i];

	return hd_search_is_limited(s) ? of->nfirst : of->nchoices;
}

int hd_search_values(const struct search_state *s, int i)
{
	const struct space_key *k = &s->e.space->keys[i];

	return hd_search_is_limited(s) ? k->nfirst : k->n;
}

struct relatives {
	struct space_layout *v;
	int64_t n;
	size_t cap;
};

static void add_choices_of(const struct search_state *s, const struct space_layout *l, int i, struct relatives *to)
{
	struct space_layout mine = *l;

	for (mine.choice[i] = 0; mine.choice[i] < hd_search_choices(s, i); mine.choice[i]++) {
		if (hd_space_refuses(s->e.space, i, mine.size[i], mine.choice[i]))
			continue;
		to->v = hd_grow(to->v, (size_t)to->n, &to->cap, sizeof(*to->v));
		to->v[to->n++] = mine;
	}
}

/* Returns the only strategy of stages, or -1 if there is none or several. */
static int only_staged(const struct space *of)
{
	int found = -1;

	for (int i = 0; i < of->n; i++) {
		if (of->strategies[i].stages && found >= 0)
			return -1;
		if (of->strategies[i].stages)
			found = i;
	}
	return found;
}

/* Returns whether families with different numbers of stages and replicas are relatives, too. A layer of a micro-batch
 * costs the same in all of them. They are not relatives if all orders on the mesh are tried, since sizes decide which
 * orders are alike. */
static int are_split(const struct search_state *s, int last, int staged)
{
	return !s->all_orders && staged >= 0 && s->e.space->strategies[last].replicas;
}

/* Lists the relatives of l, l among them. Those with most stages come first, since they need the least memory. The
 * caller frees v. */
static struct relatives relatives_of(const struct search_state *s, const struct space_layout *l)
{
	const struct space *of = s->e.space;
	struct relatives r = { .n = 0 };
	int last = hd_search_last_used(of, l), staged = only_staged(of);
	struct space_layout mine = *l;

	if (last < 0) {
		r.v = hd_grow(NULL, 0, &r.cap, sizeof(*r.v));
		r.v[r.n++] = *l;
	} else if (!are_split(s, last, staged)) {
		add_choices_of(s, l, last, &r);
	} else {
		int64_t product = l->size[last] * l->size[staged];

		for (int64_t stages = product / 2; stages >= 1; stages--) {
			if (product % stages || !hd_space_allows(of, staged, stages) ||
			    !hd_space_allows(of, last, product / stages))
				continue;
			mine.size[staged] = stages;
			mine.size[last] = product / stages;
			add_choices_of(s, &mine, last, &r);
		}
	}
	return r;
}

static int64_t number_of(const struct search_state *s, const struct relatives *r, const struct space_layout *l)
{
	int64_t i = 0;

	while (i < r->n && !hd_layout_same(s->e.space, &r->v[i], l))
		i++;
	return i;
}

static int is_first_relative(const struct search_state *s, const struct space_layout *l)
{
	struct relatives r = relatives_of(s, l);
	int first = number_of(s, &r, l) == 0;

	free(r.v);
	return first;
}

/* Counts the families with all orders on the mesh. Of relatives, only the first is probed. The others follow if it is
 * promising, or impossible. */
static void add_orders(struct search_state *s, const struct space_layout *l)
{
	int n = 1;
	struct space_layout *v = s->all_orders ? hd_layout_orders(s->e.space, l, &n) : NULL;

	s->all_families += n;
	s->out->layouts += n * members(s, l);
	for (int i = 0; i < n && is_first_relative(s, l); i++)
		hd_search_add_family(s, v ? &v[i] : l);
	free(v);
}

const char *hd_search_refused(const struct search_state *s, const struct space_layout *l, int i)
{
	return hd_layout_used(l, i) ? hd_space_refuses(s->e.space, i, l->size[i], l->choice[i]) : NULL;
}

/* Adds the families with each choice of strategy i and those after it. why: the reason why l is already
 * refused, or NULL. */
static void add_choices(struct search_state *s, struct space_layout *l, int i, const char *why)
{
	const struct space *of = s->e.space;
	int n = i < of->n && hd_layout_used(l, i) && !of->strategies[i].stages ? hd_search_choices(s, i) : 1;

	if (i == of->n && why) {
		s->out->layouts += members(s, l);
		hd_search_drop_refused(s, l, members(s, l), why);
	} else if (i == of->n) {
		add_orders(s, l);
	}
	for (int k = 0; k < n && i < of->n; k++) {
		const char *no;

		l->choice[i] = k;
		no = of->strategies[i].stages ? NULL : hd_search_refused(s, l, i);
		add_choices(s, l, i + 1, why ? why : no);
	}
}

static void add_sizes(struct search_state *s, struct space_layout *l, int i, int64_t left)
{
	const struct space *of = s->e.space;

	if (i == of->n) {
		if (left == 1)
			add_choices(s, l, 0, NULL);
		return;
	}
	for (int64_t n = 1; n <= left; n++) {
		if (left % n || !hd_space_allows(of, i, n))
			continue;
		l->size[i] = n;
		add_sizes(s, l, i + 1, left / n);
	}
	l->size[i] = 1;
}

/* Returns whether the layout's order is one of those that add_orders counts. */
static int has_counted_order(const struct search_state *s, const struct space_layout *l)
{
	struct space_layout first = *l, *v;
	int n = 1, counted = 0;

	for (int i = 0; i < s->e.space->n; i++)
		first.order[i] = i;
	v = s->all_orders ? hd_layout_orders(s->e.space, &first, &n) : NULL;
	for (int i = 0; i < n && !counted; i++)
		counted = hd_layout_same(s->e.space, v ? &v[i] : &first, l);
	free(v);
	return counted;
}

void hd_search_count(struct search_state *s, const struct space_layout *l)
{
	int counted = has_counted_order(s, l);

	for (int i = 0; i < s->e.space->n; i++)
		counted &= !hd_layout_used(l, i) || l->choice[i] < hd_search_choices(s, i);
	for (int i = 0; i < s->e.space->nkeys; i++)
		counted &= l->value[i] < hd_search_values(s, i);
	s->out->layouts += !counted;
}

/* Sets which layouts of the space are not counted from the beginning. */
static void set_few(struct search_state *s)
{
	s->out->few_orders = !s->all_orders;
	for (int i = 0; i < s->e.space->n; i++)
		s->out->few_choices |= hd_search_choices(s, i) < s->e.space->strategies[i].nchoices;
	for (int i = 0; i < s->e.space->nkeys; i++)
		s->out->few_choices |= hd_search_values(s, i) < s->e.space->keys[i].n;
}

void hd_search_add_families(struct search_state *s)
{
	struct space_layout l = { .size = { 0 } };

	for (int i = 0; i < s->e.space->n; i++)
		l.order[i] = i;
	s->all_orders = 1;
	add_sizes(s, &l, 0, s->e.space->ranks);
	set_few(s);
	if (s->all_families <= MANY || s->o->unbounded)
		return;
	s->nfamilies = s->all_families = s->out->layouts = s->out->ndropped = 0;
	memset(s->out->dropped, 0, sizeof(s->out->dropped));
	s->all_orders = 0;
	set_few(s);
	add_sizes(s, &l, 0, s->e.space->ranks);
}

/* Adds the next relative of l as a family, since it may be possible where l is not. */
static void try_relative(struct search_state *s, const struct space_layout *l)
{
	struct relatives r = relatives_of(s, l);
	int64_t next = number_of(s, &r, l) + 1;

	if (next < r.n)
		hd_search_add_family(s, &r.v[next]);
	free(r.v);
}

/* OPTIMISM: how much of the guess for the layout that was probed the family's best layout may take. Without
 * recomputation it is three quarters. RELATIVE: how much of the same guess a relative's layouts may take. */
#define OPTIMISM 0.75
#define RELATIVE 0.95

static int64_t members_from(const struct search_state *s, const struct relatives *r, int64_t from)
{
	int64_t n = 0;

	for (; from < r->n; from++)
		n += members(s, &r->v[from]);
	return n;
}

/* Returns the micro-batches of relative l, given those of the family that was probed. */
static int64_t micros_of(const struct space *of, const struct space_layout *l, const struct space_layout *probed,
			 int64_t micros)
{
	int last = hd_search_last_used(of, l);
	int64_t n = last < 0 ? micros : micros * probed->size[last] / l->size[last];

	return n > 1 ? n : 1;
}

/* Queues a family with its relatives, or drops it if it has no room. p: its probe with the first values of the keys,
 * which need the least memory. another: the probe has other values, since the first were refused. */
static void queue_family(struct search_state *s, const struct space_layout *l, const struct probe *p, int another)
{
	struct probe_shape shape = hd_search_shape(s, l, p->micros);
	struct queued it = { .layout = *l, .kind = QUEUED_FAMILY };
	struct relatives r;

	if (!another && hd_search_drop_if_no_room(s, l, members(s, l), p, &shape)) {
		try_relative(s, l);
		return;
	}
	r = relatives_of(s, l);
	it.layouts = members_from(s, &r, number_of(s, &r, l));
	it.key = INFINITY;
	for (int64_t i = number_of(s, &r, l); i < r.n; i++) {
		shape = hd_search_shape(s, &r.v[i], micros_of(s->e.space, &r.v[i], l, p->micros));
		it.key = fmin(it.key, OPTIMISM * hd_guess_quick(p, &shape));
	}
	hd_search_push(s, &it);
	free(r.v);
}

/* Probes n families and queues those that are possible. Moves those that were refused to the front of v and p.
 * Returns their number. */
static int64_t probe_families(struct search_state *s, struct space_layout *v, int64_t n, struct probe *p, int another)
{
	int64_t refused = 0;

	for (int64_t i = 0; i < n; i += BLOCK) {
		int64_t some = n - i < BLOCK ? n - i : BLOCK;

		hd_search_evaluate_probes(&s->e, &v[i], some, 0, &p[i]);
		for (int64_t k = i; k < i + some; k++) {
			if (!p[k].verdict.code) {
				queue_family(s, &v[k], &p[k], another);
				continue;
			}
			p[refused] = p[k];
			v[refused++] = v[k];
		}
	}
	return refused;
}

/* Probes refused families again with each other value of one key, since some are possible with it. Returns how many
 * are still refused. */
static int64_t probe_others(struct search_state *s, struct space_layout *v, int64_t n, struct probe *p)
{
	const struct space *of = s->e.space;

	for (int i = 0; i < of->nkeys && n; i++) {
		for (int k = 1; k < hd_search_values(s, i); k++) {
			for (int64_t f = 0; f < n; f++)
				v[f].value[i] = k;
			n = probe_families(s, v, n, p, 1);
		}
		for (int64_t f = 0; f < n; f++)
			v[f].value[i] = 0;
	}
	return n;
}

static void probe_some(struct search_state *s, struct space_layout *v, int64_t n)
{
	struct probe *p = hd_alloc(((size_t)n + 1) * sizeof(*p));

	n = probe_families(s, v, n, p, 0);
	n = probe_others(s, v, n, p);
	for (int64_t i = 0; i < n; i++) {
		hd_search_drop_refused(s, &v[i], members(s, &v[i]), p[i].verdict.why);
		try_relative(s, &v[i]);
	}
	free(p);
}

/* -- families to begin with ---------------------------------------------------------------------------------------- */
#define WORTH_A_LOOK 2 /* times the guess of the most promising family */

/* Returns a bit for each strategy that l uses. */
static uint64_t class_of(const struct space *of, const struct space_layout *l)
{
	uint64_t used = 0;

	for (int i = 0; i < of->n; i++)
		used |= (uint64_t)hd_layout_used(l, i) << i;
	return used;
}

/* Queues each relative by itself, ahead of all that is queued by a guess. */
static void open_first(struct search_state *s, const struct queued *it)
{
	struct relatives r = relatives_of(s, &it->layout);

	for (int64_t i = number_of(s, &r, &it->layout); i < r.n; i++) {
		struct queued mine = *it;

		mine.layout = r.v[i];
		mine.layouts = members(s, &r.v[i]);
		mine.without_relatives = 1;
		mine.key = 0;
		hd_search_push(s, &mine);
	}
	free(r.v);
}

/* Puts the most promising family of each class first, with each of its choices, unless it is hopeless. A class is the
 * families that use the same strategies. Where communication decides the time, as with replicas alone, a guess for one
 * choice says little about another. */
static void begin_with_each_class(struct search_state *s)
{
	struct queued *all = s->items;
	int64_t n = s->nitems;
	uint64_t *seen = hd_alloc(((size_t)n + 1) * sizeof(*seen));
	int64_t nseen = 0;

	s->items = NULL;
	s->nitems = 0;
	s->cap_items = 0;
	if (n)
		qsort(all, (size_t)n, sizeof(*all), hd_search_by_key);
	for (int64_t i = 0, k; i < n; i++) {
		uint64_t class = class_of(s->e.space, &all[i].layout);

		for (k = 0; k < nseen && seen[k] != class;)
			k++;
		if (k < nseen || all[i].key > WORTH_A_LOOK * all[0].key) {
			hd_search_push(s, &all[i]);
			continue;
		}
		seen[nseen++] = class;
		open_first(s, &all[i]);
	}
	free(seen), free(all);
}

static void probe_all(struct search_state *s)
{
	while (s->nfamilies) {
		struct space_layout *v = s->families;
		int64_t n = s->nfamilies;

		s->families = NULL;
		s->nfamilies = 0;
		s->cap_families = 0;
		probe_some(s, v, n);
		free(v);
	}
}

void hd_search_probe_families(struct search_state *s)
{
	probe_all(s);
	if (hd_search_is_limited(s))
		begin_with_each_class(s);
}

/* -- families that are opened -------------------------------------------------------------------------------------- */
static int64_t value_count(const struct search_state *s)
{
	int64_t n = 1;

	for (int i = 0; i < s->e.space->nkeys; i++)
		n *= hd_search_values(s, i);
	return n;
}

static void set_values(const struct search_state *s, struct space_layout *l, int64_t number)
{
	for (int i = 0; i < s->e.space->nkeys; i++) {
		l->value[i] = (int)(number % hd_search_values(s, i));
		number /= hd_search_values(s, i);
	}
}

/* Queues l with its values of the keys. p: the probe of `probed`, which is l or a relative of it. */
static void queue_values(struct search_state *s, const struct space_layout *l, const struct space_layout *probed,
			 const struct probe *p)
{
	int own = hd_layout_same(s->e.space, l, probed), last = hd_search_last_used(s->e.space, l);
	/* A relative with a different choice may shard its states; this share of them remains at least. */
	double states = own || l->choice[last] == probed->choice[last] ? 1 : 1 / (double)l->size[last];
	struct probe_shape shape = hd_search_shape(s, l, micros_of(s->e.space, l, probed, p->micros));
	struct queued it = { .layout = *l, .kind = QUEUED_VALUES, .layouts = hd_search_staged_choices(s, l) };

	if (own && p->verdict.code) {
		hd_search_drop_refused(s, l, it.layouts, p->verdict.why);
		return;
	}
	if (own && hd_search_drop_if_no_room(s, l, it.layouts, p, &shape))
		return;
	if (!p->verdict.code)
		it.key = RELATIVE * hd_guess_quick(p, &shape) *
			 hd_search_penalty(s, hd_guess_quick_memory(p, &shape, states));
	hd_search_push(s, &it);
}

/* Queues a family and its relatives with each of n values, whose probes are p. A value that was refused may be possible
 * for a relative. There it counts as equally promising as the first value that was not refused. */
static void open_family(struct search_state *s, const struct queued *family, const struct space_layout *l,
			const struct probe *p, int64_t n)
{
	struct relatives r = relatives_of(s, l);
	int64_t possible = 0;

	while (possible < n - 1 && p[possible].verdict.code)
		possible++;
	for (int64_t i = number_of(s, &r, l), own = 1; i < r.n && (own || !family->without_relatives); i++, own = 0)
		for (int64_t k = 0; k < n; k++) {
			struct space_layout probed = *l, mine = r.v[i];
			int64_t by = own || !p[k].verdict.code ? k : possible;

			set_values(s, &mine, k);
			set_values(s, &probed, k);
			queue_values(s, &mine, &probed, &p[by]);
		}
	free(r.v);
}

void hd_search_open_families(struct search_state *s, const struct queued *v, int64_t n)
{
	int64_t each = value_count(s);
	struct space_layout *l = hd_alloc((size_t)(n * each + 1) * sizeof(*l));
	struct probe *p = hd_alloc((size_t)(n * each + 1) * sizeof(*p));

	for (int64_t i = 0; i < n * each; i++) {
		l[i] = v[i / each].layout;
		set_values(s, &l[i], i % each);
	}
	hd_search_evaluate_probes(&s->e, l, n * each, 0, p);
	for (int64_t i = 0; i < n; i++)
		open_family(s, &v[i], &l[i * each], &p[i * each], each);
	free(l), free(p);
}
