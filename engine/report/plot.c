/* SPDX-License-Identifier: Apache-2.0
 * Draws curves as SVG, for which a browser need not fetch anything else.
 */
#include <config.h>
#include "engine/page/html.h"
#include "engine/report/plot.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDE 720
#define HIGH 250
#define LEFT 78   /* at least */
#define NAME 20   /* space for the name of the vertical axis, left of its numbers */
#define DIGIT 6.2 /* width of a digit of the axes */
#define RIGHT 30  /* half the width of a number below the axis */
#define TOP 14
#define BOTTOM 42
#define FAINT 1200 /* points of a line that is drawn point by point */
#define MEANS 60   /* points of a line of means */
#define FAR 100    /* if a line is this many times larger than all of another one, it is cut */
#define FLAT 20    /* a value this many times smaller than the largest looks like 0 */

struct frame {
	double x0, x1, y0, y1;
	int log;  /* the vertical axis is logarithmic, and a value of 0 is at the lower edge */
	int cut;  /* values above y1 are drawn as marks at the upper edge */
	int left; /* where the drawing begins, after the numbers of the vertical axis */
};

/* -- what is shown ----------------------------------------------------------------------------------------------- */
/* Returns the value that a quarter of a line's points do not exceed. */
static double low_quarter(const struct hd_curve *k)
{
	double *y = hd_alloc((k->n + 1) * sizeof(*y)), low;

	memcpy(y, k->y, k->n * sizeof(*y));
	hd_sort(y, k->n);
	low = y[(k->n - 1) / 4];
	free(y);
	return low;
}

static double most_of(const struct hd_curve *k)
{
	double most = -INFINITY;

	for (size_t i = 0; i < k->n; i++)
		most = fmax(most, k->y[i]);
	return most;
}

/* Cuts the axis so that one run that diverges by many powers of ten leaves room for the others. */
static void cut_above(struct frame *f, const struct hd_line *lines, size_t n)
{
	double calm = INFINITY;
	int many = 0;

	for (size_t i = 0; i < n; i++)
		if (!lines[i].dotted) {
			calm = fmin(calm, most_of(lines[i].curve));
			many++;
		}
	f->cut = many > 1 && f->y1 > FAR * calm && f->y0 < FAR * calm;
	f->y1 = f->cut ? FAR * calm : f->y1;
}

/* Returns whether the axis should be logarithmic. Every value of a single line stays inside, because a peak is what a
 * reader looks for. If that would press a line flat on a linear axis, the axis is logarithmic. */
static int wants_log(const struct frame *f, const struct hd_line *lines, size_t n)
{
	int flat = 0;

	for (size_t i = 0; i < n; i++) {
		double low = low_quarter(lines[i].curve);

		if (low <= 0)
			return 0;
		flat |= low < f->y1 / FLAT;
	}
	return flat && f->y0 >= 0;
}

static double least_positive(const struct hd_line *lines, size_t n)
{
	double least = INFINITY;

	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < lines[i].curve->n; j++)
			if (lines[i].curve->y[j] > 0)
				least = fmin(least, lines[i].curve->y[j]);
	return least;
}

/* Returns whether a double hardly distinguishes the two values, so that no axis can have steps between them. */
static int is_point(double from, double to)
{
	return to - from <= 1e-9 * fmax(fabs(from), fabs(to));
}

static struct frame frame_of(const struct hd_line *lines, size_t n)
{
	struct frame f = { INFINITY, -INFINITY, INFINITY, -INFINITY, 0, 0, LEFT };

	for (size_t i = 0; i < n; i++) {
		const struct hd_curve *k = lines[i].curve;

		for (size_t j = 0; j < k->n; j++) {
			f.x0 = fmin(f.x0, k->x[j]);
			f.x1 = fmax(f.x1, k->x[j]);
			f.y0 = fmin(f.y0, k->y[j]);
			f.y1 = fmax(f.y1, k->y[j]);
		}
	}
	if (is_point(f.x0, f.x1))
		f.x1 = f.x0 + fmax(1, fabs(f.x0) / 10);
	f.log = wants_log(&f, lines, n);
	if (f.log) {
		f.y0 = least_positive(lines, n);
		cut_above(&f, lines, n);
	}
	if (is_point(f.y0, f.y1))
		f.y1 = f.y0 + fmax(1e-12, fabs(f.y0) / 10);
	return f;
}

static double across(const struct frame *f, double x)
{
	return f->left + (x - f->x0) / (f->x1 - f->x0) * (WIDE - f->left - RIGHT);
}

static double down(const struct frame *f, double y)
{
	double part = f->log ? log(y / f->y0) / log(f->y1 / f->y0) : (y - f->y0) / (f->y1 - f->y0);

	return HIGH - BOTTOM - fmin(fmax(part, 0), 1) * (HIGH - TOP - BOTTOM);
}

