/* SPDX-License-Identifier: Apache-2.0
 * heddle/serial.h - what an approximate plugin computes, as one rank does it.
 *
 * A plugin that is approximate trains another model than one rank does, on purpose.  This table says which.  `heddle conform`
 * makes some steps of a layout with the plugin, and the same steps by the table, and compares losses and parameters.  The steps
 * are of SGD, in double, without clipping and without weight decay.
 *
 *   update   a function that computes a step in plain C from the gradients of all members, for plugins that change gradients or
 *            updates along an axis of their own
 *   one      options with which one rank alone computes the same, for plugins that change what flows through the model
 *
 * A table has one of the two.  All of it since 1.1.
 */
#ifndef HEDDLE_SERIAL_H
#define HEDDLE_SERIAL_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

struct hd_serial { /* view: one parameter in one step, on all members of the plugin's axis */
	size_t size;
	const char *name;    /* of the parameter, as checkpoints have it */
	const int64_t *dims; /* its shape; elements along the last dim are side by side */
	uint32_t ndim, members;
	int64_t n, step; /* n: of elements; step: 1 is the first */
	double lr;
	double *param;          /* the model's parameter; the function writes its value after the step */
	double *const *weights; /* by member: the weights of this step; the function writes those of the next one */
	/* By member: of its own samples.  The sum over the members is the gradient of the global batch. */
	const double *const *gradients;
	/* n numbers of this name that are kept from step to step, 0 at first; NULL: it was asked for with another n. */
	double *(*state)(const struct hd_serial *s, const char *name, int64_t n);
	/* Copies what the plugin's state of this name began with on member 0, n numbers.  -> 0, or HD_EINVAL: there is
	 * no such state of n. */
	int (*initial)(const struct hd_serial *s, const char *name, double *to, int64_t n);
};

struct hd_serial_ops {
	size_t size;
	const char *keys;   /* options of the plugin in the layout, "key=value key=value"; NULL: none */
	const char *beside; /* another section of the layout, "PLUGIN key=value ..." ("stages size=2"); NULL: none */
	const char *one;    /* options with which one rank does the same without the other section; or NULL */
	int (*update)(const struct hd_serial *s); /* or NULL.  -> a status code */
};

#ifdef __cplusplus
}
#endif
#endif
