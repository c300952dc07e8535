/* SPDX-License-Identifier: Apache-2.0
 * engine/text/decode.h - the texts of a sequence of tokens, which the steps of a decoder change.
 */
#ifndef HD_ENGINE_TEXT_DECODE_H
#define HD_ENGINE_TEXT_DECODE_H
#include "engine/text/steps.h"

struct hd_texts {
	struct hd_buf bytes; /* all texts, concatenated */
	size_t *end, n, cap; /* where each text ends in bytes */
};
void hd_texts_add(struct hd_texts *t, const char *s, size_t n);
void hd_texts_release(struct hd_texts *t);
int hd_texts_decode(const struct hd_steps *steps, struct hd_matcher *m, struct hd_texts *t, struct hd_err *err);

#endif
