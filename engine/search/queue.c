/* SPDX-License-Identifier: Apache-2.0
 * The lists of a search: a heap of the entries that it has yet to look at, and the layouts that were found or dropped.
 */
#include <config.h>
#include "engine/human/human.h"
#include "engine/search/queue.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- the heap ------------------------------------------------------------------------------------------------------ */
static int before(const struct queued *a, const struct queued *b)
{
	if (a->key != b->key)
		return a->key < b->key;
	return a->keys != b->keys ? a->keys < b->keys : a->serial < b->serial;
}

static void swap_items(struct queued *a, struct queued *b)
{
	struct queued t = *a;

	*a = *b;
	*b = t;
}

void hd_search_push(struct search_state *s, const struct queued *it)
{
	int64_t i = s->nitems;

	s->items = hd_grow(s->items, (size_t)s->nitems, &s->cap_items, sizeof(*s->items));
	s->items[s->nitems++] = *it;
	s->items[i].serial = s->serial++;
	for (; i && before(&s->items[i], &s->items[(i - 1) / 2]); i = (i - 1) / 2)
		swap_items(&s->items[i], &s->items[(i - 1) / 2]);
}

int hd_search_pop(struct search_state *s, struct queued *out)
{
	if (!s->nitems)
		return 0;
	*out = s->items[0];
	s->items[0] = s->items[--s->nitems];
	for (int64_t i = 0, k; (k = 2 * i + 1) < s->nitems; i = k) {
		k += k + 1 < s->nitems && before(&s->items[k + 1], &s->items[k]);
		if (!before(&s->items[k], &s->items[i]))
			break;
		swap_items(&s->items[k], &s->items[i]);
	}
	return 1;
}

int hd_search_by_key(const void *va, const void *vb)
{
	const struct queued *a = va, *b = vb;

	return before(a, b) ? -1 : before(b, a); /* a total order: qsort gives the same result with any C library */
}

void hd_search_add_family(struct search_state *s, const struct space_layout *l)
{
	s->families = hd_grow(s->families, (size_t)s->nfamilies, &s->cap_families, sizeof(*s->families));
	s->families[s->nfamilies++] = *l;
}

int64_t hd_search_add_probe(struct search_state *s, const struct probe *p)
{
	s->probes = hd_grow(s->probes, (size_t)s->nprobes, &s->cap_probes, sizeof(*s->probes));
	s->probes[s->nprobes] = *p;
	return s->nprobes++;
}

/* -- orders of units ----------------------------------------------------------------------------------------------- */
/* Returns what a layout's order of units depends on: the stages and their choices, and the micro-batches. From three
 * times the stages on, only the remainder of the micro-batches matters. */
static struct known_order order_of(const struct search_state *s, const struct space_layout *l, int64_t micros)
{
	struct known_order k = { .layout = *l };
	int64_t stages = 1;

	for (int i = 0; i < s->e.space->n; i++) {
		if (!s->e.space->strategies[i].stages)
			k.layout.size[i] = 1;
		stages *= k.layout.size[i];
		k.layout.order[i] = i;
	}
	memset(k.layout.value, 0, sizeof(k.layout.value));
	k.micros = micros < 3 * stages ? micros : 3 * stages + micros % stages;
	if (stages == 1)
		k.micros = 1;
	return k;
}

static struct known_order *order_find(const struct search_state *s, const struct known_order *k)
{
	for (int64_t i = 0; i < s->norders; i++)
		if (s->orders[i].micros == k->micros && hd_layout_same(s->e.space, &s->orders[i].layout, &k->layout))
			return &s->orders[i];
	return NULL;
}

static void want_one_order(struct search_state *s, const struct space_layout *l, int64_t micros)
{
	struct known_order k = order_of(s, l, micros);

	if (order_find(s, &k))
		return;
	s->orders = hd_grow(s->orders, (size_t)s->norders, &s->cap_orders, sizeof(*s->orders));
	s->orders[s->norders++] = k;
}

/* Also requests the orders for the other numbers of micro-batches that layouts on these stages have. A plan of the
 * stages serves all of them. */
void hd_search_want_order(struct search_state *s, const struct space_layout *l, int64_t micros)
{
	struct known_order k = order_of(s, l, micros);

	if (order_find(s, &k))
		return;
	want_one_order(s, l, micros);
	for (int64_t m = 1; m <= s->batch; m++)
		if (s->batch % m == 0)
			want_one_order(s, l, m);
}

