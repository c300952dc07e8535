/* SPDX-License-Identifier: Apache-2.0
 * Reads an executed step from a trace (log.trace) for the page of a plan: its units by stage, and when a stage waited.
 */
#include <config.h>
#include "engine/command/picture.h"
#include "engine/command/unit_times.h"
#include "engine/base/json.h"
#include "engine/foresight/timeline.h"
#include "engine/human/human.h"
#include <stdlib.h>
#include <string.h>

enum { UNITS, KERNELS, COMMUNICATION, ROWS }; /* rows of a rank in the trace ("tid") */
struct traced_bar {                           /* times in microseconds of the trace */
	int64_t rank, step;                   /* step -1: an event within a unit */
	double at, lasts, stage;              /* stage: -1 if the bar has none */
	double micro, chunk;                  /* of a unit, whose pieces have the same */
	int row;
	char kind;
};
struct traced_step {
	struct traced_bar *v;
	size_t n, cap;
	int64_t last; /* the last step */
};

static double number(const json_t *o, const char *key, double otherwise)
{
	const json_t *x = json_object_get(o, key);

	return json_is_number(x) ? json_number_value(x) : otherwise;
}

/* Adds an event of rank "pid". The first row has units F, B and W with their stage, and G, S and U; some of the latter
 * are within the former. */
static void add(struct traced_step *t, const json_t *e)
{
	const json_t *args = json_object_get(e, "args");
	const char *name = json_string_value(json_object_get(e, "name")),
		   *phase = json_string_value(json_object_get(e, "ph"));
	double lasts = number(e, "dur", -1), step = number(args, "step", -1), row = number(e, "tid", -1);

	if (!name || !phase || phase[0] != 'X' || !(row >= 0 && row < ROWS) || lasts < 0 || step > 1e15)
		return;
	if (row == UNITS && step < 0)
		return;
	t->v = hd_grow(t->v, t->n, &t->cap, sizeof(*t->v));
	t->v[t->n++] = (struct traced_bar){ .rank = (int64_t)number(e, "pid", 0),
					    .step = row == UNITS ? (int64_t)step : -1,
					    .at = number(e, "ts", 0),
					    .lasts = lasts,
					    .stage = number(args, "stage", -1),
					    .micro = number(args, "micro", -1),
					    .chunk = number(args, "chunk", -1),
					    .row = (int)row,
					    .kind = name[0] };
	t->last = (int64_t)step > t->last && row == UNITS ? (int64_t)step : t->last;
}

static enum hd_page_work work_of(char kind)
{
	return kind == 'F'   ? HD_PAGE_FORWARD
	       : kind == 'B' ? HD_PAGE_BACKWARD
	       : kind == 'W' ? HD_PAGE_WEIGHTS
			     : HD_PAGE_STEP;
}

/* Returns the lowest rank that has units of that stage, or -1. */
static int64_t rank_of(const struct traced_step *t, int64_t stage)
{
	int64_t rank = -1;

	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].step == t->last && t->v[i].stage == (double)stage && (rank < 0 || t->v[i].rank < rank))
			rank = t->v[i].rank;
	return rank;
}

static int in_order(const void *va, const void *vb)
{
	const struct traced_bar *a = va, *b = vb;

	return a->at != b->at ? (a->at < b->at ? -1 : 1) : (a->lasts < b->lasts) - (a->lasts > b->lasts);
}

/* Returns the rank's bars sorted by time, either its units in the last step or its other events. Of two bars that begin
 * at the same time, the longer is first. */
static struct traced_bar *bars_of(const struct traced_step *t, int64_t rank, int units, size_t *n)
{
	struct traced_bar *v = hd_alloc((t->n + 1) * sizeof(*v));

	*n = 0;
	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].rank == rank && (t->v[i].row == UNITS) == units && (!units || t->v[i].step == t->last))
			v[(*n)++] = t->v[i];
	qsort(v, *n, sizeof(*v), in_order);
	return v;
}

/* Returns the innermost unit that contains an event, or NULL if it belongs to another step. All units before *from have
 * ended. */
static const struct traced_bar *unit_of(const struct traced_bar *unit, size_t n, size_t *from,
					const struct traced_bar *e)
{
	const struct traced_bar *in = NULL;
	double middle = e->at + e->lasts / 2;

	while (*from < n && unit[*from].at + unit[*from].lasts < middle)
		++*from;
	for (size_t i = *from; i < n && unit[i].at <= middle; i++)
		if (unit[i].at + unit[i].lasts >= middle)
			in = &unit[i];
	return in;
}

