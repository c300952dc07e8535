/* SPDX-License-Identifier: Apache-2.0
 * engine/report/plan_page.h - a planned step as a page: the mesh and the placement, the timeline of each stage, its
 * memory, and the bytes over each link. Also the layouts that a search has found.
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

struct hd_page_span { /* in seconds; where spans overlap, the later one is shown */
	double from, to;
	enum hd_page_work work;
};
struct hd_page_use { /* bytes in use from that time on */
	double from, bytes[HD_PAGE_MEMORIES];
};
struct hd_page_stage {
	char *name, *holds; /* "stage 3"; the blocks it holds, "layer 6, layer 7" */
	double parameters, memory, sent[2], compute, exposed, idle;
	const struct hd_page_span *spans;
	const struct hd_page_use *use;
	size_t nspans, nuse;
};
struct hd_page_axis {
	const char *name;
	int64_t n, stride;
};
struct hd_page_point { /* a layout that a search has found */
	double seconds, memory;
	char *text;
	int fits;
};
struct hd_page_both { /* a step that was planned and executed */
	const struct hd_page_stage *planned,
		*traced; /* name and spans of each stage; traced may be NULL: it was not run */
	int64_t n;
	double planned_seconds, traced_seconds;
	const char *which; /* which step was traced: "the last step of the trace" */
};
struct hd_plan_page {
	const char *title;
	const char *about[4];  /* lines; NULL after the last */
	int64_t ranks, node;   /* number of ranks; ranks per node */
	double seconds, limit; /* of the step; memory of a rank, or 0 */
	double server;         /* bytes that a parameter server needs at most, or 0 */
	const struct hd_page_axis *axes;
	const struct hd_page_stage *stages;
	struct hd_page_both run; /* traced NULL: no step was run */
	const struct hd_page_point *points;
	int naxes;
	int64_t nstages, npoints;
};
/* Writes HTML for which a browser need not fetch anything else. */
void hd_plan_page_write(FILE *f, const struct hd_plan_page *p);

/* -- plan_draw.c: its drawings ----------------------------------------------------------------------------------- */
struct hd_page_lines { /* stages between two times, in seconds within the step */
	const char *title;
	const struct hd_page_stage *stages;
	int64_t n;
	double from, to;
};
void hd_page_timeline(FILE *f, const struct hd_page_lines *x);
void hd_page_draw_both(FILE *f, const struct hd_page_both *b); /* both, one above the other, with the same time axis */
void hd_page_memory(FILE *f, const struct hd_plan_page *p, int64_t stage);
void hd_page_frontier(FILE *f, const struct hd_plan_page *p);
void hd_page_mesh(FILE *f, const struct hd_plan_page *p);
void hd_page_links(FILE *f, const struct hd_plan_page *p); /* plan_links.c */

/* -- plan_pieces.c: a row of a timeline ---------------------------------------------------------------------------- */
/* Computes a row as it is drawn: for each of HD_PAGE_PIECES equal pieces of
 * time, an enum hd_page_work, or -1 for nothing. */
#define HD_PAGE_PIECES 850
void hd_page_pieces(const struct hd_page_stage *s, double from, double to, signed char out[HD_PAGE_PIECES]);
/* Convert the row from 0 to a time to text and back; the caller frees both results. The text is like "F20-3B40". Its
 * letters are FBWS, - (waiting), C (sharing cores) or . (nothing), each with a number of pieces.
 * Reading returns *n spans, or NULL if the text is invalid. */
char *hd_page_pieces_text(const struct hd_page_stage *s, double to);
struct hd_page_span *hd_page_pieces_read(const char *text, double to, size_t *n);

#endif
