/* SPDX-License-Identifier: Apache-2.0
 * Draws a planned step as SVG: the timeline of each stage, and its memory. A timeline row has as many pieces as a screen
 * has pixels, however many units a step has. Kinds of work that share a piece are drawn alternately.
 */
#include <config.h>
#include "engine/base/err.h"
#include "engine/human/human.h"
#include "engine/page/plan_draw.h"
#include "engine/page/html.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = HD_PAGE_LEFT, SPAN = HD_PAGE_SPAN, PIECES = HD_PAGE_PIECES, MOST_ROWS = 24 };

_Static_assert(SPAN == PIECES, "a piece of a row is a pixel wide");

static const char *const works[] = { "forward", "backward",     "weight gradients", "gradient sync and update",
				     "waiting", "sharing cores" };
static const char *const memories[] = { "parameters", "optimizer states", "gradients", "kept for backward",
					"within a unit" };

/* -- the timeline ------------------------------------------------------------------------------------------------ */
static unsigned draw_row(FILE *f, const struct hd_page_stage *s, double from, double to, double y, double high)
{
	signed char piece[PIECES];
	unsigned seen = 0;

	hd_page_pieces(s, from, to, piece);
	for (int w = 0; w < HD_PAGE_WORKS; w++) {
		int any = 0;

		for (int k = 0, n; k < PIECES; k += n) {
			for (n = 1; k + n < PIECES && piece[k + n] == piece[k]; n++)
				;
			if (piece[k] != w)
				continue;
			if (!any++)
				fprintf(f, "<path class=\"f w%d\" d=\"", w);
			fprintf(f, "M%.1f %.1fh%.1fv%.1fh-%.1fz", (double)(LEFT + k), y, (double)n, high, (double)n);
		}
		if (any)
			fprintf(f, "\"/>\n");
		seen |= any ? 1u << w : 0;
	}
	return seen;
}

void hd_page_timeline(FILE *f, const struct hd_page_lines *x)
{
	int64_t rows = x->n < MOST_ROWS ? x->n : MOST_ROWS;
	double high = rows > 12 ? 12 : 20;
	unsigned seen = 0;

	hd_page_begin(f, x->title, (int)(rows * (high + 3)) + 44);
	for (int64_t r = 0; r < rows; r++) {
		int64_t i = rows > 1 ? r * (x->n - 1) / (rows - 1) : 0;
		double y = (double)r * (high + 3) + 4;

		hd_page_label(f, x->stages[i].name, y + high - (high > 12 ? 6 : 2));
		seen |= draw_row(f, &x->stages[i], x->from, x->to, y, high);
	}
	hd_page_axis_below(f, x->from, x->to, (double)rows * (high + 3) + 5, "from the beginning of the step");
	hd_page_end(f);
	hd_page_legend(f, works, HD_PAGE_WORKS, 'w', seen);
	if (rows < x->n)
		fprintf(f, "<p class=\"note\">%lld of %lld stages are drawn, at equal distances.</p>\n",
			(long long)rows, (long long)x->n);
}

/* -- memory ------------------------------------------------------------------------------------------------------ */
/* Sets for each piece of time the moment with the most memory. */
static void uses(const struct hd_page_stage *s, double seconds, double out[SPAN][HD_PAGE_MEMORIES])
{
	double best[SPAN] = { 0 };

	for (size_t i = 0; i < s->nuse; i++) {
		double until = i + 1 < s->nuse ? s->use[i + 1].from : seconds, sum = 0;
		int a = (int)(s->use[i].from / seconds * SPAN), b = (int)(until / seconds * SPAN);

		for (int m = 0; m < HD_PAGE_MEMORIES; m++)
			sum += s->use[i].bytes[m];
		for (int k = a < 0 ? 0 : a; k < SPAN && k <= b; k++)
			if (sum > best[k]) {
				best[k] = sum;
				memcpy(out[k], s->use[i].bytes, sizeof(out[k]));
			}
	}
}

