/* SPDX-License-Identifier: Apache-2.0
 * engine/schedule/schedule_check.h - is an order of units possible, and what does it cost.
 *
 * p coordinates of an axis hold the model's stages, v or fewer chunks each. Every coordinate runs a
 * list of units (F, B, W of one chunk and micro-batch) in order.
 *
 * F of a stage needs what F of the stage before made, B what B of the stage behind made, for the
 * same micro-batch.  Between two coordinates that is a message: sending does not wait, a unit waits
 * for what it receives. The messages that go one way (forward or backward) from one coordinate
 * to another arrive in the order in which they were sent.
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
	int p, v, m;                                 /* coordinates, chunks of one at most, micro-batches */
	const struct hd_schedule_unit *const *units; /* per coordinate, in order */
	const int *n;                                /* per coordinate */
	const int *stage_of;                         /* [r * v + c]: position in the model's order; -1: no such chunk */
	/* Time of one unit by that position.  NULL: 1 for F, W; 2 for B, 1 where W is separate. */
	const double *tf, *tb, *tw;
	const double *weight; /* by that position, where tf is NULL: a unit takes so many times as long; NULL: once */
};

struct hd_schedule_report {
	double **start, **end; /* per coordinate and unit */
	double *busy;          /* per coordinate */
	/* Per coordinate, most activations kept at once. There is one per chunk and micro-batch, from F to
	 * the end of B, or of W where that is separate. */
	int *in_flight;
	double makespan;
	double bubble; /* idle / busy time of the busiest coordinate */
	int separate_w;
	int p;
};

/* 0, or HD_EINVAL with a text that names the unit: missing, twice, out of order, received in
 * another order than sent, or a circle of coordinates that wait for each other.  The report is
 * owned by the caller and filled on success only; it may be NULL. */
int hd_schedule_check(const struct hd_schedule *s, struct hd_schedule_report *rep, struct hd_err *err);
void hd_schedule_report_release(struct hd_schedule_report *rep);

/* One line per coordinate, a unit where its time begins: "F0 F1 B0--".  '-' while it goes on. */
void hd_schedule_draw(FILE *f, const struct hd_schedule *s, const struct hd_schedule_report *rep);

#endif