/* -- axes -------------------------------------------------------------------------------------------------------- */
static double tick(double range) /* 1, 2 or 5 times a power of ten, so that the axis has four to nine ticks */
{
	double unit = pow(10, floor(log10(range / 4))), many = range / 4 / unit;

	return many >= 5 ? 5 * unit : many >= 2 ? 2 * unit : unit;
}

/* Draws a line with its number. Without out, only makes room for the number. */
static void line_across(FILE *out, struct frame *f, double v)
{
	char text[32];
	int digits = snprintf(text, sizeof(text), "%.10g", v);

	if (out)
		fprintf(out,
			"<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
			"text-anchor=\"end\">%s</text>\n",
			f->left, down(f, v), WIDE - RIGHT, f->left - 6, down(f, v) + 4, text);
	else
		f->left = (int)fmax(f->left, NAME + DIGIT * digits + 6);
}

/* Draws the powers of ten. If they are many, draws every second, third, ...; if few, also 2 and 5 times each. */
static void lines_of_log(FILE *out, struct frame *f)
{
	double low = floor(log10(f->y0)), high = log10(f->y1), each = ceil((high - low) / 8);

	for (double e = low; e <= high; e += each)
		for (int k = 1; k <= (high - low > 3 ? 1 : 5); k += k == 1 ? 1 : 3) {
			double v = k * pow(10, e);

			if (v >= f->y0 && v <= f->y1)
				line_across(out, f, v);
		}
}

static void lines_across(FILE *out, struct frame *f)
{
	double dy = tick(f->y1 - f->y0);

	if (f->log)
		lines_of_log(out, f);
	for (double y = ceil(f->y0 / dy) * dy; !f->log && y <= f->y1; y += dy)
		line_across(out, f, fabs(y) < dy / 1000 ? 0 : y);
}

static void axes(FILE *out, struct frame *f, const char *unit)
{
	double dx = fmax(tick(f->x1 - f->x0), 1); /* steps are whole numbers */

	lines_across(NULL, f);
	lines_across(out, f);
	for (double x = ceil(f->x0 / dx) * dx; x <= f->x1; x += dx)
		fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.10g</text>\n", across(f, x),
			HIGH - BOTTOM + 16, x);
	fprintf(out, "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n",
		(f->left + WIDE - RIGHT) / 2, HIGH - 6);
	fprintf(out, "<text class=\"name\" transform=\"translate(14 %d) rotate(-90)\" text-anchor=\"middle\">",
		(HIGH - BOTTOM + TOP) / 2);
	hd_html_text(out, unit);
	fprintf(out, "%s</text>\n", f->log ? ", log scale" : "");
}

/* -- lines ------------------------------------------------------------------------------------------------------- */
static size_t group_of(size_t n, size_t groups)
{
	return (n + groups - 1) / groups;
}

/* Prints the classes of a line, " c3 d1". Lines of one colour differ in their dashes, and then in their opacity. */
static void print_look(FILE *out, const struct hd_line *l)
{
	fprintf(out, " c%d", l->colour % 8);
	if (l->dashes % 4)
		fprintf(out, " d%d", l->dashes % 4);
	if (l->dashes / 4)
		fprintf(out, " o%d", l->dashes / 4 % 3);
}

static void begin_path(FILE *out, const struct hd_line *l, const char *class)
{
	fprintf(out, "<path class=\"%s", class);
	print_look(out, l);
	fprintf(out, "\" d=\"");
}

/* Draws means over groups of consecutive points. */
static void means(FILE *out, const struct frame *f, const struct hd_line *l, const char *class)
{
	const struct hd_curve *k = l->curve;
	size_t each = group_of(k->n, MEANS);

	begin_path(out, l, class);
	for (size_t i = 0; i < k->n; i += each) {
		size_t m = k->n - i < each ? k->n - i : each;
		double x = 0, y = 0;

		for (size_t j = i; j < i + m; j++) {
			x += k->x[j] / (double)m;
			y += k->y[j] / (double)m;
		}
		fprintf(out, "%s%.1f %.1f", i ? "L" : "M", across(f, x), down(f, y));
	}
	fprintf(out, "\"/>\n");
}

/* Draws each point. If the points are too many, draws the smallest and the largest of each column,
 * in order, so that a single spike stays visible. */
static void points(FILE *out, const struct frame *f, const struct hd_line *l, const char *class)
{
	const struct hd_curve *k = l->curve;
	size_t each = k->n > FAINT ? group_of(k->n, FAINT / 2) : 1;

	begin_path(out, l, class);
	for (size_t i = 0; i < k->n; i += each) {
		size_t least = i, most = i;

		for (size_t j = i; j < i + each && j < k->n; j++) {
			least = k->y[j] < k->y[least] ? j : least;
			most = k->y[j] > k->y[most] ? j : most;
		}
		for (int turn = 0; turn < (least == most ? 1 : 2); turn++) {
			size_t at = (turn == 0) == (least < most) ? least : most;

			fprintf(out, "%s%.1f %.1f", i || turn ? "L" : "M", across(f, k->x[at]), down(f, k->y[at]));
		}
	}
	fprintf(out, "\"/>\n");
}

