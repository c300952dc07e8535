/* SPDX-License-Identifier: Apache-2.0
 * engine/page/plan_page.h - a planned step as a page: the mesh and the placement, the timeline of each stage, its
 * memory, and the bytes over each link. Also the layouts that a search has found.
 */
#ifndef HD_ENGINE_PAGE_PLAN_PAGE_H
#define HD_ENGINE_PAGE_PLAN_PAGE_H
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
#define HD_PAGE_LINES 8
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
	char *name;                      /* with its size: "NAME 4 + 1 server" */
	int64_t n, servers, stride;      /* servers: members after the n first */
	int64_t groups, spanning, apart; /* all; on several nodes; with each member on a node of its own */
};
struct hd_page_point { /* a layout that a search has found */
	double seconds, memory;
	char *text;
	int fits;
};
struct hd_page_found { /* a row of the table of the best, as text; alike: others that take as long follow it */
	char *number, *step, *more, *memory, *layout;
};
struct hd_page_results {
	const struct hd_page_point *points; /* all that were planned completely, the best first */
	const struct hd_page_point *own;    /* the layout of the INI, or NULL */
	const struct hd_page_found *rows;
	int64_t npoints, nrows;
	const char *sum, *ini; /* sum: what was planned and what was not; ini: of the best layout */
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
	char *about[HD_PAGE_LINES];          /* lines; NULL after the last */
	int64_t ranks, node;                 /* number of ranks; ranks per node */
	double seconds, limit;               /* of the step; memory of a rank, or 0 */
	double sharing;                      /* seconds of the step in which other ranks use a rank's cores */
	const struct hd_page_stage *servers; /* of the servers, the maximum of each value; NULL: there are none */
	const struct hd_page_axis *axes;
	const struct hd_page_stage *stages;
	struct hd_page_both run;              /* traced NULL: no step was run */
	const struct hd_page_results *search; /* NULL: the layout was given */
	int naxes;
	int64_t nstages;
};
/* Writes HTML for which a browser need not fetch anything else. */
void hd_plan_page_write(FILE *f, const struct hd_plan_page *p);

void hd_page_draw_both(FILE *f, const struct hd_page_both *b); /* both, one above the other, with the same time axis */

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
