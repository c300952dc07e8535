/* SPDX-License-Identifier: Apache-2.0
 * Shows what a search has found: the best layouts as a table, all of them by time and memory, and the best as an INI.
 */
#include <config.h>
#include "engine/human/human.h"
#include "engine/page/plan_draw.h"
#include "engine/page/html.h"
#include <math.h>

enum { HIGH = 300, TOP = 4 };
#define SLOWEST 3 /* points that take this many times as long as the best are of no interest */

struct search_frame {
	double least, slow, memory; /* of the axes: from least to slow seconds, and from 0 to memory bytes */
};

static int is_inside(const struct search_frame *f, const struct hd_page_point *x)
{
	return x->seconds <= f->slow && x->memory <= f->memory;
}

static void begin_point(FILE *f, const struct search_frame *a, const struct hd_page_point *x, const char *look,
			double size)
{
	double cx = hd_page_across(x->seconds, a->least * 0.98, a->slow);
	double cy = TOP + HIGH - x->memory / a->memory * HIGH;

	if (size > 0)
		fprintf(f, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%g\"><title>", look, cx, cy, size);
	else
		fprintf(f, "<path class=\"%s\" d=\"M%.1f %.1fl8 8l-8 8l-8-8z\"><title>", look, cx, cy - 8);
	hd_html_text(f, x->text);
	fprintf(f, ": %s, ", hd_human_step(x->seconds).text);
	fprintf(f, "%s</title></%s>\n", hd_human_bytes(x->memory).text, size > 0 ? "circle" : "path");
}

/* Returns the bytes at the top of the axis. They include the limit,
 * unless all points would then lie near the bottom. */
static double frontier_top(const struct hd_plan_page *p)
{
	double memory = p->search->own ? fmin(p->search->own->memory, 4 * p->search->points[0].memory) : 0;

	for (int64_t i = 0; i < p->search->npoints; i++)
		memory = fmax(memory, p->search->points[i].memory);
	if (4 * memory < p->limit || p->limit <= 0)
		return memory * 1.05;
	return fmin(fmax(memory, p->limit), 1.5 * p->limit) * 1.05;
}

static struct search_frame frame_of(const struct hd_plan_page *p)
{
	const struct hd_page_results *s = p->search;
	struct search_frame f = { INFINITY, 0, frontier_top(p) };

	for (int64_t i = 0; i < s->npoints; i++)
		f.least = fmin(f.least, s->points[i].seconds);
	for (int64_t i = 0; i < s->npoints; i++)
		if (s->points[i].memory <= f.memory && s->points[i].seconds <= SLOWEST * f.least)
			f.slow = fmax(f.slow, s->points[i].seconds * 1.02);
	if (s->own && s->own->memory <= f.memory && s->own->seconds <= SLOWEST * f.least)
		f.slow = fmax(f.slow, s->own->seconds * 1.02), f.least = fmin(f.least, s->own->seconds);
	return f;
}

/* Explains the points, and says which are missing. */
static void frontier_note(FILE *f, const struct hd_plan_page *p, const struct search_frame *a)
{
	const struct hd_page_results *s = p->search;
	int64_t out = 0;

	for (int64_t i = 0; i < s->npoints; i++)
		out += !is_inside(a, &s->points[i]);
	fprintf(f,
		"<p class=\"note\">Each point is a layout (rest the pointer on it). The large one is the best that fits, "
		"and is drawn below. Rings do not fit.");
	if (s->own && is_inside(a, s->own))
		fprintf(f, " The diamond is the layout of the INI.");
	else if (s->own)
		fprintf(f, " The layout of the INI is left out: it takes %s and %s.",
			hd_human_step(s->own->seconds).text, hd_human_bytes(s->own->memory).text);
	if (out)
		fprintf(f,
			" %lld of %lld layouts are left out, which take more than %d times as long or far more memory.",
			(long long)out, (long long)s->npoints, SLOWEST);
	if (p->limit > 0)
		fprintf(f, " A rank has %s.", hd_human_bytes(p->limit).text);
	fprintf(f, "</p>\n");
}

static void frontier(FILE *f, const struct hd_plan_page *p)
{
	const struct hd_page_results *s = p->search;
	struct search_frame a = frame_of(p);

	hd_page_begin(f, "The search: time and memory of the layouts that were planned", HIGH + 48);
	hd_page_axis_left(f, a.memory, TOP, TOP + HIGH);
	hd_page_axis_below(f, a.least * 0.98, a.slow, TOP + HIGH, "of a step");
	if (p->limit > 0)
		hd_page_limit(f, p->limit, a.memory, HIGH, "memory of a rank");
	for (int64_t i = s->npoints - 1; i >= 0; i--)
		if (is_inside(&a, &s->points[i]))
			begin_point(f, &a, &s->points[i], !i ? "best" : s->points[i].fits ? "dot" : "over", i ? 3 : 6);
	if (s->own && is_inside(&a, s->own))
		begin_point(f, &a, s->own, "own", 0);
	hd_page_end(f);
	frontier_note(f, p, &a);
}

static void row(FILE *f, const struct hd_page_found *x)
{
	const char *cells[] = { x->number, x->step, x->more, x->memory };

	fprintf(f, "<tr>");
	for (int i = 0; i < 4; i++)
		fprintf(f, "<td>%s</td>", cells[i]);
	fprintf(f, "<td class=\"left\">");
	hd_html_text(f, x->layout);
	fprintf(f, "</td></tr>\n");
}

static void own_row(FILE *f, const struct hd_page_results *s)
{
	double more = 100 * (s->own->seconds / s->points[0].seconds - 1);

	fprintf(f, "<tr><td></td><td>%s</td><td>%+.1f%%</td>", hd_human_step(s->own->seconds).text, more);
	fprintf(f, "<td>%s</td><td class=\"left\">%s%s</td></tr>\n", hd_human_bytes(s->own->memory).text, s->own->text,
		s->own->fits ? "" : ", which does not fit");
}

void hd_page_search(FILE *f, const struct hd_plan_page *p)
{
	const struct hd_page_results *s = p->search;

	fprintf(f, "<h2>The best layouts</h2>\n<p>");
	hd_html_text(f, s->sum);
	fprintf(f, ".</p>\n<div class=\"wide\"><table><tr><th></th><th>step</th><th></th><th>memory</th>"
		   "<th class=\"left\">layout, innermost axis first</th></tr>\n");
	for (int64_t i = 0; i < s->nrows; i++)
		row(f, &s->rows[i]);
	if (s->own)
		own_row(f, s);
	fprintf(f, "</table></div>\n<details><summary>The INI of the best layout</summary><pre>");
	hd_html_text(f, s->ini);
	fprintf(f, "</pre></details>\n");
	frontier(f, p);
}
