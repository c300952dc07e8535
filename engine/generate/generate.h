/* SPDX-License-Identifier: Apache-2.0
 * engine/generate/generate.h - text from a model, token by token, in the layout that holds it.
 */
#ifndef HD_ENGINE_GENERATE_H
#define HD_ENGINE_GENERATE_H
#include "engine/run/job.h"
#include "engine/text/tokenizer.h"

struct hd_sampling {
	double temperature, top_p; /* top_p: 0 as 1: all */
	int64_t top_k, seed, text; /* text: which of several, from 0 */
	const struct hd_ids *ends; /* ids behind which a text does not go on, and which it does not get; NULL: none */
	int (*asked)(void);        /* on any rank: all leave between two tokens; NULL: nothing asks */
};
#define HD_GENERATE_LEFT 1 /* of hd_cached_generate, hd_generate and hd_sample: asked, and some tokens are not made */
int hd_left(const struct hd_sampling *s,
	    int failed); /* all ranks, behind each token: asked to end, or one has failed */
int hd_is_end(const struct hd_sampling *s, int32_t id);
/* One of n logits, drawn by softmax(z / temperature) among the top_k largest (0: all), and of those the fewest whose
 * probabilities sum to top_p; the likeliest at temperature 0.  A pure function of seed, text and position.  scratch: room for n.
 * -1: a logit is not a number. */
int32_t hd_draw(const float *z, int64_t n, const struct hd_sampling *s, int64_t position, float *scratch);
int hd_fail_draw(int64_t position, struct hd_err *err); /* what to say then */
/* -- with a cache of keys and values (cached.c): j has HD_JOB_PROMPT and HD_JOB_NEXT -- */
struct hd_generation_times {
	double prompt, next; /* seconds up to the first token, and of all others */
	int64_t steps;       /* others, of each text */
};
/* For so many texts, the longest prompt, so many tokens behind it; `most` tokens are what the model reads.  A piece of a prompt is a
 * multiple of the ranks, as plugins may ask of a sequence. */
struct hd_cache_sizes hd_cached_sizes(int64_t texts, int64_t longest, int64_t tokens, int64_t most, int64_t ranks);
int hd_cached_rows(const struct hd_job *j); /* texts at once; 0: there is no cache */
/* Up to `tokens` more ids for each of n texts, at most hd_cached_rows; the same on every rank.  s->text is that of the first.  times may
 * be NULL. */
int hd_cached_generate(struct hd_job *j, struct hd_ids *texts, int64_t n, int64_t tokens, const struct hd_sampling *s,
		       struct hd_generation_times *times, struct hd_err *err);
/* The logits of what comes after each text, model.vocab of them. */
int hd_cached_logits(struct hd_job *j, const struct hd_ids *texts, int64_t n, float *out, struct hd_err *err);

/* bench --generate: texts of no meaning, and how fast the weights could be read. */
struct hd_generation_bench {
	int64_t batch, prompt, tokens; /* asked; batch becomes what the layout makes of it */
	double prompt_rate, rate;      /* tokens/s of all texts */
	double bound;            /* of `rate`: where nothing took time but reading what a token needs; 0: not known */
	double bytes, read_rate; /* so many, of a rank that has most; and a second, or 0 */
};
int hd_generation_measure(struct hd_job *j, struct hd_generation_bench *b, struct hd_err *err);

/* -- without -- */
/* Up to n more ids for the text; the same on every rank.  Greedy at temperature 0. */
int hd_generate(struct hd_job *j, struct hd_ids *text, int64_t n, const struct hd_sampling *s, struct hd_err *err);
/* The logits of what comes after the n ids, model.vocab of them into out; on every rank. */
int hd_next_logits(struct hd_job *j, const int32_t *ids, int64_t n, float *out, struct hd_err *err);
/* Text to ids and back.  t NULL: bytes are ids; an id above 255 is then shown as ?.  special: how many the tokenizer put
 * before the text; NULL: it puts none. */
int hd_prompt(const struct hd_tokenizer *t, const char *text, size_t *special, struct hd_ids *out, struct hd_err *err);
/* On stdout.  readable: what is no UTF-8, and what a terminal would obey, is shown as U+FFFD; else the bytes are as they are. */
int hd_ids_print(const struct hd_tokenizer *t, const int32_t *ids, int64_t n, int readable, struct hd_err *err);
/* log.sample: text from the model as it is.  The roles of its programs, a bit each; j->data and j->cache are for them. */
unsigned hd_sample_roles(struct hd_job *j, const struct hd_log_config *log, int64_t seq, struct hd_err *err);
int hd_sample(struct hd_job *j, int (*asked)(void), struct hd_err *err);

#endif
