/* SPDX-License-Identifier: Apache-2.0
 * engine/config/ramp.h - train.global_batch_ramp = START,STEP,TOKENS: the batch grows from START to train.global_batch
 * in increments of STEP sequences. Each size lasts for an equal share of TOKENS (Megatron-Turing NLG, 2201.11990).
 */
#ifndef HD_ENGINE_RAMP_H
#define HD_ENGINE_RAMP_H
#include "engine/config/conf.h"

struct hd_ramp {
	int64_t start, step, tokens, full, seq;
	int64_t steps; /* sizes before the full one; 0: no ramp */
};
int hd_ramp_read(struct hd_conf *c, struct hd_section *train, struct hd_ramp *r, struct hd_err *err);
int64_t hd_ramp_size(const struct hd_ramp *r, int64_t k);        /* the k-th batch size, 0 .. steps */
int64_t hd_ramp_batch(const struct hd_ramp *r, __int128 tokens); /* the batch after this many tokens */
/* Returns the sequences of the next `steps` updates after this many tokens. */
int64_t hd_ramp_samples(const struct hd_ramp *r, __int128 tokens, int64_t steps);
/* Returns the tokens that a run has used after `steps` more updates, if it has used `tokens` so far. */
int64_t hd_ramp_last(const struct hd_ramp *r, int64_t tokens, int64_t steps);

#endif
