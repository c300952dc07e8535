/* SPDX-License-Identifier: Apache-2.0
 * engine/conform/parts/trial.h - one node of a plugin, its launches run on memory of their own.
 */
#ifndef HD_ENGINE_CONFORM_TRIAL_H
#define HD_ENGINE_CONFORM_TRIAL_H
#include "engine/conform/parts/guarded.h"
#include "engine/program/program.h"

struct hd_trial {
	const struct hd_program *program;
	const struct node *node;
	enum hd_guard guard;
	int fill;       /* the byte that results and scratch are full of before the node runs */
	int threads;    /* that the program's kernels were told, for messages; 0: 1 */
	uint64_t mixed; /* these inputs are others: */
	enum { HD_MIX_FIRST, HD_MIX_SECOND, HD_MIX_SUM } mix; /* ... and their sum with the first ones */
	int later;                                            /* in the step behind */
	int in_place; /* results stand where the op says that they may (hd_op.inplace) */
	struct hd_guarded in[HD_MAX_INS], out[HD_MAX_OUTS];
	int changed; /* the first input that the node writes although no result stands there; -1: none */
};

/* t->program to t->in_place are set.  -> 0, or the error of a kernel. */
int hd_trial_run(struct hd_trial *t, struct hd_err *err);
void hd_trial_release(struct hd_trial *t);
/* The input whose place a result may take, or -1. */
int hd_trial_place(const struct node *n, uint32_t out);
/* Element i of an operand as a number. */
double hd_trial_number(const struct tensor *t, const char *at, int64_t i);

#endif