/* Returns the spans of a rank, as a run with log.machine computes them for its own step. */
static struct hd_page_span *spans_of(const struct traced_step *t, int64_t rank, double zero, size_t *n)
{
	size_t nunits, nevents, from = 0;
	struct traced_bar *unit = bars_of(t, rank, 1, &nunits), *e = bars_of(t, rank, 0, &nevents);
	struct hd_page_span *v = hd_alloc((nevents + 1) * sizeof(*v));

	*n = 0;
	for (size_t i = 0; i < nevents; i++) {
		const struct traced_bar *in = unit_of(unit, nunits, &from, &e[i]);

		if (in)
			v[(*n)++] =
				(struct hd_page_span){ 1e-6 * (e[i].at - zero), 1e-6 * (e[i].at + e[i].lasts - zero),
						       e[i].row == KERNELS ? work_of(in->kind) : HD_PAGE_WAITS };
	}
	hd_traced_close_gaps(v, *n);
	free(unit), free(e);
	return v;
}

static int by_unit(const void *va, const void *vb)
{
	const struct traced_bar *a = va, *b = vb;

	return a->chunk != b->chunk ? (a->chunk < b->chunk ? -1 : 1) : (a->micro > b->micro) - (a->micro < b->micro);
}

/* Returns how many forward units the rank had in the last step. One that was computed in pieces counts once. */
static int64_t forward_units(const struct traced_step *t, int64_t rank)
{
	size_t n, some = 0;
	struct traced_bar *v = bars_of(t, rank, 1, &n);
	int64_t units = 0;

	for (size_t i = 0; i < n; i++)
		if (v[i].kind == 'F')
			v[some++] = v[i];
	qsort(v, some, sizeof(*v), by_unit);
	for (size_t i = 0; i < some; i++)
		units += !i || by_unit(&v[i - 1], &v[i]);
	free(v);
	return units;
}

/* Refuses a trace of a different layout or number of micro-batches, which cannot be compared with this plan. */
static int check_layout(const struct traced_step *t, const char *path, const struct hd_plan *p, int64_t stage,
			int64_t rank, struct hd_err *err)
{
	int64_t ran = forward_units(t, rank), planned = 0;

	for (int i = 0; i < p->nunits[stage]; i++)
		planned += p->units[stage][i].kind == HD_UNIT_F;
	return ran == planned
		       ? HD_OK
		       : hd_err_set(err, HD_EINVAL,
				    "%s has %lld forward units of stage %lld in its last step; the layout has %lld",
				    path, (long long)ran, (long long)stage, (long long)planned);
}

static int stages_of(const struct traced_step *t, const char *path, const struct hd_plan *p, int64_t n,
		     struct hd_page_stage *v, double *seconds, struct hd_err *err)
{
	double zero = 0, end = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct traced_bar *b = &t->v[i];

		if (b->step == t->last && (end == 0 || b->at < zero))
			zero = b->at;
		if (b->step == t->last && b->at + b->lasts > end)
			end = b->at + b->lasts;
	}
	for (int64_t s = 0; s < n; s++) {
		int64_t rank = rank_of(t, s);
		if (rank < 0)
			return hd_err_set(err, HD_EINVAL, "%s has no units of stage %lld; the layout has %lld stage%s",
					  path, (long long)s, (long long)n, hd_plural(n, "s"));
		HD_TRY(check_layout(t, path, p, s, rank, err));
		v[s].name = hd_format("rank %lld", (long long)rank);
		v[s].spans = spans_of(t, rank, zero, &v[s].nspans);
	}
	*seconds = 1e-6 * (end - zero);
	return HD_OK;
}

int hd_traced_read(const char *path, const struct hd_plan *p, int64_t n, struct hd_page_stage **out, double *seconds,
		   struct hd_err *err)
{
	struct traced_step t = { .last = -1 };
	json_t *all = hd_trace_json(path, err), *e;
	size_t i;

	*out = NULL;
	if (!all)
		return err->code;
	json_array_foreach(json_object_get(all, "traceEvents"), i, e)
		add(&t, e);
	json_decref(all);
	*out = hd_alloc(((size_t)n + 1) * sizeof(**out));
	stages_of(&t, path, p, n, *out, seconds, err);
	free(t.v);
	return err->code;
}
