/* SPDX-License-Identifier: Apache-2.0
 * engine/evaluate/evaluate.h - the loss of given sequences, and that of the validation data.
 */
#ifndef HD_ENGINE_EVALUATE_H
#define HD_ENGINE_EVALUATE_H
#include "engine/run/job.h"

/* Sequences that the forward program is run over. get fills in the seq + 1 ids of one. add is told the loss of each token, by
 * the position that predicts it, on the one rank that has it. */
struct hd_judged {
	int64_t n;
	const char *what; /* "sequences", for the progress */
	int (*get)(void *ctx, int64_t i, int32_t *ids, struct hd_err *err);
	void (*add)(void *ctx, int64_t i, int64_t position, double loss);
	void *ctx;
	int shows;          /* progress on stderr */
	int (*asked)(void); /* whether this rank is asked to end, which all then do; NULL: nothing asks */
};
#define HD_JUDGE_LEFT 1 /* all ranks have left it before its end: they were asked */
/* -> 0, HD_JUDGE_LEFT or an error. */
int hd_judge(struct hd_job *j, const struct hd_judged *of, struct hd_err *err);
/* Mean loss over the first `batches` global batches of a validation set (0: all whole sequences), the same in every layout.  asked
 * and result as of hd_judge; loss is that of all sequences or is not set. */
int hd_evaluate(struct hd_job *j, int64_t set, int64_t batches, int (*asked)(void), double *loss, int64_t *tokens,
		struct hd_err *err);
/* Over all whole sequences of the first set, or over what it has if there is none; with progress on stderr.
 * left: tokens at the end that make no whole sequence. */
int hd_evaluate_file(struct hd_job *j, double *loss, int64_t *tokens, int64_t *left, struct hd_err *err);

#endif
