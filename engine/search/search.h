/* SPDX-License-Identifier: Apache-2.0
 * engine/search/search.h - the fastest layout of a model on a machine, among those of a space.
 */
#ifndef HD_ENGINE_SEARCH_SEARCH_H
#define HD_ENGINE_SEARCH_SEARCH_H
#include "engine/base/json.h"
#include "engine/search/evaluate.h"
#include <stdio.h>

struct search_options {
	const char *space;           /* its file, or the name of one that comes with heddle */
	struct hd_conf *conf;        /* the INI; [train] and [model] are checked */
	struct hd_plan_options plan; /* of a layout */
	const struct hd_machine *machine;
	const struct hd_style *style;
	int64_t memory; /* bytes of a rank; 0: as the machine's file says, and if it does not, no limit */
	int64_t tries;  /* layouts that are planned whole, at most; 0: all that bounds leave */
	int patient;    /* so many, even if none is likely to be better than what was found */
	int unbounded;  /* bounds leave all: for tests */
};

struct found_layout { /* a layout that was planned whole */
	struct space_layout layout;
	struct evaluated result;
	double bound;                 /* what its step could not be shorter than */
	double guess, guessed_memory; /* by small plans; 0: there was none */
	int fits, keys;               /* keys: hd_layout_keys */
};
struct lost_layouts { /* layouts that were not, and why */
	char why[240], example[200];
	int64_t layouts;
};
#define HD_SEARCH_REASONS 40
struct search_result {
	struct space space;
	struct found_layout *found; /* those that fit first, the fastest before others; then the others, by memory */
	int64_t nfound, nfits;
	struct lost_layouts lost[HD_SEARCH_REASONS]; /* the largest number first */
	int nlost;
	int64_t layouts, left;  /* all; those that nobody looked at, since there were more than tries */
	struct evaluated given; /* of the INI as it is; its code is not 0 if there is none such */
	double limit;           /* of memory; 0: none */
	double floor; /* bytes that all layouts need that were not planned for want of memory; 0: there is none such */
};

/* The same options give the same result, however many processors look for it.  Release out in either case. */
int hd_search(const struct search_options *o, struct search_result *out, struct hd_err *err);
void hd_search_release(struct search_result *r);

/* print.c: the table of the best, and why the others are not among them. */
void hd_search_print(const struct search_result *r, int64_t top);
/* [{"ini","step_seconds","memory_bytes","bound_seconds","reason"}], found ones in their order; a bound of 0: none was made. */
json_t *hd_search_json(const struct search_result *r, int64_t top); /* the best so many */
json_t *hd_search_lost_json(const struct search_result *r);         /* [{"reason","layouts","example"}] */
void hd_search_print_lost(FILE *f, const struct search_result *r);  /* the same as a table */
/* The INI of the best, with a line about how it was found. */
char *hd_search_ini(const struct search_result *r, const struct space_layout *l, const char *about);

#endif
