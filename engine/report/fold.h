/* SPDX-License-Identifier: Apache-2.0
 * engine/report/fold.h - lines that say the same of one layer after the other, as one.
 */
#ifndef HD_ENGINE_REPORT_FOLD_H
#define HD_ENGINE_REPORT_FOLD_H
#include <stddef.h>

struct hd_fold_line {
	char *before, *after; /* the text of one block, around its name */
	const char *block;    /* "layer 3", or any other name */
	const char *unit;     /* lines of two units are never one */
};
struct hd_fold {
	struct hd_fold_line *line;
	size_t n, cap;
};
/* Steals before and after; block and unit stay the caller's. */
void hd_fold_add(struct hd_fold *f, const char *unit, const char *block, char *before, char *after);
/* Prints all on stdout.  Neighbouring layers whose lines are the same, but for the numbers of the layer and of others counted from it, are
 * printed once, as "layer 0-3" (or 3-0, where they run so), if folded; else each.  Releases f. */
void hd_fold_print(struct hd_fold *f, int folded);

#endif
