/* SPDX-License-Identifier: Apache-2.0
 * engine/report/plan_page.h - a planned step as a page: the mesh and the placement, when each stage works, its
 * memory, the bytes over each link. And what a search has found.
 */
#ifndef HD_ENGINE_REPORT_PLAN_PAGE_H
#define HD_ENGINE_REPORT_PLAN_PAGE_H
#include <stdint.h>
#include <stdio.h>

enum hd_page_work { HD_PAGE_FORWARD, HD_PAGE_BACKWARD, HD_PAGE_WEIGHTS, HD_PAGE_STEP, HD_PAGE_WAITS, HD_PAGE_WORKS };
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
struct hd_plan_page {
	const char *title;
	const char *about[4];  /* lines; NULL: fewer */
	int64_t ranks, node;   /* ranks; of a node */
	double seconds, limit; /* of the step; memory of a rank, or 0 */
	const struct hd_page_axis *axes;
	const struct hd_page_stage *stages;
	const struct hd_page_stage *traced; /* the spans of each stage in a step that was run; or NULL */
	double traced_seconds;              /* of that step */
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
void hd_page_memory(FILE *f, const struct hd_plan_page *p, int64_t stage);
void hd_page_frontier(FILE *f, const struct hd_plan_page *p);
void hd_page_mesh(FILE *f, const struct hd_plan_page *p);
void hd_page_links(FILE *f, const struct hd_plan_page *p); /* plan_links.c */

#endif
