/* SPDX-License-Identifier: Apache-2.0
 * engine/page/plan_draw.h - the drawings of the page of a planned step, and their frame.
 */
#ifndef HD_ENGINE_PAGE_PLAN_DRAW_H
#define HD_ENGINE_PAGE_PLAN_DRAW_H
#include "engine/page/plan_page.h"

enum { HD_PAGE_WIDE = 960, HD_PAGE_LEFT = 96, HD_PAGE_SPAN = 850, HD_PAGE_NAME = 15 };

/* -- plan_axes.c: the frame -------------------------------------------------------------------------------------- */
void hd_page_begin(FILE *f, const char *title, int high);
void hd_page_end(FILE *f);
/* Prints a name to the left of a row. */
void hd_page_label(FILE *f, const char *name, double y);
double hd_page_across(double x, double from, double to);
/* Draws a horizontal axis of time; `what` follows its unit. */
void hd_page_axis_below(FILE *f, double from, double to, double y, const char *what);
/* Draws a vertical axis of a rank's bytes. */
void hd_page_axis_left(FILE *f, double most, double top, double bottom);
/* Draws a line at so many bytes, with a text, if it is within a drawing of `most` bytes. */
void hd_page_limit(FILE *f, double bytes, double most, double high, const char *text);
/* Prints the names whose bits are in `seen`; their colours have the classes of that letter. */
void hd_page_legend(FILE *f, const char *const *names, int n, char letter, unsigned seen);

/* -- the drawings ------------------------------------------------------------------------------------------------ */
struct hd_page_lines { /* stages between two times, in seconds within the step */
	const char *title;
	const struct hd_page_stage *stages;
	int64_t n;
	double from, to;
};
void hd_page_timeline(FILE *f, const struct hd_page_lines *x);
void hd_page_memory(FILE *f, const struct hd_plan_page *p, int64_t stage);
void hd_page_mesh(FILE *f, const struct hd_plan_page *p);   /* plan_mesh.c */
void hd_page_links(FILE *f, const struct hd_plan_page *p);  /* plan_links.c */
void hd_page_search(FILE *f, const struct hd_plan_page *p); /* plan_search.c */

#endif
