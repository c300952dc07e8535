/* SPDX-License-Identifier: Apache-2.0
 * Writes the text and tables of the page of a planned step. Stages with the same amounts share one row, so a thousand
 * ranks are as readable as four.
 */
#include <config.h>
#include "engine/page/plan_draw.h"
#include "engine/human/human.h"
#include "engine/page/html.h"
#include <string.h>

static void text_line(FILE *f, const char *text)
{
	fprintf(f, "<p>");
	hd_html_text(f, text);
	fprintf(f, "</p>\n");
}

/* -- stages ------------------------------------------------------------------------------------------------------ */
static int alike(const struct hd_page_stage *a, const struct hd_page_stage *b)
{
	return a->parameters == b->parameters &&
	       !strcmp(hd_human_seconds(a->compute).text, hd_human_seconds(b->compute).text) &&
	       !strcmp(hd_human_bytes(a->sent[0]).text, hd_human_bytes(b->sent[0]).text) &&
	       !strcmp(hd_human_bytes(a->sent[1]).text, hd_human_bytes(b->sent[1]).text);
}

static void stage_row(FILE *f, const struct hd_plan_page *p, const struct hd_page_stage *s, int64_t n)
{
	double memory = s->memory;

	for (int64_t i = 1; i < n; i++)
		memory = s[i].memory > memory ? s[i].memory : memory;
	fprintf(f, "<tr><td>");
	hd_html_text(f, s->name);
	if (n > 1) {
		fprintf(f, " to ");
		hd_html_text(f, s[n - 1].name);
	}
	fprintf(f, "</td><td class=\"left\">");
	hd_html_text(f, s->holds);
	fprintf(f, "%s</td><td>%s</td><td>%s%s</td>", n > 1 ? ", ..." : "", hd_human_count(s->parameters).text,
		n > 1 ? "at most " : "", hd_human_bytes(memory).text);
	fprintf(f, "<td>%s</td><td>%s</td><td>%s</td>", hd_human_seconds(s->compute).text,
		hd_human_seconds(s->exposed).text, hd_human_seconds(s->idle).text);
	if (p->sharing > 0)
		fprintf(f, "<td>%s</td>", hd_human_seconds(p->sharing).text);
	fprintf(f, "<td>%s</td><td>%s</td></tr>\n", hd_human_bytes(s->sent[0]).text, hd_human_bytes(s->sent[1]).text);
}

/* Servers have no timeline, so the page does not know when they wait. */
static void servers_row(FILE *f, const struct hd_plan_page *p)
{
	const struct hd_page_stage *s = p->servers;

	fprintf(f, "<tr><td>%s</td><td class=\"left\">%s</td><td></td><td>at most %s</td>", s->name, s->holds,
		hd_human_bytes(s->memory).text);
	fprintf(f, "<td>%s</td><td></td><td></td>%s<td>%s</td><td>%s</td></tr>\n", hd_human_seconds(s->compute).text,
		p->sharing > 0 ? "<td></td>" : "", hd_human_bytes(s->sent[0]).text, hd_human_bytes(s->sent[1]).text);
}

static void stage_table(FILE *f, const struct hd_plan_page *p)
{
	fprintf(f,
		"<h2>Memory, work and traffic of a rank</h2>\n<p class=\"note\">The busiest rank of each stage, in one step.</p>"
		"\n<div class=\"wide\"><table><tr><th>stage</th><th class=\"left\">blocks</th><th>parameters</th>"
		"<th>memory</th><th>kernels</th><th>collectives, exposed</th><th>idle</th>%s<th>sent within its node</th>"
		"<th>sent to other nodes</th></tr>\n",
		p->sharing > 0 ? "<th>sharing cores</th>" : "");
	for (int64_t i = 0, n; i < p->nstages; i += n) {
		for (n = 1; i + n < p->nstages && alike(&p->stages[i], &p->stages[i + n]); n++)
			;
		stage_row(f, p, &p->stages[i], n);
	}
	if (p->servers)
		servers_row(f, p);
	fprintf(f, "</table></div>\n");
	if (p->sharing > 0)
		fprintf(f, "<p class=\"note\">Sharing cores: other ranks use the core of this rank.</p>\n");
}

/* -- the page ---------------------------------------------------------------------------------------------------- */
static int64_t fullest(const struct hd_plan_page *p)
{
	int64_t most = 0;

	for (int64_t i = 1; i < p->nstages; i++)
		if (p->stages[i].memory > p->stages[most].memory)
			most = i;
	return most;
}

static size_t most_spans(const struct hd_plan_page *p)
{
	size_t most = 0;

	for (int64_t i = 0; i < p->nstages; i++)
		most = p->stages[i].nspans > most ? p->stages[i].nspans : most;
	return most;
}

static void line_of(FILE *f, const struct hd_page_stage *stages, int64_t n, double from, double to, const char *title)
{
	hd_page_timeline(f, &(struct hd_page_lines){ title, stages, n, from, to });
}

/* Both use the same time axis, so that the longer step is drawn longer. */
void hd_page_draw_both(FILE *f, const struct hd_page_both *b)
{
	double to = b->traced_seconds > b->planned_seconds ? b->traced_seconds : b->planned_seconds;

	line_of(f, b->planned, b->n, 0, to, "The step as planned");
	line_of(f, b->traced, b->n, 0, to, "The step as traced");
	fprintf(f, "<p class=\"note\">Planned %s, ", hd_human_seconds(b->planned_seconds).text);
	fprintf(f, "traced %s: %s, of the first rank of each stage.</p>\n", hd_human_seconds(b->traced_seconds).text,
		b->which);
}

static void timelines(FILE *f, const struct hd_plan_page *p)
{
	enum { SEEN = 800 }; /* units that can be distinguished in a row */

	if (p->run.traced) {
		hd_page_draw_both(f, &p->run);
		return;
	}
	line_of(f, p->stages, p->nstages, 0, p->seconds, "The step as planned");
	if (most_spans(p) > SEEN) {
		double part = p->seconds * SEEN / 2 / (double)most_spans(p);

		line_of(f, p->stages, p->nstages, 0, part, "Its beginning");
		line_of(f, p->stages, p->nstages, p->seconds - part, p->seconds, "Its end");
	}
}

void hd_plan_page_write(FILE *f, const struct hd_plan_page *p)
{
	fprintf(f, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
		   "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/><title>Heddle: ");
	hd_html_text(f, p->title);
	fprintf(f, "</title><style>%s</style></head>\n<body><h1>", hd_page_style);
	hd_html_text(f, p->title);
	fprintf(f, "</h1>\n");
	for (int i = 0; i < HD_PAGE_LINES && p->about[i]; i++)
		text_line(f, p->about[i]);
	if (p->search)
		hd_page_search(f, p);
	hd_page_mesh(f, p);
	stage_table(f, p);
	hd_page_links(f, p);
	timelines(f, p);
	hd_page_memory(f, p, fullest(p));
	fprintf(f, "</body></html>\n");
}
