/* SPDX-License-Identifier: Apache-2.0
 * engine/generate.h - text from a model, token by token, in the layout that holds it.
 */
#ifndef HD_ENGINE_GENERATE_H
#define HD_ENGINE_GENERATE_H
#include "engine/job.h"

struct hd_sampling { double temperature; int64_t top_k, seed; };
/* n more ids after the `have` in ids (room for have + n); the same on every rank.  Greedy at temperature 0. */
int hd_generate(struct hd_job *j, int32_t *ids, int64_t have, int64_t n, const struct hd_sampling *s, struct hd_err *err);
/* The logits of what comes after the n ids, model.vocab of them into out; on every rank. */
int hd_next_logits(struct hd_job *j, const int32_t *ids, int64_t n, float *out, struct hd_err *err);
int hd_sample(struct hd_job *j, struct hd_err *err);	/* log.sample: the text after the last step */

#endif
