/* SPDX-License-Identifier: Apache-2.0
 * engine/conform/conform.h - heddle conform: whether a plugin does what it promises.
 *
 *   tables.c   what its tables say
 *   families.c what families that it brings say of config.json and of weights
 *   layouts.c  layouts that it is part of, alone and beside the plugins that Heddle has, drawn at random
 *   meshes.c   its slots over many meshes
 *   same.c     each layout against one rank, in double, in this process; parts/first.c: the first tensor that differs
 *   serial.c   what is approximate against the plugin's own serial definition, over some steps
 *   vjp.c      gradients against differences of the loss
 *   kernels.c  its ops as they run, each on memory of its own: reads and writes, odd sizes, results in place
 *   optimizer.c its optimizer: lr, clipping, layouts
 *   resume.c   a checkpoint of one layout read into another, by the program itself
 *   judge.c    all of these as a list, in a child process: a plugin may crash or never come back
 *   tap.c      what is printed
 *
 * Everything is a function of the plugin and of SEED, and is counted, not timed.
 */
#ifndef HD_ENGINE_CONFORM_H
#define HD_ENGINE_CONFORM_H
#include <stdio.h>
#include "engine/inprocess/inprocess.h"

struct hd_conform_options {
	const char *plugin;  /* name or path */
	const char *conf;    /* an INI whose sections of the plugin have the keys to use; or NULL */
	const char *program; /* this very program, for what is run by mpirun; NULL: that is skipped */
	int64_t layouts;     /* hybrids drawn at random, per family */
	int64_t seconds;     /* of the processor, for one check: more is a loop without end */
	int64_t seed, from;  /* from: number of the first */
	const char *only;    /* checks whose names have this in them; NULL: all */
	int json;
};
/* Prints to `out`.  -> checks that failed, or an error (a plugin that is not accepted, an INI that cannot be read). */
int hd_conform(const struct hd_conform_options *o, FILE *out, struct hd_err *err);

#endif
