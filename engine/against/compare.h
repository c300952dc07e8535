/* SPDX-License-Identifier: Apache-2.0
 * engine/against/compare.h - compares two runs that share a directory: their metrics in many.jsonl and one.jsonl,
 * and their checkpoints in many/ and one/.
 *
 * Bounds. Layouts differ only in the order of sums. In fp32 (u = 2^-24) the rms error of an addition is at most u /
 * sqrt(3) times the partial sum. The square of the partial sum of k of n terms is k / n of the square of the total. So
 * the squared relative error of a sum of n terms is u^2 n / 6, and two orders differ by u^2 n / 3. `terms` is the total
 * length of all sums that a gradient passes through; squared errors add up. In bf16 (u = 2^-8) 20 tensors per layer, in
 * forward and backward, are rounded at different places: 2 u^2 each. The loss is a mean over the tokens.
 *
 * After i steps the weights differ, too. Gradient descent that does not diverge has a learning rate of at most 2 /
 * curvature. So the error of one step adds at most twice itself to each later step: 1 + 4 i such squares. The squared
 * error of a tensor is compared with its own square, but at least with a thousandth of the mean square of all. For a
 * tensor that is zero except for rounding is a sum of terms as large as those of the others.
 *
 * If values nearly cancel and are divided by their size, as in a norm of few elements, rounding causes more than that.
 * So a layout that exceeds the bounds is compared with a second run on one rank (`again`), which differs by rounding
 * alone. Its initial weights differ in their last bits, and so do all values computed from them. A difference of the
 * layout up to eight times the one seen there, and up to a tenth, is not attributed to the layout.
 */
#ifndef HD_ENGINE_AGAINST_COMPARE_H
#define HD_ENGINE_AGAINST_COMPARE_H
#include <stdio.h>
#include "engine/base/err.h"

struct hd_comparison {
	int bf16, steps, again;
	int64_t layers, terms, tokens;
};
/* Returns the bound of the relative difference of a loss, norm or gradient of the step (0: the first). */
double hd_comparison_bound(const struct hd_comparison *c, int step);

/* Reads the losses and norms of the first HD_MOST_STEPS steps in DIR/NAME.jsonl. */
#define HD_MOST_STEPS 16
struct hd_losses {
	int n, step[HD_MOST_STEPS];
	double loss[HD_MOST_STEPS], norm[HD_MOST_STEPS];
};
int hd_losses_read(const char *dir, const char *name, struct hd_losses *x, struct hd_err *err);

int hd_compare(const struct hd_comparison *c, const char *dir, FILE *out, struct hd_err *err);
/* Sets err to the last message of a failed run, from its output. */
void hd_compare_run_error(const char *dir, const char *name, struct hd_err *err);

#endif