/* Computes the orders that were requested since the last call. They are the last in the list, and those of one
 * layout are together. */
void hd_search_make_orders(struct search_state *s)
{
	int64_t n = s->norders - s->made_orders, nlayouts = 0;
	struct known_order *v = &s->orders[s->made_orders];
	struct order_wanted *w = hd_alloc(((size_t)n + 1) * sizeof(*w));
	struct order_probe *out = hd_alloc(((size_t)n + 1) * sizeof(*out));
	int64_t *micros = hd_alloc(((size_t)n + 1) * sizeof(*micros));

	for (int64_t i = 0; i < n; i++) {
		micros[i] = v[i].micros;
		if (!i || !hd_layout_same(s->e.space, &v[i].layout, &v[i - 1].layout))
			w[nlayouts++] = (struct order_wanted){ v[i].layout, &micros[i], 0, i };
		w[nlayouts - 1].n++;
	}
	hd_search_evaluate_orders(&s->e, w, nlayouts, out);
	for (int64_t i = 0; i < n; i++)
		v[i].probe = out[i];
	s->made_orders = s->norders;
	free(w), free(out), free(micros);
}

const struct order_probe *hd_search_order(struct search_state *s, const struct space_layout *l, int64_t micros)
{
	struct known_order k = order_of(s, l, micros);

	return &order_find(s, &k)->probe;
}

/* -- what was found ------------------------------------------------------------------------------------------------ */
int hd_search_is_planned(const struct search_state *s, const struct space_layout *l)
{
	for (int64_t i = 0; i < s->out->nfound; i++)
		if (hd_layout_same(s->e.space, &s->out->found[i].layout, l))
			return 1;
	return 0;
}

/* -- layouts that are the same ------------------------------------------------------------------------------------- */
/* Returns the only strategy whose choice differs, or HD_SPACE_MOST plus the index of the only key that does. Returns -1
 * if more than that differs. */
static int only_difference(const struct space *of, const struct space_layout *a, const struct space_layout *b)
{
	struct space_layout other = *b;

	for (int i = 0; i < of->n; i++) {
		other.choice[i] = a->choice[i];
		if (hd_layout_same(of, a, &other))
			return i;
		other.choice[i] = b->choice[i];
	}
	for (int i = 0; i < of->nkeys; i++) {
		other.value[i] = a->value[i];
		if (hd_layout_same(of, a, &other))
			return HD_SPACE_MOST + i;
		other.value[i] = b->value[i];
	}
	return -1;
}

static int value_at(const struct space_layout *l, int k)
{
	return k < HD_SPACE_MOST ? l->choice[k] : l->value[k - HD_SPACE_MOST];
}

/* Returns whether strategy i gives replicas and is the outermost one. Only its choice may differ between layouts
 * without affecting the others. */
static int may_differ(const struct space *of, const struct space_layout *l, int i)
{
	return of->strategies[i].replicas && i == hd_search_last_used(of, l);
}

/* Returns whether a and b are the same except for the choice or key k, the choice of replicas, and keys
 * of other sections. */
static int same_but(const struct space *of, const struct space_layout *a, const struct space_layout *b, int k)
{
	struct space_layout x = *a, y = *b;

	for (int i = 0; i < of->n; i++)
		if (i == k || may_differ(of, a, i))
			y.choice[i] = x.choice[i];
	for (int i = 0; i < of->nkeys; i++)
		y.value[i] = x.value[i];
	return hd_layout_same(of, &x, &y);
}

/* Returns whether k changes nothing here. For that, two layouts must have been planned that differ in k as a and b do,
 * and are otherwise like them. Their time and memory must be equal. */
static int changes_nothing(const struct search_state *s, const struct space_layout *a, const struct space_layout *b,
			   int k)
{
	const struct space *of = s->e.space;

	for (int64_t i = 0; i < s->out->nfound; i++) {
		const struct found_layout *x = &s->out->found[i];

		if (value_at(&x->layout, k) != value_at(a, k) || !same_but(of, &x->layout, a, k))
			continue;
		for (int64_t j = 0; j < s->out->nfound; j++) {
			const struct found_layout *y = &s->out->found[j];

			if (value_at(&y->layout, k) == value_at(b, k) && y->result.step == x->result.step &&
			    y->result.memory == x->result.memory && only_difference(of, &x->layout, &y->layout) == k)
				return 1;
		}
	}
	return 0;
}

