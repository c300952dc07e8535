/* SPDX-License-Identifier: Apache-2.0
 * Checks an order of units, and computes when each unit runs, by simulating it.
 *
 * Each coordinate has a position in its list of units.  A unit whose operands are ready ends at a known time, and may
 * unblock the coordinate that receives from it.  So each unit is examined at most twice: when its coordinate gets to
 * it, and when the unit that it waits for is done.  If no coordinate can continue and units are left, each stuck
 * coordinate waits for exactly one other.  Following these waits leads to the cycle that is reported.
 */
#include <config.h>
#include "engine/schedule/schedule_check.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { F, B, W, KINDS };

struct list_position {
	int coord, at;
}; /* at: position in the coordinate's list, or -1: none */

struct check_state {
	const struct hd_schedule *s;
	struct hd_err *err;
	int parts, separate_w;
	struct list_position *where;  /* [(part * m + micro) * KINDS + kind] */
	struct list_position *holder; /* by part: its coordinate, and its chunk in `at` */
	struct hd_schedule_report rep;
	int *next; /* per coordinate: the first unit that is not done */
};

static HD_PRINTF(2, 3) int refuse(struct check_state *t, const char *fmt, ...)
{
	char *text;
	va_list v;

	va_start(v, fmt);
	text = hd_vformat(fmt, v);
	va_end(v);
	hd_err_set(t->err, HD_EINVAL, "schedule: %s", text);
	free(text);
	return HD_EINVAL;
}

static int kind_of(uint32_t kind)
{
	return kind == HD_UNIT_F ? F : kind == HD_UNIT_B ? B : kind == HD_UNIT_W ? W : -1;
}

static const struct hd_schedule_unit *unit(const struct check_state *t, struct list_position x)
{
	return &t->s->units[x.coord][x.at];
}

static int part_at(const struct check_state *t, int coord, int chunk)
{
	return t->s->part_of[coord * t->s->v + chunk];
}

static struct list_position *slot(const struct check_state *t, int part, int micro, int kind)
{
	return &t->where[((int64_t)part * t->s->m + micro) * KINDS + kind];
}

struct unit_label {
	char s[48];
};

/* Returns "F3", or "F3 (chunk 0)" if coordinates have several chunks. */
static struct unit_label unit_name(const struct check_state *t, int kind, int chunk, int micro)
{
	struct unit_label n;

	if (t->s->v > 1)
		snprintf(n.s, sizeof(n.s), "%c%d (chunk %d)", "FBW"[kind], micro, chunk);
	else
		snprintf(n.s, sizeof(n.s), "%c%d", "FBW"[kind], micro);
	return n;
}

static struct unit_label name_at(const struct check_state *t, struct list_position x)
{
	const struct hd_schedule_unit *u = unit(t, x);

	return unit_name(t, kind_of(u->kind), u->chunk, u->micro);
}

/* -- completeness ------------------------------------------------------------------------------ */

static int find_holders(struct check_state *t)
{
	const struct hd_schedule *s = t->s;

	for (int i = 0; i < s->p * s->v; i++)
		t->parts += s->part_of[i] >= 0;
	t->holder = hd_alloc((size_t)t->parts * sizeof(*t->holder));
	for (int i = 0; i < t->parts; i++)
		t->holder[i].at = -1;
	for (int i = 0; i < s->p * s->v; i++) {
		int part = s->part_of[i];

		if (part < 0)
			continue;
		if (part >= t->parts || t->holder[part].at >= 0)
			return refuse(t,
				      "chunk %d of stage %d holds part %d of the model, which "
				      "is %s",
				      i % s->v, i / s->v, part, part >= t->parts ? "beyond the last" : "held twice");
		t->holder[part] = (struct list_position){ .coord = i / s->v, .at = i % s->v };
	}
	return 0;
}

static int record(struct check_state *t, struct list_position x)
{
	const struct hd_schedule *s = t->s;
	const struct hd_schedule_unit *u = unit(t, x);
	int kind = kind_of(u->kind);
	struct list_position *known;

	if (kind < 0)
		return refuse(t, "stage %d has a unit of kind %u, but only F, B and W are ordered", x.coord, u->kind);
	if (u->chunk < 0 || u->chunk >= s->v || part_at(t, x.coord, u->chunk) < 0)
		return refuse(t, "stage %d has a unit %c%d of chunk %d, which it does not hold", x.coord, "FBW"[kind],
			      u -> micro, u -> chunk);
	if (u->micro < 0 || u->micro >= s->m)
		return refuse(t, "stage %d has a unit %s, but there are %d micro-batches", x.coord, name_at(t, x).s,
			      s->m);
	known = slot(t, part_at(t, x.coord, u->chunk), u->micro, kind);
	if (known->at >= 0)
		return refuse(t, "stage %d has %s twice, as units %d and %d", x.coord, name_at(t, x).s, known->at,
			      x.at);
	*known = x;
	t->separate_w |= kind == W;
	return 0;
}