/* Returns the digits of a number in a text: a large one is not shown as a power of ten. */
static int digits_of(double v)
{
	return fabs(v) >= 1e5 && fabs(v) < 1e10 ? 10 : 6;
}

static void dots(FILE *out, const struct frame *f, const struct hd_line *l)
{
	const struct hd_curve *k = l->curve;

	for (size_t i = 0; i < k->n; i++)
		fprintf(out,
			"<circle class=\"at c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>step %.10g: %.*g</title></circle>\n",
			l->colour % 8, across(f, k->x[i]), down(f, k->y[i]), k->x[i], digits_of(k->y[i]), k->y[i]);
}

/* Draws triangles at the upper edge, at least 12 apart, for the points above it. Returns the
 * number of these points. out NULL: only counts. */
static size_t marks_above(FILE *out, const struct frame *f, const struct hd_line *l)
{
	const struct hd_curve *k = l->curve;
	double last = -INFINITY;
	size_t above = 0;

	for (size_t i = 0; f->cut && i < k->n; i++) {
		double x = across(f, k->x[i]);

		above += k->y[i] > f->y1;
		if (!out || k->y[i] <= f->y1 || x < last + 12)
			continue;
		fprintf(out, "<path class=\"f c%d\" d=\"M%.1f %dl4 7h-8z\"><title>step %.10g: %.6g</title></path>\n",
			l->colour % 8, x, TOP - 9, k->x[i], k->y[i]);
		last = x;
	}
	return above;
}

/* Explains what is drawn thick and thin, for the line with the most points. */
static void note(FILE *out, const struct hd_line *lines, size_t n)
{
	size_t most = 0;

	for (size_t i = 0; i < n; i++)
		if (!lines[i].dotted && lines[i].curve->n > most)
			most = lines[i].curve->n;
	if (most <= MEANS)
		return;
	fprintf(out, "<span class=\"note\">thick: means of up to %zu steps; thin: ", group_of(most, MEANS));
	if (most > FAINT)
		fprintf(out, "the smallest and largest of up to %zu steps</span>", group_of(most, FAINT / 2));
	else
		fprintf(out, "each step</span>");
}

/* Prints for each line a sample as it is drawn, its name, and its last value. */
static void legend(FILE *out, const struct frame *f, const struct hd_line *lines, size_t n)
{
	fprintf(out, "<p class=\"legend\">");
	for (size_t i = 0; i < n; i++) {
		const struct hd_curve *k = lines[i].curve;

		fprintf(out, "<span><svg class=\"key c%d\" viewBox=\"0 0 34 10\">", lines[i].colour % 8);
		begin_path(out, &lines[i], lines[i].dotted ? "line dashed" : "line");
		fprintf(out, "M1 5H33\"/>%s</svg> ",
			lines[i].dotted ? "<circle cx=\"17\" cy=\"5\" r=\"3\" class=\"at\"/>" : "");
		hd_html_text(out, lines[i].label);
		fprintf(out, ": %.*g", digits_of(k->y[k->n - 1]), k->y[k->n - 1]);
		if (marks_above(NULL, f, &lines[i]))
			fprintf(out, " (%zu of %zu points above, up to %.5g)", marks_above(NULL, f, &lines[i]), k->n,
				most_of(k));
		fprintf(out, "</span> ");
	}
	note(out, lines, n);
	fprintf(out, "</p>\n");
}

void hd_curves_draw(FILE *out, const struct hd_drawing *d)
{
	struct frame f = frame_of(d->lines, d->n);

	fprintf(out,
		"<h2>%s</h2>\n<div class=\"wide\"><svg class=\"curves\" viewBox=\"0 0 %d %d\" role=\"img\" "
		"aria-label=\"%s\">\n",
		d->title, WIDE, HIGH, d->title);
	axes(out, &f, d->unit);
	for (size_t i = 0; i < d->n; i++) {
		const struct hd_line *l = &d->lines[i];

		marks_above(out, &f, l);
		if (l->dotted) {
			points(out, &f, l, "line dashed");
			dots(out, &f, l);
			continue;
		}
		if (l->curve->n == 1) /* a line needs two */
			dots(out, &f, l);
		if (l->curve->n > MEANS)
			points(out, &f, l, "faint");
		means(out, &f, l, "line");
	}
	fprintf(out, "</svg></div>\n");
	legend(out, &f, d->lines, d->n);
}