static int are_twins(const struct found_layout *f, const struct queued *it)
{
	return f->guess == it->guess && f->bound == it->bound;
}

int hd_search_has_twin(const struct search_state *s, const struct queued *it)
{
	for (int64_t i = 0; i < s->out->nfound; i++)
		if (are_twins(&s->out->found[i], it))
			return 1;
	return 0;
}

int hd_search_is_same(const struct search_state *s, const struct queued *it)
{
	for (int64_t i = 0; i < s->out->nfound && hd_search_is_limited(s); i++) {
		const struct found_layout *f = &s->out->found[i];
		int k = are_twins(f, it) && f->guessed_memory == it->memory
				? only_difference(s->e.space, &f->layout, &it->layout)
				: -1;

		if (k >= 0 && changes_nothing(s, &f->layout, &it->layout, k))
			return 1;
	}
	return 0;
}

void hd_search_add_found(struct search_state *s, const struct queued *it, const struct evaluated *r)
{
	struct search_result *out = s->out;
	struct found_layout *f;

	hd_search_count(s, &it->layout);
	if (r->verdict.code) {
		hd_search_drop_refused(s, &it->layout, 1, r->verdict.why);
		return;
	}
	out->found = hd_grow(out->found, (size_t)out->nfound, &s->cap_found, sizeof(*out->found));
	f = &out->found[out->nfound++];
	*f = (struct found_layout){ it->layout,
				    *r,
				    it->bound,
				    it->guess,
				    it->memory,
				    s->limit <= 0 || r->memory <= s->limit,
				    hd_layout_keys(s->e.space, &it->layout) };
	out->nfits += f->fits;
	if (f->fits && r->step < s->best)
		s->best = r->step;
}

void hd_search_add_own(struct search_state *s)
{
	struct search_result *out = s->out;

	if (!s->own_apart || out->own.step > s->best)
		return;
	out->found = hd_grow(out->found, (size_t)out->nfound, &s->cap_found, sizeof(*out->found));
	out->found[out->nfound++] = (struct found_layout){ .result = out->own, .fits = 1, .verbatim = 1 };
	out->nfits++;
	out->layouts++; /* the space does not count it */
}

/* -- what was dropped ---------------------------------------------------------------------------------------------- */
/* Compares two reasons without their numbers, which differ from layout to layout. The first of equal reasons is
 * kept. */
static int alike_but_numbers(const char *a, const char *b)
{
	while (*a && *b) {
		if (*a >= '0' && *a <= '9' && *b >= '0' && *b <= '9') {
			a += strspn(a, "0123456789.");
			b += strspn(b, "0123456789.");
		} else if (*a++ != *b++) {
			return 0;
		}
	}
	return *a == *b;
}

static struct dropped_layouts *dropped_get(struct search_result *r, const char *why)
{
	for (int i = 0; i < r->ndropped; i++)
		if (alike_but_numbers(r->dropped[i].why, why))
			return &r->dropped[i];
	if (r->ndropped == HD_SEARCH_REASONS)
		return &r->dropped[HD_SEARCH_REASONS - 1];
	snprintf(r->dropped[r->ndropped].why, sizeof(r->dropped[0].why), "%s", why);
	return &r->dropped[r->ndropped++];
}

static void drop(struct search_state *s, const struct space_layout *l, int64_t layouts, const char *why)
{
	struct dropped_layouts *at = dropped_get(s->out, why);

	if (!at->layouts) {
		char *text = hd_layout_line(s->e.space, l);

		snprintf(at->example, sizeof(at->example), "%s", text);
		free(text);
	}
	at->layouts += layouts;
}

void hd_search_drop_refused(struct search_state *s, const struct space_layout *l, int64_t layouts, const char *why)
{
	char text[240];

	snprintf(text, sizeof(text), "refused: %s", why);
	drop(s, l, layouts, text);
}

static const char no_room[] = "more memory than there is, for their parameters, states and one micro-batch alone";

