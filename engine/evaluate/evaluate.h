/* SPDX-License-Identifier: Apache-2.0
 * engine/evaluate/evaluate.h - computes the loss of given sequences and of the validation data.
 */
#ifndef HD_ENGINE_EVALUATE_H
#define HD_ENGINE_EVALUATE_H
#include "engine/run/job.h"

/* Sequences to run the forward program over. get writes the seq + 1 ids of sequence i. add receives the loss of each
 * token, with the position that predicts it, on the one rank that has it. */
struct hd_sequences {
	int64_t n;
	const char *what; /* "sequences", for the progress line */
	int (*get)(void *ctx, int64_t i, int32_t *ids, struct hd_err *err);
	void (*add)(void *ctx, int64_t i, int64_t position, double loss);
	void *ctx;
	int shows;          /* show progress on stderr */
	int (*asked)(void); /* returns whether this rank is asked to end, which makes all ranks stop; NULL: never */
};
#define HD_SCORE_STOPPED 1 /* all ranks have stopped early because one was asked to end */
/* Runs the program over all sequences. Returns 0, HD_SCORE_STOPPED or an error. */
int hd_sequences_score(struct hd_job *j, const struct hd_sequences *of, struct hd_err *err);
/* Computes the mean loss over the first `batches` global batches of a validation set (0: all
 * complete sequences), the same in every layout. asked and the result are those of hd_sequences_score. Unless
 * all sequences were evaluated, loss is not set. */
int hd_evaluate(struct hd_job *j, int64_t set, int64_t batches, int (*asked)(void), double *loss, int64_t *tokens,
		struct hd_err *err);
/* Computes the mean loss over all complete sequences of the first set, or over its tokens if it has none. Shows
 * progress on stderr. left: tokens at the end that form no complete sequence. */
int hd_evaluate_file(struct hd_job *j, double *loss, int64_t *tokens, int64_t *left, struct hd_err *err);

#endif