static int record_all(struct check_state *t)
{
	int64_t slots = (int64_t)t->parts * t->s->m * KINDS;

	t->where = hd_alloc((size_t)slots * sizeof(*t->where));
	for (int64_t i = 0; i < slots; i++)
		t->where[i].at = -1;
	for (int r = 0; r < t->s->p; r++)
		for (int i = 0; i < t->s->n[r]; i++)
			HD_TRY(record(t, (struct list_position){ .coord = r, .at = i }));
	return 0;
}

/* Checks that a part has all units of a micro-batch, F before B before W. */
static int check_one(struct check_state *t, int part, int micro)
{
	const struct list_position *x = slot(t, part, micro, F), home = t->holder[part];
	int last = t->s->forward_only ? F : t->separate_w ? W : B;

	for (int k = F; k <= last; k++) {
		if (x[k].at < 0)
			return refuse(t, "stage %d has no %s%s", home.coord, unit_name(t, k, home.at, micro).s,
				      k == W ? ", though other units have a W of their own" : "");
		if (k > F && x[k].at < x[k - 1].at)
			return refuse(t, "stage %d has %s before its %s", home.coord, name_at(t, x[k]).s,
				      name_at(t, x[k - 1]).s);
	}
	return 0;
}

/* -- order of messages ------------------------------------------------------------------------- */

/* Returns the unit that sends to this one, or .at = -1 if it receives nothing. */
static struct list_position source(const struct check_state *t, struct list_position x)
{
	const struct hd_schedule_unit *u = unit(t, x);
	int kind = kind_of(u->kind), part = part_at(t, x.coord, u->chunk);
	int from = kind == F ? part - 1 : part + 1;

	if (kind == W || from < 0 || from >= t->parts)
		return (struct list_position){ .at = -1 };
	return *slot(t, from, u->micro, kind);
}

/* Checks that a coordinate receives in the order of the sends, for each sender and direction. */
static int check_messages(struct check_state *t, int coord)
{
	struct list_position *last = hd_alloc((size_t)t->s->p * 2 * sizeof(*last));
	int rc = 0;

	for (int i = 0; i < t->s->p * 2; i++)
		last[i].at = -1;
	for (int i = 0; !rc && i < t->s->n[coord]; i++) {
		struct list_position x = { .coord = coord, .at = i }, from = source(t, x), before;
		struct list_position *seen = &last[from.coord * 2 + (unit(t, x)->kind == HD_UNIT_B)];

		if (from.at < 0 || from.coord == coord)
			continue;
		before = *seen;
		*seen = x;
		if (before.at < 0 || source(t, before).at < from.at)
			continue;
		rc = refuse(t, "stage %d runs %s before %s, but stage %d sends for %s first", coord,
			    name_at(t, before).s, name_at(t, x).s, from.coord, name_at(t, x).s);
	}
	free(last);
	return rc;
}

/* -- time -------------------------------------------------------------------------------------- */

static double duration(const struct check_state *t, struct list_position x)
{
	const struct hd_schedule *s = t->s;
	int kind = kind_of(unit(t, x)->kind), part = part_at(t, x.coord, unit(t, x)->chunk);
	const double *times = kind == F ? s->tf : kind == B ? s->tb : s->tw;

	if (times)
		return times[part];
	return (kind == B && !t->separate_w ? 2 : 1) * (s->weight ? s->weight[part] : 1);
}

static int is_done(const struct check_state *t, struct list_position x)
{
	return x.at < 0 || x.at < t->next[x.coord];
}

static void run_unit(struct check_state *t, struct list_position x, struct list_position from)
{
	double start = x.at ? t->rep.end[x.coord][x.at - 1] : 0, time = duration(t, x);

	if (from.at >= 0 && t->rep.end[from.coord][from.at] > start)
		start = t->rep.end[from.coord][from.at];
	t->rep.start[x.coord][x.at] = start;
	t->rep.end[x.coord][x.at] = start + time;
	t->rep.busy[x.coord] += time;
	if (start + time > t->rep.makespan)
		t->rep.makespan = start + time;
}

/* Returns the coordinate that receives from x, and may be waiting for it; -1: none. */
static int receiver(const struct check_state *t, struct list_position x)
{
	const struct hd_schedule_unit *u = unit(t, x);
	int kind = kind_of(u->kind), part = part_at(t, x.coord, u->chunk);
	int to = kind == F ? part + 1 : part - 1;

	return kind == W || to < 0 || to >= t->parts ? -1 : t->holder[to].coord;
}

