/* SPDX-License-Identifier: Apache-2.0
 * engine/report/fold.h - prints lines that repeat from layer to layer only once.
 */
#ifndef HD_ENGINE_REPORT_FOLD_H
#define HD_ENGINE_REPORT_FOLD_H
#include <stddef.h>

struct hd_fold_line {
	char *before, *after; /* the text of a line, around the block's name */
	const char *block;    /* "layer 3", or any other name */
	const char *unit;     /* lines of different units are not merged */
};
struct hd_fold {
	struct hd_fold_line *line;
	size_t n, cap;
};
/* Takes over before and after; the caller keeps block and unit. */
void hd_fold_add(struct hd_fold *f, const char *unit, const char *block, char *before, char *after);
/* Prints all lines on stdout, and releases f. If folded, adjacent layers with the same lines are printed once, as
 * "layer 0-3" (or 3-0 in that order). Lines are the same if they differ only in numbers relative to their layer's.
 * Otherwise each line is printed. */
void hd_fold_print(struct hd_fold *f, int folded);

#endif
