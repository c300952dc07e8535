/* SPDX-License-Identifier: Apache-2.0
 * Measured times of units, from a trace (log.trace), for drawing another schedule and computing its bubble: how long
 * would that schedule take on the machine? For each part of the model and kind of unit it uses the median over the
 * trace. Time in which a rank waited for other stages is excluded.
 *
 * A trace with separate weight gradients also serves schedules without: their B is the sum of B and W. The layouts may
 * differ, if the model is in as many parts.
 */
#include <config.h>
#include "engine/command/unit_times.h"
#include "engine/file/file.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct sample {
	int64_t part, stage, chunk;
	int kind;
	double seconds;
}; /* part: position in the model's order, -1: not in the trace; kind: index into kinds */
struct samples {
	struct sample *v;
	size_t n, cap;
	int64_t stages, chunks, parts;
};

static const char kinds[] = "FBW";

static int number(const json_t *o, const char *key, double *to)
{
	const json_t *x = json_object_get(o, key);

	*to = json_number_value(x);
	return json_is_number(x);
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Adds the bar of a unit, which has its stage, chunk and busy time. No other event of a trace has these. Traces of
 * earlier versions have no parts. */
static void add(struct samples *s, const json_t *event)
{
	const json_t *args = json_object_get(event, "args");
	const char *kind = json_string_value(json_object_get(args, "kind"));
	double stage, chunk, busy, part;
	struct sample *x;

	if (!kind || !kind[0] || !strchr(kinds, kind[0]) || !number(args, "stage", &stage) ||
	    !number(args, "chunk", &chunk) || !number(args, "busy", &busy) ||
	    !(stage >= 0 && stage < 1e6 && chunk >= 0 && chunk < 1e6))
		return;
	if (!number(args, "part", &part) || !(part >= 0 && part < 1e6))
		part = -1;
	s->v = hd_grow(s->v, s->n, &s->cap, sizeof(*s->v));
	x = &s->v[s->n++];
	*x = (struct sample){ (int64_t)part, (int64_t)stage, (int64_t)chunk, (int)(strchr(kinds, kind[0]) - kinds),
			      1e-6 * busy };
	s->stages = larger(s->stages, x->stage + 1);
	s->chunks = larger(s->chunks, x->chunk + 1);
}

/* Sets the parts that the trace does not have. They are this plan's if it has as many stages and chunks. Otherwise each
 * stage is assumed to follow the one before, chunk by chunk. */
static void find_parts(struct samples *s, const struct hd_plan *p)
{
	int *part_of = hd_plan_part_of(p), alike = s->stages == p->ncoords && s->chunks == p->chunks;

	for (size_t i = 0; i < s->n; i++) {
		struct sample *x = &s->v[i];

		if (x->part < 0)
			x->part = alike ? part_of[x->stage * p->chunks + x->chunk] : x->chunk * s->stages + x->stage;
		s->parts = larger(s->parts, x->part + 1);
	}
	free(part_of);
}

static int by_part(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;

	if (x->part != y->part)
		return x->part < y->part ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind - y->kind;
	return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* Stores the medians in to, which has parts x 3 elements; -1: the trace has no such unit. */
static void medians(struct samples *s, double *to, int64_t parts)
{
	for (int64_t i = 0; i < 3 * parts; i++)
		to[i] = -1;
	qsort(s->v, s->n, sizeof(*s->v), by_part);
	for (size_t i = 0, k; i < s->n; i = k) {
		for (k = i; k < s->n && s->v[k].part == s->v[i].part && s->v[k].kind == s->v[i].kind; k++)
			;
		if (s->v[i].part >= 0)
			to[3 * s->v[i].part + s->v[i].kind] = s->v[i + (k - i) / 2].seconds;
	}
}

static int fill(const struct hd_plan *p, const char *path, const double *m, struct hd_unit_times *t, struct hd_err *err)
{
	for (int64_t i = 0; i < t->parts; i++) {
		const double *x = m + 3 * i;

		if (x[0] < 0 || x[1] < 0)
			return hd_err_set(err, HD_EINVAL, "%s: part %lld of the model has no %s units", path,
					  (long long)i, x[0] < 0 ? "F" : "B");
		if (p->separate_w && x[2] < 0)
			return hd_err_set(
				err, HD_EINVAL,
				"%s has no W units, but this order has: trace a layout with separate weight gradients",
				path);
		t->f[i] = x[0];
		t->b[i] = x[1] + (!p->separate_w && x[2] > 0 ? x[2] : 0);
		t->w[i] = x[2];
	}
	return HD_OK;
}

void hd_unit_times_release(struct hd_unit_times *t)
{
	free(t->f), free(t->b), free(t->w);
	memset(t, 0, sizeof(*t));
}

json_t *hd_trace_json(const char *path, struct hd_err *err)
{
	struct hd_err why = { 0 };
	json_t *all = hd_file_json(path, &why);

	if (!all)
		hd_err_set(err, why.code, "%s%s", why.text,
			   why.code == HD_EINVAL ? "; a trace (log.trace), which is JSON, is expected" : "");
	else if (!json_is_array(json_object_get(all, "traceEvents")))
		hd_err_set(err, HD_EINVAL, "%s: has no list traceEvents; a trace (log.trace) is expected", path);
	if (!err->code)
		return all;
	json_decref(all);
	return NULL;
}

int hd_unit_times_read(const struct hd_plan *p, const char *path, struct hd_unit_times *t, struct hd_err *err)
{
	struct samples s = { 0 };
	json_t *all = hd_trace_json(path, err), *e;
	double *m;
	size_t i;
	int rc;

	memset(t, 0, sizeof(*t));
	if (!all)
		return err->code;
	json_array_foreach(json_object_get(all, "traceEvents"), i, e)
		add(&s, e);
	json_decref(all);
	t->parts = hd_plan_parts(p);
	find_parts(&s, p);
	if (s.parts != t->parts) {
		free(s.v);
		return hd_err_set(err, HD_EINVAL,
				  "%s has units of %lld part%s of the model (stages x chunks); here it has %lld", path,
				  (long long)s.parts, hd_plural(s.parts, "s"), (long long)t->parts);
	}
	t->f = hd_alloc((size_t)t->parts * sizeof(double));
	t->b = hd_alloc((size_t)t->parts * sizeof(double));
	t->w = hd_alloc((size_t)t->parts * sizeof(double));
	m = hd_alloc((size_t)(3 * t->parts) * sizeof(*m));
	medians(&s, m, t->parts);
	rc = fill(p, path, m, t, err);
	free(m);
	free(s.v);
	if (rc < 0)
		hd_unit_times_release(t);
	return rc;
}
