/* SPDX-License-Identifier: Apache-2.0
 * A step of each stage as a timeline. The metrics store it only as finely as it is drawn, so a thousand units take no
 * more room than ten.
 */
#include <config.h>
#include "engine/foresight/timeline.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static enum hd_page_work work_of(const struct hd_schedule_unit *u)
{
	switch (u->kind) {
	case 0: return HD_PAGE_WAITS;
	case HD_UNIT_F: return HD_PAGE_FORWARD;
	case HD_UNIT_B: return HD_PAGE_BACKWARD;
	case HD_UNIT_W: return HD_PAGE_WEIGHTS;
	default: return HD_PAGE_STEP;
	}
}

/* Appends the part of the step after the units of all stages: work on shared cores, then time of the host and between
 * nodes. Returns the number of spans. */
static size_t rest_of(const struct hd_prediction *r, struct hd_page_span *to)
{
	double shared = fmin(r->ended + r->sharing, r->step);
	size_t n = 0;

	if (r->sharing > 0)
		to[n++] = (struct hd_page_span){ r->ended, shared, HD_PAGE_SHARING };
	if (r->step > shared * (1 + 1e-9))
		to[n++] = (struct hd_page_span){ shared, r->step, HD_PAGE_WAITS };
	return n;
}

struct hd_page_span *hd_planned_spans(const struct hd_prediction *r, int64_t stage, size_t *n)
{
	const struct hd_unit_spans *s = &r->spans[stage];
	struct hd_page_span *v = hd_alloc((s->nunits + s->nwaits + 3) * sizeof(*v));
	double end = s->nunits ? s->units[s->nunits - 1].to : 0;

	*n = 0;
	for (size_t i = 0; i < s->nunits; i++)
		v[(*n)++] = (struct hd_page_span){ s->units[i].from, s->units[i].to, work_of(&s->units[i].unit) };
	for (size_t i = 0; i < s->nwaits; i++)
		v[(*n)++] = (struct hd_page_span){ s->waits[i].from, s->waits[i].to, HD_PAGE_WAITS };
	if (end < r->ended)
		v[(*n)++] = (struct hd_page_span){ end, r->ended, HD_PAGE_WAITS };
	*n += rest_of(r, &v[*n]);
	return v;
}

/* The spans follow each other; a gap between two is added to the later one. */
void hd_traced_close_gaps(struct hd_page_span *v, size_t n)
{
	for (size_t i = 1; i < n; i++)
		v[i].from = v[i - 1].to;
}

/* Returns the spans of traced events, malloc'ed. Communication counts as waiting, as in a plan. */
static struct hd_page_span *traced_spans(const struct trace_event *e, size_t n, double zero)
{
	struct hd_page_span *v = hd_alloc((n + 1) * sizeof(*v));

	for (size_t i = 0; i < n; i++)
		v[i] = (struct hd_page_span){ e[i].begin - zero, e[i].end - zero,
					      e[i].kind == HD_TRACE_KERNEL ? work_of(&e[i].unit) : HD_PAGE_WAITS };
	hd_traced_close_gaps(v, n);
	return v;
}

/* Returns when all ranks meet, in seconds of this rank's clock, or 0 if the ranks share one clock. */
static double met_at(const struct hd_job *j)
{
	if (j->world.hosts == 1)
		return 0;
	hd_comm_barrier();
	return hd_seconds();
}

static char *planned_text(const struct hd_prediction *r, int64_t stage, double to)
{
	struct hd_page_stage s = { .nspans = 0 };
	struct hd_page_span *v = hd_planned_spans(r, stage, &s.nspans);
	char *text;

	s.spans = v;
	text = hd_page_pieces_text(&s, to);
	free(v);
	return text;
}

/* Returns the rows of all stages. all: the text that each rank has sent; the first of each stage is used. */
static json_t *rows_of(const struct hd_prediction *r, char **all, int ranks, double to)
{
	json_t *rows = json_array();

	for (int64_t i = 0; i < r->nstages; i++)
		for (int rank = 0; rank < ranks; rank++) {
			char *planned, *end;

			if (strtoll(all[rank], &end, 10) != i || *end != ' ')
				continue;
			planned = planned_text(r, i, to);
			json_array_append_new(rows, json_pack("{s:i, s:s, s:s}", "rank", rank, "predicted", planned,
							      "measured", end + 1));
			free(planned);
			break;
		}
	return rows;
}

json_t *hd_timeline_json(struct hd_job *j, const struct hd_prediction *r, const struct trace_event *e, size_t n)
{
	double met = met_at(j), zero = -hd_comm_max(met - e[0].begin), took = hd_comm_max(e[n - 1].end - met - zero);
	double to = fmax(took, r->step);
	struct hd_page_span *v = traced_spans(e, n, met + zero);
	struct hd_page_stage s = { .spans = v, .nspans = n };
	char *row = hd_page_pieces_text(&s, to), *text, **all;
	json_t *o = NULL;

	text = hd_format("%lld %s", (long long)j->program[HD_JOB_TRAIN]->coord, row);
	all = hd_comm_gather_text(text);
	if (all)
		o = json_pack("{s:o, s:o, s:o, s:o}", "seconds", hd_json_number(to), "predicted_seconds",
			      hd_json_number(r->step), "measured_seconds", hd_json_number(took), "stages",
			      rows_of(r, all, j->world.size, to));
	for (int i = 0; all && i < j->world.size; i++)
		free(all[i]);
	free(all), free(text), free(row), free(v);
	return o;
}
