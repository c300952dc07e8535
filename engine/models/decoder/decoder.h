/* SPDX-License-Identifier: Apache-2.0
 * engine/models/decoder/decoder.h - the decoder that most families are: Llama's, and what its successors have changed in it, each
 * change a key of [model].  A family is a table of defaults (engine/models/family/).
 */
#ifndef HD_ENGINE_MODELS_DECODER_H
#define HD_ENGINE_MODELS_DECODER_H
#include "engine/models/decoder/family.h"

struct tensor *hd_decoder_hidden(struct hd_plan *p, struct tensor *ids);
struct tensor *hd_decoder_logits(struct hd_plan *p, struct tensor *hidden);
int hd_decoder_hf(const struct hd_model *m, const char *param, struct hd_hf_region *r);
int64_t hd_decoder_mlp(int64_t embed); /* 8/3 embed, rounded up to 64 */
/* Of a plugin's family, in its words (struct hd_family_name): a weight of the decoder; one that may be rows of a tensor of several. */
int hd_decoder_weight(const char *ours);
int hd_decoder_joins(const char *ours);
/* Whether layer l has a window that is shorter than the sequence can be. */
int hd_decoder_window(const struct hd_model *m, int64_t l);

#endif
