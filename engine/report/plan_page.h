/* SPDX-License-Identifier: Apache-2.0
 * engine/report/plan_page.h - a planned step as a page: the mesh and the placement, when each stage works, its
 * memory, the bytes over each link. And what a search has found.
 */
#ifndef HD_ENGINE_REPORT_PLAN_PAGE_H
#define HD_ENGINE_REPORT_PLAN_PAGE_H
#include <stdint.h>
#include <stdio.h>

enum hd_page_work {
	HD_PAGE_FORWARD,
	HD_PAGE_BACKWARD,
	HD_PAGE_WEIGHTS,
	HD_PAGE_STEP,
	HD_PAGE_WAITS,
	HD_PAGE_SHARING,
	HD_PAGE_WORKS
};
enum { HD_PAGE_PARAMETERS, HD_PAGE_STATES, HD_PAGE_GRADIENTS, HD_PAGE_KEPT, HD_PAGE_WORKING, HD_PAGE_MEMORIES };

struct hd_page_span { /* seconds; of those that overlap the later one is seen */
	double from, to;
	enum hd_page_work work;
};
struct hd_page_use { /* bytes, from then on */
	double from, bytes[HD_PAGE_MEMORIES];
};
struct hd_page_stage {
	char *name, *holds; /* "stage 3", "layer 6, layer 7" */
	double parameters, memory, sent[2], compute, exposed, idle;
	const struct hd_page_span *spans;
	const struct hd_page_use *use;
	size_t nspans, nuse;
};
struct hd_page_axis {
	const char *name;
	int64_t n, stride;
};
struct hd_page_point { /* a layout: of a search */
	double seconds, memory;
	char *text;
	int fits;
};
struct hd_page_both { /* a step that was planned and run */
	const struct hd_page_stage *planned,
		*traced; /* of each stage its name and spans; traced may be NULL: it was not run */
	int64_t n;
	double planned_seconds, traced_seconds;
	const char *which; /* step was traced: "the last step of the trace" */
};
struct hd_plan_page {
	const char *title;
	const char *about[4];  /* lines; NULL: fewer */
	int64_t ranks, node;   /* ranks; of a node */
	double seconds, limit; /* of the step; memory of a rank, or 0 */
	const struct hd_page_axis *axes;
	const struct hd_page_stage *stages;
	struct hd_page_both run; /* traced NULL: no step was run */
	const struct hd_page_point *points;
	int naxes;
	int64_t nstages, npoints;
};
void hd_plan_page_write(FILE *f,
			const struct hd_plan_page *p); /* HTML with nothing that a browser would have to fetch */

/* -- plan_draw.c: its drawings ------------------------------------------------------------------------------------------- */
struct hd_page_lines { /* stages between two times, in seconds of the step */
	const char *title;
	const struct hd_page_stage *stages;
	int64_t n;
	double from, to;
};
void hd_page_timeline(FILE *f, const struct hd_page_lines *x);
void hd_page_draw_both(FILE *f, const struct hd_page_both *b); /* one above the other, on one axis of time */
/* A row as it is drawn: what each of so many equal pieces of time is, an enum hd_page_work or -1, nothing. */
#define HD_PAGE_PIECES 850
void hd_page_pieces(const struct hd_page_stage *s, double from, double to, signed char out[HD_PAGE_PIECES]);
/* The row from 0 to a time as text, malloc'ed: "F20-3B40", letters FBWS- (waiting), C (sharing cores) or . (nothing), each with a number of
 * pieces.  Read: the row as spans, malloc'ed, *n of them; NULL: that is no such text. */
char *hd_page_pieces_text(const struct hd_page_stage *s, double to);
struct hd_page_span *hd_page_pieces_read(const char *text, double to, size_t *n);
void hd_page_memory(FILE *f, const struct hd_plan_page *p, int64_t stage);
void hd_page_frontier(FILE *f, const struct hd_plan_page *p);
void hd_page_mesh(FILE *f, const struct hd_plan_page *p);
void hd_page_links(FILE *f, const struct hd_plan_page *p); /* plan_links.c */

#endif
