/* SPDX-License-Identifier: Apache-2.0
 * Reads metrics files as curves: each number in a line is a point of the curve that its key names.
 */
#include <config.h>
#include "engine/report/series.h"
#include "engine/file/file.h"
#include "engine/human/human.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST 1e300       /* beyond it, differences of numbers need not be finite */
#define MOST_SECONDS 1e9 /* that a step may take */

const struct hd_curve *hd_curve_find(const struct hd_curves *c, const char *name)
{
	for (size_t i = 0; i < c->n; i++)
		if (!strcmp(c->all[i].name, name))
			return &c->all[i];
	return NULL;
}

static struct hd_curve *curve_of(struct hd_curves *c, const char *name)
{
	struct hd_curve *k = (struct hd_curve *)(uintptr_t)hd_curve_find(c, name);

	if (k)
		return k;
	c->all = hd_grow(c->all, c->n, &c->cap, sizeof(*c->all));
	c->all[c->n].name = hd_strdup(name);
	return &c->all[c->n++];
}

static void add(struct hd_curves *c, const char *name, double step, const json_t *v)
{
	struct hd_curve *k;

	if (!json_is_number(v)) /* null: the number was not finite */
		return;
	if (fabs(step) > MOST || fabs(json_number_value(v)) > MOST)
		return;
	k = curve_of(c, name);
	k->x = hd_grow(k->x, k->n, &k->cap_x, sizeof(*k->x));
	k->y = hd_grow(k->y, k->n, &k->cap_y, sizeof(*k->y));
	k->x[k->n] = step;
	k->y[k->n++] = json_number_value(v);
}