/* Runs a coordinate until it must wait.  Pushes the coordinates that this may unblock onto the stack. */
static void advance(struct check_state *t, int coord, int *stack, int *top, char *listed)
{
	while (t->next[coord] < t->s->n[coord]) {
		struct list_position x = { .coord = coord, .at = t->next[coord] }, from = source(t, x);
		int to;

		if (!is_done(t, from))
			return;
		run_unit(t, x, from);
		t->next[coord]++;
		to = receiver(t, x);
		if (to >= 0 && to != coord && !listed[to]) {
			listed[to] = 1;
			stack[(*top)++] = to;
		}
	}
}

static struct list_position waiting(const struct check_state *t, int coord)
{
	return (struct list_position){ .coord = coord, .at = t->next[coord] };
}

/* Returns where the report begins: at the lowest coordinate of the cycle that waits at a forward unit, or at the lowest
 * if none does. */
static int cycle_begin(const struct check_state *t, int coord)
{
	int best, from, forward;

	for (int i = 0; i < t->s->p; i++) /* after that many steps it is in the cycle */
		coord = source(t, waiting(t, coord)).coord;
	best = from = coord;
	do {
		forward = unit(t, waiting(t, coord))->kind == HD_UNIT_F;
		if (forward > (unit(t, waiting(t, best))->kind == HD_UNIT_F) ||
		    (coord < best && forward == (unit(t, waiting(t, best))->kind == HD_UNIT_F)))
			best = coord;
		coord = source(t, waiting(t, coord)).coord;
	} while (coord != from);
	return best;
}

static int report_cycle(struct check_state *t, int coord)
{
	char text[700];
	size_t at = 0;
	int first = cycle_begin(t, coord);

	coord = first;
	do {
		struct list_position x = waiting(t, coord), from = source(t, x);

		at += (size_t)snprintf(text + at, sizeof(text) - at, "%swaits at %s for stage ", at ? ", which " : "",
				       name_at(t, x).s);
		if (from.coord == coord)
			return refuse(t,
				      "deadlock: stage %d waits at %s for its own %s, which "
				      "comes later",
				      coord, name_at(t, x).s, name_at(t, from).s);
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%d", from.coord);
		coord = from.coord;
	} while (coord != first && at < sizeof(text) - 100);
	return refuse(t, "deadlock: stage %d %s%s", first, text, coord != first ? ", and so on" : "");
}

static int simulate(struct check_state *t)
{
	int p = t->s->p, *stack = hd_alloc((size_t)p * sizeof(*stack)), top = 0, stuck = -1;
	char *listed = hd_alloc((size_t)p);

	for (int r = p - 1; r >= 0; r--) {
		stack[top++] = r;
		listed[r] = 1;
	}
	while (top) {
		int r = stack[--top];

		listed[r] = 0;
		advance(t, r, stack, &top, listed);
	}
	for (int r = 0; r < p; r++)
		if (stuck < 0 && t->next[r] < t->s->n[r])
			stuck = r;
	free(stack);
	free(listed);
	return stuck < 0 ? 0 : report_cycle(t, stuck);
}

/* -- report ------------------------------------------------------------------------------------ */

static void report_init(struct check_state *t)
{
	struct hd_schedule_report *rep = &t->rep;
	size_t p = (size_t)t->s->p;

	rep->p = t->s->p;
	rep->start = hd_alloc(p * sizeof(*rep->start));
	rep->end = hd_alloc(p * sizeof(*rep->end));
	rep->busy = hd_alloc(p * sizeof(*rep->busy));
	rep->in_flight = hd_alloc(p * sizeof(*rep->in_flight));
	for (size_t r = 0; r < p; r++) {
		rep->start[r] = hd_alloc((size_t)t->s->n[r] * sizeof(double));
		rep->end[r] = hd_alloc((size_t)t->s->n[r] * sizeof(double));
	}
}

static void summarize(struct check_state *t)
{
	uint32_t frees = t->separate_w ? HD_UNIT_W : HD_UNIT_B;
	double busiest = 0;

	for (int r = 0; r < t->s->p; r++) {
		int now = 0;

		for (int i = 0; i < t->s->n[r]; i++) {
			now += t->s->units[r][i].kind == HD_UNIT_F;
			if (now > t->rep.in_flight[r])
				t->rep.in_flight[r] = now;
			now -= t->s->units[r][i].kind == frees;
		}
		if (t->rep.busy[r] > busiest)
			busiest = t->rep.busy[r];
	}
	t->rep.separate_w = t->separate_w;
	t->rep.bubble = busiest > 0 ? (t->rep.makespan - busiest) / busiest : 0;
}

