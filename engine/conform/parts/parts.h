/* SPDX-License-Identifier: Apache-2.0
 * engine/conform/parts/parts.h - what checks are made of that knows no list of checks.
 */
#ifndef HD_ENGINE_CONFORM_PARTS_H
#define HD_ENGINE_CONFORM_PARTS_H
#include "engine/inprocess/inprocess.h"

/* first.c: the first tensor of r that is not that of one rank, and who made it: lines, or NULL: all are.  scale: the largest entry of all
 * gradients. */
char *first_difference(struct hd_inprocess *one, struct hd_inprocess *r, double tolerance, double scale);

/* copies.c: what members have copies of and is not the same on all of them: a line, or NULL. */
char *copies_differ(const struct hd_inprocess *r);

/* -- serial_model.c: a model that a plugin's serial definition trains (heddle/serial.h, update) ---------------------- */
struct serial_param {
	const char *name;
	int64_t n;
	double *param, *first; /* what the model has now, and had at first */
};

/* alone: one rank without the plugin, of a member's share of each micro-batch; `layout` has the states that the plugin asks for, as it
 * begins. */
struct serial_model *serial_model_create(const struct hd_inprocess *layout, struct hd_inprocess *alone, double lr);
void serial_model_destroy(struct serial_model *m);
/* One step of all members.  *loss: of the global batch. */
int serial_model_step(struct serial_model *m, int64_t step, double *loss, struct hd_err *err);
const struct serial_param *serial_model_param(const struct serial_model *m, size_t i); /* NULL behind the last */

#endif
