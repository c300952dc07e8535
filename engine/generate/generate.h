/* SPDX-License-Identifier: Apache-2.0
 * engine/generate/generate.h - generates text token by token, in the layout that holds the model.
 */
#ifndef HD_ENGINE_GENERATE_H
#define HD_ENGINE_GENERATE_H
#include "engine/run/job.h"
#include "engine/text/tokenizer.h"

struct hd_sampling {
	double temperature, top_p; /* top_p: 0 means 1, all */
	int64_t top_k, seed, text; /* text: index of this text among several, from 0 */
	const struct hd_ids *ends; /* a text ends before the first of these ids, which is not added; NULL: none */
	/* Returns whether this rank is asked to end; then all stop between two tokens; NULL: never */
	int (*asked)(void);
};
/* Result of hd_cached_generate, hd_generate and hd_sample: asked to end before all tokens existed */
#define HD_GENERATE_LEFT 1
/* Called by all ranks after each token. Returns whether one was asked to end or has failed. */
int hd_left(const struct hd_sampling *s, int failed);
int hd_is_end(const struct hd_sampling *s, int32_t id);
/* Draws one of n logits by softmax(z / temperature). Candidates are the top_k largest (0: all), and of those the
 * fewest whose probabilities sum to top_p. Temperature 0 takes the likeliest. The result is a pure function of seed,
 * text and position. scratch: room for n floats. Returns -1 if a logit is not a number. */
int32_t hd_draw(const float *z, int64_t n, const struct hd_sampling *s, int64_t position, float *scratch);
int hd_fail_draw(int64_t position, struct hd_err *err); /* sets the error for that case */
/* -- with a cache of keys and values (cached.c): j needs HD_JOB_PROMPT and HD_JOB_NEXT -- */
struct hd_generation_times {
	double prompt, next; /* seconds up to the first token, and for all others */
	int64_t steps;       /* number of other tokens, per text */
};
/* Returns the sizes for a number of texts, the length of the longest prompt, and the number of
 * tokens to add. most: how many tokens the model reads. A piece of a prompt is a multiple of
 * the ranks, as plugins may require of a sequence. */
struct hd_cache_sizes hd_cached_sizes(int64_t texts, int64_t longest, int64_t tokens, int64_t most, int64_t ranks);
int hd_cached_rows(const struct hd_job *j); /* number of texts per run; 0: there is no cache */
/* Adds up to `tokens` ids to each of n texts, the same on every rank. n is at most hd_cached_rows. s->text is the
 * index of the first text. times may be NULL. */
int hd_cached_generate(struct hd_job *j, struct hd_ids *texts, int64_t n, int64_t tokens, const struct hd_sampling *s,
		       struct hd_generation_times *times, struct hd_err *err);
/* Computes the model.vocab logits of the next token of each text. */
int hd_cached_logits(struct hd_job *j, const struct hd_ids *texts, int64_t n, float *out, struct hd_err *err);

/* bench --generate: generates meaningless texts, and measures how fast the weights could be read. */
struct hd_generation_bench {
	int64_t batch, prompt, tokens; /* requested sizes; batch becomes what the layout makes of it */
	double prompt_rate, rate;      /* tokens/s, summed over all texts */
	double bound;            /* upper bound of `rate`: if only reading what a token needs took time; 0: unknown */
	double bytes, read_rate; /* bytes read for a token, on the rank with most; bytes read per second, or 0 */
};
int hd_generation_measure(struct hd_job *j, struct hd_generation_bench *b, struct hd_err *err);

/* -- without a cache -- */
/* Adds up to n ids to the text, the same on every rank. Greedy at temperature 0. */
int hd_generate(struct hd_job *j, struct hd_ids *text, int64_t n, const struct hd_sampling *s, struct hd_err *err);
/* Writes the model.vocab logits of the token after the n ids into out, on every rank. */
int hd_next_logits(struct hd_job *j, const int32_t *ids, int64_t n, float *out, struct hd_err *err);
/* Convert text to ids and back. t NULL: bytes are ids, and an id above 255 is shown as ?. *special: how many ids the
 * tokenizer puts before the text; special NULL: none are put there. */
int hd_prompt(const struct hd_tokenizer *t, const char *text, size_t *special, struct hd_ids *out, struct hd_err *err);
/* Prints the ids' text on stdout. readable: invalid UTF-8 and control characters, which a terminal would obey, are
 * shown as U+FFFD; else the bytes are unchanged. */
int hd_ids_print(const struct hd_tokenizer *t, const int32_t *ids, int64_t n, int readable, struct hd_err *err);
/* Parses ids below vocab, such as "1 2 3". */
int hd_ids_parse(const char *text, int64_t vocab, struct hd_ids *out, struct hd_err *err);
/* -- log.sample: generates text from the current model (sample.c) -- */
/* Returns in *ids how the text begins: sample_prompt, a newline, or id 0 if the data are ids without a known tokenizer.
 * Such a prompt is ids below vocab; any other is refused. d may be NULL. */
int hd_sample_prompt(struct hd_conf *c, const struct hd_log_config *log, const struct hd_data *d, int64_t vocab,
		     struct hd_ids *ids, struct hd_err *err);
/* hd_sample_roles returns the roles of the programs it needs, one bit each, and sets j->cache; it uses j->data. */
unsigned hd_sample_roles(struct hd_job *j, struct hd_conf *c, const struct hd_log_config *log, int64_t seq,
			 struct hd_err *err);
int hd_sample(struct hd_job *j, int (*asked)(void), struct hd_err *err);

#endif
