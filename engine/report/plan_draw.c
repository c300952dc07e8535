/* SPDX-License-Identifier: Apache-2.0
 * Draws a planned step as SVG. A timeline row has as many pieces as a screen has pixels, however many units a step
 * has. Kinds of work that share a piece are drawn alternately.
 */
#include <config.h>
#include "engine/base/err.h"
#include "engine/report/plan_page.h"
#include "engine/human/human.h"
#include "engine/report/plot.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDE 960
#define LEFT 96
#define RIGHT 14
#define SPAN (WIDE - LEFT - RIGHT)
#define PIECES HD_PAGE_PIECES /* equals SPAN */
#define MOST_ROWS 24

static const char *const works[] = { "forward", "backward",     "weight gradients", "gradient sync and update",
				     "waiting", "sharing cores" };
static const char *const memories[] = { "parameters", "optimizer states", "gradients", "kept for backward",
					"within a unit" };

/* -- axes -------------------------------------------------------------------------------------------------------- */
static double tick(double range) /* 1, 2 or 5 times a power of ten, so that the axis has four to nine ticks */
{
	double unit = pow(10, floor(log10(range / 4))), many = range / 4 / unit;

	return many >= 5 ? 5 * unit : many >= 2 ? 2 * unit : unit;
}

static void begin(FILE *f, const char *title, int high)
{
	fprintf(f,
		"<h2>%s</h2>\n<div class=\"wide\"><svg class=\"drawing\" viewBox=\"0 0 %d %d\" style=\"min-width:640px\" role=\"img\" aria-label=\"%s\">\n",
		title, WIDE, high, title);
}

static void end(FILE *f)
{
	fprintf(f, "</svg></div>\n");
}

static double across(double x, double from, double to)
{
	return LEFT + (x - from) / (to - from) * SPAN;
}

struct axis_unit {
	double one;
	const char *name;
};

static struct axis_unit unit_of(double most, const struct axis_unit *units, int n)
{
	int i = 0;

	while (i + 1 < n && most < units[i].one)
		i++;
	return units[i];
}

/* what: the text after the unit, such as "a step" */
static void axis_below(FILE *f, double from, double to, double y, const char *what)
{
	static const struct axis_unit units[] = { { 1, "seconds" },
						  { 1e-3, "milliseconds" },
						  { 1e-6, "microseconds" } };
	struct axis_unit u = unit_of(to, units, 3);
	double d = tick(to - from);

	for (double x = ceil(from / d) * d; x <= to * (1 + 1e-12); x += d)
		fprintf(f,
			"<path class=\"grid\" d=\"M%.1f %.1fv5\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
			across(x, from, to), y, across(x, from, to), y + 17, fabs(x) < d / 1000 ? 0 : x / u.one);
	fprintf(f, "<text class=\"name\" x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">%s %s</text>\n", LEFT + SPAN / 2,
		y + 33, u.name, what);
}

/* Draws the axis of a rank's bytes. */
static void axis_left(FILE *f, double most, double top, double bottom)
{
	static const struct axis_unit units[] = { { 1e9, "GB" }, { 1e6, "MB" }, { 1e3, "KB" } };
	struct axis_unit u = unit_of(most, units, 3);
	double d = tick(most);

	for (double v = 0; v <= most; v += d) {
		double y = bottom - v / most * (bottom - top);

		fprintf(f,
			"<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
			LEFT, y, WIDE - RIGHT, LEFT - 6, y + 4, v / u.one);
	}
	fprintf(f,
		"<text class=\"name\" transform=\"translate(16 %.1f) rotate(-90)\" text-anchor=\"middle\">%s of a rank</text>\n",
		(top + bottom) / 2, u.name);
}

static void legend(FILE *f, const char *const *names, int n, char letter, unsigned seen)
{
	fprintf(f, "<p class=\"legend\">");
	for (int i = 0; i < n; i++)
		if (seen >> i & 1)
			fprintf(f, "<span class=\"%c%d\"><i></i>%s</span>", letter, i, names[i]);
	fprintf(f, "</p>\n");
}

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

	begin(f, x->title, (int)(rows * (high + 3)) + 44);
	for (int64_t r = 0; r < rows; r++) {
		int64_t i = rows > 1 ? r * (x->n - 1) / (rows - 1) : 0;
		double y = (double)r * (high + 3) + 4;

		fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, y + high - (high > 12 ? 6 : 2));
		hd_html_text(f, x->stages[i].name);
		fprintf(f, "</text>\n");
		seen |= draw_row(f, &x->stages[i], x->from, x->to, y, high);
	}
	axis_below(f, x->from, x->to, (double)rows * (high + 3) + 5, "from the beginning of the step");
	end(f);
	legend(f, works, HD_PAGE_WORKS, 'w', seen);
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

void hd_page_memory(FILE *f, const struct hd_plan_page *p, int64_t stage)
{
	enum { HIGH = 220 };
	const struct hd_page_stage *s = &p->stages[stage];
	double(*use)[HD_PAGE_MEMORIES] = calloc(SPAN, sizeof(*use)), most = 0;
	unsigned seen = 0;

	if (!use || !s->nuse) {
		free(use);
		return;
	}
	uses(s, p->seconds, use);
	for (int k = 0; k < SPAN; k++) {
		most = fmax(most, sum_below(use[k], HD_PAGE_MEMORIES));
		for (int m = 0; m < HD_PAGE_MEMORIES; m++)
			seen |= use[k][m] > 0 ? 1u << m : 0;
	}
	begin(f, "Memory over the step, by what it is used for", HIGH + 48);
	axis_left(f, most * 1.05, 4, 4 + HIGH);
	for (int m = 0; m < HD_PAGE_MEMORIES; m++)
		draw_memory(f, use, m, most * 1.05, HIGH);
	axis_below(f, 0, p->seconds, 4 + HIGH, "from the beginning of the step");
	end(f);
	legend(f, memories, HD_PAGE_MEMORIES, 'm', seen);
	fprintf(f, "<p class=\"note\">Of ");
	hd_html_text(f, s->name);
	fprintf(f, ", %s: %s, including gaps between buffers and what the machine itself takes.",
		p->server > 0 ? "the most of any worker" : "which needs most", hd_human_bytes(s->memory).text);
	if (p->server > 0)
		fprintf(f, " A server needs at most %s.", hd_human_bytes(p->server).text);
	fprintf(f, "</p>\n");
	free(use);
}

