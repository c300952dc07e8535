/* SPDX-License-Identifier: Apache-2.0
 * engine/against/compare.h - what two runs have left in a directory: many.jsonl and one.jsonl, and the checkpoints in many/ and
 * one/.
 *
 * Bounds.  Layouts differ in the order of sums alone.  In fp32 (u = 2^-24) an addition is rounded by u / sqrt(3) of the partial
 * sum in the mean at most, and the partial sum of k of n terms has k / n of the square of all. A sum of n terms is off by u^2 n
 * / 6 of its square, and two orders differ by u^2 n / 3.  `terms` is the sum of the lengths of all sums that a gradient has
 * passed; errors add up as squares.  In bf16 (u = 2^-8) each of 20 tensors a layer, forward and backward, is rounded, in other
 * places: 2 u^2 each; the loss is a mean over the tokens.
 *
 * After i steps the weights have moved apart: descent that does not diverge has a rate of at most 2 / curvature, so that the
 * error of one step makes at most twice itself of each later one, 1 + 4 i such squares.  A tensor's error is compared to its
 * own square, or to a thousandth of the mean square of all. One that is zero but for rounding is made of terms of the others'
 * size.
 *
 * Where values nearly cancel and are divided by their size, as in a norm of few elements, rounding makes more than that. So a
 * layout that exceeds the bounds is compared with what rounding makes on one rank (`again`). Its weights differ in their last bits,
 * and so does all that is computed of them. Eight times a difference that was seen there is none of the layout, up to a tenth.
 */
#ifndef HD_ENGINE_AGAINST_COMPARE_H
#define HD_ENGINE_AGAINST_COMPARE_H
#include <stdio.h>
#include "engine/base/err.h"

struct hd_comparison {
	int bf16, steps, again;
	int64_t layers, terms, tokens;
};
/* Of a loss or norm of the step (0: the first), relative to itself. */
double hd_comparison_bound(const struct hd_comparison *c, int step);

/* Losses and norms of the steps in DIR/NAME.jsonl, the first HD_MOST_STEPS of them. */
#define HD_MOST_STEPS 16
struct hd_losses {
	int n, step[HD_MOST_STEPS];
	double loss[HD_MOST_STEPS], norm[HD_MOST_STEPS];
};
int hd_losses_read(const char *dir, const char *name, struct hd_losses *x, struct hd_err *err);

int hd_compare(const struct hd_comparison *c, const char *dir, FILE *out, struct hd_err *err);
/* The last message of a run that failed, from its output. */
void hd_compare_said(const char *dir, const char *name, struct hd_err *err);

#endif
