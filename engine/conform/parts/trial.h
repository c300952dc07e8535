/* SPDX-License-Identifier: Apache-2.0
 * engine/conform/parts/trial.h - one node of a plugin, whose launches run on memory of their own.
 */
#ifndef HD_ENGINE_CONFORM_TRIAL_H
#define HD_ENGINE_CONFORM_TRIAL_H
#include "engine/conform/parts/guarded.h"
#include "engine/program/program.h"

struct hd_trial {
	const struct hd_program *program;
	const struct node *node;
	enum hd_guard guard;
	int fill;       /* the byte with which results and scratch are filled before the node runs */
	int threads;    /* number of threads given to the program's kernels, for messages; 0: 1 */
	uint64_t mixed; /* bit i: input i gets the numbers that `mix` names; other inputs get the first ones */
	enum { HD_MIX_FIRST, HD_MIX_SECOND, HD_MIX_SUM } mix; /* a first and a second set of numbers, and their sum */
	int later;                                            /* 1: run in step 2, else in step 1 */
	int in_place; /* results are stored where the op allows it (hd_op.inplace) */
	struct hd_guarded in[HD_MAX_INS], out[HD_MAX_OUTS];
	int changed; /* the first input that the node wrote although no result is stored there; -1: none */
};

/* Runs the node. The fields from program to in_place must be set. Returns 0, or the error of a kernel. */
int hd_trial_run(struct hd_trial *t, struct hd_err *err);
void hd_trial_release(struct hd_trial *t);
/* Returns the input in whose place a result may be stored, or -1. */
int hd_trial_place(const struct node *n, uint32_t out);
/* Returns element i of an operand as a number. */
double hd_trial_number(const struct tensor *t, const char *at, int64_t i);

#endif
