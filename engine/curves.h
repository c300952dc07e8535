/* SPDX-License-Identifier: Apache-2.0
 * engine/curves.h - numbers by step, and drawings of them as SVG.
 */
#ifndef HD_ENGINE_CURVES_H
#define HD_ENGINE_CURVES_H
#include <stdio.h>
#include "engine/err.h"

struct hd_curve {
	char *name;			/* "loss"; "load.2": of an array the third */
	double *x, *y;			/* step, value; finite, in the order of the file */
	size_t n, cap_x, cap_y;
};
struct hd_curves {			/* of one metrics file, one per key */
	const char *path;
	struct hd_curve *all;
	size_t n, cap;
};
int hd_curves_read(const char *path, struct hd_curves *c, struct hd_err *err);
void hd_curves_free(struct hd_curves *c);
const struct hd_curve *hd_curve_find(const struct hd_curves *c, const char *name);	/* NULL: there is none */

struct hd_line {			/* of a drawing */
	const struct hd_curve *curve;
	const char *label;
	int colour;			/* 0, 1, ...: colours that the page has */
	int dotted;			/* few points, far apart: each is marked */
};
/* One drawing, with its title and a legend: each line as means over pieces of the steps, and faintly as it is.  Linear axes;
 * the largest of 100 values may be cut off above, so that one spike does not flatten everything else. */
void hd_curves_draw(FILE *f, const char *title, const struct hd_line *lines, size_t n);
void hd_html_text(FILE *f, const char *s);	/* escaped */

#endif
