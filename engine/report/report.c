/* SPDX-License-Identifier: Apache-2.0
 * Writes the curves of several runs as one page that any browser shows.
 */
#include <config.h>
#include "engine/report/report.h"
#include "engine/human/human.h"
#include "engine/page/html.h"
#include "engine/report/plot.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_LINES 512

static const struct {
	const char *title, *unit, *keys[2], *names[2]; /* names: of the keys in the legend */
} drawings[] = {
	{ "Loss, training and validation", "nats per token", { "loss", "valid_loss" }, { "training", "validation" } },
	{ "Gradient norm, before clipping", "norm of all gradients", { "grad_norm" }, { "gradient norm" } },
	{ "Learning rate", "learning rate", { "lr" }, { "learning rate" } },
	{ "Tokens per second", "tokens/s", { "tokens_per_second" }, { "tokens per second" } },
	{ "Share of the measured matmul rate", "share, 1: all", { "matmul_share" }, { "share of the matmul rate" } },
	{ "Model FLOPs utilization", "share of the peak", { "mfu" }, { "share of the peak" } },
	{ "Auxiliary loss of the experts, before its weight",
	  "loss; 1 a layer: balanced",
	  { "aux_loss" },
	  { "auxiliary loss" } },
	{ "Load of the most chosen expert over the mean, by layer of experts",
	  "load; 1: balanced",
	  { "load" },
	  { "load" } },
	{ "Share of choices without a place, by layer of experts",
	  "share of choices",
	  { "dropped" },
	  { "without a place" } },
};

/* -- the table --------------------------------------------------------------------------------------------------- */
static double last(const struct hd_curve *k)
{
	return k && k->n ? k->y[k->n - 1] : 0;
}

static double sum(const struct hd_curve *k)
{
	double s = 0;

	for (size_t i = 0; k && i < k->n; i++)
		s += k->y[i];
	return s;
}

static void cell(FILE *f, const struct hd_curve *k, double v)
{
	if (k)
		fprintf(f, "<td>%.6g</td>", v);
	else
		fprintf(f, "<td></td>");
}

static void text_cell(FILE *f, const struct hd_curve *k, const char *text)
{
	fprintf(f, "<td>%s</td>", k ? text : "");
}

static void row(FILE *f, const struct hd_curves *r, int colour)
{
	const struct hd_curve *loss = hd_curve_find(r, "loss"), *valid = hd_curve_find(r, "valid_loss"),
			      *tokens = hd_curve_find(r, "tokens"), *seconds = hd_curve_find(r, "seconds");

	fprintf(f, "<tr><td class=\"c%d\" style=\"color:var(--c)\">", colour % 8);
	hd_html_text(f, r->path);
	fprintf(f, "</td>");
	fprintf(f, "<td>");
	if (loss)
		fprintf(f, "%.15g", loss->x[loss->n - 1]); /* a step: no digit may be missing */
	fprintf(f, "</td>");
	cell(f, loss, last(loss));
	cell(f, valid, last(valid));
	text_cell(f, tokens, hd_human_count(sum(tokens)).text);
	text_cell(f, seconds, hd_human_time(sum(seconds)).text);
	text_cell(f, seconds, sum(seconds) > 0 ? hd_human_count(sum(tokens) / sum(seconds)).text : "");
	fprintf(f, "</tr>\n");
}

static void table(FILE *f, const struct hd_report *r)
{
	fprintf(f,
		"<div class=\"wide\"><table><tr><th>run</th><th>steps</th><th>loss</th><th>valid loss</th><th>tokens</th>"
		"<th>time in steps</th><th>tokens/s</th></tr>\n");
	for (int i = 0; i < r->n; i++)
		row(f, &r->run[i], i);
	fprintf(f, "</table></div>\n");
}

/* -- the drawings ------------------------------------------------------------------------------------------------ */
/* name: of the curve's key. A curve of an array has the number of its value, such as a layer. The caller frees it after
 * the drawing. */
static char *label_of(const struct hd_report *r, int run, const char *key, const char *name)
{
	const char *index = strchr(key, '.');
	char *one = hd_format("%s%s%s", name, index ? " " : "", index ? index + 1 : "");
	char *all = r->n > 1 ? hd_format("%s, %s", r->run[run].path, one) : hd_strdup(one);

	free(one);
	return all;
}

/* If there are several runs, each has a colour, and line k of each run has the same dashes.
 * If there is only one, each line has a colour. */
static struct hd_line line_of(const struct hd_report *r, int run, const struct hd_curve *k, const char *name, int at)
{
	struct hd_line l = { .curve = k,
			     .label = label_of(r, run, k->name, name),
			     .dotted = !strcmp(name, "validation") };

	l.colour = r->n > 1 ? run : at;
	l.dashes = r->n > 1 ? at + 4 * (run / 8) : at / 8;
	return l;
}

