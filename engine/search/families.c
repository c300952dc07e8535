/* SPDX-License-Identifier: Apache-2.0
 * Families of layouts: which there are, and which are worth opening.  A family differs from another in sizes, in the order of the
 * axes or in keys of strategies; two small plans say what one of its layers costs.  Families that differ in one strategy's
 * choice alone are relatives. One of them is probed; the others follow when it is their turn, as if they were as fast.
 */
#include <config.h>
#include "engine/search/queue.h"
#include <stdlib.h>
#include <string.h>

#define BLOCK 512 /* probes at once */
#define MANY 4096 /* families of which all orders on the mesh are tried at once */

struct probe_shape hd_search_shape(const struct search_state *s, const struct space_layout *l, int64_t micros)
{
	struct probe_shape shape = {
		.stages = 1, .layers = s->e.space->layers, .period = s->e.period, .micros = micros
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
			n *= of->strategies[i].nchoices;
	return n;
}

static int64_t members(const struct search_state *s, const struct space_layout *l)
{
	int64_t n = hd_search_staged_choices(s, l);

	for (int i = 0; i < s->e.space->nkeys; i++)
		n *= s->e.space->keys[i].n;
	return n;
}

/* Of a family's strategies the one whose choices change least, as far as anybody can tell: the outermost that is used. Families
 * that differ in its choice alone are relatives.  -1: there is none. */
static int last_used(const struct space *of, const struct space_layout *l)
{
	int last = -1;

	for (int i = 0; i < of->n; i++)
		if (hd_layout_used(l, i) && !of->strategies[i].stages)
			last = i;
	return last;
}

/* The relative with the next choice; 0: there is none that is not refused by itself. */
static int next_relative(const struct space *of, struct space_layout *l)
{
	int i = last_used(of, l);

	while (i >= 0 && ++l->choice[i] < of->strategies[i].nchoices)
		if (!hd_space_refuses(of, i, l->size[i], l->choice[i]))
			return 1;
	return 0;
}

static int is_first_relative(const struct space *of, const struct space_layout *l)
{
	struct space_layout first = *l;
	int i = last_used(of, l);

	if (i < 0)
		return 1;
	first.choice[i] = -1;
	return next_relative(of, &first) && first.choice[i] == l->choice[i];
}

/* All are counted; the first of relatives is probed, the others if it is promising, or impossible. */
static void add_orders(struct search_state *s, const struct space_layout *l)
{
	int n = 1;
	struct space_layout *v = s->all_orders ? hd_layout_orders(s->e.space, l, &n) : NULL;

	s->all_families += n;
	s->out->layouts += n * members(s, l);
	for (int i = 0; i < n && is_first_relative(s->e.space, l); i++)
		hd_search_family(s, v ? &v[i] : l);
	free(v);
}

const char *hd_search_refused(const struct search_state *s, const struct space_layout *l, int i)
{
	return hd_layout_used(l, i) ? hd_space_refuses(s->e.space, i, l->size[i], l->choice[i]) : NULL;
}

/* why: l is refused already; NULL: it is not. */
static void add_choices(struct search_state *s, struct space_layout *l, int i, const char *why)
{
	const struct space *of = s->e.space;
	int n = i < of->n && hd_layout_used(l, i) && !of->strategies[i].stages ? of->strategies[i].nchoices : 1;

	if (i == of->n && why) {
		s->out->layouts += members(s, l);
		hd_search_lost(s, l, members(s, l), why);
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
	const struct space_strategy *at = &of->strategies[i];

	if (i == of->n) {
		if (left == 1)
			add_choices(s, l, 0, NULL);
		return;
	}
	for (int64_t n = 1; n <= left; n++) {
		if (left % n || n < at->least || n > at->most || (at->stages && n > of->layers))
			continue;
		l->size[i] = n;
		add_sizes(s, l, i + 1, left / n);
	}
	l->size[i] = 1;
}

void hd_search_add_families(struct search_state *s)
{
	struct space_layout l = { .size = { 0 } };

	for (int i = 0; i < s->e.space->n; i++)
		l.order[i] = i;
	s->all_orders = 1;
	add_sizes(s, &l, 0, s->e.space->ranks);
	if (s->all_families <= MANY || s->o->unbounded)
		return;
	s->nfamilies = s->all_families = s->out->layouts = s->out->nlost = 0;
	memset(s->out->lost, 0, sizeof(s->out->lost));
	s->all_orders = 0;
	add_sizes(s, &l, 0, s->e.space->ranks);
}

/* Its relatives are as promising as it is. */
static void queue_relatives(struct search_state *s, const struct queued *family)
{
	struct queued it = *family;

	it.kind = QUEUED_RELATIVE;
	while (next_relative(s->e.space, &it.layout)) {
		it.layouts = members(s, &it.layout);
		hd_search_push(s, &it);
	}
}

/* What is not possible with this choice may be with another. */
static void try_relative(struct search_state *s, const struct space_layout *l)
{
	struct space_layout next = *l;

	if (next_relative(s->e.space, &next))
		hd_search_family(s, &next);
}

enum { ALONE, WITH_RELATIVES };

/* p: of the first values, which need least memory; another: of others, since those were refused. */
static void judge_family(struct search_state *s, const struct space_layout *l, const struct probe *p, int another,
			 int relatives)
{
	struct probe_shape shape = hd_search_shape(s, l, p->micros);
	struct queued it = { .layout = *l, .kind = QUEUED_FAMILY, .layouts = members(s, l) };
	double floor = hd_bound_memory(p, &shape);

	if (!another && s->limit > 0 && floor > s->limit && !s->o->unbounded) {
		hd_search_no_room(s, l, it.layouts, floor);
		if (relatives)
			try_relative(s, l);
		return;
	}
	it.key = HD_SEARCH_OPTIMISM * hd_guess_quick(p, &shape);
	hd_search_push(s, &it);
	if (relatives)
		queue_relatives(s, &it);
}

/* Probes of families; those that were refused stay in v.  -> how many. */
static int64_t probe_families(struct search_state *s, struct space_layout *v, int64_t n, struct probe *p, int another,
			      int relatives)
{
	int64_t refused = 0;

	for (int64_t i = 0; i < n; i += BLOCK) {
		int64_t some = n - i < BLOCK ? n - i : BLOCK;

		hd_search_evaluate_probes(&s->e, &v[i], some, 0, &p[i]);
		for (int64_t k = i; k < i + some; k++) {
			if (!p[k].judged.code) {
				judge_family(s, &v[k], &p[k], another, relatives);
				continue;
			}
			p[refused] = p[k];
			v[refused++] = v[k];
		}
	}
	return refused;
}

/* Of those that were refused some would not be with another value of one key. */
static int64_t probe_others(struct search_state *s, struct space_layout *v, int64_t n, struct probe *p, int relatives)
{
	const struct space *of = s->e.space;

	for (int i = 0; i < of->nkeys && n; i++) {
		for (int k = 1; k < of->keys[i].n; k++) {
			for (int64_t f = 0; f < n; f++)
				v[f].value[i] = k;
			n = probe_families(s, v, n, p, 1, relatives);
		}
		for (int64_t f = 0; f < n; f++)
			v[f].value[i] = 0;
	}
	return n;
}

static void judge_some(struct search_state *s, struct space_layout *v, int64_t n, int relatives)
{
	struct probe *p = hd_alloc(((size_t)n + 1) * sizeof(*p));

	n = probe_families(s, v, n, p, 0, relatives);
	n = probe_others(s, v, n, p, relatives);
	for (int64_t i = 0; i < n; i++) {
		hd_search_lost(s, &v[i], members(s, &v[i]), p[i].judged.why);
		if (relatives)
			try_relative(s, &v[i]);
	}
	free(p);
}

void hd_search_judge_families(struct search_state *s)
{
	while (s->nfamilies) {
		struct space_layout *v = s->families;
		int64_t n = s->nfamilies;

		s->families = NULL;
		s->nfamilies = 0;
		s->cap_families = 0;
		judge_some(s, v, n, WITH_RELATIVES);
		free(v);
	}
}

void hd_search_judge_relatives(struct search_state *s, struct space_layout *v, int64_t n)
{
	judge_some(s, v, n, ALONE);
}
