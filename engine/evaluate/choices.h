/* SPDX-License-Identifier: Apache-2.0
 * engine/evaluate/choices.h - questions with several answers: which one the model holds for the likeliest.
 *
 * A file of JSON lines, {"prompt": "...", "choices": ["...", ...], "answer": 0}.  The log-likelihood of an answer is the sum
 * over its tokens, each given the prompt and the tokens before it.  Prompt and answer are encoded together, and the answer is
 * what the prompt alone does not account for; blanks at the end of the prompt count as the answer's, as tokenizers join them to
 * the word behind.  So it is done by the harness whose numbers are quoted (EleutherAI's lm-evaluation-harness).
 */
#ifndef HD_ENGINE_CHOICES_H
#define HD_ENGINE_CHOICES_H
#include "engine/run/job.h"
#include "engine/text/tokenizer.h"

struct hd_answer {
	struct hd_ids ids;    /* of the prompt, as much as fits, and the answer */
	int64_t first, bytes; /* ids[first] is its first token; bytes: of the text of the answer */
	double likelihood;    /* log, in nats */
};
struct hd_question {
	struct hd_answer *answers;
	int64_t n, right;
};
struct hd_choices {
	struct hd_question *all;
	size_t n, cap;
	int64_t answers; /* of all questions */
};
enum hd_choice_by { HD_CHOICE_SUM, HD_CHOICE_TOKENS, HD_CHOICE_BYTES, HD_CHOICE_KINDS };

/* t NULL: bytes are tokens.  seq: tokens that the model reads; of a longer prompt the end counts. */
/* special: with the special tokens that the tokenizer puts before a text. */
int hd_choices_read(const char *path, const struct hd_tokenizer *t, int special, int64_t seq, struct hd_choices *out,
		    struct hd_err *err);
void hd_choices_release(struct hd_choices *c);
/* Sets the likelihoods, the same on all ranks.  j has HD_JOB_EVAL. */
int hd_choices_judge(struct hd_job *j, struct hd_choices *c, struct hd_err *err);
double hd_answer_score(const struct hd_answer *a, enum hd_choice_by by); /* the sum, or its mean over tokens or bytes */
/* The answer with the highest score; of equal ones the first. */
int64_t hd_question_best(const struct hd_question *q, enum hd_choice_by by);
double hd_choices_accuracy(const struct hd_choices *c, enum hd_choice_by by);

#endif