static long long number(const json_t *o, const char *key)
{
	return (long long)json_integer_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void release_stages(struct hd_page_stage *v, int64_t n)
{
	for (int64_t i = 0; v && i < n; i++) {
		free(v[i].name);
		free((void *)(uintptr_t)v[i].spans);
	}
	free(v);
}

static void release_step(struct hd_page_both *b)
{
	if (!b)
		return;
	release_stages((struct hd_page_stage *)(uintptr_t)b->planned, b->n);
	release_stages((struct hd_page_stage *)(uintptr_t)b->traced, b->n);
	free(b);
}

/* Adds a layout, which it frees later, if it is not the one before. */
static void add_layout(struct hd_curves *c, double step, char *layout)
{
	if (!c->last_layout)
		c->layout = hd_strdup(layout);
	else if (strcmp(c->last_layout, layout))
		hd_append(&c->layout, "; from step %.15g: %s", step, layout);
	free(c->last_layout);
	c->last_layout = layout;
}

/* Reads the description of the run, which the first line of each start contains. A run may resume in a different
 * layout; of the rest, the last start counts. */
static void add_about(struct hd_curves *c, double step, const json_t *run)
{
	const char *layout = text(run, "layout");

	if (!json_is_object(run))
		return;
	free(c->foresight);
	c->foresight = NULL;
	release_step(c->step);
	c->step = NULL;
	free(c->model);
	c->model = hd_format(
		"%s, %s parameters: %lld layers, embed %lld, %lld heads, vocab %lld; %lld sequences of %lld tokens a step",
		text(run, "family"), hd_human_count((double)number(run, "parameters")).text, number(run, "layers"),
		number(run, "embed"), number(run, "heads"), number(run, "vocab"), number(run, "global_batch"),
		number(run, "seq"));
	add_layout(c, step,
		   hd_format("%s%s%lld rank%s x %lld thread%s, %s", layout, *layout ? ": " : "", number(run, "ranks"),
			     hd_plural((int64_t)number(run, "ranks"), "s"), number(run, "threads"),
			     hd_plural((int64_t)number(run, "threads"), "s"), text(run, "precision")));
}

/* -- a step in time ---------------------------------------------------------------------------------------------- */
/* Returns the stages of a timeline. Their names are "stage 0", with the given name, or "all ranks" if n is 1. With
 * name NULL, they are "rank 3". The caller frees them. NULL: a row is invalid. */
static struct hd_page_stage *stages_of(const json_t *rows, int64_t n, const char *key, double to, const char *name)
{
	struct hd_page_stage *v = hd_alloc(((size_t)n + 1) * sizeof(*v));

	for (int64_t i = 0; i < n; i++) {
		const json_t *row = json_array_get(rows, (size_t)i);

		v[i].spans = hd_page_pieces_read(text(row, key), to, &v[i].nspans);
		if (!v[i].spans) {
			release_stages(v, i);
			return NULL;
		}
		v[i].name = name ? n > 1 ? hd_format("%s %lld", name, (long long)i) : hd_strdup("all ranks")
				 : hd_format("rank %lld", number(row, "rank"));
	}
	return v;
}

static int is_time(double seconds)
{
	return seconds > 0 && seconds <= MOST_SECONDS;
}

/* Keeps the last timeline in the file. */
static void add_step(struct hd_curves *c, const json_t *o)
{
	const json_t *rows = json_object_get(o, "stages");
	double to = json_number_value(json_object_get(o, "seconds"));
	double planned = json_number_value(json_object_get(o, "predicted_seconds"));
	double traced = json_number_value(json_object_get(o, "measured_seconds"));
	struct hd_page_both *b;

	if (!json_array_size(rows) || !is_time(to) || !is_time(planned) || !is_time(traced))
		return;
	b = hd_alloc(sizeof(*b));
	b->n = (int64_t)json_array_size(rows);
	b->planned_seconds = planned;
	b->traced_seconds = traced;
	b->which = "the fastest step that was traced";
	b->planned = stages_of(rows, b->n, "predicted", to, "stage");
	b->traced = stages_of(rows, b->n, "measured", to, NULL);
	release_step(c->step);
	c->step = b->planned && b->traced ? b : (release_step(b), NULL);
}

/* Keeps the last prediction in the file: rows of kind, predicted and measured. */
static void add_foresight(struct hd_curves *c, const json_t *o)
{
	const json_t *parts = json_object_get(o, "parts"), *x;
	char *rows = hd_format("%s; largest difference: %s\n", text(o, "machine"), text(o, "largest"));
	size_t i;

	json_array_foreach((json_t *)parts, i, x) {
		double p = json_number_value(json_object_get(x, "predicted_seconds"));
		double m = json_number_value(json_object_get(x, "measured_seconds"));

		if (p > 0 || m > 0)
			hd_append(&rows, "%s\t%s\t%s\n", text(x, "kind"), hd_human_seconds(p).text,
				  hd_human_seconds(m).text);
	}
	free(c->foresight);
	c->foresight = rows;
	add_step(c, json_object_get(o, "timeline"));
}

/* Keeps the error of the last step. If a run resumed after the error, it has not failed. */
static void add_failure(struct hd_curves *c, const json_t *o)
{
	const char *error = text(o, "error");

	if (!*error && !json_object_get(o, "loss"))
		return;
	free(c->failed);
	c->failed = *error ? hd_strdup(error) : NULL;
}

static void add_time(struct hd_curves *c, double at)
{
	c->began = c->began > 0 ? c->began : at;
	c->ended = at;
}

static int add_line(struct hd_curves *c, const char *line, int64_t number, struct hd_err *err)
{
	json_error_t at;
	json_t *o = json_loads(line, 0, &at), *v, *step = json_object_get(o, "step");
	const char *key;

	if (!json_is_number(step)) {
		json_decref(o);
		return hd_err_set(err, HD_EIO, "%s:%lld: is not a line of metrics: %s", c->path, (long long)number,
				  o ? "it has no step" : at.text);
	}
	add_about(c, json_number_value(step), json_object_get(o, "run"));
	if (json_is_object(json_object_get(o, "foresight")))
		add_foresight(c, json_object_get(o, "foresight"));
	add_failure(c, o);
	if (json_is_number(json_object_get(o, "time")))
		add_time(c, json_number_value(json_object_get(o, "time")));
	json_object_foreach(o, key, v) {
		char name[100];

		if (strcmp(key, "step") && strcmp(key, "time"))
			add(c, key, json_number_value(step), v);
		for (size_t i = 0; i < json_array_size(v); i++) {
			snprintf(name, sizeof(name), "%s.%zu", key, i);
			add(c, name, json_number_value(step), json_array_get(v, i));
		}
	}
	json_decref(o);
	return HD_OK;
}

/* Returns whether this is the file's last line and incomplete, because of a full disk or a power cut. */
static int is_cut(const char *line)
{
	json_t *o = strchr(line, '\n') ? NULL : json_loads(line, 0, NULL);
	int whole = o || strchr(line, '\n');

	json_decref(o);
	return !whole;
}

int hd_curves_read(const char *path, struct hd_curves *c, struct hd_err *err)
{
	FILE *f = fopen(path, "r");
	char *line = NULL;
	size_t room = 0;
	int64_t number = 0;
	int rc = HD_OK;

	c->path = path;
	if (!f)
		return hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	for (; rc >= 0 && hd_file_line(f, path, &line, &room, err) > 0; number++)
		if (is_cut(line))
			hd_log(HD_LOG_WARN, "%s:%lld: is cut off, so it is left out", path, (long long)number + 1);
		else if (line[strspn(line, " \t\r\n")])
			rc = add_line(c, line, number + 1, err);
	rc = rc < 0 ? rc : err->code;
	if (rc >= 0 && !c->n && !c->failed)
		rc = hd_err_set(err, HD_EINVAL, "%s: contains no numbers", path);
	free(line);
	fclose(f);
	return rc;
}

void hd_curves_free(struct hd_curves *c)
{
	for (size_t i = 0; i < c->n; i++) {
		free(c->all[i].name);
		free(c->all[i].x);
		free(c->all[i].y);
	}
	free(c->all);
	free(c->model);
	free(c->layout);
	free(c->last_layout);
	free(c->foresight);
	free(c->failed);
	release_step(c->step);
	c->model = c->layout = c->last_layout = c->foresight = c->failed = NULL;
	c->step = NULL;
	c->all = NULL;
	c->n = c->cap = 0;
}