static double sum_below(const double *bytes, int m)
{
	double sum = 0;

	for (int i = 0; i < m; i++)
		sum += bytes[i];
	return sum;
}

static void draw_memory(FILE *f, double (*use)[HD_PAGE_MEMORIES], int m, double most, double high)
{
	fprintf(f, "<path class=\"f m%d\" d=\"M%d %.1f", m, LEFT, 4 + high - sum_below(use[0], m) / most * high);
	for (int k = 0; k < SPAN; k++)
		fprintf(f, "L%d %.1fh1", LEFT + k, 4 + high - sum_below(use[k], m + 1) / most * high);
	for (int k = SPAN - 1; k >= 0; k--)
		fprintf(f, "L%d %.1fh-1", LEFT + k + 1, 4 + high - sum_below(use[k], m) / most * high);
	fprintf(f, "z\"/>\n");
}

/* Draws the memory of a rank without what the curve does not show, so that a curve above the line does not fit. */
static void draw_limit(FILE *f, const struct hd_plan_page *p, double beside, double most, double high)
{
	struct hd_human limit = hd_human_bytes(p->limit);
	char *text = hd_format("memory of a rank: %s, less %s for gaps and the machine itself", limit.text,
			       hd_human_bytes(beside).text);

	if (p->limit > 0)
		hd_page_limit(f, p->limit - beside, most, high, text);
	free(text);
}

static void memory_note(FILE *f, const struct hd_plan_page *p, const struct hd_page_stage *s)
{
	fprintf(f, "<p class=\"note\">Of ");
	hd_html_text(f, s->name);
	fprintf(f, ", %s: %s, including gaps between buffers and what the machine itself takes.",
		p->servers ? "the most of any worker" : "which needs most", hd_human_bytes(s->memory).text);
	fprintf(f, " The curve shows the most that each unit uses.");
	if (p->servers)
		fprintf(f, " A server needs at most %s.", hd_human_bytes(p->servers->memory).text);
	if (p->limit > 0)
		fprintf(f, " A rank has %s%s.", hd_human_bytes(p->limit).text,
			s->memory > p->limit ? ", so this does not fit" : "");
	fprintf(f, "</p>\n");
}

static void draw_memories(FILE *f, const struct hd_plan_page *p, const struct hd_page_stage *s,
			  double use[SPAN][HD_PAGE_MEMORIES])
{
	enum { HIGH = 220 };
	double most = 0, top, limit;
	unsigned seen = 0;

	for (int k = 0; k < SPAN; k++) {
		most = fmax(most, sum_below(use[k], HD_PAGE_MEMORIES));
		for (int m = 0; m < HD_PAGE_MEMORIES; m++)
			seen |= use[k][m] > 0 ? 1u << m : 0;
	}
	limit = p->limit - (s->memory - most);
	top = fmax(most, limit > 0 && limit <= 2 * most ? limit : 0) * 1.05;
	hd_page_begin(f, "Memory over the step, by what it is used for", HIGH + 48);
	hd_page_axis_left(f, top, 4, 4 + HIGH);
	for (int m = 0; m < HD_PAGE_MEMORIES; m++)
		draw_memory(f, use, m, top, HIGH);
	draw_limit(f, p, s->memory - most, top, HIGH);
	hd_page_axis_below(f, 0, p->seconds, 4 + HIGH, "from the beginning of the step");
	hd_page_end(f);
	hd_page_legend(f, memories, HD_PAGE_MEMORIES, 'm', seen);
}

void hd_page_memory(FILE *f, const struct hd_plan_page *p, int64_t stage)
{
	const struct hd_page_stage *s = &p->stages[stage];
	double(*use)[HD_PAGE_MEMORIES];

	if (!s->nuse)
		return;
	use = hd_alloc(SPAN * sizeof(*use));
	uses(s, p->seconds, use);
	draw_memories(f, p, s, use);
	memory_note(f, p, s);
	free(use);
}
