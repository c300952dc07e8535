/* SPDX-License-Identifier: Apache-2.0
 * engine/measure/launch_fit.h - an additional time for each launch, measured on a machine whose speed drifts.
 */
#ifndef HD_ENGINE_LAUNCH_FIT_H
#define HD_ENGINE_LAUNCH_FIT_H

/* Weighted sums over launches: of 1, x, x^2, y and x y, where x is the expected time and y the measured one. */
struct hd_launch_fit {
	double n, x, xx, y, xy;
};

/* Adds a launch. expected: its seconds without the additional time, at an earlier speed of the machine. seconds: its
 * measured time. */
void hd_launch_fit_add(struct hd_launch_fit *d, double expected, double seconds);
/* Returns the additional seconds of each launch, or 0 if all launches take equally long. */
double hd_launch_fit_extra(const struct hd_launch_fit *d);

#endif