/* -- the search -------------------------------------------------------------------------------------------------- */
static void draw_point(FILE *f, const struct hd_page_point *x, int best, double cx, double cy)
{
	fprintf(f, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"><title>",
		best      ? "best"
		: x->fits ? "dot"
			  : "over",
		cx, cy, best ? 6 : 3);
	hd_html_text(f, x->text);
	fprintf(f, ": %s, %s</title></circle>\n", hd_human_seconds(x->seconds).text, hd_human_bytes(x->memory).text);
}

/* Draws the line of a rank's memory, if it is within the drawing. */
static void draw_limit(FILE *f, double limit, double memory, double high)
{
	double y = 4 + high - limit / memory * high;

	if (limit > 0 && limit <= memory)
		fprintf(f,
			"<path class=\"limit\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
			LEFT, y, WIDE - RIGHT, WIDE - RIGHT - 4, y - 4, "memory of a rank");
}

/* Returns the bytes at the top of the axis. They include the limit,
 * unless all points would then lie near the bottom. */
static double frontier_top(const struct hd_plan_page *p)
{
	double memory = 0;

	for (int64_t i = 0; i < p->npoints; i++)
		memory = fmax(memory, p->points[i].memory);
	if (4 * memory < p->limit || p->limit <= 0)
		return memory * 1.05;
	return fmin(fmax(memory, p->limit), 1.5 * p->limit) * 1.05;
}

void hd_page_frontier(FILE *f, const struct hd_plan_page *p)
{
	enum { HIGH = 300 };
	double least = INFINITY, slow = 0, memory = frontier_top(p);

	for (int64_t i = 0; i < p->npoints; i++)
		least = fmin(least, p->points[i].seconds);
	for (int64_t i = 0; i < p->npoints; i++) /* points beyond this are too slow to be of interest */
		if (p->points[i].memory <= memory && p->points[i].seconds <= 3 * least)
			slow = fmax(slow, p->points[i].seconds * 1.02);
	begin(f, "The search: time and memory of the layouts that were planned", HIGH + 48);
	axis_left(f, memory, 4, 4 + HIGH);
	axis_below(f, least * 0.98, slow, 4 + HIGH, "of a step");
	draw_limit(f, p->limit, memory, HIGH);
	for (int64_t i = p->npoints - 1; i >= 0; i--)
		if (p->points[i].seconds <= slow && p->points[i].memory <= memory)
			draw_point(f, &p->points[i], i == 0, across(p->points[i].seconds, least * 0.98, slow),
				   4 + HIGH - p->points[i].memory / memory * HIGH);
	end(f);
	fprintf(f,
		"<p class=\"note\">Each point is a layout (rest the pointer on it); the large one is the best that fits, and "
		"is drawn above. Rings do not fit.");
	if (p->limit > memory)
		fprintf(f, " A rank has %s.", hd_human_bytes(p->limit).text);
	fprintf(f, "</p>\n");
}

/* -- the mesh ---------------------------------------------------------------------------------------------------- */
static void draw_axis(FILE *f, const struct hd_plan_page *p, int a, double y)
{
	const struct hd_page_axis *x = &p->axes[a];
	int64_t near = x->stride >= p->node ? 1 : p->node / x->stride, shown = x->n < 16 ? x->n : 16;
	double wide = (double)SPAN * 0.6 / (double)shown;

	near = near < x->n ? near : x->n;
	fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, y + 14);
	hd_html_text(f, x->name);
	fprintf(f, " %lld</text>\n", (long long)x->n);
	for (int64_t k = 0; k < shown; k++) {
		int64_t rank = (k == shown - 1 ? x->n - 1 : k) * x->stride;

		fprintf(f, "<rect class=\"box\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"20\"/>",
			LEFT + (double)k * wide, y, wide - (near > 1 && (k + 1) % near ? 0 : 3));
		fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", LEFT + ((double)k + 0.5) * wide - 1,
			y + 14);
		if (k == shown - 2 && shown < x->n)
			fprintf(f, "...</text>\n");
		else
			fprintf(f, "%lld</text>\n", (long long)rank);
	}
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">%lld apart, %s</text>\n", LEFT + SPAN * 0.6 + 10, y + 14,
		(long long)x->stride,
		near == x->n ? "all members within a node"
		: near == 1  ? "each member on a node of its own"
			     : "nodes have some of the members");
}

void hd_page_mesh(FILE *f, const struct hd_plan_page *p)
{
	if (!p->naxes) {
		fprintf(f, "<h2>The mesh</h2>\n<p>One rank.</p>\n");
		return;
	}
	begin(f, "The mesh", p->naxes * 26 + 8);
	for (int a = 0; a < p->naxes; a++)
		draw_axis(f, p, a, 4 + a * 26);
	end(f);
	fprintf(f,
		"<p class=\"note\">%lld ranks, %lld a node. Each line: the members of one group along an axis, by their ranks; boxes "
		"that touch are on one node.</p>\n",
		(long long)p->ranks, (long long)p->node);
}
