/* SPDX-License-Identifier: Apache-2.0
 * engine/schedule/schedule_check.h - whether an order of units is possible, and how long it takes.
 *
 * p coordinates of an axis hold the model's stages, at most v chunks each.  Each coordinate runs a list of units (F, B
 * or W of one chunk and micro-batch) in order.  Here, a part is one chunk, numbered by its position in
 * the model's order.
 *
 * For the same micro-batch, F needs the result of F of the part before, and B that of B of the part after.  Between
 * two coordinates that is a message.  Sending does not wait, and a unit waits for what it receives.  The messages in
 * one direction (forward or backward) from one coordinate to another arrive in the order in which they were sent.
 */
#ifndef HD_ENGINE_SCHEDULE_CHECK_H
#define HD_ENGINE_SCHEDULE_CHECK_H
#include <stdio.h>
#include "engine/base/err.h"

struct hd_schedule_unit {
	uint32_t kind;
	int32_t chunk, micro;
}; /* kind: HD_UNIT_F, HD_UNIT_B, HD_UNIT_W */

struct hd_schedule {
	int p, v, m;                                 /* coordinates, maximum chunks of one, micro-batches */
	const struct hd_schedule_unit *const *units; /* per coordinate, in order */
	const int *n;                                /* units per coordinate */
	const int *part_of;                          /* [r * v + c]: position in the model's order; -1: no such chunk */
	int forward_only;                            /* there are only units F */
	/* Time of one unit, by that position.  NULL: 1 for F and W, 2 for B, or 1 for B if W is separate. */
	const double *tf, *tb, *tw;
	const double *weight; /* by that position, if tf is NULL: a factor for these times; NULL: 1 */
};

struct hd_schedule_report {
	double **start, **end; /* per coordinate and unit */
	double *busy;          /* per coordinate */
	/* Per coordinate, the most activations kept at once.  There is one per chunk and micro-batch, from F to the end
	 * of B, or of W if that is separate. */
	int *in_flight;
	double makespan;
	double bubble; /* idle time over busy time of the busiest coordinate */
	int separate_w;
	int p;
};

/* Returns 0, or HD_EINVAL with a text that names the unit.  Errors are a unit that is missing, occurs twice, is out of
 * order, or is received in a different order than sent, and a cycle of coordinates that wait for each other.  The
 * caller owns the report, which is filled on success only; it may be NULL. */
int hd_schedule_check(const struct hd_schedule *s, struct hd_schedule_report *rep, struct hd_err *err);
void hd_schedule_report_release(struct hd_schedule_report *rep);

/* Prints one line per coordinate, with each unit where it begins: "F0 F1 B0--".  '-' means that the unit continues. If
 * that would be too wide, "..." stands for the middle, and units that are much shorter than others have no name. */
void hd_schedule_draw(FILE *f, const struct hd_schedule *s, const struct hd_schedule_report *rep);

#endif
