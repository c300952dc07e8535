/* SPDX-License-Identifier: Apache-2.0
 * Measured times of units, from a trace (log.trace), for drawing another schedule and computing its bubble: how long
 * would that schedule take on the machine? For each part of the model and kind of unit it uses the median over the
 * trace. Time in which a rank waited for other stages is excluded.
 *
 * A trace with separate weight gradients also serves schedules without: their B is the sum of B and W.
 */
#include <config.h>
#include "engine/command/unit_times.h"
#include "engine/file/file.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct sample {
	int64_t part;
	int kind;
	double seconds;
}; /* part: position in the model's order; kind: index into kinds */
struct samples {
	struct sample *v;
	size_t n, cap;
	int64_t stages, chunks;
};

static const char kinds[] = "FBW";

static int number(const json_t *o, const char *key, double *to)
{
	const json_t *x = json_object_get(o, key);

	*to = json_number_value(x);
	return json_is_number(x);
}

/* Adds the bar of a unit, which has its stage, chunk and busy time. No other event of a trace has these. */
static void add(struct samples *s, const json_t *event)
{
	const json_t *args = json_object_get(event, "args");
	const char *kind = json_string_value(json_object_get(args, "kind"));
	double stage, chunk, busy;

	if (!kind || !kind[0] || !strchr(kinds, kind[0]) || !number(args, "stage", &stage) ||
	    !number(args, "chunk", &chunk) || !number(args, "busy", &busy) ||
	    !(stage >= 0 && stage < 1e6 && chunk >= 0 && chunk < 1e6))
		return;
	s->v = hd_grow(s->v, s->n, &s->cap, sizeof(*s->v));
	s->v[s->n++] = (struct sample){ (int64_t)stage | (int64_t)chunk << 32, (int)(strchr(kinds, kind[0]) - kinds),
					1e-6 * busy };
	s->stages = (int64_t)stage + 1 > s->stages ? (int64_t)stage + 1 : s->stages;
	s->chunks = (int64_t)chunk + 1 > s->chunks ? (int64_t)chunk + 1 : s->chunks;
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
	for (size_t i = 0; i < s->n; i++)
		s->v[i].part = (s->v[i].part >> 32) * s->stages + (s->v[i].part & 0xffffffff);
	qsort(s->v, s->n, sizeof(*s->v), by_part);
	for (size_t i = 0, k; i < s->n; i = k) {
		for (k = i; k < s->n && s->v[k].part == s->v[i].part && s->v[k].kind == s->v[i].kind; k++)
			;
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
	if (s.stages * s.chunks != t->parts || !s.n) {
		free(s.v);
		return hd_err_set(err, HD_EINVAL, "%s has %lld stages x %lld chunks; here the model is in %lld parts",
				  path, (long long)s.stages, (long long)s.chunks, (long long)t->parts);
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
