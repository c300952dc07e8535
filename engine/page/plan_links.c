/* SPDX-License-Identifier: Apache-2.0
 * Draws the bytes sent over links in a step, as bars: for the busiest rank of each stage, within its node and to other
 * nodes.
 */
#include <config.h>
#include "engine/page/plan_draw.h"
#include "engine/human/human.h"
#include "engine/page/html.h"
#include <math.h>

enum {
	LEFT = HD_PAGE_LEFT,
	RIGHT = 110,
	SPAN = HD_PAGE_WIDE - LEFT - RIGHT,
	BAR = 12,
	ROW = 2 * BAR + 8,
	MOST_ROWS = 24
};

static const char *const links[] = { "within its node", "to other nodes" };

static double most_sent(const struct hd_plan_page *p, int link)
{
	double most = 0;

	for (int64_t i = 0; i < p->nstages; i++)
		most = fmax(most, p->stages[i].sent[link]);
	return p->servers ? fmax(most, p->servers->sent[link]) : most;
}

static void draw_bar(FILE *f, const struct hd_page_stage *s, int link, double most, double y)
{
	double wide = s->sent[link] / most * SPAN;

	if (s->sent[link] <= 0)
		return;
	fprintf(f, "<rect class=\"f l%d\" x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>", link, LEFT, y,
		fmax(wide, 1), BAR);
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", LEFT + fmax(wide, 1) + 5, y + BAR - 2,
		hd_human_bytes(s->sent[link]).text);
}

static void draw_stage(FILE *f, const struct hd_page_stage *s, double most, double y)
{
	hd_page_label(f, s->name, y + BAR + 4);
	for (int k = 0; k < 2; k++)
		draw_bar(f, s, k, most, y + k * BAR);
}

void hd_page_links(FILE *f, const struct hd_plan_page *p)
{
	int64_t rows = p->nstages < MOST_ROWS ? p->nstages : MOST_ROWS;
	double most = fmax(most_sent(p, 0), most_sent(p, 1));

	if (most <= 0)
		return;
	hd_page_begin(f, "Bytes over links in a step", (int)(rows + !!p->servers) * ROW + 8);
	for (int64_t r = 0; r < rows; r++)
		draw_stage(f, &p->stages[rows > 1 ? r * (p->nstages - 1) / (rows - 1) : 0], most, (double)r * ROW + 4);
	if (p->servers)
		draw_stage(f, p->servers, most, (double)rows * ROW + 4);
	hd_page_end(f);
	fprintf(f, "<p class=\"legend\">");
	for (int k = 0; k < 2; k++)
		if (most_sent(p, k) > 0)
			fprintf(f, "<span class=\"l%d\"><i></i>sent %s by the busiest rank</span>", k, links[k]);
	fprintf(f, "</p>\n");
	if (rows < p->nstages)
		fprintf(f, "<p class=\"note\">%lld of %lld stages are drawn, at equal distances.</p>\n",
			(long long)rows, (long long)p->nstages);
}
