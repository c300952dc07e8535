/* SPDX-License-Identifier: Apache-2.0
 * engine/measure/drift.h - an additional time for each launch, measured on a machine whose speed drifts.
 */
#ifndef HD_ENGINE_DRIFT_H
#define HD_ENGINE_DRIFT_H

/* Weighted sums over launches: of 1, x, x^2, y and x y, where x is the expected time and y the measured one. */
struct hd_drift {
	double n, x, xx, y, xy;
};

/* Adds a launch. expected: its seconds without the additional time, at an earlier speed of the machine. seconds: its
 * measured time. */
void hd_drift_add(struct hd_drift *d, double expected, double seconds);
/* Returns the additional seconds of each launch, or 0 if all launches take equally long. */
double hd_drift_of_each(const struct hd_drift *d);

#endif
