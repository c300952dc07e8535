/* SPDX-License-Identifier: Apache-2.0
 * engine/conform/parts/parts.h - building blocks of the checks, which do not depend on the list of checks.
 */
#ifndef HD_ENGINE_CONFORM_PARTS_H
#define HD_ENGINE_CONFORM_PARTS_H
#include "engine/inprocess/inprocess.h"

/* first.c: describes the first tensor of r that differs from one rank's, and the node that computed it, in lines.
 * Returns NULL if none differs; the caller frees the text. scale: the largest entry of all gradients. */
char *first_difference(struct hd_inprocess *one, struct hd_inprocess *r, double tolerance, double scale);

/* copies.c: describes a value that should be the same on several members and is not, in one line. Returns NULL if there
 * is none. */
char *copies_differ(const struct hd_inprocess *r);

/* -- serial_model.c: a model that a plugin's serial definition trains (heddle/serial.h, update) -------------------- */
struct serial_param {
	const char *name;
	int64_t n;
	double *param, *first; /* the current values and the initial ones */
};

/* alone: one rank without the plugin, with a member's share of each micro-batch. layout: the run whose states, before
 * its first step, the plugin's function may ask for. */
struct serial_model *serial_model_create(const struct hd_inprocess *layout, struct hd_inprocess *alone, double lr);
void serial_model_destroy(struct serial_model *m);
/* Makes one step of all members. *loss is that of the global batch. */
int serial_model_step(struct serial_model *m, int64_t step, double *loss, struct hd_err *err);
const struct serial_param *serial_model_param(const struct serial_model *m, size_t i); /* NULL after the last */

#endif
