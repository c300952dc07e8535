/* SPDX-License-Identifier: Apache-2.0
 * engine/models/decoder/decoder.h - the decoder that most families share: Llama's, with the changes of its successors
 * as keys of [model]. A family is a table of defaults (engine/models/family/).
 */
#ifndef HD_ENGINE_MODELS_DECODER_H
#define HD_ENGINE_MODELS_DECODER_H
#include "engine/models/decoder/family.h"

struct tensor *hd_decoder_hidden(struct hd_plan *p, struct tensor *ids);
struct tensor *hd_decoder_logits(struct hd_plan *p, struct tensor *hidden);
int hd_decoder_hf(const struct hd_model *m, const char *param, struct hd_hf_region *r);
int64_t hd_decoder_mlp(int64_t embed); /* 8/3 embed, rounded up to a multiple of 64 */
/* For plugin families: `ours` is a weight as in struct hd_family_name. The first returns whether the decoder has it.
 * The second returns 0, or the number of the weights with which it may share a tensor, as rows. */
int hd_decoder_weight(const char *ours);
int hd_decoder_joins(const char *ours);
/* Returns whether layer l has a window that is shorter than train.seq. */
int hd_decoder_window(const struct hd_model *m, int64_t l);

#endif
