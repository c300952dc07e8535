/* SPDX-License-Identifier: Apache-2.0
 * engine/search/search.h - finds the fastest layout of a model on a machine, among those of a space.
 */
#ifndef HD_ENGINE_SEARCH_SEARCH_H
#define HD_ENGINE_SEARCH_SEARCH_H
#include "engine/base/json.h"
#include "engine/page/plan_page.h"
#include "engine/search/evaluate.h"
#include <stdio.h>

struct search_options {
	const char *space;           /* a file, or the name of a space that is installed with Heddle */
	struct hd_conf *conf;        /* the INI; [train] and [model] are checked */
	struct hd_plan_options plan; /* options of every layout's plan */
	const struct hd_machine *machine;
	const struct hd_style *style;
	int64_t memory; /* bytes of a rank; 0: as the machine file says; if it says nothing, no limit */
	int64_t tries;  /* the most layouts that are planned whole; 0: all that the bounds leave */
	int patient;    /* uses up the tries, even if none is likely to be better than the best so far */
	int unbounded;  /* bounds exclude nothing: for tests */
};

struct found_layout { /* a layout that was planned whole */
	struct space_layout layout;
	struct evaluated result;
	double bound;                 /* lower bound of its step */
	double guess, guessed_memory; /* from small plans; 0: there was no guess */
	int fits, keys;               /* keys: hd_layout_keys */
	int verbatim;                 /* the INI as it stands, which is no point of the space: no layout */
};
struct dropped_layouts { /* layouts that were not planned whole, and why */
	char why[240], example[200];
	int64_t layouts;
};
#define HD_SEARCH_REASONS 40
struct search_result {
	struct space space;
	struct found_layout *found; /* first those that fit, the fastest first; then the others, by memory */
	int64_t nfound, nfits;
	struct dropped_layouts dropped[HD_SEARCH_REASONS]; /* the reason with the most layouts first */
	int ndropped;
	int64_t layouts, not_tried; /* not_tried: those not looked at, because there were more than tries */
	/* Whether alternatives of `also`, or orders on the mesh, were tried only near the best. Of those, `layouts`
	 * counts only the ones that were planned. */
	int few_choices, few_orders;
	struct evaluated own; /* the INI's own layout; its code is not 0 if there is none */
	char *own_text;       /* the INI as it stands */
	double limit;         /* of memory; 0: none */
	/* The smallest memory bound, in bytes, of the layouts that were dropped for lack of memory. 0:
	 * there are none. */
	double floor;
};

/* Searches as the options say. The result does not depend on the number of processors. Release out in either case. */
int hd_search(const struct search_options *o, struct search_result *out, struct hd_err *err);
void hd_search_release(struct search_result *r);

/* print.c: prints the table of the best, and why the others are not among them. */
void hd_search_print(const struct search_result *r, int64_t top);
/* Returns the *n rows of that table. */
struct hd_page_found *hd_search_rows(const struct search_result *r, int64_t top, int64_t *n);
void hd_search_rows_release(struct hd_page_found *rows, int64_t n);
char *hd_search_sum(const struct search_result *r); /* how many were planned completely; the caller frees it */
/* Returns [{"ini","step_seconds","memory_bytes","bound_seconds","reason"}], the best `top` layouts in order. A
 * bound_seconds of 0: no bound was computed. */
json_t *hd_search_json(const struct search_result *r, int64_t top);
json_t *hd_search_dropped_json(const struct search_result *r);        /* returns [{"reason","layouts","example"}] */
void hd_search_print_dropped(FILE *f, const struct search_result *r); /* prints the same as a table */
/* Returns the INI of layout l, malloc'ed, after a comment line with the text `about`, unless that is NULL. */
char *hd_search_ini(const struct search_result *r, const struct found_layout *f, const char *about);
/* Creates the INI of a layout that was found. */
int hd_search_conf(const struct search_result *r, const struct found_layout *f, struct hd_conf **out,
		   struct hd_err *err);
char *hd_search_line(const struct search_result *r, const struct found_layout *f); /* its text in tables, malloc'ed */

#endif
