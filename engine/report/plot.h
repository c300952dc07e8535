/* SPDX-License-Identifier: Apache-2.0
 * engine/report/plot.h - draws curves as SVG.
 */
#ifndef HD_ENGINE_REPORT_PLOT_H
#define HD_ENGINE_REPORT_PLOT_H
#include <stdio.h>
#include "engine/report/series.h"

struct hd_line { /* a line of a drawing */
	const struct hd_curve *curve;
	const char *label;
	int colour; /* index of one of the page's colours */
	int dashes; /* 0: solid; 1, 2, ...: dashes that distinguish lines of one colour */
	int dotted; /* few distant points: drawn as a dashed line with a mark at each */
};
struct hd_drawing {
	const char *title, *unit; /* unit: of the vertical axis */
	const struct hd_line *lines;
	size_t n;
};
/* Draws a title, the lines and a legend. Each line consists of means over groups of steps, and thinly of its points.
 * All points are inside, except those of a run that is very far above another one. They are marks at the upper edge,
 * which the legend counts. The vertical axis is logarithmic if a linear one would not distinguish positive values. */
void hd_curves_draw(FILE *f, const struct hd_drawing *d);

#endif
