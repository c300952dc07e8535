/* SPDX-License-Identifier: Apache-2.0
 * A step that was run, from a trace (log.trace), for the page of a plan: its units by stage, and when a stage waited.
 */
#include <config.h>
#include "engine/command/picture.h"
#include "engine/command/unit_times.h"
#include "engine/base/json.h"
#include "engine/human/human.h"
#include <stdlib.h>
#include <string.h>

struct traced_bar { /* of the row of units; microseconds of the trace */
	int64_t rank, step;
	double at, lasts, busy, stage; /* stage: -1 where the bar has none */
	char kind;
};
struct traced_step {
	struct traced_bar *v;
	size_t n, cap;
	int64_t last; /* step */
};

static double number(const json_t *o, const char *key, double otherwise)
{
	const json_t *x = json_object_get(o, key);

	return json_is_number(x) ? json_number_value(x) : otherwise;
}

/* Bars of the first row, of rank "pid": F, B and W with their stage; G, S and U. */
static void add(struct traced_step *t, const json_t *e)
{
	const json_t *args = json_object_get(e, "args");
	const char *name = json_string_value(json_object_get(e, "name")),
		   *phase = json_string_value(json_object_get(e, "ph"));
	double lasts = number(e, "dur", -1), step = number(args, "step", -1);

	if (!name || !phase || phase[0] != 'X' || number(e, "tid", -1) != 0 || lasts < 0 || step < 0 || step > 1e15)
		return;
	t->v = hd_grow(t->v, t->n, &t->cap, sizeof(*t->v));
	t->v[t->n++] = (struct traced_bar){ .rank = (int64_t)number(e, "pid", 0),
					    .step = (int64_t)step,
					    .at = number(e, "ts", 0),
					    .lasts = lasts,
					    .busy = number(args, "busy", lasts),
					    .stage = number(args, "stage", -1),
					    .kind = name[0] };
	t->last = (int64_t)step > t->last ? (int64_t)step : t->last;
}

static enum hd_page_work work_of(char kind)
{
	return kind == 'F'   ? HD_PAGE_FORWARD
	       : kind == 'B' ? HD_PAGE_BACKWARD
	       : kind == 'W' ? HD_PAGE_WEIGHTS
			     : HD_PAGE_STEP;
}

/* The lowest rank that has units of that stage; -1: none. */
static int64_t rank_of(const struct traced_step *t, int64_t stage)
{
	int64_t rank = -1;

	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].step == t->last && t->v[i].stage == (double)stage && (rank < 0 || t->v[i].rank < rank))
			rank = t->v[i].rank;
	return rank;
}

/* A bar is what was computed behind what was waited for: which of it came first the trace does not say of a unit. */
static size_t spans_of(const struct traced_step *t, int64_t rank, double zero, struct hd_page_span *to)
{
	double until = zero;
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct traced_bar *b = &t->v[i];
		double waits = b->lasts > b->busy ? b->lasts - b->busy : 0;

		if (b->step != t->last || b->rank != rank)
			continue;
		if (b->at > until)
			to[n++] = (struct hd_page_span){ 1e-6 * (until - zero), 1e-6 * (b->at - zero), HD_PAGE_WAITS };
		to[n++] = (struct hd_page_span){ 1e-6 * (b->at - zero), 1e-6 * (b->at + b->lasts - zero),
						 work_of(b->kind) };
		if (waits > 0)
			to[n++] = (struct hd_page_span){ 1e-6 * (b->at - zero), 1e-6 * (b->at + waits - zero),
							 HD_PAGE_WAITS };
		until = b->at + b->lasts > until ? b->at + b->lasts : until;
	}
	return n;
}

/* A trace of another layout, or of other micro-batches, has no place below this plan. */
static int is_of_plan(const struct traced_step *t, const char *path, const struct hd_plan *p, int64_t stage,
		      int64_t rank, struct hd_err *err)
{
	int64_t ran = 0, planned = 0;

	for (size_t i = 0; i < t->n; i++)
		ran += t->v[i].step == t->last && t->v[i].rank == rank && t->v[i].kind == 'F';
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
		struct hd_page_span *spans;

		if (rank < 0)
			return hd_err_set(err, HD_EINVAL, "%s has no units of stage %lld; the layout has %lld stage%s",
					  path, (long long)s, (long long)n, hd_plural(n, "s"));
		HD_TRY(is_of_plan(t, path, p, s, rank, err));
		spans = hd_alloc((3 * t->n + 1) * sizeof(*spans));
		v[s].name = hd_format("rank %lld", (long long)rank);
		v[s].nspans = spans_of(t, rank, zero, spans);
		v[s].spans = spans;
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
