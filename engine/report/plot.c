/* SPDX-License-Identifier: Apache-2.0
 * Curves as SVG, with nothing that a browser would have to fetch.
 */
#include <config.h>
#include "engine/report/plot.h"
#include <math.h>
#include <stdlib.h>

#define WIDE 720
#define HIGH 250
#define LEFT 78
#define RIGHT 12
#define TOP 14
#define BOTTOM 42
#define FAINT 1200 /* points of a line as it is */
#define MEANS 60   /* and of its means */

struct frame {
	double x0, x1, y0, y1;
};

void hd_html_text(FILE *f, const char *s)
{
	for (; *s; s++)
		if (*s == '<' || *s == '>' || *s == '&' || *s == '"')
			fprintf(f, "&#%d;", *s);
		else
			fputc(*s, f);
}

/* -- what is seen --------------------------------------------------------------------------------------------------------- */
/* The largest value but one in a hundred; twice that is shown. */
static double usual_most(const struct hd_curve *k)
{
	double *y = hd_alloc((k->n + 1) * sizeof(*y)), most;

	for (size_t i = 0; i < k->n; i++)
		y[i] = k->y[i];
	hd_sort(y, k->n);
	most = y[(k->n - 1) * 99 / 100];
	if (y[k->n - 1] <= 2 * most)
		most = y[k->n - 1];
	free(y);
	return most;
}

static struct frame frame_of(const struct hd_line *lines, size_t n)
{
	struct frame f = { INFINITY, -INFINITY, INFINITY, -INFINITY };

	for (size_t i = 0; i < n; i++) {
		const struct hd_curve *k = lines[i].curve;

		f.y1 = fmax(f.y1, usual_most(k));
		for (size_t j = 0; j < k->n; j++) {
			f.x0 = fmin(f.x0, k->x[j]);
			f.x1 = fmax(f.x1, k->x[j]);
			f.y0 = fmin(f.y0, k->y[j]);
		}
	}
	if (f.x1 <= f.x0)
		f.x1 = f.x0 + 1;
	if (f.y1 <= f.y0)
		f.y1 = f.y0 + fmax(1e-12, fabs(f.y0) / 10);
	return f;
}

static double across(const struct frame *f, double x)
{
	return LEFT + (x - f->x0) / (f->x1 - f->x0) * (WIDE - LEFT - RIGHT);
}

static double down(const struct frame *f, double y)
{
	double at = HIGH - BOTTOM - (y - f->y0) / (f->y1 - f->y0) * (HIGH - TOP - BOTTOM);

	return at < TOP ? TOP : at;
}

/* -- axes ----------------------------------------------------------------------------------------------------------------- */
static double tick(double range) /* 1, 2 or 5 times a power of ten: four to nine of them */
{
	double unit = pow(10, floor(log10(range / 4))), many = range / 4 / unit;

	return many >= 5 ? 5 * unit : many >= 2 ? 2 * unit : unit;
}

static void axes(FILE *out, const struct frame *f, const char *unit)
{
	double dx = tick(f->x1 - f->x0), dy = tick(f->y1 - f->y0);

	for (double y = ceil(f->y0 / dy) * dy; y <= f->y1; y += dy) {
		double v = fabs(y) < dy / 1000 ? 0 : y;

		fprintf(out,
			"<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
			LEFT, down(f, v), WIDE - RIGHT, LEFT - 6, down(f, v) + 4, v);
	}
	for (double x = ceil(f->x0 / dx) * dx; x <= f->x1; x += dx)
		fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.10g</text>\n", across(f, x),
			HIGH - BOTTOM + 16, x);
	fprintf(out, "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n",
		(LEFT + WIDE - RIGHT) / 2, HIGH - 6);
	fprintf(out, "<text class=\"name\" transform=\"translate(14 %d) rotate(-90)\" text-anchor=\"middle\">",
		(HIGH - BOTTOM + TOP) / 2);
	hd_html_text(out, unit);
	fprintf(out, "</text>\n");
}

/* -- lines ---------------------------------------------------------------------------------------------------------------- */
/* At most `points` means of what follows each other. */
static void path(FILE *out, const struct frame *f, const struct hd_line *l, size_t points, const char *class)
{
	const struct hd_curve *k = l->curve;
	size_t each = (k->n + points - 1) / points;

	fprintf(out, "<path class=\"%s c%d\" d=\"", class, l->colour % 8);
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

static void dots(FILE *out, const struct frame *f, const struct hd_line *l)
{
	const struct hd_curve *k = l->curve;

	for (size_t i = 0; i < k->n; i++)
		fprintf(out,
			"<circle class=\"at c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>step %.10g: %.6g</title></circle>\n",
			l->colour % 8, across(f, k->x[i]), down(f, k->y[i]), k->x[i], k->y[i]);
}

/* A piece of the line as it is drawn, the name, the last value. */
static void legend(FILE *out, const struct hd_line *lines, size_t n)
{
	size_t each = 1;

	fprintf(out, "<p class=\"legend\">");
	for (size_t i = 0; i < n; i++) {
		const struct hd_curve *k = lines[i].curve;

		fprintf(out,
			"<span><svg class=\"key c%d\" viewBox=\"0 0 34 10\"><path class=\"line%s\" d=\"M1 5H33\"/>%s</svg> ",
			lines[i].colour % 8, lines[i].dotted ? " dashed" : "",
			lines[i].dotted ? "<circle cx=\"17\" cy=\"5\" r=\"3\" class=\"at\"/>" : "");
		hd_html_text(out, lines[i].label);
		fprintf(out, ": %.5g</span> ", k->y[k->n - 1]);
		if (!lines[i].dotted && (k->n + MEANS - 1) / MEANS > each)
			each = (k->n + MEANS - 1) / MEANS;
	}
	if (each > 1)
		fprintf(out, "<span class=\"note\">thick: means of up to %zu steps; thin: as it is</span>", each);
	fprintf(out, "</p>\n");
}

void hd_curves_draw(FILE *out, const struct hd_drawing *d)
{
	struct frame f = frame_of(d->lines, d->n);

	fprintf(out, "<h2>%s</h2>\n<svg class=\"curves\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
		d->title, WIDE, HIGH, d->title);
	axes(out, &f, d->unit);
	for (size_t i = 0; i < d->n; i++) {
		const struct hd_line *l = &d->lines[i];

		if (!l->dotted && l->curve->n > MEANS)
			path(out, &f, l, FAINT, "faint");
		path(out, &f, l, l->dotted ? FAINT : MEANS, l->dotted ? "line dashed" : "line");
		if (l->dotted)
			dots(out, &f, l);
	}
	fprintf(out, "</svg>\n");
	legend(out, d->lines, d->n);
}
