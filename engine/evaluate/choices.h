/* SPDX-License-Identifier: Apache-2.0
 * engine/evaluate/choices.h - questions with several answers: which one is most likely for the model.
 *
 * A file contains JSON lines, {"prompt": "...", "choices": ["...", ...], "answer": 0}. The log-likelihood of an answer
 * is the sum over its tokens, each given the prompt and the tokens before it. Prompt and answer are encoded together.
 * The answer's tokens are those after the tokens of the prompt alone. Blanks at the end of the prompt count as the
 * answer's, because tokenizers join them to the next word. EleutherAI's lm-evaluation-harness, whose numbers are
 * quoted, does the same.
 */
#ifndef HD_ENGINE_CHOICES_H
#define HD_ENGINE_CHOICES_H
#include "engine/run/job.h"
#include "engine/text/tokenizer.h"

struct hd_answer {
	struct hd_ids ids;    /* ids of the prompt, as far as it fits, and of the answer */
	int64_t first, bytes; /* ids[first] is the answer's first token; bytes: length of the answer's text */
	double likelihood;    /* log-likelihood, in nats */
};
struct hd_question {
	struct hd_answer *answers;
	int64_t n, right;
};
struct hd_choices {
	struct hd_question *all;
	size_t n, cap;
	int64_t answers; /* number of answers to all questions */
};
enum hd_choice_by { HD_CHOICE_SUM, HD_CHOICE_TOKENS, HD_CHOICE_BYTES, HD_CHOICE_KINDS };

/* Reads the questions. t NULL: bytes are tokens. special: add the special tokens that the tokenizer puts before a text.
 * seq: tokens that the model reads; of a longer prompt, the end is used. */
int hd_choices_read(const char *path, const struct hd_tokenizer *t, int special, int64_t seq, struct hd_choices *out,
		    struct hd_err *err);
void hd_choices_release(struct hd_choices *c);
/* Sets the likelihoods, the same on all ranks. j needs HD_JOB_EVAL. */
int hd_choices_score(struct hd_job *j, struct hd_choices *c, struct hd_err *err);
/* Likelihood, or its mean over tokens or bytes */
double hd_answer_score(const struct hd_answer *a, enum hd_choice_by by);
/* Returns the answer with the highest score, or the first of several. */
int64_t hd_question_best(const struct hd_question *q, enum hd_choice_by by);
double hd_choices_accuracy(const struct hd_choices *c, enum hd_choice_by by);

#endif
