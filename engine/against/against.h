/* SPDX-License-Identifier: Apache-2.0
 * engine/against/against.h - runs this program on a user's INI and on one rank, and compares the two runs.
 */
#ifndef HD_ENGINE_AGAINST_H
#define HD_ENGINE_AGAINST_H
#include <stdio.h>
#include "engine/plan/plan.h"

struct hd_against {
	const char *conf; /* path of the INI */
	const char *const *sets;
	int nsets;
	const struct hd_plan *plan; /* its plan */
};
/* Trains a few steps with the layout (under mpirun, which it starts) and with one rank, both with SGD. Compares losses,
 * gradient norms and every gradient of the last step, and prints the worst. Returns 0 if they agree within rounding,
 * else HD_EINVAL with a message. */
int hd_against_one_rank(const struct hd_against *a, FILE *out, struct hd_err *err);

#endif
