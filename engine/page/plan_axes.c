/* SPDX-License-Identifier: Apache-2.0
 * The frame of a drawing of a planned step: axes of time and bytes, a line at a limit, and the legend.
 */
#include <config.h>
#include "engine/page/plan_draw.h"
#include "engine/page/html.h"
#include <math.h>

enum { WIDE = HD_PAGE_WIDE, LEFT = HD_PAGE_LEFT, SPAN = HD_PAGE_SPAN, RIGHT = WIDE - LEFT - SPAN };

static double tick(double range) /* 1, 2 or 5 times a power of ten, so that the axis has four to nine ticks */
{
	double unit = pow(10, floor(log10(range / 4))), many = range / 4 / unit;

	return many >= 5 ? 5 * unit : many >= 2 ? 2 * unit : unit;
}

void hd_page_begin(FILE *f, const char *title, int high)
{
	fprintf(f,
		"<h2>%s</h2>\n<div class=\"wide\"><svg class=\"drawing\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
		title, WIDE, high, title);
}

void hd_page_label(FILE *f, const char *name, double y)
{
	fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, y);
	hd_html_short(f, name, HD_PAGE_NAME);
	fprintf(f, "</text>\n");
}

void hd_page_end(FILE *f)
{
	fprintf(f, "</svg></div>\n");
}

double hd_page_across(double x, double from, double to)
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

void hd_page_axis_below(FILE *f, double from, double to, double y, const char *what)
{
	static const struct axis_unit units[] = { { 1, "seconds" },
						  { 1e-3, "milliseconds" },
						  { 1e-6, "microseconds" } };
	struct axis_unit u = unit_of(to, units, 3);
	double d = tick(to - from);

	for (double x = ceil(from / d) * d; x <= to * (1 + 1e-12); x += d)
		fprintf(f,
			"<path class=\"grid\" d=\"M%.1f %.1fv5\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
			hd_page_across(x, from, to), y, hd_page_across(x, from, to), y + 17,
			fabs(x) < d / 1000 ? 0 : x / u.one);
	fprintf(f, "<text class=\"name\" x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">%s %s</text>\n", LEFT + SPAN / 2,
		y + 33, u.name, what);
}

void hd_page_axis_left(FILE *f, double most, double top, double bottom)
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

void hd_page_limit(FILE *f, double bytes, double most, double high, const char *text)
{
	double y = 4 + high - fmax(bytes, 0) / most * high;

	if (bytes <= most)
		fprintf(f,
			"<path class=\"limit\" d=\"M%d %.1fH%d\"/><text class=\"over-areas\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
			LEFT, y, WIDE - RIGHT, WIDE - RIGHT - 4, y < 16 ? y + 12 : y - 4, text);
}

void hd_page_legend(FILE *f, const char *const *names, int n, char letter, unsigned seen)
{
	fprintf(f, "<p class=\"legend\">");
	for (int i = 0; i < n; i++)
		if (seen >> i & 1)
			fprintf(f, "<span class=\"%c%d\"><i></i>%s</span>", letter, i, names[i]);
	fprintf(f, "</p>\n");
}
