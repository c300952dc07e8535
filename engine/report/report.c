/* SPDX-License-Identifier: Apache-2.0
 * The curves of several runs as one page that any browser shows.
 */
#include <config.h>
#include "engine/report/report.h"
#include "engine/human/human.h"
#include "engine/report/plot.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_LINES 512

static const char style[] =
	"body{font:15px/1.45 sans-serif;max-width:760px;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
	"h1{font-size:1.5em;margin-bottom:.2em}h2{font-size:1em;margin:1.6em 0 .2em}.about{margin:0 0 .3em}.about b{font-weight:600}"
	"table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .9em .2em 0;text-align:right}"
	"td:first-child,th:first-child{text-align:left}.plot{width:100%}text{font-size:11px;fill:currentColor}.name{font-size:12px}"
	".grid{stroke:#8884;fill:none}.line,.faint{fill:none;stroke:var(--c);stroke-width:1.8}.faint{stroke-width:1;opacity:.35}"
	".dashed{stroke-dasharray:6 4}circle{fill:var(--b);stroke:var(--c);stroke-width:1.8}"
	".legend{margin:0;font-size:13px}.legend span{margin-right:1.2em}.key{width:34px;height:10px;vertical-align:middle}.note{opacity:.7}"
	"body{--b:#fff}.c0{--c:#1668b8}.c1{--c:#c4501b}.c2{--c:#23854a}.c3{--c:#8a4fb0}.c4{--c:#b28a00}.c5{--c:#c2397c}.c6{--c:#0f8a93}"
	".c7{--c:#777}"
	"@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818;--b:#181818}.c0{--c:#62a8ee}.c1{--c:#f08a58}"
	".c2{--c:#5cc487}.c3{--c:#c592ea}.c4{--c:#e0bb45}.c5{--c:#f07db5}.c6{--c:#52c7d1}.c7{--c:#aaa}}";

static const struct {
	const char *title, *unit, *keys[2];
} drawings[] = {
	{ "Loss, training and validation", "nats per token", { "loss", "valid_loss" } },
	{ "Gradient norm, before clipping", "norm of all gradients", { "grad_norm", NULL } },
	{ "Learning rate", "learning rate", { "lr", NULL } },
	{ "Tokens per second", "tokens/s", { "tokens_per_second", NULL } },
	{ "Share of the measured matmul rate", "share, 1: all", { "matmul_share", NULL } },
	{ "Model FLOPs utilization", "share of the peak", { "mfu", NULL } },
	{ "Auxiliary loss of the experts, before its weight", "loss; 1 a layer: balanced", { "aux_loss", NULL } },
	{ "Load of the most chosen expert over the mean, by layer of experts", "load; 1: balanced", { "load", NULL } },
	{ "Share of choices without a place, by layer of experts", "share of choices", { "dropped", NULL } },
};

/* -- the table ------------------------------------------------------------------------------------------------------------ */
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
	cell(f, loss, loss ? loss->x[loss->n - 1] : 0);
	cell(f, loss, last(loss));
	cell(f, valid, last(valid));
	text_cell(f, tokens, hd_human_count(sum(tokens)).text);
	text_cell(f, seconds, hd_human_time(sum(seconds)).text);
	text_cell(f, seconds, sum(seconds) > 0 ? hd_human_count(sum(tokens) / sum(seconds)).text : "");
	fprintf(f, "</tr>\n");
}

static void table(FILE *f, const struct hd_report *r)
{
	fprintf(f, "<table><tr><th>run</th><th>steps</th><th>loss</th><th>valid loss</th><th>tokens</th><th>time</th>"
		   "<th>tokens/s</th></tr>\n");
	for (int i = 0; i < r->n; i++)
		row(f, &r->run[i], i);
	fprintf(f, "</table>\n");
}

/* -- the drawings --------------------------------------------------------------------------------------------------------- */
/* malloc'ed; freed with its drawing. */
static char *label_of(const struct hd_report *r, int run, const char *key)
{
	const char *name = !strcmp(key, "loss") ? "training" : !strcmp(key, "valid_loss") ? "validation" : key;

	return r->n > 1 ? hd_format("%s, %s", r->run[run].path, name) : hd_strdup(name);
}

/* The curve `key`, or where it is an array each of its curves, of one run. */
static size_t collect(const struct hd_report *r, int run, const char *key, struct hd_line *lines, size_t n)
{
	const struct hd_curves *c = &r->run[run];
	size_t m = strlen(key);

	for (size_t i = 0; i < c->n && n < MOST_LINES; i++) {
		const char *name = c->all[i].name;

		if (strncmp(name, key, m) || (name[m] && name[m] != '.'))
			continue;
		lines[n] = (struct hd_line){ &c->all[i], label_of(r, run, name), r->n > 1 ? run : (int)n,
					     !strcmp(key, "valid_loss") };
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
				n = collect(r, i, drawings[d].keys[k], lines, n);
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

#define LAST_SECOND 253402300799.0 /* of the year 9999 */

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
	text = hd_format("%s to %s", a, b);
	about_line(f, "Time:", text);
	free(text);
}

/* Predicted beside measured: a title, then rows of three cells. */
static void foresight(FILE *f, const struct hd_curves *c)
{
	char *copy, *rest = NULL, *line, *cell, *more;

	if (!c->foresight)
		return;
	copy = hd_strdup(c->foresight);
	about_line(f, "Predicted:", strtok_r(copy, "\n", &rest));
	fprintf(f, "<table><tr><th>of a step</th><th>predicted</th><th>measured</th></tr>\n");
	while ((line = strtok_r(NULL, "\n", &rest))) {
		fprintf(f, "<tr>");
		for (cell = strtok_r(line, "\t", &more); cell; cell = strtok_r(NULL, "\t", &more))
			fprintf(f, "<td>%s</td>", cell);
		fprintf(f, "</tr>\n");
	}
	fprintf(f, "</table>\n");
	free(copy);
}

static void about(FILE *f, const struct hd_report *r)
{
	for (int i = 0; i < r->n; i++) {
		if (r->n > 1 && r->run[i].model)
			about_line(f, "Run:", r->run[i].path);
		about_line(f, "Model:", r->run[i].model);
		about_line(f, "Layout:", r->run[i].layout);
		about_times(f, &r->run[i]);
		foresight(f, &r->run[i]);
	}
}

void hd_report_page(FILE *f, const struct hd_report *r)
{
	fprintf(f, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>Heddle: ");
	hd_html_text(f, r->run[0].path);
	fprintf(f, "</title><style>%s</style></head>\n<body><h1>", style);
	for (int i = 0; i < r->n; i++) {
		fputs(i ? ", " : "", f);
		hd_html_text(f, r->run[i].path);
	}
	fprintf(f, "</h1>\n");
	about(f, r);
	table(f, r);
	draw(f, r);
	fprintf(f, "</body></html>\n");
}