/* Collects the curve of key k of a drawing, or all its curves if it is an array, of one run. */
static size_t collect(const struct hd_report *r, int run, size_t drawing, int k, struct hd_line *lines, size_t n)
{
	const struct hd_curves *c = &r->run[run];
	const char *key = drawings[drawing].keys[k];
	size_t m = strlen(key), before = n;

	for (size_t i = 0; i < c->n && n < MOST_LINES; i++) {
		const char *name = c->all[i].name;

		if (strncmp(name, key, m) || (name[m] && name[m] != '.'))
			continue;
		lines[n] = line_of(r, run, &c->all[i], drawings[drawing].names[k], (int)(r->n > 1 ? n - before : n));
		n++;
	}
	return n;
}

static void draw(FILE *f, const struct hd_report *r)
{
	struct hd_line lines[MOST_LINES];

	for (size_t d = 0; d < HD_LEN(drawings); d++) {
		size_t n = 0;

		for (int k = 0; k < 2 && drawings[d].keys[k]; k++)
			for (int i = 0; i < r->n; i++)
				n = collect(r, i, d, k, lines, n);
		if (n)
			hd_curves_draw(f, &(struct hd_drawing){ drawings[d].title, drawings[d].unit, lines, n });
		while (n)
			free((char *)(uintptr_t)lines[--n].label);
	}
}

static void about_line(FILE *f, const char *what, const char *text)
{
	if (!text)
		return;
	fprintf(f, "<p class=\"about\"><b>%s</b> ", what);
	hd_html_text(f, text);
	fprintf(f, "</p>\n");
}

#define LAST_SECOND 253402300799.0 /* the end of the year 9999 */

static void about_times(FILE *f, const struct hd_curves *r)
{
	char a[40], b[40], *text;
	time_t began, ended;
	struct tm t;

	if (r->began <= 0 || r->began > LAST_SECOND || r->ended <= 0 || r->ended > LAST_SECOND)
		return;
	began = (time_t)r->began;
	ended = (time_t)r->ended;
	strftime(a, sizeof(a), "%Y-%m-%d %H:%M", gmtime_r(&began, &t));
	strftime(b, sizeof(b), "%Y-%m-%d %H:%M UTC", gmtime_r(&ended, &t));
	text = hd_format("%s to %s, first to last line: steps, evaluations, saves and pauses", a, b);
	about_line(f, "Time:", text);
	free(text);
}

/* Shows predictions next to measurements: a title, then rows of three cells. */
static void foresight(FILE *f, const struct hd_curves *c)
{
	char *copy, *rest = NULL, *line, *cell, *more;

	if (!c->foresight)
		return;
	copy = hd_strdup(c->foresight);
	about_line(f, "Predicted:", strtok_r(copy, "\n", &rest));
	fprintf(f, "<div class=\"wide\"><table><tr><th>of a step</th><th>predicted</th><th>measured</th></tr>\n");
	while ((line = strtok_r(NULL, "\n", &rest))) {
		fprintf(f, "<tr>");
		for (cell = strtok_r(line, "\t", &more); cell; cell = strtok_r(NULL, "\t", &more)) {
			fprintf(f, "<td>");
			hd_html_text(f, cell);
			fprintf(f, "</td>");
		}
		fprintf(f, "</tr>\n");
	}
	fprintf(f, "</table></div>\n");
	free(copy);
}

static void about(FILE *f, const struct hd_report *r)
{
	for (int i = 0; i < r->n; i++) {
		if (r->n > 1 && (r->run[i].model || r->run[i].failed))
			about_line(f, "Run:", r->run[i].path);
		about_line(f, "Model:", r->run[i].model);
		about_line(f, "Layout:", r->run[i].layout);
		about_times(f, &r->run[i]);
		about_line(f, "Failed:", r->run[i].failed);
		foresight(f, &r->run[i]);
	}
}

/* Draws a step of each run as predicted and as executed, if the file contains one. */
static void steps(FILE *f, const struct hd_report *r)
{
	for (int i = 0; i < r->n; i++) {
		if (r->n > 1 && r->run[i].step)
			about_line(f, "Run:", r->run[i].path);
		if (r->run[i].step)
			hd_page_draw_both(f, r->run[i].step);
	}
}

static void names(FILE *f, const struct hd_report *r)
{
	for (int i = 0; i < r->n; i++) {
		fputs(i ? ", " : "", f);
		hd_html_text(f, r->run[i].path);
	}
}

void hd_report_page(FILE *f, const struct hd_report *r)
{
	fprintf(f, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
		   "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/><title>Heddle: ");
	names(f, r);
	fprintf(f, "</title><style>%s</style></head>\n<body><h1>", hd_page_style);
	names(f, r);
	fprintf(f, "</h1>\n");
	about(f, r);
	table(f, r);
	steps(f, r);
	draw(f, r);
	fprintf(f, "</body></html>\n");
}
