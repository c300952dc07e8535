/* SPDX-License-Identifier: Apache-2.0
 * engine/train/generate.h - text from a model, token by token, in the layout that holds it.
 */
#ifndef HD_ENGINE_GENERATE_H
#define HD_ENGINE_GENERATE_H
#include "engine/run/job.h"
#include "engine/text/tokenizer.h"

struct hd_sampling {
	double temperature, top_p; /* top_p: 0 as 1: all */
	int64_t top_k, seed, text; /* text: which of several, from 0 */
};
/* One of n logits, drawn by softmax(z / temperature) among the top_k largest (0: all), and of those the fewest whose
 * probabilities sum to top_p; the likeliest at temperature 0.  A pure function of seed, text and position.  scratch: room for n. */
int32_t hd_draw(const float *z, int64_t n, const struct hd_sampling *s, int64_t position, float *scratch);
/* n more ids after the `have` in ids (room for have + n); the same on every rank.  Greedy at temperature 0. */
int hd_generate(struct hd_job *j, int32_t *ids, int64_t have, int64_t n, const struct hd_sampling *s,
		struct hd_err *err);
/* The logits of what comes after the n ids, model.vocab of them into out; on every rank. */
int hd_next_logits(struct hd_job *j, const int32_t *ids, int64_t n, float *out, struct hd_err *err);
/* Text to ids and back.  t NULL: bytes are ids; an id above 255 is then shown as ?. */
int hd_prompt(const struct hd_tokenizer *t, const char *text, struct hd_ids *out, struct hd_err *err);
int hd_ids_print(const struct hd_tokenizer *t, const int32_t *ids, int64_t n, struct hd_err *err);
int hd_sample(struct hd_job *j, struct hd_err *err); /* log.sample: the text after the last step */

#endif
