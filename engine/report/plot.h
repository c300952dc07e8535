/* SPDX-License-Identifier: Apache-2.0
 * engine/report/plot.h - curves drawn as SVG.
 */
#ifndef HD_ENGINE_REPORT_PLOT_H
#define HD_ENGINE_REPORT_PLOT_H
#include <stdio.h>
#include "engine/report/series.h"

struct hd_line { /* of a drawing */
	const struct hd_curve *curve;
	const char *label;
	int colour; /* 0, 1, ...: colours that the page has */
	int dashes; /* 0: solid; 1, 2, ...: what tells lines of one colour apart */
	int dotted; /* few points, far apart: a dashed line, on which each is marked */
};
struct hd_drawing {
	const char *title, *unit; /* unit: of the vertical axis */
	const struct hd_line *lines;
	size_t n;
};
/* One drawing, with its title and a legend: each line as means over pieces of the steps, and thinly its points.  All lie inside,
 * but those of a run that is very far above another one: these are marks at the upper edge, and counted in the legend.  The vertical
 * axis is logarithmic where positive values would not be told apart on a linear one. */
void hd_curves_draw(FILE *f, const struct hd_drawing *d);
void hd_html_text(FILE *f, const char *s); /* escaped */
extern const char hd_page_style[];         /* of all pages */

#endif
