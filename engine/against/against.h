/* SPDX-License-Identifier: Apache-2.0
 * engine/against/against.h - runs of this very program on a user's INI, and how far apart two of them are.
 */
#ifndef HD_ENGINE_AGAINST_H
#define HD_ENGINE_AGAINST_H
#include <stdio.h>
#include "engine/plan/plan.h"

struct hd_against {
	const char *conf; /* the INI */
	const char *const *sets;
	int nsets;
	const struct hd_plan *plan; /* of it */
};
/* Trains a few steps of the layout (under mpirun, which it starts) and of one rank, with SGD, and compares losses, gradient norms
 * and every gradient of the last step.  Prints the worst.  0: within rounding; HD_EINVAL and the sentence: not. */
int hd_against_one_rank(const struct hd_against *a, FILE *out, struct hd_err *err);

#endif
