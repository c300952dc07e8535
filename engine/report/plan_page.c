/* SPDX-License-Identifier: Apache-2.0
 * The page of a planned step: its words and tables.  Stages that hold as much are one row, so a thousand ranks
 * are as readable as four.
 */
#include <config.h>
#include "engine/report/plan_page.h"
#include "engine/human/human.h"
#include "engine/report/plot.h"
#include <string.h>

static const char style[] =
	"body{font:15px/1.45 sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#222;background:#fff;--b:#fff}"
	"h1{font-size:1.5em;margin-bottom:.2em}h2{font-size:1.1em;margin:1.8em 0 .3em}p{margin:.2em 0}"
	".wide{overflow-x:auto}table{border-collapse:collapse;margin:.6em 0;font-size:14px}"
	"td,th{padding:.2em .9em .2em 0;text-align:right;white-space:nowrap}"
	"td:first-child,th:first-child,.left{text-align:left}.left{white-space:normal}"
	"svg{width:100%;display:block}text{font-size:11px;fill:currentColor}.name{font-size:12px}"
	".grid{stroke:#8884;fill:none}.box{fill:#8881;stroke:#888}.line{stroke:currentColor;fill:none;stroke-dasharray:6 4}"
	".legend{font-size:13px}.legend span{margin-right:1.2em;display:inline-block}.legend i{display:inline-block;width:12px;height:12px;"
	"vertical-align:-1px;margin-right:.35em;background:var(--c)}.note{opacity:.75;font-size:13px}"
	".f{fill:var(--c)}.w0{--c:#1668b8}.w1{--c:#c4501b}.w2{--c:#b28a00}.w3{--c:#23854a}.w4{--c:#d9d9d9}"
	".m0{--c:#1668b8}.m1{--c:#8a4fb0}.m2{--c:#c4501b}.m3{--c:#23854a}.m4{--c:#b28a00}"
	".l0{--c:#1668b8}.l1{--c:#c4501b}"
	".best{fill:#c4501b}.dot{fill:#1668b8}.over{fill:none;stroke:#888}"
	"@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818;--b:#181818}.w0,.m0,.l0{--c:#4f97e0}.w1,.m2,.l1{--c:#f08a58}"
	".w2,.m4{--c:#e0bb45}.w3,.m3{--c:#5cc487}.w4{--c:#3c3c3c}.m1{--c:#c592ea}.best{fill:#f08a58}.dot{fill:#62a8ee}}";

static void text_line(FILE *f, const char *text)
{
	fprintf(f, "<p>");
	hd_html_text(f, text);
	fprintf(f, "</p>\n");
}

/* -- stages --------------------------------------------------------------------------------------------------------------- */
static int alike(const struct hd_page_stage *a, const struct hd_page_stage *b)
{
	return a->parameters == b->parameters &&
	       !strcmp(hd_human_seconds(a->compute).text, hd_human_seconds(b->compute).text) &&
	       !strcmp(hd_human_bytes(a->sent[0]).text, hd_human_bytes(b->sent[0]).text) &&
	       !strcmp(hd_human_bytes(a->sent[1]).text, hd_human_bytes(b->sent[1]).text);
}

static void stage_row(FILE *f, const struct hd_page_stage *s, int64_t n)
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
	fprintf(f, "<td>%s</td><td>%s</td></tr>\n", hd_human_bytes(s->sent[0]).text, hd_human_bytes(s->sent[1]).text);
}

static void stage_table(FILE *f, const struct hd_plan_page *p)
{
	fprintf(f,
		"<h2>Memory, work and traffic of a rank</h2>\n<p class=\"note\">The busiest rank of each stage, in one step.</p>"
		"\n<div class=\"wide\"><table><tr><th>stage</th><th class=\"left\">blocks</th><th>parameters</th>"
		"<th>memory</th><th>kernels</th><th>collectives, exposed</th><th>idle</th><th>sent within its node</th>"
		"<th>sent to other nodes</th></tr>\n");
	for (int64_t i = 0, n; i < p->nstages; i += n) {
		for (n = 1; i + n < p->nstages && alike(&p->stages[i], &p->stages[i + n]); n++)
			;
		stage_row(f, &p->stages[i], n);
	}
	fprintf(f, "</table></div>\n");
}

/* -- the page -------------------------------------------------------------------------------------------------------------- */
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

/* On one axis of time, so that what took longer is longer. */
static void planned_and_traced(FILE *f, const struct hd_plan_page *p)
{
	double to = p->traced_seconds > p->seconds ? p->traced_seconds : p->seconds;

	line_of(f, p->stages, p->nstages, 0, to, "The step as planned");
	line_of(f, p->traced, p->nstages, 0, to, "The step as traced");
	fprintf(f, "<p class=\"note\">Planned %s, ", hd_human_seconds(p->seconds).text);
	fprintf(f, "traced %s: the last step of the trace, of the first rank of each stage.</p>\n",
		hd_human_seconds(p->traced_seconds).text);
}

static void timelines(FILE *f, const struct hd_plan_page *p)
{
	enum { SEEN = 800 }; /* units that can be told apart on a line */

	if (p->traced) {
		planned_and_traced(f, p);
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
	fprintf(f, "</title><style>%s</style></head>\n<body><h1>", style);
	hd_html_text(f, p->title);
	fprintf(f, "</h1>\n");
	for (int i = 0; i < 4 && p->about[i]; i++)
		text_line(f, p->about[i]);
	hd_page_mesh(f, p);
	stage_table(f, p);
	hd_page_links(f, p);
	timelines(f, p);
	hd_page_memory(f, p, fullest(p));
	if (p->npoints)
		hd_page_frontier(f, p);
	fprintf(f, "</body></html>\n");
}
