/* SPDX-License-Identifier: Apache-2.0
 * heddle/serial.h - the serial definition of an approximate plugin: what it computes, stated for one rank.
 *
 * An approximate plugin trains a different model than one rank does, on purpose. This table states which one. `heddle
 * conform` trains some steps of a layout with the plugin and the same steps with this table. It then compares losses
 * and parameters. These steps use SGD in double precision, without clipping and without weight decay.
 *
 * A table has exactly one of these two fields:
 *
 *   update   a function that computes a step in plain C from the gradients of all members; for plugins that change
 *            gradients or updates along an axis of their own
 *   one      options with which a single rank computes the same; for plugins that change what flows through the model
 *
 * All of this header is since 1.1.
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
	const char *name;    /* the parameter's name, as in checkpoints */
	const int64_t *dims; /* its shape, row-major: elements along the last dim are adjacent */
	uint32_t ndim, members;
	int64_t n, step; /* n: the number of elements; step: counted from 1 */
	double lr;
	double *param;          /* n values of the model's parameter; the function writes those after the step */
	double *const *weights; /* per member, n weights in this step; the function writes those of the next step */
	/* Per member, n gradients from its own samples. Their sum over the members is the gradient of the global
	 * batch. */
	const double *const *gradients;
	/* Returns the n numbers of the state with this name, which are kept from step to step and are 0 at first.
	 * Returns NULL if an earlier call named a different n, if n is not positive, or if memory is short. */
	double *(*state)(const struct hd_serial *s, const char *name, int64_t n);
	/* Copies to `to` the n initial values that the plugin's state of this name has on member 0. Returns 0, or
	 * HD_EINVAL if no such state with n elements exists. */
	int (*initial)(const struct hd_serial *s, const char *name, double *to, int64_t n);
};

struct hd_serial_ops {
	size_t size;
	const char *keys; /* options of the plugin in the layout, "key=value key=value"; NULL: none */
	/* an additional section of the layout, "PLUGIN key=value ..." ("stages size=2"); NULL: none */
	const char *beside;
	const char *one; /* options with which one rank computes the same without the additional section; or NULL */
	int (*update)(const struct hd_serial *s); /* returns a status code; or NULL */
};

#ifdef __cplusplus
}
#endif
#endif