void hd_schedule_report_release(struct hd_schedule_report *rep)
{
	for (int r = 0; r < rep->p; r++) {
		free(rep->start[r]);
		free(rep->end[r]);
	}
	free(rep->start);
	free(rep->end);
	free(rep->busy);
	free(rep->in_flight);
	memset(rep, 0, sizeof(*rep));
}

static int check_all(struct check_state *t)
{
	HD_TRY(find_holders(t));
	HD_TRY(record_all(t));
	for (int g = 0; g < t->parts; g++)
		for (int i = 0; i < t->s->m; i++)
			HD_TRY(check_one(t, g, i));
	for (int r = 0; r < t->s->p; r++)
		HD_TRY(check_messages(t, r));
	return simulate(t);
}

int hd_schedule_check(const struct hd_schedule *s, struct hd_schedule_report *rep, struct hd_err *err)
{
	struct check_state t = { .s = s, .err = err };
	int rc;

	t.next = hd_alloc((size_t)s->p * sizeof(*t.next));
	report_init(&t);
	rc = check_all(&t);
	if (!rc && rep) {
		summarize(&t);
		*rep = t.rep;
	} else {
		hd_schedule_report_release(&t.rep);
	}
	free(t.next);
	free(t.where);
	free(t.holder);
	return rc;
}

/* -- drawing ----------------------------------------------------------------------------------- */

#define WIDEST 4000  /* columns */
#define LONG_UNIT 40 /* columns of the longest unit, if the drawing would be wider than WIDEST */

struct drawn_columns {
	double scale;           /* columns per time */
	int64_t left_out, from; /* if it is too wide: how many columns are left out, and where they begin; else 0 */
};

static int label(char *s, size_t size, const struct hd_schedule *s0, const struct hd_schedule_unit *u)
{
	if (s0->v > 1)
		return snprintf(s, size, "%c%d.%d", "FBW"[kind_of(u->kind)], u -> micro, u -> chunk);
	return snprintf(s, size, "%c%d", "FBW"[kind_of(u->kind)], u -> micro);
}

/* Returns a scale at which the shortest unit has room for its label and a space. If that is too wide because units
 * differ much, short ones lose their labels. If it is too wide because there are many, the middle is left out. */
static struct drawn_columns columns_of(const struct hd_schedule *s, const struct hd_schedule_report *rep)
{
	double most = 0, longest = 0;
	struct drawn_columns d = { 0 };
	char text[48];

	for (int r = 0; r < s->p; r++)
		for (int i = 0; i < s->n[r]; i++) {
			double time = rep->end[r][i] - rep->start[r][i];
			int chars = label(text, sizeof(text), s, &s->units[r][i]) + 1;

			if (time > 0 && chars / time > most)
				most = chars / time;
			longest = time > longest ? time : longest;
		}
	d.scale = most * (1 + 1e-9); /* so that rounding takes no column from a label */
	if (d.scale * rep->makespan <= WIDEST)
		return d;
	if (d.scale * longest > LONG_UNIT)
		d.scale = LONG_UNIT / longest;
	if (d.scale * rep->makespan < WIDEST)
		d.scale = WIDEST / rep->makespan;
	d.left_out = (int64_t)(d.scale * rep->makespan + 0.5) - WIDEST;
	d.from = WIDEST / 2;
	return d;
}

static void pad(FILE *f, int64_t *at, int64_t to, char c)
{
	for (; *at < to; ++*at)
		fputc(c, f);
}

/* Draws a unit from one column to another, if it is not in the part that is left out. */
static void draw_unit(FILE *f, const struct drawn_columns *d, const char *text, int64_t from, int64_t to, int64_t *at)
{
	if (d->left_out > 0 && to > d->from) {
		if (from < d->from + d->left_out)
			return;
		pad(f, at, d->from, ' ');
		if (*at == d->from)
			*at += fprintf(f, "... ");
		from -= d->left_out - 4;
		to -= d->left_out - 4;
	}
	pad(f, at, from, ' ');
	if (from + (int64_t)strlen(text) < to) {
		*at += fprintf(f, "%s", text);
		to--;
	}
	pad(f, at, to, '-');
}

void hd_schedule_draw(FILE *f, const struct hd_schedule *s, const struct hd_schedule_report *rep)
{
	struct drawn_columns d = columns_of(s, rep);

	for (int r = 0; r < s->p; r++) {
		int64_t at = 0;

		fprintf(f, "stage %-3d |", r);
		for (int i = 0; i < s->n[r]; i++) {
			char text[48];

			label(text, sizeof(text), s, &s->units[r][i]);
			draw_unit(f, &d, text, (int64_t)(rep->start[r][i] * d.scale + 0.5),
				  (int64_t)(rep->end[r][i] * d.scale + 0.5), &at);
		}
		fputc('\n', f);
	}
}