int hd_search_drop_if_no_room(struct search_state *s, const struct space_layout *l, int64_t layouts,
			      const struct probe *p, const struct probe_shape *shape)
{
	double floor = hd_bound_memory(p, shape), guess = hd_guess_quick_memory(p, shape, 1);

	if (s->limit <= 0 || floor <= s->limit || s->o->unbounded)
		return 0;
	if (!s->out->floor || floor < s->out->floor)
		s->out->floor = floor;
	if (!s->nearest_memory || guess < s->nearest_memory) {
		s->nearest_memory = guess;
		s->nearest = *l;
	}
	drop(s, l, layouts, no_room);
	return 1;
}

void hd_search_uncount_no_room(struct search_state *s, int64_t layouts)
{
	dropped_get(s->out, no_room)->layouts -= layouts;
}

void hd_search_drop_same(struct search_state *s, const struct queued *it)
{
	drop(s, &it->layout, it->layouts,
	     "as fast as one that was planned: what differs changed nothing in a similar layout");
}

static const char slower[] = "slower than the best, by their kernels or collectives alone";

void hd_search_drop_slower(struct search_state *s, const struct queued *it)
{
	if (!s->slowest || it->bound < s->slowest)
		s->slowest = it->bound;
	drop(s, &it->layout, it->layouts, slower);
}

/* -- the end ------------------------------------------------------------------------------------------------------- */
static int by_merit(const void *va, const void *vb)
{
	const struct found_layout *a = va, *b = vb;
	double x = a->fits ? a->result.step : a->result.memory, y = b->fits ? b->result.step : b->result.memory;

	if (a->fits != b->fits)
		return b->fits - a->fits;
	if (x != y)
		return x < y ? -1 : 1;
	if (a->verbatim != b->verbatim) /* of equally fast layouts, the user's own is first */
		return b->verbatim - a->verbatim;
	x = a->result.memory, y = b->result.memory;
	if (x != y)
		return x < y ? -1 : 1;
	if (a->keys != b->keys)
		return a->keys - b->keys;
	return memcmp(&a->layout, &b->layout, sizeof(a->layout)); /* orders ties, too, with any C library */
}

static int by_layouts(const void *va, const void *vb)
{
	const struct dropped_layouts *a = va, *b = vb;

	return a->layouts != b->layouts ? (a->layouts < b->layouts ? 1 : -1) : strcmp(a->why, b->why);
}

static void add_details(struct search_state *s)
{
	for (int i = 0; i < s->out->ndropped; i++) {
		struct dropped_layouts *at = &s->out->dropped[i];

		if (!strcmp(at->why, no_room))
			snprintf(at->why, sizeof(at->why), "%s: the nearest by %s", no_room,
				 hd_human_bytes(s->out->floor - s->limit).text);
		else if (!strcmp(at->why, slower))
			snprintf(at->why, sizeof(at->why), "%s: at least %s", slower, hd_human_step(s->slowest).text);
	}
}

/* Corrects the counts. Layouts near the best are planned although their families are still queued or were dropped as a
 * whole, so they are counted there too. */
static void count_once(struct search_result *r)
{
	int64_t more = r->nfound + r->not_tried - r->layouts, taken;

	for (int i = 0; i < r->ndropped; i++)
		more += r->dropped[i].layouts;
	taken = more < r->not_tried ? more : r->not_tried;
	r->not_tried -= taken > 0 ? taken : 0;
	for (int i = 0; i < r->ndropped && more > taken; i++)
		if (!strcmp(r->dropped[i].why, slower) && r->dropped[i].layouts > more - taken)
			r->dropped[i].layouts -= more - taken;
}

void hd_search_end(struct search_state *s)
{
	struct search_result *r = s->out;
	struct queued it;

	while (hd_search_pop(s, &it))
		if (it.bound >= s->best)
			hd_search_drop_slower(s, &it);
		else
			r->not_tried += it.layouts - (it.kind > QUEUED_FAMILY && hd_search_is_planned(s, &it.layout));
	count_once(r);
	add_details(s);
	if (r->nfound)
		qsort(r->found, (size_t)r->nfound, sizeof(*r->found), by_merit);
	if (r->ndropped)
		qsort(r->dropped, (size_t)r->ndropped, sizeof(*r->dropped), by_layouts);
	free(s->items), free(s->orders), free(s->families), free(s->probes);
}

void hd_search_release(struct search_result *r)
{
	hd_space_release(&r->space);
	free(r->found), free(r->own_text);
	r->found = NULL;
	r->own_text = NULL;
}
