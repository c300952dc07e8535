/* SPDX-License-Identifier: Apache-2.0
 * engine/conform/conform.h - heddle conform: checks whether a plugin does what it promises.
 *
 *   tables.c   the content of its tables
 *   families.c the families that it defines: config.json and weights
 *   layouts.c  layouts that contain it, alone and with the plugins that Heddle has, drawn at random
 *   meshes.c   its slots over many meshes
 *   same.c     each layout against one rank, in double, in this process; parts/first.c: the first tensor that differs
 *   serial.c   an approximate plugin against its own serial definition, over some steps
 *   vjp.c      gradients against finite differences of the loss
 *   kernels.c  its ops at run time, each on memory of its own: reads and writes, odd sizes, results in place
 *   optimizer.c its optimizer: lr, clipping, layouts
 *   resume.c   a checkpoint of one layout read into another, by the program itself
 *   judge.c    runs all of these as a list, in a child process: a plugin may crash or never return
 *   tap.c      prints the results
 *
 * Everything depends only on the plugin and on the seed. Work is counted, not timed.
 */
#ifndef HD_ENGINE_CONFORM_H
#define HD_ENGINE_CONFORM_H
#include <stdio.h>
#include "engine/inprocess/inprocess.h"

struct hd_conform_options {
	const char *plugin;  /* name or path */
	const char *conf;    /* an INI whose sections of the plugin contain the keys to use; or NULL */
	const char *program; /* path of this program, which mpirun starts for some checks; NULL: these are skipped */
	int64_t layouts;     /* number of random hybrids per family */
	int64_t seconds;     /* processor time for one check; a check that takes longer is taken for an endless loop */
	int64_t seed, from;  /* from: number of the first random layout */
	const char *only;    /* runs only checks whose names contain this text; NULL: all */
	int json;
};
/* Runs the checks and prints to `out`. Returns the number of failed checks, or an error (a plugin that is not accepted,
 * an INI that cannot be read). */
int hd_conform(const struct hd_conform_options *o, FILE *out, struct hd_err *err);

#endif
